"""What the store costs: by workspace, and by entry of one workspace, so that people see what is worth dropping.

Every object has an owner: the one entry whose captures need it, else the one workspace, else nobody. Owners are
found by walking from each entry's captures. A walk ends where nothing gets another owner by it, so a tree that many
entries share is gone through twice and no more. What is missing from the store costs nothing and is passed over: to
say so is for `check`. The private index is no owner: what the newest entry alone needs stays as long as the index has
it, too, which is until a capture after the files have changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from putback.errors import Cancelled, IntegrityError, StorageError
from putback.fs import lock
from putback.fs.filesystem import used_bytes
from putback.git import command, refs
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.progress import Progress
from putback.records.history import Entry
from putback.records.upkeep import Size, Sizes
from putback.store import usage
from putback.store.history import History
from putback.store.layout import Store, WorkspacePaths

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

# Mode, name, id. A name has no NUL in it, and git's own modes begin with 4 for a tree.
_TREE_ENTRY = re.compile(rb"(\d+) [^\0]+\0(.{32})", re.DOTALL)
_NOBODY = 0


class _Root(NamedTuple):
    """Captures, and whose they are: an owner, and the workspace that owns what two of its owners need."""

    owner: int
    workspace: int
    captures: tuple[str, ...]


def sizes(upkeep: Upkeep) -> Sizes:
    """Logical and physical sizes of everything. Raises GitUnavailable, StorageError, and LockedError where somebody
    has the store for himself for long."""
    store, limit = upkeep.where.store, upkeep.settings.store.max_bytes
    if not store.exists():
        return Sizes(total=0, limit=limit, workspaces=(), entries=())
    git = command.find(cancelled=upkeep.progress.cancelled).on(store.git_dir)
    with lock.hold(store.lock, "status", True, upkeep.settings.store.lock_wait_seconds, upkeep.progress):
        return _measured(upkeep, git)


def _measured(upkeep: Upkeep, git: Git) -> Sizes:
    here, store = upkeep.where, upkeep.where.store
    places = list(_workspaces(store, here))
    histories = [list(History(place.history).each(History(place.history).names())) for place in places]
    with ObjectReader(git) as reader:
        owners = _Owners(reader)
        roots = _roots(git, places, histories)
        upkeep.progress.start("walking captures", len(roots))
        for root in roots:
            owners.add(root)
            upkeep.progress.advance()
            if upkeep.progress.cancelled():
                raise Cancelled("cancelled; nothing was changed")
    on_disk = _on_disk(git, owners.of, upkeep.progress)
    workspaces, entries = [], []
    for number, (place, history) in enumerate(zip(places, histories, strict=True)):
        known = [_entry_size(place, entry, on_disk.get(_owner(number, at), 0)) for at, entry in enumerate(history)]
        shared = on_disk.get(_workspace(number), 0) + used_bytes(place.folder)
        alone = sum(on_disk.get(_owner(number, at), 0) for at in range(len(history)))
        logical = sum(size.logical for size in known)
        workspaces.append(Size(name=place.name, logical=logical, physical=alone + shared))
        if place == here:
            entries = known
    total = usage.measure(store)
    return Sizes(
        total=total, limit=upkeep.settings.store.max_bytes, workspaces=tuple(workspaces), entries=tuple(entries)
    )


def _entry_size(place: WorkspacePaths, entry: Entry, objects: int) -> Size:
    """`objects` is what its captures need alone; a run has evidence, too."""
    held = entry.bytes if entry.after else 0
    return Size(name=entry.id, logical=held, physical=objects + used_bytes(place.runs / entry.id))


def _workspaces(store: Store, here: WorkspacePaths) -> Iterator[WorkspacePaths]:
    """Every workspace of the store, by name."""
    folder = store.root / "workspaces"
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise StorageError(f"cannot read the store: {error.strerror}") from error
    for name in names:
        # The root of another workspace is not looked at.
        yield here if name == here.name else WorkspacePaths(store, folder / name, b"")


def _roots(git: Git, places: list[WorkspacePaths], histories: list[list[Entry]]) -> list[_Root]:
    """The captures of every entry, oldest first, and those that have a ref and no entry."""
    found: list[_Root] = []
    for number, (place, history) in enumerate(zip(places, histories, strict=True)):
        workspace = _workspace(number)
        named: set[str] = set()
        for at in reversed(range(len(history))):
            ends = tuple(filter(None, (history[at].before, history[at].after)))
            named.update(ends)
            found.append(_Root(_owner(number, at), workspace, ends))
        others = tuple(oid for oid in refs.anchored(git, place.name) if oid not in named)
        found.append(_Root(workspace, workspace, others))
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
    """Whose each object is, of those that were reached so far."""

    def __init__(self, reader: ObjectReader) -> None:
        self.of: dict[bytes, int] = {}
        self._reader = reader
        # What a tree refers to, kept as long as it belongs to one entry: the next one may have it, too.
        self._inside: dict[bytes, tuple[list[bytes], list[bytes]]] = {}

    def add(self, root: _Root) -> None:
        """All that captures need is their owner's, or shared with whoever had it before."""
        commits = [oid for oid in map(bytes.fromhex, root.captures) if self._claim(oid, root.owner)]
        level = [
            tree for tree in map(self._tree_of, commits) if tree is not None and self._claim(tree, root.owner)
        ]
        while level:
            self._reader.announce(oid.hex() for oid in level if oid not in self._inside)
            below: list[bytes] = []
            for tree in level:
                trees, blobs = self._children(tree)
                for blob in blobs:
                    self._claim(blob, root.owner)
                below += [oid for oid in trees if self._claim(oid, root.owner)]
                if self.of[tree] == root.owner:
                    self._inside[tree] = (trees, blobs)
                else:
                    self._inside.pop(tree, None)
            level = below

    def _claim(self, oid: bytes, owner: int) -> bool:
        """Whether the owner of an object is another now, so that the same is to be said of what is in it."""
        before = self.of.get(oid)
        if before is None:
            self.of[oid] = owner
            return True
        after = _meet(before, owner)
        self.of[oid] = after
        return after != before

    def _tree_of(self, commit: bytes) -> bytes | None:
        with suppress(IntegrityError, ValueError):
            line = self._reader.read(commit.hex(), "commit").partition(b"\n")[0]
            return bytes.fromhex(line.removeprefix(b"tree ").decode())
        return None

    def _children(self, tree: bytes) -> tuple[list[bytes], list[bytes]]:
        """The trees and the other objects that a tree refers to; none where it cannot be read."""
        known = self._inside.get(tree)
        if known is not None:
            return known
        try:
            found = _TREE_ENTRY.findall(self._reader.read(tree.hex(), "tree"))
        except IntegrityError:
            return [], []
        return [oid for mode, oid in found if mode == b"40000"], [oid for mode, oid in found if mode != b"40000"]


def _on_disk(git: Git, owners: dict[bytes, int], progress: Progress) -> dict[int, int]:
    """Bytes on disk by owner; what nobody owns alone is left out."""
    asked = [oid for oid, owner in owners.items() if owner != _NOBODY]
    progress.start("measuring objects", len(asked))
    given = b"".join(oid.hex().encode() + b"\n" for oid in asked)
    lines: Iterable[bytes] = ()
    if asked:
        lines = git.run("cat-file", "--buffer", "--batch-check=%(objectsize:disk)", given=given).out.splitlines()
    found: dict[int, int] = {}
    for oid, line in zip(asked, lines, strict=False):
        if line.isdigit():
            found[owners[oid]] = found.get(owners[oid], 0) + int(line)
    progress.advance(len(asked))
    return found
