"""The library's front door: a directory tree that is protected.

ws = Workspace.open("my-project")
snapshot = ws.snapshot("before the agent")
...
ws.restore(snapshot.id)
ws.undo()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from putback import config
from putback.errors import (
    IntegrityError,
    LockedError,
    StorageError,
    UnknownId,
    UnsafePath,
    UnsuitableRoot,
)
from putback.git import command, user_repo
from putback.opening import session
from putback.paths import RelPath, from_argument, quote
from putback.progress import SILENT, Progress
from putback.store.layout import Store, WorkspacePaths, check_place, default_store

# What an operation works with is imported by its method: start-up is part of the cost of every call, most calls
# need little of it, and what `opening` has git do first goes on meanwhile.
if TYPE_CHECKING:
    from putback.config import Settings
    from putback.ops.compare import Comparison, Shown
    from putback.ops.recover import Choice, Interrupted
    from putback.ops.restore import Options, Restored, Target
    from putback.ops.session import Session
    from putback.ops.snapshot import Snapshot
    from putback.ops.status import Glance, WorkspaceStatus
    from putback.records.change import Node
    from putback.records.history import Entry, EntryKind
    from putback.records.plan import Plan
    from putback.records.run import Limits
    from putback.runs.catalog import Runs
    from putback.runs.close import RunResult
    from putback.store.history import Listed
    from putback.turns.catalog import Turns
    from putback.upkeep.catalog import Upkeep

PathArgument = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Confirm = Callable[["Plan"], bool]


def available() -> None:
    """Raise GitUnavailable where putback cannot work here at all; for a caller that asks once, up front."""
    command.find()


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
        check_place(place, Path(os.fsdecode(root)))
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
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

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
        self.check_root()
        with self._session("snapshot", create=True) as session:
            from putback.ops import snapshot

            return snapshot.take(session, message, scope)

    def list(self, *, limit: int | None = None, kinds: Iterable[EntryKind] = (), session: str = "") -> list[Entry]:
        """The history, newest first; empty where nothing was ever captured.

        At most `limit` entries, of `kinds` only, and of the agent's session only whose name begins with `session`,
        where these are given. Records that are damaged are passed over; `status` and `check` name them.
        """
        return [item.entry for item in islice(self.listing(kinds=kinds, session=session), limit)]

    def listing(self, *, kinds: Iterable[EntryKind] = (), session: str = "") -> Iterator[Listed]:
        """The same one by one, with the number that each goes by, and read only as far as somebody looks."""
        from putback.store.history import History, listing

        self._available()
        self._settle()
        return (
            listing(History(self._paths.history), frozenset(kinds), session) if self._paths.exists() else iter(())
        )

    def show(self, asked: str) -> Shown:
        """One entry: its record, its capture's record, and for a span what it changed."""
        from putback.ops import compare

        try:
            with self._session("show", asked) as session:
                shown = compare.describe(session, asked)
        except UnknownId:
            run = self.runs.find(asked)
            if run is None:
                raise
            raise run.not_over() from None
        from putback.records.history import EntryKind
        from putback.runs import tell

        if shown.entry is None or shown.entry.kind is not EntryKind.RUN:
            return shown

        return tell.with_evidence(shown, self._paths.runs / shown.entry.id)

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
        merge: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Restored:
        """Put the tree back as a snapshot has it, or take back what a span or `A..B` did.

        Whatever is about to be replaced or removed is captured first, so that `undo` can take this back. A
        snapshot overwrites and reports; it removes only what some capture held, with `exact` also what none did.
        A span refuses each path that has changed since; with `force` it is overwritten, with `merge` texts are
        merged, so that what was changed since is kept, and what cannot be merged is refused. A run is taken back
        by its documents, and closed first where its supervisor was killed. `paths` bound what is touched; a path
        that neither the captures nor the disk know raises UnsafePath. With `dry_run`, or where `confirm` answers
        no, nothing is touched. Raises UsageError for both `force` and `merge`, or a snapshot to merge.
        """
        from putback.ops import compare
        from putback.ops.restore import Options

        scope = self._scope(paths)
        killed = self.runs.find(asked)
        if killed is not None:
            self.runs.close(killed)

        def target(session: Session) -> Target:
            run = session.run_entry(asked)
            if run is None:
                return compare.restore_target(session, asked, scope)
            from putback.runs import restore

            return restore.of_entry(session, run, self._paths.runs / run.id)

        return self._restore("restore", target, Options(scope, force, exact, merge), dry_run, confirm, asked)

    def restore_documents(
        self,
        folder: PathArgument,
        *,
        insist: bool = False,
        paths: Iterable[PathArgument] = (),
        force: bool = False,
        merge: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Restored:
        """Take back the run whose documents lie in `folder`, wherever they came from.

        They choose what is done, never where: with `insist` it is this tree that is meant, else all of them must
        name it, or RootDisagreement is raised. A step that the store's captures contradict is refused.
        """
        from putback.ops.restore import Options

        def target(session: Session) -> Target:
            from putback.runs import restore
            from putback.runs.evidence import Evidence

            documents = Evidence(Path(os.fsdecode(folder))).load()
            return restore.target(session, documents, insist=insist)

        options = Options(self._scope(paths), force, merge=merge)
        return self._restore("restore", target, options, dry_run, confirm)

    @property
    def limits(self) -> Limits:
        """The limits of a run that the configuration sets."""
        from putback.runs.run import configured_limits

        return configured_limits(self._settings.run)

    def run(
        self,
        command: Sequence[str],
        *,
        snapshot: bool | None = None,
        rollback_on_breach: bool | None = None,
        limits: Limits | None = None,
        leftovers: str | None = None,
        output: int | None = None,
    ) -> RunResult:
        """Run a command in the directory that the workspace was opened at, and record what it does to the tree.

        With `snapshot` contents are kept, so that the run can be taken back; `rollback_on_breach` implies it, and
        takes it back where one of the `limits` is broken. What is None comes from the configuration. `output` is
        a file descriptor in place of standard output. Raises OverBudget before the command is started, and
        CommandNotFound or NotExecutable.
        """
        from putback.records.run import Discipline
        from putback.runs import run as runs

        self.check_root()
        request = runs.request(
            self._settings.run,
            tuple(command),
            Path(os.fsdecode(self._typed_in)),
            snapshot=snapshot,
            rollback_on_breach=rollback_on_breach,
            limits=self.limits if limits is None else limits,
            leftovers=leftovers,
            output=output,
        )
        contents = request.discipline is Discipline.CONTENTS
        with self.runs.telling_how_to_close(contents=contents):
            return runs.run(self._paths, lambda: self._session("run", create=True, contents=contents), request)

    @property
    def runs(self) -> Runs:
        """The runs of this workspace: their evidence, and those that have no end."""
        from putback.runs.catalog import Runs

        return Runs(self._paths, lambda contents: self._session("run", contents=contents))

    @property
    def turns(self) -> Turns:
        """Exact-path turns: the bindings of this store, and what is done under them."""
        from putback.turns.catalog import Turns

        return Turns(
            self._paths,
            self._settings,
            self._progress,
            lambda where, name, settings: session(where, settings, self._progress, name, create=True),
        )

    @property
    def upkeep(self) -> Upkeep:
        """Looking after the store: retention, check and repair, forgetting, relocating, sizes."""
        from putback.upkeep.catalog import Upkeep

        return Upkeep(self._paths, self._settings, self._progress)

    def undo(
        self,
        asked: str | None = None,
        *,
        force: bool = False,
        merge: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Restored:
        """Take back the newest entry that did something, again goes further back; or the entry that `asked` names.

        Refuses each path that changed since, unless `force` or `merge`, see `restore`; an exact-path turn is taken
        back whole, in the index too, or not at all. Raises NothingToUndo, and UnknownStateError while an
        interrupted restore waits for `recover`.
        """
        from putback import restoring
        from putback.ops.restore import Options

        self._settle()
        turn = restoring.exact_turn_to_undo(self._paths, asked) if self._paths.exists() else None
        if turn is not None:
            from putback.turns import undo

            return undo.undo(self.turns, turn, force=force, merge=merge, dry_run=dry_run, confirm=confirm)
        options = Options(force=force, merge=merge)
        return self._restore("undo", restoring.undo_of(asked), options, dry_run, confirm)

    def redo(
        self, *, force: bool = False, merge: bool = False, dry_run: bool = False, confirm: Confirm | None = None
    ) -> Restored:
        """Put back what `undo` changed last, as it was before. Raises as `undo` does."""
        from putback import restoring
        from putback.ops.restore import Options

        options = Options(force=force, merge=merge)
        return self._restore("redo", restoring.redo_of, options, dry_run, confirm)

    def interrupted(self) -> Interrupted | None:
        """The restore that was cut short and of which nobody has yet decided what should become; else None."""
        from putback.ops import recover

        self._available()
        if not self._paths.exists() or not self._paths.journal.exists():
            return None
        with self._session("status") as session:
            return recover.inspect(session)

    def status(self) -> WorkspaceStatus:
        """Protected or not, since when, what the store costs, and what is undecided."""
        from putback.ops import status

        self._available()
        self._settle()
        return status.inspect(self._paths, self._settings, self.interrupted())

    def glance(self) -> Glance:
        """The same as far as it can be told at once: for a status bar, that asks often."""
        from putback.ops import status

        return status.glance(self._paths, self._settings)

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
        find: Callable[[Session], Target],
        options: Options,
        dry_run: bool,
        confirm: Confirm | None,
        asked: str = "",
    ) -> Restored:
        from putback import restoring

        with self._session(name, asked) as session:
            return restoring.put_back(session, find, options, dry_run=dry_run, confirm=confirm)

    def _settle(self) -> None:
        """For what reads the history without a lock: have an exchange of it that was cut short come to its end."""
        if os.path.exists(self._paths.exchange):
            with self._session("status"):
                """Opening the session does it."""

    def _available(self) -> None:
        command.find(cancelled=self._progress.cancelled)

    def check_root(self) -> None:
        """Raise UnsuitableRoot for a directory that is plainly no project, unless the settings allow it."""
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

    def paths_below(self, arguments: Iterable[PathArgument]) -> frozenset[RelPath]:
        """What these literal paths mean, relative to where the workspace was opened; each below the root.

        Raises UnsafePath for one that is not.
        """
        found = {argument: self._relative(argument) for argument in arguments}
        for argument, path in found.items():
            if path is None:
                raise UnsafePath(f"the workspace itself, not a path in it: {quote(os.fsencode(argument))}")
        return frozenset(path for path in found.values() if path is not None)

    def _session(
        self, name: str, asked: str = "", *, create: bool = False, contents: bool = True
    ) -> AbstractContextManager[Session]:
        if name != "status" and os.path.exists(self._paths.purge):
            from putback.upkeep import forget

            # Whoever began that was killed, or others were at work. `status` tells of it; nothing fails for it.
            with suppress(LockedError, StorageError, IntegrityError):
                forget.purge(self.upkeep)
        return session(self._paths, self._settings, self._progress, name, asked, create=create, contents=contents)
