"""What the store costs: by workspace, and by entry of one workspace, so that people see what is worth dropping.

Every object has an owner: the one entry whose captures need it, else the one workspace, else nobody. Owners are
found from all captures at a time, level by level, so that a tree which many entries share is read once. What is
missing from the store costs nothing and is passed over: to say so is for `check`. The private index is no owner:
what the newest entry alone needs stays as long as the index has it, too, which is until a capture after the files
have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from putback.errors import Cancelled, IntegrityError
from putback.fs import lock
from putback.fs.filesystem import used_bytes
from putback.git import command, pack_file, refs
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.git.trees import DIRECTORY, items_of
from putback.progress import Progress
from putback.records.history import Entry
from putback.records.upkeep import Size, Sizes
from putback.store import usage
from putback.store.history import History
from putback.store.layout import Store, WorkspacePaths, workspaces

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

_NOBODY = 0


class _Root(NamedTuple):
    """Captures, and whose they are."""

    owner: int
    captures: tuple[str, ...]


def sizes(upkeep: Upkeep) -> Sizes:
    """Logical and physical sizes. Raises GitUnavailable, StorageError, and LockedError while others reclaim."""
    store, limit = upkeep.where.store, upkeep.settings.store.max_bytes
    if not store.exists():
        return Sizes(total=0, limit=limit, workspaces=(), entries=())
    git = command.find(cancelled=upkeep.progress.cancelled).on(store.git_dir)
    with lock.hold(store.lock, "status", True, upkeep.settings.store.lock_wait_seconds, upkeep.progress):
        return _measured(upkeep, git)


def _measured(upkeep: Upkeep, git: Git) -> Sizes:
    here, store = upkeep.where, upkeep.where.store
    places = workspaces(store)
    histories = [History(place.history).readable()[0] for place in places]
    with ObjectReader(git) as reader:
        owners = _Owners(reader, upkeep.progress)
        owners.find(_roots(git, places, histories))
    on_disk = _on_disk(git, store, owners.of, upkeep.progress)
    each, entries = [], []
    for number, (place, history) in enumerate(zip(places, histories, strict=True)):
        known = [_entry_size(place, entry, on_disk.get(_owner(number, at), 0)) for at, entry in enumerate(history)]
        shared = on_disk.get(_workspace(number), 0) + used_bytes(place.folder)
        alone = sum(on_disk.get(_owner(number, at), 0) for at in range(len(history)))
        logical = sum(size.logical for size in known)
        each.append(Size(name=place.name, logical=logical, physical=alone + shared))
        if place.name == here.name:
            entries = known
    total = usage.measure(store)
    return Sizes(
        total=total, limit=upkeep.settings.store.max_bytes, workspaces=tuple(each), entries=tuple(entries)
    )


def _entry_size(place: WorkspacePaths, entry: Entry, objects: int) -> Size:
    """`objects` is what its captures need alone; a run has evidence, too."""
    held = entry.bytes if entry.after else 0
    return Size(name=entry.id, logical=held, physical=objects + used_bytes(place.runs / entry.id))


def _roots(git: Git, places: list[WorkspacePaths], histories: list[list[Entry]]) -> list[_Root]:
    """The captures of every entry, and those that have a ref and no entry."""
    found: list[_Root] = []
    anchored = refs.by_workspace(git)
    for number, (place, history) in enumerate(zip(places, histories, strict=True)):
        named: set[str] = set()
        for at, entry in enumerate(history):
            ends = tuple(filter(None, (entry.before, entry.after)))
            named.update(ends)
            found.append(_Root(_owner(number, at), ends))
        others = tuple(oid for oid in anchored.get(place.name, ()) if oid not in named)
        found.append(_Root(_workspace(number), others))
    return found


# An owner is a number that says which entry of which workspace; a workspace's own is negative, nobody's is 0.
_MOST = 1 << 32


def _workspace(number: int) -> int:
    return -number - 1


def _owner(number: int, entry: int) -> int:
    return (number + 1) * _MOST + entry


def _meet(one: int, other: int) -> int:
    """Whose something is that both need."""
    if one == other:
        return one
    if one == _NOBODY or other == _NOBODY:
        return _NOBODY
    return _of(one) if _of(one) == _of(other) else _NOBODY


def _of(owner: int) -> int:
    """The workspace of an owner."""
    return owner if owner < 0 else -(owner // _MOST)


class _Owners:
    """Whose each object is, as far as it was found."""

    def __init__(self, reader: ObjectReader, progress: Progress) -> None:
        self.of: dict[bytes, int] = {}
        self._reader = reader
        self._progress = progress

    def find(self, roots: Iterable[_Root]) -> None:
        """All that captures need is their owner's, or is shared. Raises Cancelled."""
        commits = {oid for root in roots for oid in self._claim(map(bytes.fromhex, root.captures), root.owner)}
        level: set[bytes] = set()
        for commit, data in self._read(commits, "commit"):
            line = data.partition(b"\n")[0].removeprefix(b"tree ")
            with suppress(ValueError):
                level |= self._claim([bytes.fromhex(line.decode("ascii", "replace"))], self.of[commit])
        while level:
            below: set[bytes] = set()
            for tree, data in self._read(level, "tree"):
                owner, found = self.of[tree], list(items_of(data))
                self._claim((oid for mode, _, oid in found if mode != DIRECTORY), owner)
                below |= self._claim((oid for mode, _, oid in found if mode == DIRECTORY), owner)
            level = below

    def _claim(self, oids: Iterable[bytes], owner: int) -> set[bytes]:
        """Which of these have another owner now, so that the same is to be said of what is in them."""
        known, changed = self.of, set()
        for oid in oids:
            before = known.get(oid)
            if before is None:
                known[oid] = owner
                changed.add(oid)
            elif before not in (owner, _NOBODY):
                after = _meet(before, owner)
                if after != before:
                    known[oid] = after
                    changed.add(oid)
        return changed

    def _read(self, oids: Iterable[bytes], kind: str) -> Iterator[tuple[bytes, bytes]]:
        """The contents of objects; those that cannot be read are left out."""
        asked = sorted(oids)
        self._progress.start(f"reading {kind}s", len(asked))
        self._reader.announce([oid.hex() for oid in asked])
        for oid in asked:
            if self._progress.cancelled():
                raise Cancelled("cancelled; nothing was changed")
            with suppress(IntegrityError):
                yield oid, self._reader.read(oid.hex(), kind)
            self._progress.advance()


