"""The library's front door: a directory tree that is protected.

ws = Workspace.open("my-project")
snapshot = ws.snapshot("before the agent")
...
ws.restore(snapshot.id)
ws.undo()
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from putback import config
from putback.errors import StorageError, UnknownId, UnknownStateError, UnsuitableRoot, UsageError
from putback.fs import lock
from putback.fs.filesystem import used_bytes
from putback.git import command, user_repo
from putback.paths import RelPath, from_argument, quote
from putback.progress import SILENT, Progress, Shield
from putback.records.capture import Capture, Purpose
from putback.records.document import AtPath
from putback.records.history import Entry, EntryKind
from putback.records.plan import Policy
from putback.store.history import History
from putback.store.layout import Store, WorkspacePaths, default_store

# The modules of `ops` are imported by the methods that use them: start-up is part of the cost of every call, and
# most calls need few of them.
if TYPE_CHECKING:
    from putback.config import Settings
    from putback.ops.compare import Comparison, Shown
    from putback.ops.recover import Choice, Interrupted
    from putback.ops.restore import Prepared, Restored, Target
    from putback.ops.session import Session
    from putback.records.change import Node

_CAPTURING = frozenset({"snapshot", "diff", "restore", "undo", "redo"})

PathArgument = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Confirm = Callable[["Prepared"], bool]


def available() -> None:
    """Raise GitUnavailable where putback cannot work here at all; for a caller that asks once, up front."""
    command.find()


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot just taken: its history entry, and the record of what it covers and what not."""

    entry: Entry
    capture: Capture

    @property
    def id(self) -> str:
        """The full id, 64 hex digits."""
        return self.entry.id


class WorkspaceStatus(msgspec.Struct, frozen=True):
    """Whether a workspace is protected (`last` is its newest entry), and what the whole store costs in bytes.

    `damaged` says what is wrong with records of the history that cannot be read. `replaced` is true where another
    directory stands at the path than the one that was captured last.
    """

    root: Path
    last: Entry | None
    entries: int
    damaged: tuple[str, ...]
    store: Path
    store_bytes: int
    store_limit: int
    replaced: bool
    interrupted: Interrupted | None


