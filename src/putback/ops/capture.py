"""Bring the private index up to what the workspace holds now, and make a tree of it.

The order is: scan, classify each candidate, check every budget, store content, write the index, keep the scan's
state. Nothing is written before the budgets are checked; a capture that is refused leaves the index as it was.
Whatever cannot be held is named, with its reason, in the result.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import msgspec

from putback import paths, seams
from putback.config import Settings
from putback.errors import Cancelled, IntegrityError, StorageError
from putback.git.command import Git, Pending
from putback.git.user_repo import UserRepository
from putback.ops import state
from putback.ops.classify import Candidates, check_budgets, classify
from putback.ops.ignore import IgnoreRules
from putback.ops.intake import Intake
from putback.ops.scan import Scan, Scanner, rebuild
from putback.ops.state import ScanState
from putback.paths import RelPath
from putback.progress import Progress
from putback.records.capture import Capture, Purpose, Repository
from putback.records.document import AtPath
from putback.store import usage
from putback.store.captures import EMPTY_TREE, TreeState
from putback.store.layout import WorkspacePaths
from putback.version import __version__

TRIES = 3


class Last(msgspec.Struct, frozen=True):
    """What the last capture was taken with: the state as it was kept, and the rules that were in force."""

    state: ScanState
    rules: IgnoreRules


class Capturer(msgspec.Struct):
    """Takes captures of one workspace; whoever uses it holds the workspace's lock.

    `git` is bound to the private repository, the work tree and the private index. `early` is the answer to the
    first scan's question, where that was asked already. `last` is of the capture that was taken last here.
    """

    where: WorkspacePaths
    git: Git
    intake: Intake
    repository: UserRepository | None
    settings: Settings
    progress: Progress
    early: Pending | None = None
    warnings: tuple[str, ...] = ()
    last: Last | None = None

    def take(
        self, *, message: str, purpose: Purpose, scope: Iterable[RelPath] = (), bounded: bool = True
    ) -> TreeState:
        """The state of the workspace now, stored; within `scope` only, where one is given.

        Unless `bounded`, no budget is checked: what a restore has just written came out of the store, and refusing
        to record it would help nobody. Raises OverBudget before anything is written, StorageError, IntegrityError
        or Cancelled; then the index is as it was, or is a true picture of part of the tree.
        """
        chosen = frozenset(scope)
        self._sweep()
        for attempt in range(TRIES):
            if self.progress.cancelled():
                raise Cancelled("cancelled before anything was captured")
            try:
                return self._take(chosen, message, purpose, bounded)
            except IntegrityError:
                # Either the tree moved under git's feet, or the private index is damaged, or it names what the
                # store has lost. All heal by starting over, with an index made anew if once was not enough.
                if attempt == TRIES - 1:
                    raise
                self._heal(with_index=attempt > 0)
        raise AssertionError("unreachable")

    def _take(self, scope: frozenset[RelPath], message: str, purpose: Purpose, bounded: bool) -> TreeState:
        standing = None if self.repository is None else self.repository.standing()
        self.last = None
        early, self.early = self.early, None
        scan = Scanner(
            self.where,
            self.git,
            self.intake,
            self.repository,
            self.settings.capture.include,
            self.settings.capture.exclude,
            self.progress,
        ).run(early)
        seams.reach("capture.scanned")
        kept = scan.state
        if scan.fresh:
            scan.changed |= rebuild(self.where, kept, self.intake.records())
        ceiling = self.settings.capture.max_file_bytes
        left = set(scan.left)
        found = classify(self.where.root, scan.changed - left, scan.new, scope, ceiling)
        found.drop += scan.left
        if bounded:
            added = sum(path not in scan.changed for path in found.store)
            check_budgets(self.settings, self.where.store, kept.files + added - len(found.drop), found.bytes)
        if found.store or found.drop or not kept.files_tree:
            kept.files_tree, missed = self.intake.update(kept, found.store, found.bytes, found.drop, ceiling)
            found.not_covered += missed
        kept.pending = sorted({*found.waiting, *(item.raw for item in found.not_covered)})
        self.keep(kept)
        self.last = Last(kept, scan.rules)
        repository = None if standing is None else standing.result()
        whole = self._describe(kept, scan, found, message, purpose, repository)
        return self._limited(whole, scope) if scope else whole

    def keep(self, kept: ScanState) -> None:
        """Keep a state that belongs to the index as it is now. Raises StorageError."""
        self.intake.bind(kept)
        try:
            state.save(self.where.state, kept)
        except OSError as error:
            raise StorageError(f"cannot write the store: {error.strerror}") from error
        seams.reach("capture.stored")

    def with_examined(
        self,
        whole: TreeState,
        present: Iterable[RelPath],
        examined: Iterable[RelPath],
        without: Iterable[RelPath] = (),
    ) -> TreeState:
        """The state with files added that rules or ceilings would leave out, because a restore needs them held.

        `present` are the files to add, `examined` all paths that were looked at; `without` are files to leave out
        of it. Raises StorageError where one cannot be held.
        """
        wanted = sorted(present)
        chosen = frozenset(examined)
        dropped = sorted(without)
        if not chosen and not wanted and not dropped:
            return whole
        names = tuple(AtPath.at(path) for path in sorted(chosen))
        record = msgspec.structs.replace(whole.record, examined=names)
        # Also what came to stand there after the scan, which could have held it and did not.
        added = [path for path in wanted if not self.intake.holds(path) or not whole.could_hold(path)]
        directories = dict(whole.directories)
        for path in chosen:
            with suppress(OSError):
                here = self.intake.root.look(path)
                if here is not None and stat.S_ISDIR(here.st_mode):
                    directories[path] = here.st_mode & 0o777
        if not added and not dropped:
            return msgspec.structs.replace(whole, record=record, directories=directories)
        tree, taken = self.intake.tree_with(added, dropped)
        if taken.not_covered:
            first = taken.not_covered[0]
            reason = first.detail or first.reason
            raise StorageError(f"cannot hold {paths.quote(first.raw)} before it is replaced: {reason}")
        modes = dict(whole.modes)
        for path, seen in taken.found.items():
            mode = seen.st_mode
            if stat.S_ISREG(mode) and mode & 0o777 != (0o755 if mode & 0o100 else 0o644):
                modes[path] = mode & 0o777
        for above in {above for path in added for above in paths.parents(path)}:
            directories.setdefault(above, self.intake.root.lstat(above).st_mode & 0o777)
        return TreeState(record, tree, directories, modes, whole.ignored)

    def _limited(self, whole: TreeState, scope: frozenset[RelPath]) -> TreeState:
        """The part of a state that lies in `scope`."""
        tree, files, size = self.intake.part_of_tree(lambda path: paths.within(path, scope))
        above = {parent for path in scope for parent in paths.parents(path)}

        def touches(path: RelPath) -> bool:
            return paths.within(path, scope) or path in above

        def inside(items: tuple[AtPath, ...]) -> tuple[AtPath, ...]:
            return tuple(item for item in items if touches(item.raw))

        record = whole.record
        return TreeState(
            files_tree=tree,
            directories={path: mode for path, mode in whole.directories.items() if touches(path)},
            modes={path: mode for path, mode in whole.modes.items() if paths.within(path, scope)},
            ignored=frozenset(filter(touches, whole.ignored)),
            record=msgspec.structs.replace(
                record,
                scope=tuple(AtPath.at(path) for path in sorted(scope)),
                files=files,
                bytes=size,
                ignored=sum(map(touches, whole.ignored)),
                not_covered=tuple(item for item in record.not_covered if touches(item.raw)),
                nested_repositories=inside(record.nested_repositories),
                privileged=inside(record.privileged),
            ),
        )

    def _describe(
        self,
        kept: ScanState,
        scan: Scan,
        found: Candidates,
        message: str,
        purpose: Purpose,
        repository: Repository | None,
    ) -> TreeState:
        named = {item.raw: item for item in (*scan.not_covered, *found.not_covered)}
        return TreeState(
            files_tree=kept.files_tree or EMPTY_TREE,
            directories=scan.directories,
            modes=cast("dict[RelPath, int]", kept.modes),
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
                warnings=(*self.warnings, *scan.warnings),
                repository=repository,
                tool=__version__,
            ),
        )

    def _sweep(self) -> None:
        """Remove what a killed process left: we hold the lock, so nobody is using it."""
        with suppress(OSError):
            self.where.index.with_name("index.lock").unlink()
        root = self.where.store.root
        # Of what lies in the root, only what nobody misses whose half is taken away while it is written.
        shared = (*root.glob("store.json.*.part"), *root.glob(f"{usage.FILE}.*.part"))
        for leftover in (*self.where.scratch.glob("*"), *self.where.folder.glob("*.part"), *shared):
            if leftover.is_dir():
                import shutil  # slow to load, and hardly ever needed

                shutil.rmtree(leftover, ignore_errors=True)
            else:
                with suppress(OSError):
                    leftover.unlink()

    def _heal(self, *, with_index: bool) -> None:
        self._sweep()
        self.intake.forget()
        self.last = None
        self.where.state.unlink(missing_ok=True)
        if with_index:
            self.where.index.unlink(missing_ok=True)
