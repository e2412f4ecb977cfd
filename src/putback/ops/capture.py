"""Bring the private index up to what the workspace holds now, and make a tree of it.

The order is: scan, classify each candidate, check every budget, store content, write the index, keep the scan's
state. Nothing is written before the budgets are checked; a capture that is refused leaves the index as it was.
Whatever cannot be held is named, with its reason, in the result.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from putback import __version__, paths, seams
from putback.config import Settings
from putback.errors import IntegrityError, OverBudget, StorageError
from putback.fs.filesystem import free_bytes, used_bytes
from putback.fs.root import GONE, Root
from putback.git import objects
from putback.git.command import Git
from putback.git.index import DamagedIndex, Entries, make_record, read_index, record_size, write_index
from putback.git.objectid import deflate
from putback.git.packs import PackWriter
from putback.git.trees import build_trees
from putback.git.user_repo import ANY_CODE, UserRepository
from putback.ops import bulk, state
from putback.ops.scan import Scan, Scanner, rebuild
from putback.ops.state import ScanState, forget_mode, remember_mode
from putback.paths import RelPath
from putback.progress import Progress
from putback.records.capture import Capture, NotCovered, Purpose, Reason, Repository
from putback.records.document import AtPath
from putback.store.captures import EMPTY_TREE, TreeState
from putback.store.layout import WorkspacePaths

NOTHING_PUBLISHED = "nothing was published; earlier captures are as they were"
BULK_FILES = 64
BULK_FILES_AFTER = 5_000
BULK_BYTES = 32 << 20
TRIES = 3


@dataclass
class Sorted:
    """Candidates by what becomes of them."""

    store: dict[RelPath, os.stat_result] = field(default_factory=dict)
    drop: list[RelPath] = field(default_factory=list)
    not_covered: list[NotCovered] = field(default_factory=list)
    waiting: list[RelPath] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(found.st_size for found in self.store.values())


@dataclass
class Capturer:
    """Takes captures of one workspace; whoever uses it holds the workspace's lock.

    `git` is bound to the private repository, the work tree and the private index.
    """

    where: WorkspacePaths
    git: Git
    root: Root
    repository: UserRepository | None
    settings: Settings
    progress: Progress

    def take(self, *, message: str, purpose: Purpose, scope: Iterable[RelPath] = ()) -> TreeState:
        """The state of the workspace now, stored; within `scope` only, where one is given.

        Raises OverBudget before anything is written, StorageError, IntegrityError or Cancelled; then the index
        is as it was, or is a true picture of part of the tree.
        """
        chosen = frozenset(scope)
        self._sweep()
        standing = None if self.repository is None else self.repository.standing()
        for attempt in range(TRIES):
            try:
                return self._take(chosen, message, purpose, standing)
            except IntegrityError:
                # Either the tree moved under git's feet, or the private index is damaged; both heal by
                # starting over, the second by building the index anew.
                if attempt == TRIES - 1:
                    raise
                self._heal()
        raise AssertionError("unreachable")

    def _take(
        self, scope: frozenset[RelPath], message: str, purpose: Purpose, standing: Repository | None
    ) -> TreeState:
        scan = Scanner(
            self.where,
            self.git,
            self.repository,
            self.settings.capture.include,
            self.settings.capture.exclude,
            self.progress,
        ).run()
        seams.reach("capture.scanned")
        kept = scan.state
        if scan.fresh:
            entries = self._entries()
            rebuild(self.where, kept, {RelPath(path): record_size(entries[path]) for path in entries})
        sorted_ = self._classify(scan, scope)
        if purpose is not Purpose.AFTER:
            # What a restore has just written came out of the store, and refusing to record it would help nobody.
            self._check_budgets(kept, scan, sorted_)
        # After a restore the content is in the store already, so that git has nothing to write but the index.
        few = BULK_FILES_AFTER if purpose is Purpose.AFTER else BULK_FILES
        tree = self._store(kept, scan, sorted_, few)
        kept.files_tree = tree
        held_back = {item.raw for item in sorted_.not_covered}
        kept.pending = sorted({*sorted_.waiting, *held_back})
        kept.index_checksum = state.index_checksum(self.where.index)
        try:
            state.save(self.where.state, kept)
        except OSError as error:
            raise StorageError(f"cannot write the store: {error.strerror}") from error
        seams.reach("capture.stored")
        whole = self._describe(kept, scan, sorted_, message, purpose, standing)
        return self.limited(whole, scope) if scope else whole

    def _classify(self, scan: Scan, scope: frozenset[RelPath]) -> Sorted:
        """Decide what becomes of each candidate. Opens nothing; later readers check again."""
        result = Sorted(drop=list(scan.left))
        device = os.stat(self.where.root).st_dev
        ceiling = self.settings.capture.max_file_bytes
        self.progress.start("measuring", len(scan.changed) + len(scan.new))
        for path in (*scan.changed, *scan.new):
            if path in result.store:
                continue
            if scope and not paths.within(path, scope):
                if path not in scan.changed:
                    result.waiting.append(path)
                continue
            verdict = _judge(os.path.join(self.where.root, path), path, device, ceiling)
            if isinstance(verdict, os.stat_result):
                result.store[path] = verdict
                continue
            if path in scan.changed:
                result.drop.append(path)
            if verdict is not None:
                result.not_covered.append(verdict)
        self.progress.finish()
        return result

    def _check_budgets(self, kept: ScanState, scan: Scan, sorted_: Sorted) -> None:
        limits = self.settings.capture
        added = sum(path not in scan.changed for path in sorted_.store)
        files = kept.files + added - len(sorted_.drop)
        if files > limits.max_files:
            raise _over("files in the workspace", "capture.max_files", limits.max_files, files)
        fresh = sorted_.bytes
        if fresh > limits.max_new_bytes:
            raise _over("new bytes", "capture.max_new_bytes", limits.max_new_bytes, fresh)
        if not fresh:
            return
        store = self.settings.store
        used = used_bytes(self.where.store.git_dir)
        if used + fresh > store.max_bytes:
            raise _over("bytes in the store", "store.max_bytes", store.max_bytes, used + fresh)
        free = free_bytes(self.where.store.root)
        if free - fresh < store.min_free_bytes:
            raise OverBudget(
                f"free disk: {free} bytes are free, {fresh} would be written, "
                f"and {store.min_free_bytes} are to stay free",
                key="store.min_free_bytes",
                limit=store.min_free_bytes,
                measured=free - fresh,
                hint="free some space, or lower store.min_free_bytes",
            )

    def _store(self, kept: ScanState, scan: Scan, sorted_: Sorted, few: int) -> str:
        """Store content and index; returns the id of the tree. Moves what could not be read to `not_covered`."""
        if not sorted_.store and not sorted_.drop and kept.files_tree:
            return kept.files_tree
        if not scan.fresh and len(sorted_.store) <= few and sorted_.bytes <= BULK_BYTES:
            tree = self._store_few(kept, scan, sorted_)
            if tree is not None:
                return tree
        return self._store_many(kept, sorted_)

    def _store_few(self, kept: ScanState, scan: Scan, sorted_: Sorted) -> str | None:
        """The fast way for few files; None where a file did not hold still."""
        self._drop_unreadable(scan, sorted_)
        before = self._sizes(scan, [*sorted_.store, *sorted_.drop])
        if sorted_.drop:
            lines = b"".join(b"0 %s\t%s\0" % (b"0" * 64, path) for path in sorted_.drop)
            self.git.run("update-index", "-z", "--index-info", given=lines)
        if sorted_.store:
            given = b"".join(path + b"\0" for path in sorted_.store)
            arguments = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
            answer = self.git.run(*arguments, given=given, accept=ANY_CODE)
            if answer.code != 0 or not all(
                _same(found, self.root.look(path)) for path, found in sorted_.store.items()
            ):
                return None
        seams.reach("capture.indexed")
        for path in sorted_.drop:
            _uncount(kept, path, before.get(path))
        for path, found in sorted_.store.items():
            _uncount(kept, path, before.get(path))
            kept.files += 1
            kept.content_bytes += found.st_size
            remember_mode(kept, path, found.st_mode)
        return self.git.run("write-tree").out.decode().strip()

    def _drop_unreadable(self, scan: Scan, sorted_: Sorted) -> None:
        """git gives up altogether on a file that it cannot open, so look first."""
        for path, found in list(sorted_.store.items()):
            if stat.S_ISREG(found.st_mode):
                try:
                    os.close(self.root.open_file(path))
                    continue
                except OSError as error:
                    del sorted_.store[path]
                    if path in scan.changed:
                        sorted_.drop.append(path)
                    if error.errno not in GONE:
                        sorted_.not_covered.append(_unreadable(path, error))

    def _sizes(self, scan: Scan, wanted: Sequence[RelPath]) -> dict[RelPath, int]:
        """The sizes that files have in the index, for those that are in it."""
        ids = {path: scan.changed.get(path, "") for path in wanted if path in scan.changed}
        lost = [path for path in wanted if not ids.get(path) and (path in scan.changed or path in scan.left)]
        if lost:
            listed = self.git.run("ls-files", "-s", "-z").out.split(b"\0")
            index = {line.partition(b"\t")[2]: line.split(b" ")[1].decode() for line in listed if line}
            ids |= {path: index[path] for path in lost if path in index}
        order = [(path, oid) for path, oid in ids.items() if oid]
        if not order:
            return {}
        asked = "".join(oid + "\n" for _, oid in order).encode()
        answer = self.git.run("cat-file", "--batch-check=%(objectsize)", given=asked).out.splitlines()
        return {path: int(size) for (path, _), size in zip(order, answer, strict=False) if size.isdigit()}

    def _store_many(self, kept: ScanState, sorted_: Sorted) -> str:
        """The way for many or large files: one pack, one new index."""
        entries = self._entries()
        for path in sorted_.drop:
            entries.pop(path, None)
            forget_mode(kept, path)
        known = None if self._store_is_empty() else lambda oids: objects.known(self.git, oids)
        self.progress.start("storing", len(sorted_.store))
        try:
            with PackWriter(self.where.scratch) as writer:
                for outcome in self._read(list(sorted_.store), writer, known):
                    self._enter(kept, entries, outcome, sorted_)
                trees = build_trees(entries)
                present = set() if known is None else known([oid for oid, _ in trees.objects])
                for oid, data in trees.objects:
                    if oid not in present:
                        writer.add("tree", oid, len(data), deflate(data))
                writer.finish(self.where.store.objects / "pack")
            seams.reach("capture.packed")
            write_index(self.where.index, entries, trees.cache_tree)
        except OSError as error:
            raise StorageError(f"cannot write the store: {error.strerror}", hint=NOTHING_PUBLISHED) from error
        except ValueError as error:
            raise IntegrityError(f"the tree changed while it was captured: {error}") from error
        self.progress.finish()
        seams.reach("capture.indexed")
        kept.files, kept.content_bytes = len(entries), sum(map(record_size, entries.values()))
        return trees.root.hex()

    def _read(self, wanted: list[RelPath], writer: PackWriter, known: bulk.Known | None) -> Iterable[bulk.Outcome]:
        ceiling = self.settings.capture.max_file_bytes
        return bulk.store_files(wanted, self.root, writer, known, max_file_bytes=ceiling, progress=self.progress)

    def _store_is_empty(self) -> bool:
        stored = self.where.store.objects
        return not any(stored.glob("pack/*.pack")) and not any(stored.glob("[0-9a-f][0-9a-f]"))

    def _enter(self, kept: ScanState, entries: Entries, outcome: bulk.Outcome, sorted_: Sorted) -> None:
        path = RelPath(outcome.path)
        entries.pop(path, None)
        forget_mode(kept, path)
        if isinstance(outcome, bulk.Stored):
            entries[path] = make_record(outcome.st, outcome.mode, outcome.oid)
            remember_mode(kept, path, outcome.st.st_mode)
        elif isinstance(outcome, bulk.NotCovered):
            sorted_.not_covered.append(
                NotCovered.at(path, reason=Reason(outcome.reason), detail=outcome.detail, size=outcome.size)
            )

    def with_examined(
        self, state: TreeState, present: Iterable[RelPath], examined: Iterable[RelPath]
    ) -> TreeState:
        """The state with files added that rules or ceilings would leave out, because a restore needs them held.

        `present` are the files to add, `examined` all paths that were looked at. Raises StorageError where one
        cannot be read.
        """
        chosen = frozenset(examined)
        if not chosen:
            return state
        record = msgspec.structs.replace(state.record, examined=tuple(AtPath.at(path) for path in sorted(chosen)))
        added = sorted(path for path in present if not state.could_hold(path))
        if not added:
            return replace(state, record=record)
        part = self.where.scratch / "part"
        shutil.copyfile(self.where.index, part)
        scratch = self.git.on(self.where.store.git_dir, work_tree=self.where.root, index=part)
        given = b"".join(path + b"\0" for path in added)
        scratch.run("update-index", "--add", "--replace", "-z", "--stdin", given=given)
        modes, directories = dict(state.modes), dict(state.directories)
        for path in added:
            mode = self.root.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & 0o777 != (0o755 if mode & 0o100 else 0o644):
                modes[path] = mode & 0o777
            for above in paths.parents(path):
                directories.setdefault(above, self.root.lstat(above).st_mode & 0o777)
        return TreeState(
            files_tree=scratch.run("write-tree").out.decode().strip(),
            directories=directories,
            modes=modes,
            ignored=state.ignored,
            record=record,
        )

    def limited(self, whole: TreeState, scope: frozenset[RelPath]) -> TreeState:
        """The part of a state that lies in `scope`."""
        listed = self.git.run("ls-files", "-s", "-z").out.split(b"\0")
        lines = [line for line in listed if line and paths.within(line.partition(b"\t")[2], scope)]
        part = self.where.scratch / "part"
        part.unlink(missing_ok=True)
        scratch = self.git.on(self.where.store.git_dir, work_tree=self.where.root, index=part)
        scratch.run("update-index", "-z", "--index-info", given=b"".join(line + b"\0" for line in lines))
        tree = scratch.run("write-tree").out.decode().strip()
        above = {parent for path in scope for parent in paths.parents(path)}
        record = whole.record
        return TreeState(
            files_tree=tree,
            directories={
                path: mode
                for path, mode in whole.directories.items()
                if path in above or paths.within(path, scope)
            },
            modes={path: mode for path, mode in whole.modes.items() if paths.within(path, scope)},
            ignored=frozenset(path for path in whole.ignored if _touches(path, scope)),
            record=msgspec.structs.replace(
                record,
                scope=tuple(AtPath.at(path) for path in sorted(scope)),
                files=len(lines),
                bytes=self._bytes_of(lines),
                ignored=sum(_touches(path, scope) for path in whole.ignored),
                not_covered=tuple(item for item in record.not_covered if paths.within(item.raw, scope)),
                nested_repositories=tuple(
                    item for item in record.nested_repositories if _touches(item.raw, scope)
                ),
                privileged=tuple(item for item in record.privileged if paths.within(item.raw, scope)),
            ),
        )

    def _bytes_of(self, lines: Sequence[bytes]) -> int:
        asked = b"".join(line.split(b" ")[1] + b"\n" for line in lines)
        answer = self.git.run("cat-file", "--batch-check=%(objectsize)", given=asked).out
        return sum(int(size) for size in answer.split() if size.isdigit())

    def _describe(
        self,
        kept: ScanState,
        scan: Scan,
        sorted_: Sorted,
        message: str,
        purpose: Purpose,
        standing: Repository | None,
    ) -> TreeState:
        named = {item.raw: item for item in (*scan.not_covered, *sorted_.not_covered)}
        return TreeState(
            files_tree=kept.files_tree or EMPTY_TREE,
            directories=scan.directories,
            modes={RelPath(path): mode for path, mode in kept.modes.items()},
            ignored=scan.ignored,
            record=Capture(
                workspace=self.where.name,
                root=paths.text(self.where.root),
                created_ns=time.time_ns(),
                message=message,
                purpose=purpose,
                files=kept.files,
                bytes=kept.content_bytes,
                ignored=len(scan.ignored),
                not_covered=tuple(named[path] for path in sorted(named)),
                nested_repositories=tuple(AtPath.at(path) for path in sorted(scan.nested)),
                privileged=tuple(AtPath.at(path) for path in sorted(kept.privileged)),
                repository=standing,
                tool=__version__,
            ),
        )

    def _entries(self) -> Entries:
        try:
            return read_index(self.where.index)
        except (DamagedIndex, OSError):
            return {}

    def _sweep(self) -> None:
        """Remove what a killed process left: we hold the lock, so nobody is using it."""
        with suppress(FileNotFoundError):
            self.where.index.with_name("index.lock").unlink()
        for leftover in self.where.scratch.iterdir() if self.where.scratch.is_dir() else ():
            leftover.unlink()

    def _heal(self) -> None:
        self._sweep()
        try:
            read_index(self.where.index)
        except (DamagedIndex, OSError):
            self.where.index.unlink(missing_ok=True)
        self.where.state.unlink(missing_ok=True)


def _judge(full: bytes, path: RelPath, device: int, ceiling: int) -> os.stat_result | NotCovered | None:
    """The stat data of a file to store, why it cannot be covered, or None where it is gone."""
    try:
        found = os.lstat(full)
    except OSError as error:
        return None if error.errno in GONE else _unreadable(path, error)
    if stat.S_ISDIR(found.st_mode):
        return None
    if found.st_dev != device:
        return NotCovered.at(path, reason=Reason.MOUNT_POINT)
    if path.rpartition(b"/")[2].lower() == b".gitmodules" and stat.S_ISLNK(found.st_mode):
        detail = "git cannot hold a link of this name"
        return NotCovered.at(path, reason=Reason.RESERVED_NAME, detail=detail)
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
        return NotCovered.at(path, reason=Reason.SPECIAL_FILE, detail="a pipe, socket or device")
    if stat.S_ISREG(found.st_mode) and found.st_size > ceiling:
        detail = f"{found.st_size} bytes, the ceiling is {ceiling}"
        return NotCovered.at(path, reason=Reason.TOO_LARGE, detail=detail, size=found.st_size)
    return found


def _unreadable(path: RelPath, error: OSError) -> NotCovered:
    return NotCovered.at(path, reason=Reason.UNREADABLE, detail=error.strerror or os.strerror(errno.EIO))


def _over(what: str, key: str, limit: int, measured: int) -> OverBudget:
    return OverBudget(
        f"too many {what}: {measured}, the limit is {limit}; nothing was written",
        key=key,
        limit=limit,
        measured=measured,
        hint=f"ignore what need not be protected, or raise the limit: -c {key}={measured}",
    )


def _same(before: os.stat_result, after: os.stat_result | None) -> bool:
    if after is None:
        return False
    return (before.st_ino, before.st_size, before.st_mtime_ns, before.st_ctime_ns, before.st_mode) == (
        after.st_ino,
        after.st_size,
        after.st_mtime_ns,
        after.st_ctime_ns,
        after.st_mode,
    )


def _uncount(kept: ScanState, path: RelPath, size: int | None) -> None:
    """Take a file out of the counts, where it was in the index."""
    if size is not None:
        kept.files -= 1
        kept.content_bytes -= size
    forget_mode(kept, path)


def _touches(path: RelPath, scope: frozenset[RelPath]) -> bool:
    """Whether `path` lies in the scope, or holds a part of it."""
    return paths.within(path, scope) or any(path in set(paths.parents(chosen)) for chosen in scope)