class Workspace:
    """One protected tree. Opening it touches no disk; each method is one operation under the workspace's lock.

    Every method raises a subclass of `putback.errors.PutbackError` on failure: GitUnavailable where git is
    missing, LockedError where another process holds the workspace, and what its own text names.
    """

    def __init__(self, paths: WorkspacePaths, settings: Settings, progress: Progress, typed_in: bytes) -> None:
        self._paths = paths
        self._settings = settings
        self._progress = progress
        self._typed_in = typed_in

    @classmethod
    def open(
        cls,
        path: PathArgument = ".",
        *,
        store: PathArgument | None = None,
        settings: Settings | None = None,
        overrides: Sequence[str] = (),
        forgive: Callable[[str], None] | None = None,
        progress: Progress = SILENT,
    ) -> Workspace:
        """The workspace that `path` belongs to: the git work tree around it, else the directory itself.

        `store` is where captures are kept; the default is the platform's directory for user state. `settings`
        replace what the configuration files say, `overrides` (`KEY=VALUE`) win over them. Raises StorageError
        where there is no such directory, UsageError where the configuration is wrong or the store would hold the
        workspace. With `forgive`, faults in the workspace's own files only go there.
        """
        try:
            start = os.path.realpath(os.fsencode(path))
        except OSError as error:
            raise StorageError(f"cannot open the workspace: {error.strerror}") from error
        if not os.path.isdir(start):
            raise StorageError(f"no such directory: {quote(start)}")
        root = user_repo.toplevel(start) or start
        place = Path(os.path.realpath(default_store() if store is None else os.fsdecode(store)))
        _check_store(place, Path(os.fsdecode(root)))
        where = Store(place).workspace(root)
        chosen = (
            config.load(Path(os.fsdecode(root)), config.user_file(), overrides, forgive=forgive)
            if settings is None
            else settings
        )
        return cls(where, chosen, progress, start)

    @property
    def root(self) -> Path:
        """The root of the tree, as a real path."""
        return Path(os.fsdecode(self._paths.root))

    @property
    def paths(self) -> WorkspacePaths:
        """Where the store keeps what belongs to this workspace."""
        return self._paths

    def snapshot(self, message: str = "", *, paths: Iterable[PathArgument] = ()) -> Snapshot:
        """Capture the workspace as it is now, or only `paths`; an empty message becomes the time.

        Raises UnsuitableRoot for a directory that is plainly no project, OverBudget before anything is written,
        UnsafePath for a path outside, StorageError and IntegrityError.
        """
        scope = self._scope(paths)
        self._check_root()
        with self._session("snapshot", create=True) as session:
            from putback.store import captures

            created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
            text = message.encode("utf-8", "backslashreplace").decode()
            state = session.capturer.take(message=text or created, purpose=Purpose.SNAPSHOT, scope=scope)
            capture_id = captures.write(session.where, state)
            entry = Entry(
                seq=session.history.next_seq(),
                id=capture_id,
                kind=EntryKind.SNAPSHOT,
                created_ns=state.record.created_ns,
                after=capture_id,
                message=state.record.message,
                scope=tuple(AtPath.at(path) for path in sorted(scope)),
                files=state.record.files,
                bytes=state.record.bytes,
                not_covered=len(state.record.not_covered),
            )
            session.history.add(entry, session.where.scratch)
            return Snapshot(entry, state.record)

    def list(self) -> list[Entry]:
        """The history, newest first; empty where nothing was ever captured.

        Records that are damaged are passed over; `status` names them.
        """
        available()
        return History(self._paths.history).readable()[0] if self._paths.exists() else []

    def show(self, asked: str) -> Shown:
        """One entry: its record, its capture's record, and for a span what it changed."""
        from putback.ops import compare

        with self._session("show", asked) as session:
            return compare.describe(session, asked)

    def files(self, asked: str, path: PathArgument | None = None) -> dict[RelPath, Node]:
        """The paths that a capture holds, in path order; empty directories are in it, others are not."""
        from putback.ops import compare

        below = None if path is None else self._relative(path)
        with self._session("ls", asked) as session:
            return compare.holdings(session, asked, below)

    def diff(self, asked: str = "@1", *, paths: Iterable[PathArgument] = (), patch: bool = True) -> Comparison:
        """How the disk differs from what `asked` would restore, or what happened in a span or between `A..B`.

        Changes nothing in the workspace. With `patch` false, only the list of changes is made.
        """
        from putback.ops import compare

        scope = self._scope(paths)
        with self._session("diff", asked) as session:
            return compare.compare(session, asked, scope, patch=patch)

    def restore(
        self,
        asked: str,
        *,
        paths: Iterable[PathArgument] = (),
        exact: bool = False,
        force: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Restored:
        """Put the tree back as a snapshot has it, or take back what a span or `A..B` did.

        Whatever is about to be replaced or removed is captured first, so that `undo` can take this back. A
        snapshot overwrites and reports; it removes only what some capture held, with `exact` also what none did.
        A span refuses each path that has changed since, unless `force`. `paths` bound what is touched; a path
        that neither the captures nor the disk know raises UnsafePath. With `dry_run`, or where `confirm` answers
        no, nothing is touched.
        """
        from putback.ops import compare

        scope = self._scope(paths)

        def target(session: Session) -> tuple[Target, Policy]:
            return compare.restore_target(session, asked, scope)

        return self._restore("restore", target, scope, exact, force, dry_run, confirm, asked)

    def undo(self, *, force: bool = False, dry_run: bool = False, confirm: Confirm | None = None) -> Restored:
        """Take back the newest entry that did something; again goes further back.

        Refuses each path that changed since, unless `force`. Raises NothingToUndo, and UnknownStateError while an
        interrupted restore waits for `recover`.
        """
        return self._restore("undo", _by_undo, frozenset(), False, force, dry_run, confirm)

    def redo(self, *, force: bool = False, dry_run: bool = False, confirm: Confirm | None = None) -> Restored:
        """Do again what `undo` took back last. Raises as `undo` does."""
        return self._restore("redo", _by_redo, frozenset(), False, force, dry_run, confirm)

    def interrupted(self) -> Interrupted | None:
        """The restore that was cut short and of which nobody has yet decided what should become; else None."""
        from putback.ops import recover

        available()
        if not self._paths.exists() or not self._paths.journal.exists():
            return None
        with self._session("status") as session:
            return recover.inspect(session)

    def status(self) -> WorkspaceStatus:
        """Protected or not, since when, what the store costs, and what is undecided."""
        known = self._paths.exists()
        history = History(self._paths.history)
        entries, damaged = history.readable() if known else ([], [])
        identity = self._paths.identity() if known else None
        here = os.stat(self._paths.root)
        command.find()
        return WorkspaceStatus(
            root=self.root,
            last=entries[0] if entries else None,
            entries=len(entries),
            damaged=tuple(damaged),
            store=self._paths.store.root,
            store_bytes=used_bytes(self._paths.store.root),
            store_limit=self._settings.store.max_bytes,
            replaced=identity is not None and (identity.device, identity.inode) != (here.st_dev, here.st_ino),
            interrupted=self.interrupted(),
        )

    def recover(self, choice: Choice) -> Restored:
        """Leave an unknown state: take the interrupted restore back, finish it, or accept the tree as it is.

        Paths that are neither as before nor as after are never touched. Raises UnknownStateError where there is
        nothing to recover.
        """
        from putback.ops import recover

        with self._session("recover") as session:
            return recover.resolve(session, choice)

    def _restore(
        self,
        name: str,
        find: Callable[[Session], tuple[Target, Policy]],
        scope: frozenset[RelPath],
        exact: bool,
        force: bool,
        dry_run: bool,
        confirm: Confirm | None,
        asked: str = "",
    ) -> Restored:
        from putback.ops import recover, restore
        from putback.ops.restore import Options, Restored

        with self._session(name, asked) as session:
            interrupted = self._check_known(session, name)
            target, policy = find(session)
            options = Options(scope, Policy.FORCE if force and policy is Policy.REFUSE else policy, exact)
            prepared = restore.prepare(session, target, options)
            if dry_run or (confirm is not None and prepared.plan.steps and not confirm(prepared)):
                return Restored(prepared.plan)
            if interrupted:
                recover.resolve(session, recover.Choice.KEEP)
            return msgspec.structs.replace(restore.carry_out(session, prepared), superseded=interrupted)

    def _check_known(self, session: Session, name: str) -> bool:
        """Whether a restore was interrupted. That blocks what would build on it, but a new restore, which names
        its goal and captures everything as it is first, may go on."""
        from putback.ops import recover

        interrupted = recover.inspect(session)
        if interrupted is not None and name != "restore":
            raise UnknownStateError(
                f"an interrupted restore left {len(interrupted.paths)} paths undecided",
                hint="`putback recover` shows them and resolves the state",
            )
        return interrupted is not None

    def _check_root(self) -> None:
        home = Path(os.path.realpath(os.path.expanduser("~")))
        reason = config.is_unsuitable(self.root, home)
        if reason is not None and not self._settings.capture.anywhere:
            raise UnsuitableRoot(
                f"{quote(self._paths.root)} is {reason}, which is no project; nothing was captured",
                hint="go into a project, or insist with -c capture.anywhere=true",
            )

    def _scope(self, arguments: Iterable[PathArgument]) -> frozenset[RelPath]:
        chosen = [self._relative(argument) for argument in arguments]
        return frozenset() if None in chosen else frozenset(path for path in chosen if path is not None)

    def _relative(self, argument: PathArgument) -> RelPath | None:
        return from_argument(self._paths.root, self._typed_in, os.fsencode(argument))

    @contextmanager
    def _session(self, name: str, asked: str = "", *, create: bool = False) -> Iterator[Session]:
        """Everything an operation works with, under the locks. Only `create` makes a store where there is none."""
        shield = Shield(self._progress)
        git = command.find(cancelled=shield.cancelled)
        if not create and not self._paths.exists():
            what = f"unknown id {asked!r}: " if asked else ""
            raise UnknownId(
                f"{what}nothing was ever captured of {quote(self._paths.root)}",
                hint="`putback snapshot` takes the first capture",
            )
        self._paths.create(time.time_ns())
        where, wait = self._paths, self._settings.store.lock_wait_seconds
        try:
            with ExitStack() as stack:
                for file, shared in ((where.lock, False), (where.store.lock, True)):
                    stack.enter_context(lock.hold(file, name, shared, wait, self._progress))
                bound = git.on(where.store.git_dir, work_tree=where.root, index=where.index)
                early = bound.background(*command.MODIFIED) if name in _CAPTURING else None
                # Imported while git is at work on the question that takes longest.
                from putback.ops.session import open_session

                yield open_session(stack, where, bound, self._settings, shield, early, strict=name != "recover")
        except OSError as error:
            culprit = f" {quote(os.fsencode(error.filename))}" if error.filename else ""
            raise StorageError(f"{name}: the system refused{culprit}: {error.strerror}") from error


def _check_store(place: Path, root: Path) -> None:
    """Refuse a store that would hold the workspace, or lie in a repository of the user's."""
    if place == root or place in root.parents:
        problem = f"the store {quote(os.fsencode(place))} would hold the workspace itself"
    elif any(part.lower() == ".git" for part in place.parts):
        problem = f"the store {quote(os.fsencode(place))} would lie inside a .git"
    else:
        return
    raise UsageError(
        f"{problem}; nothing was written", hint="name another directory with --store or $PUTBACK_STORE"
    )


def _by_undo(session: Session) -> tuple[Target, Policy]:
    from putback.ops import undo

    return undo.undo_target(session), Policy.REFUSE


def _by_redo(session: Session) -> tuple[Target, Policy]:
    from putback.ops import undo

    return undo.redo_target(session), Policy.REFUSE