def _on_disk(git: Git, store: Store, owners: dict[bytes, int], progress: Progress) -> dict[int, int]:
    """Bytes on disk by owner; what nobody owns alone is left out."""
    loose = _loose(store)
    asked = [oid for oid, owner in owners.items() if owner != _NOBODY and oid not in loose]
    progress.start("measuring objects", len(asked))
    given = b"".join(oid.hex().encode() + b"\n" for oid in asked)
    lines: Iterable[bytes] = ()
    if asked:
        lines = git.run("cat-file", "--buffer", "--batch-check=%(objectsize:disk)", given=given).out.splitlines()
    found: dict[int, int] = {}
    for oid, line in zip(asked, lines, strict=False):
        if line.isdigit():
            found[owners[oid]] = found.get(owners[oid], 0) + int(line)
    for oid, size in loose.items():
        owner = owners.get(oid, _NOBODY)
        found[owner] = found.get(owner, 0) + size
    progress.advance(len(asked))
    return found


def _loose(store: Store) -> dict[bytes, int]:
    """The objects that are files of their own, and what each takes: whole blocks, unlike in a pack."""
    found: dict[bytes, int] = {}
    for oid, path in pack_file.loose(store.objects):
        with suppress(OSError):
            found[bytes.fromhex(oid)] = path.stat().st_blocks * 512
    return found
