"""Carry out a plan on a workspace: stage everything, then publish, then remove, then verify.

Until `publish` is called the workspace holds nothing new but staged files, which `discard` takes away again:
a missing object, a full disk or a directory that cannot be written end the restore there. Publishing looks at
every target once more and refuses a path that is no longer what the plan says. A path that fails does not stop
the others, but after a failure nothing is removed any more.

Not guaranteed: that several files appear at one instant, or isolation against a process that writes a target
between the last look and the rename.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from putback import seams
from putback.errors import Cancelled, FailedError, IntegrityError, PutbackError, StorageError, UnsafePath
from putback.fs.durable import side_by_side
from putback.fs.place import Place, Seen
from putback.fs.root import GONE, Root, chmod, remove
from putback.ops.plan import describe
from putback.ops.staging import Staging, choose_places
from putback.paths import RelPath, parents, quote
from putback.progress import Progress
from putback.records.change import Kind, Node
from putback.records.plan import Action, Outcome, Plan, Status, Step

OWNER_ALL = 0o700
DONE = {
    Action.RESTORE: Status.RESTORED,
    Action.RECREATE: Status.RECREATED,
    Action.REMOVE: Status.REMOVED,
    Action.MERGE: Status.MERGED,
}

Look = tuple[int, ...] | None


class Drifted(Exception):
    """A target is not what the plan says any more."""


class Applier(msgspec.Struct, dict=True):
    """One application of one plan. `content` gives the bytes behind a digest, checked.

    `read` has what the safety capture read at some paths, with the stat data from before that. `verified` has the
    stat data of files that were read back and are as they should be: any later write shows in them.
    """

    root: Root
    plan: Plan
    token: str
    content: Callable[[str], Iterator[bytes]]
    progress: Progress
    read: Mapping[RelPath, tuple[Node, os.stat_result]] = {}
    outcomes: dict[RelPath, Outcome] = {}
    touched: set[RelPath] = set()
    verified: dict[RelPath, os.stat_result] = {}
    _looks: dict[RelPath, Look] = {}
    _opened: dict[RelPath, int] = {}
    _parents: set[RelPath | None] = set()
    _same_file: set[RelPath] = set()
    _failed: bool = False

    def __post_init__(self) -> None:
        self._steps = {step.raw: step for step in self.plan.steps}
        wanted = (path for path, step in self._steps.items() if _needs_content(step) or self._is_shared(step))
        self._places = choose_places(self.root, wanted, self.token)
        self._staging = Staging(self.root, self.content)

    def staging_places(self) -> list[RelPath]:
        """Every path at which `stage` may put a file; for the journal, before it happens."""
        return list(self._places.values())

    def contents(self) -> list[str]:
        """The digests of everything that `stage` will ask for, in its order."""
        goals = (self._steps[path].goal for path in self._places)
        return [goal.digest for goal in goals if goal is not None]

    @property
    def exact(self) -> bool:
        """Whether every step was carried out, and its path is now as it should be."""
        applied = all(self.outcomes[path].status.applied for path in self._steps)
        return applied and not self._same_file

    def stage(self) -> None:
        """Write every new content beside its target, checked and durable, and look at every target.

        Raises StorageError, IntegrityError or Cancelled; then the workspace is as it was.
        """
        try:
            self.progress.start("staging", len(self._places))
            for step in self._steps.values():
                if self.progress.cancelled():
                    raise Cancelled("cancelled before anything was put back")
                self._prepare(step)
            self._staging.sync()
            self.progress.finish()
            seams.reach("restore.staged")
        except OSError as error:
            self.discard()
            raise StorageError(
                f"cannot prepare the restore: {error.strerror}", hint="the workspace is as it was"
            ) from error
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Take away what was staged and not published."""
        self._staging.discard()

    def publish(self) -> list[Outcome]:
        """Put the plan into effect and verify it; one outcome per step, in path order."""
        self.progress.start("putting back", len(self._steps))
        order = sorted(self._steps)
        for path in order:
            self._open_directory(self._steps[path])
        for path in order:
            self._give_way(self._steps[path])
        for path in order:
            self._step(path, self._make_directory, lambda s: s.goal is not None and s.goal.kind is Kind.DIRECTORY)
        for path in order:
            self._step(path, self._put, lambda s: s.goal is not None and s.goal.kind is not Kind.DIRECTORY)
        for path in reversed(order):
            self._step(path, self._remove, lambda s: s.goal is None)
        for path in reversed(order):
            self._set_directory_mode(self._steps[path])
        self._close_directories()
        self._sync_directories()
        self.discard()
        seams.reach("restore.published")
        self._verify()
        self.progress.finish()
        return [self.outcomes[path] for path in order]

    def _is_shared(self, step: Step) -> bool:
        """Whether a file that only gets another mode has a second name, which may lie outside the workspace."""
        if step.goal is None or step.goal.kind is not Kind.FILE:
            return False
        try:
            found = self.root.look(step.raw)
        except (OSError, UnsafePath):
            return False
        return found is not None and found.st_nlink > 1

    def _open_directory(self, step: Step) -> None:
        """Let ourselves into a directory whose mode the plan changes or that it removes."""
        now, goal = step.now, step.goal
        if now is None or now.kind is not Kind.DIRECTORY or now.mode & 0o300 == 0o300:
            return
        stays_closed = goal is not None and goal.kind is Kind.DIRECTORY and goal.mode & 0o300 != 0o300
        if stays_closed or step.raw in self.outcomes:
            return
        seams.reach("restore.open_directory")
        with suppress(OSError):
            self.root.chmod(step.raw, now.mode | OWNER_ALL)
            self._opened[step.raw] = now.mode

    def _close_directories(self) -> None:
        """Give the directories that were opened, and then left alone, their modes back."""
        for path, mode in reversed(self._opened.items()):
            if not self.outcomes[path].status.applied:
                with suppress(OSError):
                    self.root.chmod(path, mode)
        self._opened.clear()

    def _prepare(self, step: Step) -> None:
        """Look at a target, and stage what is to stand there."""
        with ExitStack() as stack:
            place: Place | None = None
            try:
                place = self._walk(step)
                if place is not None:
                    stack.enter_context(place)
                self._looks[step.raw] = self._check(step, place)
            except Drifted as moved:
                self._settle(step, Status.REFUSED, str(moved))
            except (UnsafePath, FailedError) as error:
                self._settle(step, Status.REFUSED, error.message)
            else:
                if step.raw in self._places:
                    seams.reach("restore.stage")
                    with _naming(step.raw):
                        self._staging.add(step, self._places[step.raw], place)
                    self.progress.advance()

    def _walk(self, step: Step) -> Place | None:
        """The place of a target; None where a directory on the way is missing, or is none."""
        try:
            return self.root.parent(step.raw)
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def _check(self, step: Step, place: Place | None) -> Look:
        """The look of a target that is what the plan says. Raises Drifted where it is not."""
        if place is None:
            return self._compare(step, None, None)
        if step.raw in self.read:
            # What was read then stands there still if the stat data are the same.
            node, found = self.read[step.raw]
            if _signature(place.look()) == _signature(found):
                return self._compare(step, node, found)
        return self._compare(step, *place.examine())

    def _compare(self, step: Step, found: Node | None, look: os.stat_result | None) -> Look:
        if step.raw in self._opened and found is not None:
            found = Node(found.kind, self._opened[step.raw])
        if found != step.now:
            raise _drifted(step, found)
        return _signature(look)

    def _give_way(self, step: Step) -> None:
        """Where kinds differ and one of them is a directory, clear the place before anything is put there."""
        now, goal = step.now, step.goal
        if now is None or goal is None or step.raw in self.outcomes:
            return
        if now.kind is Kind.DIRECTORY and goal.kind is not Kind.DIRECTORY:
            prefix = step.raw + b"/"
            for path in sorted((path for path in self._steps if path.startswith(prefix)), reverse=True):
                self._step(path, self._remove, lambda s: s.goal is None)
            self._attempt(step, lambda: self.root.remove_directory(step.raw))
        elif now.kind is not Kind.DIRECTORY and goal.kind is Kind.DIRECTORY:
            self._attempt(step, lambda: self._unlink(step))

    def _attempt(self, step: Step, effect: Callable[[], None]) -> None:
        """An effect on the way to a step's own: it settles the step only where it goes wrong."""
        with self._settling(step):
            effect()
            self._looks[step.raw] = None
            self.touched.add(step.raw)

    def _step(self, path: RelPath, effect: Callable[[Step], None], wanted: Callable[[Step], bool]) -> None:
        step = self._steps[path]
        if path in self.outcomes or not wanted(step):
            return
        with self._settling(step):
            effect(step)
            self._parents.add(next(parents(path), None))
        self.progress.advance()

    @contextmanager
    def _settling(self, step: Step) -> Iterator[None]:
        """What goes wrong inside settles the step: refused where the target is not as planned, else failed."""
        try:
            yield
        except Drifted as moved:
            self._settle(step, Status.REFUSED, str(moved))
        except (UnsafePath, FailedError) as error:
            self._settle(step, Status.REFUSED, error.message)
        except OSError as error:
            self._fail(step, error)

    def _put(self, step: Step) -> None:
        goal = step.goal
        assert goal is not None
        seams.reach("restore.before_put")
        with self._target(step) as place:
            self._still(step, place)
            if step.raw in self._staging:
                seams.reach("restore.put")
                self._staging.publish(step.raw, place)
            else:
                chmod(place, goal.mode)
        self.touched.add(step.raw)
        self._settle(step, DONE[step.action], step.note)

    def _make_directory(self, step: Step) -> None:
        goal = step.goal
        assert goal is not None
        if step.now is not None and step.now.kind is Kind.DIRECTORY:
            with self._target(step) as place:
                self._still(step, place)
        else:
            seams.reach("restore.make_directory")
            self.root.make_directory(step.raw, goal.mode | OWNER_ALL)
        self.touched.add(step.raw)
        self._settle(step, DONE[step.action], step.note)

    def _set_directory_mode(self, step: Step) -> None:
        """Last of all, so that a directory which is to be read-only can be filled before."""
        goal = step.goal
        if goal is None or goal.kind is not Kind.DIRECTORY or not self.outcomes[step.raw].status.applied:
            return
        try:
            self.root.chmod(step.raw, goal.mode)
            self._opened.pop(step.raw, None)
        except OSError as error:
            self._fail(step, error)

    def _remove(self, step: Step) -> None:
        assert step.now is not None
        if self._failed:
            self._settle(step, Status.SKIPPED, "another path failed, so nothing is removed")
        elif step.now.kind is Kind.DIRECTORY:
            self._remove_directory(step)
        else:
            self._unlink(step)
            self._settle(step, Status.REMOVED, step.note)

    def _unlink(self, step: Step) -> None:
        seams.reach("restore.before_remove")
        with self._target(step) as place:
            found = self._still(step, place)
            if found is not None and (found.st_dev, found.st_ino) in self._staging.inodes:
                # On a file system that ignores case this name and one just put back are the same file.
                self._same_file.add(step.raw)
                return
            seams.reach("restore.remove")
            remove(place)
        self.touched.add(step.raw)

    def _remove_directory(self, step: Step) -> None:
        try:
            self.root.remove_directory(step.raw)
            self.touched.add(step.raw)
            self._settle(step, Status.REMOVED, step.note)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._settle(step, Status.SKIPPED, "not empty: it holds what is left alone")

    def _target(self, step: Step) -> Place:
        """The place of a target, for its last look and its effect. Raises Drifted and OSError."""
        place = self._walk(step)
        if place is None and self._looks.get(step.raw) is not None:
            raise _drifted(step, None)
        return place or self.root.parent(step.raw)

    def _still(self, step: Step, place: Place) -> os.stat_result | None:
        """The last look at a target. Raises Drifted."""
        found = place.look()
        if _signature(found) != self._looks.get(step.raw):
            self._compare(step, *place.examine())
        return found

    def _settle(self, step: Step, status: Status, reason: str) -> None:
        self.outcomes[step.raw] = Outcome.at(step.raw, status=status, reason=reason)

    def _fail(self, step: Step, error: OSError) -> None:
        self._failed = True
        words = "a symbolic link or a missing directory is in the way" if error.errno in GONE else error.strerror
        self._settle(step, Status.FAILED, words or "failed")

    def _sync_directories(self) -> None:
        def sync(path: RelPath | None) -> None:
            with suppress(OSError):
                self.root.sync_directory(path)

        side_by_side(sync, self._parents)

    def _verify(self) -> None:
        """Read back every path that was put back; one that is not as it should be has failed."""
        for path, outcome in list(self.outcomes.items()):
            step = self._steps[path]
            if outcome.status.applied:
                try:
                    found, seen = self._read_back(step)
                except (OSError, PutbackError):
                    self._settle(step, Status.FAILED, f"cannot be read back: {quote(path)}")
                    continue
                if found == step.goal:
                    if seen is not None:
                        self.verified[path] = seen
                elif path not in self._same_file:
                    self._settle(step, Status.FAILED, f"verification failed: found {describe(found)}")

    def _read_back(self, step: Step) -> Seen:
        place = self._walk(step)
        if place is None:
            return None, None
        with place:
            return place.examine_settled()


@contextmanager
def _naming(path: RelPath) -> Iterator[None]:
    """Say which path could not be prepared."""
    hint = "nothing was touched; name the other paths to put them back without it"
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"cannot put back {quote(path)}: {error.message}", hint=hint) from error
    except OSError as error:
        raise StorageError(f"cannot put back {quote(path)}: {error.strerror}", hint=hint) from error


def _drifted(step: Step, found: Node | None) -> Drifted:
    return Drifted(f"changed meanwhile: expected {describe(step.now)}, found {describe(found)}")


def _needs_content(step: Step) -> bool:
    now, goal = step.now, step.goal
    if goal is None or goal.kind is Kind.DIRECTORY:
        return False
    return now is None or now.kind is not goal.kind or now.digest != goal.digest


def _signature(found: os.stat_result | None) -> Look:
    if found is None:
        return None
    if stat.S_ISDIR(found.st_mode):
        return (found.st_dev, found.st_ino)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)
