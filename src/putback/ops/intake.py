"""Take content into the store and keep the private index in step with it.

Few files become loose objects and many become one pack; either way the content and the trees are on disk before
the index is replaced, because an index entry is a promise that its object is stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, cast

import msgspec

from putback import seams
from putback.errors import IntegrityError, StorageError
from putback.fs.durable import meanwhile
from putback.fs.root import Root
from putback.git.index import DamagedIndex, make_record, record_size, tree_part
from putback.git.index_edit import CachedTree, IndexEditor, edit_trees, is_deep, read_trees
from putback.git.loose import LooseWriter
from putback.git.objectid import OID_BYTES, Kind
from putback.git.present import Present
from putback.git.trees import build_trees
from putback.ops.state import ScanState, forget_file, load, remember_file, says_more
from putback.paths import RelPath
from putback.progress import Progress
from putback.records.capture import NotCovered, Reason
from putback.store.layout import WorkspacePaths

# Where nothing has changed nothing is read, and only many files make a pack.
if TYPE_CHECKING:
    from putback.git.packs import PackWriter
    from putback.ops import bulk

FEW_FILES = 64
FEW_BYTES = 32 << 20
MOST_SEEN = 10_000
NOTHING_PUBLISHED = "nothing was published; earlier captures are as they were"

Changes = dict[bytes, bytes | None]
Known = Callable[[Sequence[bytes]], set[bytes]]


class Taken(msgspec.Struct):
    """What became of the files to be taken in: index records (None: not there), telling stat data, the rest."""

    changes: Changes = {}
    found: dict[RelPath, os.stat_result] = {}
    not_covered: list[NotCovered] = []


class _Trees(msgspec.Struct, frozen=True):
    """The trees of an index: the root's raw id, the TREE payload, the same in memory where it is not deep, and the
    tree objects (raw id, content) that may be new."""

    root: bytes
    payload: bytes
    known: CachedTree | None
    objects: list[tuple[bytes, bytes]]


class Intake(msgspec.Struct):
    """The way into one workspace's index and store; whoever uses it holds the workspace's lock.

    Without `contents` files are read and hashed, and only trees are kept. `stored_bytes` counts what went into
    the store through this object, before compression. `seen` has what was read and stored, of the first
    `MOST_SEEN` files since somebody asked for it with a mapping. `_file` is the index file, once it was read and
    checked, and `_cuts` what is known of it, until somebody looks into it. From when `seen` was asked for,
    `_first` is the index as it was before its first change, and `_moved` has the paths that were changed since.
    """

    where: WorkspacePaths
    root: Root
    progress: Progress
    contents: bool = True
    stored_bytes: int = 0
    seen: dict[RelPath, bulk.Stored] | None = None
    _index: IndexEditor | None = None
    _first: IndexEditor | None = None
    _moved: set[bytes] = set()
    _file: bytes = b""
    _cuts: bytes = b""

    @property
    def index(self) -> IndexEditor | None:
        """The private index; None where there is none that can be used."""
        if self._index is None:
            file, self._file = self._file, b""
            try:
                data = file or self.where.index.read_bytes()
                self._index = IndexEditor(data, self._cuts, verified=bool(file))
            except FileNotFoundError:
                return None
            except (DamagedIndex, OSError):
                self.where.index.unlink(missing_ok=True)
        return self._index

    def forget(self) -> None:
        """The index file may have changed; read it again when it is next wanted."""
        self._index, self._file, self._cuts = None, b"", b""
        self._first, self._moved = None, set()

    def load_state(self) -> ScanState | None:
        """What the last scan learned, where it belongs to the index file as it is now; reads and checks that."""
        try:
            file = self.where.index.read_bytes()
        except OSError:
            return None
        checksum = file[-OID_BYTES:]
        if sha256(memoryview(file)[:-OID_BYTES]).digest() != checksum:
            return None
        kept = load(self.where.state, checksum)
        if self._index is None:
            self._file, self._cuts = file, b"" if kept is None else kept.index_cuts
        return kept

    def bind(self, kept: ScanState) -> None:
        """Note in a state that it belongs to the index as it is now.

        What was loaded belongs to the index as it was found, and stays so where nobody looked into that since.
        """
        if self._index is not None:
            kept.index_checksum, kept.index_cuts = self._index.checksum, self._index.cuts

    def holds(self, path: RelPath) -> bool:
        """Whether a path is in the private index."""
        return self.index is not None and self.index.record(path) is not None

    def held(self) -> set[RelPath]:
        """All paths in the private index."""
        return set() if self.index is None else set(cast("list[RelPath]", self.index.paths))

    def held_in(self, directory: RelPath) -> set[RelPath]:
        """The paths in the private index that lie directly in a directory; empty for the root."""
        prefix = directory + b"/" if directory else b""
        return set() if self.index is None else set(cast("Iterator[RelPath]", self.index.files_in(prefix)))

    def records(self) -> dict[RelPath, bytes]:
        """The records of all files in the private index."""
        return {} if self.index is None else dict(cast("Iterator[tuple[RelPath, bytes]]", self.index.records()))

    def size(self, path: RelPath) -> int:
        """The size of a file in the private index, in bytes modulo 4 GiB. Raises KeyError."""
        record = None if self.index is None else self.index.record(path)
        if record is None:
            raise KeyError(path)
        return record_size(record)

    def update(
        self, kept: ScanState, wanted: Sequence[RelPath], size: int, drop: Iterable[RelPath], ceiling: int
    ) -> tuple[str, list[NotCovered]]:
        """Take in `wanted` (of `size` bytes together), drop others; returns the tree's id and what is not covered.

        Raises StorageError, IntegrityError or Cancelled, with the index as it was.
        """
        taken = Taken(changes=dict.fromkeys(drop))
        self.progress.start("storing", len(wanted))
        with self._failures(), self._writer(len(wanted), size) as writer:
            known = self._known()
            self._read(wanted, writer, known, ceiling, taken)
            tree = self._replace(kept, taken, writer, known)
        self.progress.finish()
        seams.reach("capture.indexed")
        return tree, taken.not_covered

    def put(self, kept: ScanState, taken: Taken) -> str:
        """Change the index, to contents that are stored already; returns the tree's id. Raises as `update`."""
        with self._failures(), self._writer(len(taken.changes), 0) as writer:
            tree = self._replace(kept, taken, writer, self._known())
        seams.reach("capture.indexed")
        return tree

    def _replace(
        self, kept: ScanState, taken: Taken, writer: LooseWriter | PackWriter, known: Known | None
    ) -> str:
        """Make the trees, bring everything to disk, then replace the index."""
        index = self.index
        self._count(kept, taken, index)
        trees = self._trees(index, taken.changes)
        self._add_trees(writer, known, trees.objects)
        with ExitStack() as stack:
            with meanwhile(lambda: self._finish(writer)):
                base = IndexEditor.blank() if index is None else index
                changed = base.changed(taken.changes, trees.payload, trees.known)
                new = stack.enter_context(changed.beside(self.where.index))
            seams.reach("capture.objects")
            new.publish()
        if self.seen is not None:
            self._first = index if self._first is None else self._first
            self._moved |= taken.changes.keys()
        self._index = changed
        return trees.root.hex()

    def tree_with(self, added: Sequence[RelPath], dropped: Iterable[RelPath] = ()) -> tuple[str, Taken]:
        """The id of the index's tree with more files taken in and others left out. The index stays as it is."""
        taken = Taken(changes=dict.fromkeys(dropped))
        size = sum(self.root.lstat(path).st_size for path in added)
        with self._failures(), self._writer(len(added), size) as writer:
            known = self._known()
            self._read(added, writer, known, 1 << 62, taken)
            trees = self._trees(self.index, taken.changes)
            self._add_trees(writer, known, trees.objects)
            self._finish(writer)
        return trees.root.hex(), taken

    def part_of_tree(self, chosen: Callable[[RelPath], bool]) -> tuple[str, int, int]:
        """The id of the tree of some of the index's files, their number and their bytes."""
        records = {} if self.index is None else dict(self.index.records())
        part = {path: record for path, record in records.items() if chosen(RelPath(path))}
        with self._failures(), self._writer(0, 0) as writer:
            trees = build_trees(part)
            self._add_trees(writer, self._known(), trees.objects)
            self._finish(writer)
        return trees.root.hex(), len(part), sum(map(record_size, part.values()))

    def _read(
        self, wanted: Sequence[RelPath], writer: bulk.Writer, known: Known | None, ceiling: int, taken: Taken
    ) -> None:
        from putback.ops import bulk

        gate = _Gate(writer, self.contents)
        outcomes = bulk.store_files(wanted, self.root, gate, known, max_file_bytes=ceiling, progress=self.progress)
        now_ns = time.time_ns()
        for outcome in outcomes:
            path = RelPath(outcome.path)
            taken.changes[path] = None
            if isinstance(outcome, bulk.Stored):
                taken.changes[path] = make_record(outcome.st, outcome.mode, outcome.oid)
                if self.seen is not None and len(self.seen) < MOST_SEEN:
                    self.seen[path] = outcome
                if says_more(outcome.st, now_ns):
                    taken.found[path] = outcome.st
            elif isinstance(outcome, bulk.NotCovered):
                reason = Reason(outcome.reason)
                taken.not_covered.append(
                    NotCovered.at(path, reason=reason, detail=outcome.detail, size=outcome.size)
                )
        self.stored_bytes += gate.bytes

    def _trees(self, index: IndexEditor | None, changes: Changes) -> _Trees:
        """The trees of the index with the changes made."""
        first = self._first
        if first is not None and first.trees is not None and self._is_like(first, changes):
            return _Trees(first.trees.oid, first.trees.payload(), first.trees, [])
        few = index is not None and 2 * len(changes) < len(index) and not is_deep(changes)
        if few and index is not None and index.trees is not None:
            known, made = edit_trees(index, changes)
            return _Trees(known.oid, known.payload(), known, made)
        entries = {} if index is None else dict(index.records())
        for path, record in changes.items():
            if record is None:
                entries.pop(path, None)
            else:
                entries[path] = record
        trees = build_trees(entries)
        return _Trees(trees.root, trees.cache_tree, read_trees(trees.cache_tree), trees.objects)

    def _is_like(self, first: IndexEditor, changes: Changes) -> bool:
        """Whether the changes give every path the mode and the content again that it had in an earlier index."""
        index = self.index
        for path in self._moved | changes.keys():
            now = changes[path] if path in changes or index is None else index.record(path)
            if tree_part(now) != tree_part(first.record(path)):
                return False
        return True

    def _add_trees(self, writer: bulk.Writer, known: Known | None, trees: list[tuple[bytes, bytes]]) -> None:
        present = set() if known is None else known([oid for oid, _ in trees])
        for oid, data in trees:
            if oid not in present:
                writer.add("tree", oid, len(data), writer.compress("tree", data))

    def _count(self, kept: ScanState, taken: Taken, index: IndexEditor | None) -> None:
        began_ns = time.time_ns()
        for path, record in taken.changes.items():
            name = RelPath(path)
            old = None if index is None else index.record(path)
            if old is not None:
                kept.files -= 1
                kept.content_bytes -= record_size(old)
            if record is not None:
                kept.files += 1
                kept.content_bytes += record_size(record)
            forget_file(kept, name)
            if name in taken.found:
                remember_file(kept, name, taken.found[name], began_ns)

    def _writer(self, count: int, size: int) -> LooseWriter | PackWriter:
        if count <= FEW_FILES and size <= FEW_BYTES:
            return LooseWriter(self.where.scratch, self.where.store.objects)
        from putback.git.packs import PackWriter

        return PackWriter(self.where.scratch)

    def _finish(self, writer: LooseWriter | PackWriter) -> None:
        if isinstance(writer, LooseWriter):
            writer.finish()
        else:
            writer.finish(self.where.store.objects / "pack")

    def _known(self) -> Known | None:
        """How to ask what the store already holds; None where it holds nothing."""
        stored = self.where.store.objects
        if not any(stored.glob("pack/*.pack")) and not any(stored.glob("[0-9a-f][0-9a-f]")):
            return None
        return Present(stored)

    def _failures(self) -> _Failures:
        return _Failures()


class _Gate:
    """A writer of contents that counts the bytes that go through it, or keeps none of them."""

    def __init__(self, writer: bulk.Writer, open_: bool) -> None:
        self._writer = writer
        self._open = open_
        self.bytes = 0

    def __contains__(self, oid: bytes) -> bool:
        return not self._open or oid in self._writer

    def compress(self, kind: Kind, data: bytes) -> bytes:
        return self._writer.compress(kind, data)

    def add(self, kind: Kind, oid: bytes, size: int, deflated: bytes) -> None:
        # Two threads may have read the same content at the same time.
        self.bytes += 0 if oid in self._writer else size
        self._writer.add(kind, oid, size, deflated)

    def add_stream(self, kind: Kind, oid: bytes, size: int, blocks: Iterable[bytes]) -> bool:
        self.bytes += 0 if oid in self._writer else size
        return self._writer.add_stream(kind, oid, size, blocks)


class _Failures:
    """Turns what can go wrong with files into errors of ours."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            words = error.strerror or "failed"
            raise StorageError(f"cannot write the store: {words}", hint=NOTHING_PUBLISHED) from error
        if isinstance(error, ValueError):
            raise IntegrityError(f"the tree changed while it was captured: {error}") from error
