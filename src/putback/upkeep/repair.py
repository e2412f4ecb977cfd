"""Set aside what is damaged, and make anew what can be: all but the contents themselves, which `refill` looks for.

Nothing is deleted: what is damaged is in `damaged/` of the store afterwards, under the path that it had.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from putback.errors import IntegrityError, PutbackError, StorageError
from putback.fs import modes
from putback.fs.durable import sync_directory, sync_file, write_file, write_new_file
from putback.fs.modes import GROUP
from putback.git import pack_file, refs
from putback.git.command import Git
from putback.git.objectid import deflate
from putback.git.objects import ObjectReader
from putback.git.pack_file import PackFiles, PackReader
from putback.git.packs import PackWriter
from putback.git.present import Present
from putback.ops import leftovers
from putback.records import document
from putback.records.history import Entry, EntryKind
from putback.records.upkeep import Damage, Part
from putback.store import exchange
from putback.store.captures import StoredCapture
from putback.store.history import History, Name
from putback.store.layout import Store, WorkspacePaths
from putback.upkeep import papers, shelves
from putback.upkeep.papers import Papers
from putback.upkeep.survey import Survey

_TOLD = {
    Part.STORE: "made anew",
    Part.PACK: "what is sound in it was saved; the rest is set aside",
    Part.REF: "made anew",
    Part.ENTRY: "made anew from its capture",
    Part.JOURNAL: "set aside; the tree counts as it is",
    Part.INDEX: "dropped; the next capture makes it anew",
    Part.WORKSPACE: "made anew",
    Part.TURN: "set aside",
}


def told(item: Damage) -> str:
    """What repair did about a fault that is there no more."""
    if item.part is Part.OBJECT:
        return "what was damaged is stored again" if item.whole or item.lost else "set aside"
    if item.part is Part.PACK and "index" in item.problem:
        return "its index is made anew"
    if item.part is Part.WORKSPACE and ("aliases" in item.problem or "cut short" in item.problem):
        return "set aside"
    return _TOLD.get(item.part, "put right")


def set_aside(store: Store, path: Path, *, leave: bool = False) -> Path:
    """Move a file of the store where nothing reads it, or `leave` it in its place, too; returns where.

    Raises OSError, and StorageError where that would be outside of the store.
    """
    if (store.root / "damaged").is_symlink():
        raise StorageError(f"{str(store.root / 'damaged')!r} is a symbolic link", hint="remove it")
    place = store.root / "damaged" / path.relative_to(store.root)
    modes.directory(store.root / "damaged", store.modes)
    modes.directory(place.parent)
    number = 1
    target = place
    while os.path.lexists(target):
        number += 1
        target = place.with_name(f"{place.name}.{number}")
    if leave:
        os.link(path, target)
    else:
        path.rename(target)
        sync_directory(path.parent)
    sync_directory(target.parent)
    return target


class Repair:
    """One repair. `gone` is what was set aside and can never be made anew."""

    def __init__(self, where: WorkspacePaths, found: Survey, git: Git) -> None:
        self._where = where
        self._store = where.store
        self._found = found
        self._finder = git
        self.gone: list[Damage] = []

    @property
    def _git(self) -> Git:
        return self._finder.on(self._store.git_dir).writing(self._store.modes)

    def marker(self) -> None:
        """Make the store's own record anew; everything else asks it for modes. Raises OSError, StorageError."""
        if not papers.marker_fault(self._store):
            return
        folder = self._store.root / "workspaces"
        group = folder.is_dir() and folder.stat().st_mode & 0o7777 == GROUP.directory
        if self._store.marker.exists():
            # Nothing says yet which modes to give: a name beside it has those of the directory.
            aside = self._store.marker.with_name(f"store.json.damaged-{time.time_ns()}")
            self._store.marker.rename(aside)
        self._store.create("group" if group else "private")

    def carry_out(self) -> None:
        """All but the contents, and the records that come of them. The locks are held, the store's by us alone."""
        self._repository()
        self._where.prepare()
        self._workspaces()
        for each in self._found.papers:
            if any(item.part is Part.JOURNAL for item in each.damage):
                leftovers.set_aside(each.where)
            self._open_turns(each.where)
        self._refs()
        self._packs()
        self._loose()
        self._indexes()

    def records(self) -> None:
        """Make records of the history anew, where their capture tells enough. The contents are in place."""
        with ObjectReader(self._git) as reader:
            for each in self._found.papers:
                for name in each.faulty:
                    self._record(each, name, reader)

    def _repository(self) -> None:
        if self._found.shelves.repository:
            for name in ("config", "HEAD"):
                path = self._store.git_dir / name
                if path.exists():
                    set_aside(self._store, path)
        self._store.create()

    def _workspaces(self) -> None:
        for each in self._found.papers:
            where = each.where
            try:
                History(where.history).aliases()
            except IntegrityError:
                # No command opens a workspace with a table that it cannot read.
                set_aside(self._store, where.aliases)
            if exchange.fault(where):
                set_aside(self._store, where.exchange)
            if not where.root or papers.root_of(where):
                continue
            if where.marker.exists():
                set_aside(self._store, where.marker)
            oldest = min((entry.created_ns for entry in each.entries), default=time.time_ns())
            with suppress(OSError, PutbackError):
                where.create(oldest)

    def _open_turns(self, where: WorkspacePaths) -> None:
        for path in where.open_turns():
            try:
                papers.open_turn(path)
            except FileNotFoundError:
                continue
            except IntegrityError:
                set_aside(self._store, path)

    def _refs(self) -> None:
        """Anchor what has no ref before anything is set aside: without one a capture is prey for reclaiming."""
        found = self._found.refs
        again: dict[str, set[str]] = {name: set(ids) for name, ids in self._found.unanchored.items()}
        packed = [path for path in found.faulty if path.name == "packed-refs"]
        if packed:
            for name, ids in found.captures.items():
                again.setdefault(name, set()).update(ids)
        held = Present(self._store.objects)
        for path in filter(os.path.lexists, found.faulty.keys() - set(packed)):
            if papers.is_capture_id(path.name) and held([bytes.fromhex(path.name)]):
                set_aside(self._store, path, leave=True)
                write_file(path, f"{path.name}\n".encode())
            else:
                set_aside(self._store, path)
        for name, ids in again.items():
            for capture_id in sorted(ids):
                with suppress(FileExistsError):
                    refs.anchor(self._store.git_dir, name, capture_id, self._where.scratch)
        for path in packed:
            set_aside(self._store, path)

    def _packs(self) -> None:
        """Make a new index where that is faulty; where a pack itself is damaged, save what is sound."""
        found = self._found.shelves
        _, holding = shelves.holders(self._store, self._found.bad)
        for files in holding - found.packs.keys():
            shelves.judge(found, files, whole=True)
            # It has a bad object, whatever its checksum says.
            found.packs.setdefault(files, "an object in it is damaged")
        for files in sorted(found.indexes.keys() | found.packs.keys()):
            if not files.pack.exists():
                set_aside(self._store, files.index)
            elif files in found.packs:
                self._salvage(files)
            else:
                self._reindex(files)
        for path in found.side:
            if path.exists():
                set_aside(self._store, path)

    def _reindex(self, files: PackFiles) -> None:
        made = self._where.scratch / f"{Path(files.stem).name}.idx"
        try:
            self._git.run("index-pack", "-o", str(made), str(files.pack))
        except (IntegrityError, StorageError):
            self._salvage(files)
            return
        made.chmod(modes.of(self._where.scratch).readonly)
        sync_file(made)
        if files.index.exists():
            set_aside(self._store, files.index)
        made.rename(files.index)
        sync_directory(files.index.parent)
        made.with_suffix(".rev").unlink(missing_ok=True)

    def _salvage(self, files: PackFiles) -> None:
        """Write what can be read of a pack into a new one, and set it aside.

        A pack that is whole again has the name that it had; so the damaged one is kept before it is replaced.
        """
        old = sorted(files.pack.parent.glob(f"{Path(files.stem).name}.*"))
        for path in old:
            set_aside(self._store, path, leave=True)
        with PackWriter(self._where.scratch) as writer:
            for oid, kind, data in PackReader(files.pack).objects(files.index):
                writer.add(kind, oid, len(data), deflate(data))
            made = writer.finish(self._store.objects / "pack")
        for path in old:
            if made != files.pack or path not in (files.pack, files.index):
                path.unlink()
        sync_directory(files.pack.parent)

    def _loose(self) -> None:
        copies, _ = shelves.holders(self._store, self._found.bad)
        suspects = {**copies, **self._places(self._found.shelves.loose)}
        for oid, path in suspects.items():
            if path.exists() and pack_file.loose_fault(path, oid):
                set_aside(self._store, path)

    def _places(self, oids: Iterable[str]) -> dict[str, Path]:
        return {oid: self._store.objects / oid[:2] / oid[2:] for oid in oids}

    def _indexes(self) -> None:
        """Drop each private index that promises what is lost. No one uses any while the store's lock is ours."""
        for where in self._found.stale:
            where.index.unlink(missing_ok=True)
            where.state.unlink(missing_ok=True)
        for each in self._found.papers:
            if any(item.part is Part.INDEX for item in each.damage):
                for path in (each.where.index, each.where.state):
                    if path.exists():
                        set_aside(self._store, path)

    def _record(self, each: Papers, name: Name, reader: ObjectReader) -> None:
        history = History(each.where.history)
        path = history.folder / name.file
        made = _remade(name, reader) if name.kind is EntryKind.SNAPSHOT else None
        if made is None and name.kind is EntryKind.SNAPSHOT:
            return
        place = set_aside(self._store, path, leave=made is not None)
        if made is not None:
            # In its place in one step: killed in between, nobody would know that there was an entry.
            fresh = each.where.scratch / name.file
            write_new_file(fresh, document.encode(made) + b"\n", each.where.scratch)
            fresh.replace(path)
            sync_directory(path.parent)
            return
        kept = place.relative_to(self._store.root)
        self.gone.append(
            Damage(
                part=Part.ENTRY,
                problem=f"the record of {name.kind} {name.id[:12]} is lost: it cannot be shown or taken back",
                workspace=each.where.name,
                entry=name.id,
                whole=True,
                repaired=f"set aside as {str(kept)!r}; the rest of the history works again",
            )
        )


def _remade(name: Name, reader: ObjectReader) -> Entry | None:
    """The entry of a snapshot, out of what its capture says; None where that is damaged."""
    try:
        record = StoredCapture(reader, name.id).record
        return Entry(
            seq=name.seq,
            id=name.id,
            kind=EntryKind.SNAPSHOT,
            created_ns=record.created_ns,
            after=name.id,
            message=record.message,
            scope=record.scope,
            files=record.files,
            bytes=record.bytes,
            not_covered=len(record.not_covered),
        )
    except IntegrityError:
        return None
