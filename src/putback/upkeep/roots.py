"""What the object store must keep: all that captures and private indexes stand for.

Roots are every ref, the contents and trees of every workspace's private index (an entry is a promise that its
object is stored), what the journal names of a restore that is under way or was interrupted, and the trees that
captures of digests alone share with the store; those promise no contents.
What a command has stored and not yet named is no root: commands hold the store's lock, shared, until it is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from putback.errors import IntegrityError
from putback.git import refs
from putback.git.command import Git
from putback.git.index import DamagedIndex, record_oid
from putback.git.index_edit import IndexEditor
from putback.git.objects import ObjectReader
from putback.git.present import Present
from putback.git.trees import DIRECTORY, items_of
from putback.ops import state
from putback.store import exchange
from putback.store.layout import Store, WorkspacePaths, workspaces
from putback.upkeep.needed import ids_in

Signature = tuple[int, ...]
Found = dict[bytes, bytes]
# Raw id, kind, and the name of a file or directory.
Root = tuple[bytes, str, bytes]


class Needed:
    """What is needed, found out step by step: `look` may be called again, and looks only at what has changed.

    `unreadable` are needed trees and commits that are missing or damaged; what they refer to is not known.
    """

    def __init__(self, store: Store, git: Git) -> None:
        self.unreadable: set[bytes] = set()
        self._store = store
        self._git = git
        # By raw id, with the name of a file that has the object, which says what it is like.
        self._held: Found = {}
        self._shared: Found = {}
        # What journals name. Apart from the others: nobody has looked what hangs on it, until a ref names it, too.
        self._noted: set[bytes] = set()
        self._refs: set[str] = set()
        self._indexes: dict[Path, Signature] = {}

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._held or oid in self._shared or oid in self._noted

    def name(self, oid: bytes) -> bytes:
        """The name of a file with this content, or of such a directory; empty where it has none."""
        return self._held.get(oid) or self._shared.get(oid, b"")

    def all_there(self) -> bool:
        """Whether the store has all that was found to be needed."""
        return len(Present(self._store.objects)(list(self._held))) == len(self._held)

    def look(self) -> set[bytes]:
        """Find what is needed now, and return what is new. Raises OSError, and what reading objects raises."""
        before = len(self._held), len(self._shared)
        held, shared = self._roots()
        self._follow(held, self._git.on(self._store.git_dir), self._held, contents=True)
        for git_dir, trees in shared.items():
            self._follow(trees, self._git.on(git_dir), self._shared, contents=False)
        noted: set[bytes] = set()
        for where in workspaces(self._store):
            # What a merge has made is in no capture before it is put in its place.
            noted |= {bytes.fromhex(oid) for oid in ids_in(where.journal)}
        # Dictionaries keep the order in which things were added.
        fresh = {*list(self._held)[before[0] :], *list(self._shared)[before[1] :], *(noted - self._noted)}
        self._noted |= noted
        return fresh

    def _roots(self) -> tuple[list[Root], dict[Path, list[Root]]]:
        named = refs.named(self._store.git_dir) - self._refs
        self._refs |= named
        held = [(bytes.fromhex(oid), "commit", b"") for oid in sorted(named)]
        shared: dict[Path, list[Root]] = {}
        for where in _with_indexes(self._store):
            index, trees = self._changed(where.folder)
            held += trees
            for path, record in () if index is None else index.records():
                self._held.setdefault(record_oid(record), os.path.basename(path))
            aside = where.digests()
            _, shared[aside.store.git_dir] = self._changed(aside.folder)
        return held, shared

    def _changed(self, folder: Path) -> tuple[IndexEditor | None, list[Root]]:
        """The index in a folder and its trees, unless they are those that were seen last.

        One that is damaged stands for nothing: whoever comes upon it makes it anew, out of what is there.
        """
        sign = (*_signature(folder / "index"), *_signature(folder / "state"))
        if self._indexes.get(folder, ()) == sign:
            return None, []
        self._indexes[folder] = sign
        try:
            index = IndexEditor.read(folder / "index")
        except (FileNotFoundError, DamagedIndex):
            return None, []
        kept = state.load(folder / "state", index.checksum)
        whole = [bytes.fromhex(kept.files_tree)] if kept is not None and kept.files_tree else []
        cached = [] if index.trees is None else [index.trees.oid]
        return index, [(oid, "tree", b"") for oid in (*whole, *cached)]

    def _follow(self, roots: list[Root], git: Git, known: Found, *, contents: bool) -> None:
        """Add to `known` all that hangs on the roots, one generation after the other."""
        with ObjectReader(git) as reader:
            while roots:
                fresh = {root[0]: root for root in roots if root[0] not in known and root[0] not in self._held}
                reader.announce(oid.hex() for oid in fresh)
                below: list[Root] = []
                for oid, kind, name in fresh.values():
                    known[oid] = name
                    try:
                        children = list(_below(kind, reader.read(oid.hex(), kind)))
                    except IntegrityError:
                        if contents:
                            self.unreadable.add(oid)
                        continue
                    for child in children:
                        if child[1] != "blob":
                            below.append(child)
                        elif contents:
                            known.setdefault(child[0], child[2])
                roots = below


def _with_indexes(store: Store) -> Iterator[WorkspacePaths]:
    """All workspaces, and those on their way to another one, which may take their index."""
    for where in workspaces(store):
        yield where
        yield exchange.moved(where)


def _signature(path: Path) -> Signature:
    """What changes whenever a file is replaced; empty where there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _below(kind: str, data: bytes) -> Iterator[Root]:
    """What an object refers to: raw id, kind and name."""
    if kind == "commit":
        for line in data.partition(b"\n\n")[0].split(b"\n"):
            word, _, oid = line.partition(b" ")
            if word in (b"tree", b"parent"):
                with suppress(ValueError):
                    yield bytes.fromhex(oid.decode("ascii", "replace")), {b"tree": "tree"}.get(word, "commit"), b""
        return
    for mode, name, oid in items_of(data):
        if mode == DIRECTORY:
            yield oid, "tree", name
        elif mode != b"160000":
            yield oid, "blob", name
