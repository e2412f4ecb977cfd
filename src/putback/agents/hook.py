"""One event of a coding agent, from its bytes to our answer. The agent is never failed, and never kept long.

Whatever goes wrong here is told to the user by `status`, not to the agent: an agent that stops because its safety
net has a hole would only be run without one. A capture that takes long goes on in a process of its own, and the
agent goes on meanwhile; its turn says then that it began late.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from putback.agents.adapter import Adapter, Answer, first_line
from putback.agents.sessions import SessionFolder, begun
from putback.config import Settings
from putback.errors import Cancelled, LockedError, PutbackError, UsageError
from putback.fs.durable import write_cache, write_file
from putback.git import user_repo
from putback.opening import session
from putback.paths import RelPath, quote
from putback.progress import SILENT
from putback.records import document
from putback.records.agent import Call, Ended, Event, Failure, Point
from putback.store import usage
from putback.store.layout import Store, WorkspacePaths
from putback.workspace import PathArgument, Workspace

if TYPE_CHECKING:
    from putback.ops.session import Session

FAILURE = "hook-failure.json"
# What the hooks have told of the store's size last, and by its time when that was.
WARNED = "hook-warning"
_WARN_AGAIN_SECONDS = 24 * 3600
_POLL_SECONDS = 0.002
_NAMED = 20
_ENDS = frozenset({Point.CLOSE, Point.END})
_MEANT = frozenset({Point.OPEN, Point.BEFORE, Point.AFTER, *_ENDS})
_SLOW = "putback: the first capture of this folder takes long; it goes on, and this turn says that it began late"


class Hook(msgspec.Struct, frozen=True):
    """The hook of one agent. `store` is where captures are kept; `settings` replace what files say."""

    adapter: Adapter
    store: PathArgument | None = None
    settings: Settings | None = None

    def answer(self, data: bytes, name: str = "") -> bytes:
        """What to print for an event. Raises nothing that the agent would see."""
        event: Event | None = None
        try:
            event = self.adapter.decode(data, name)
            if event.point in _MEANT:
                return self._act(self._workspace(event), event) or self.adapter.silence
        except Exception as error:
            self._keep(event, error)
        return self.adapter.silence

    def interrupted(self) -> None:
        """Somebody ended the hook before it had an answer: that is told, too."""
        self._keep(None, Cancelled("the hook was ended before it was done"))

    def _workspace(self, event: Event) -> Workspace:
        # The agent says where it works, and that may be another work tree than the one it was started in.
        return Workspace.open(event.cwd or ".", store=self.store, settings=self.settings, forgive=_forgive)

    def _act(self, workspace: Workspace, event: Event) -> bytes:
        if event.point is Point.OPEN:
            return self._open(workspace, event)
        if event.point in _ENDS:
            self._end(workspace, event, _ended(event))
            if workspace.settings.retention.is_set:  # imported for nothing it would cost every turn
                workspace.upkeep.retain()  # `status` tells what there is to tell
            return b""
        self._note(workspace, event)
        return self._guard(workspace, event) if event.point is Point.BEFORE else b""

    def _note(self, workspace: Workspace, event: Event) -> None:
        """Remember what the tools name, in every tree that they may mean."""
        calls = [_absolute(call, event.cwd) for call in event.calls]
        folder = SessionFolder(workspace.paths, event.agent, event.session)
        named = [path for call in calls for path in call.paths]
        writes = bool(named) or any(call.command for call in calls)
        if writes and event.point is Point.BEFORE and not folder.record.exists():
            self._begin_at_call(workspace, event)
        folder.note(calls)
        root = os.path.join(workspace.root, "")
        if any(not path.startswith(root) for path in named):
            for where in begun(workspace.paths.store, event.agent, event.session):
                if where.folder != folder.where.folder:
                    SessionFolder(where, event.agent, event.session).note(calls)

    def _begin_at_call(self, workspace: Workspace, event: Event) -> None:
        """Begin a turn at a tool call that no prompt has announced in this tree.

        The agent has gone into another work tree of the same repository, or goes on by itself after it had
        stopped. A tree that has never been captured is not for a tool call to choose.
        """
        store = workspace.paths.store
        if os.path.exists(store.root / FAILURE):
            return  # the prompt could not be captured, and that is told
        others = begun(store, event.agent, event.session)
        shared = user_repo.shared_directory(workspace.paths.root)
        beside = [where for where in others if shared and user_repo.shared_directory(where.root) == shared]
        if not beside and not workspace.paths.exists():
            return
        workspace.check_root()
        opened = next((SessionFolder(where, event.agent, event.session).load() for where in beside), None)
        if opened is not None:
            event = msgspec.structs.replace(event, prompt=opened.prompt, turn=event.turn or opened.turn)
        self._bounded(workspace, event, lambda wait: _begin_late(workspace, event, wait, late=opened is None), 0)

    def _guard(self, workspace: Workspace, event: Event) -> bytes:
        """What happens before a shell command that plainly destroys something: a capture, and maybe a question."""
        commands = [call.command for call in event.calls if call.command]
        policy = workspace.settings.agent.guard
        if policy == "off" or not commands:
            return b""
        from putback.agents.guard import destructive

        found = next(filter(None, map(destructive, commands)), None)
        if found is None:
            return b""
        message = f"before: {first_line(commands[0])}"
        patience = workspace.settings.agent.prompt_seconds
        taken = False
        try:
            workspace.check_root()
            taken = self._bounded(workspace, event, lambda wait: _snapshot(workspace, message, wait), patience)
        except PutbackError as error:
            self._keep(event, error)
        if policy == "ask" and self.adapter.asks is not None:
            then = (
                "a snapshot was taken first" if taken else "no snapshot could be taken; `putback status` says why"
            )
            return msgspec.json.encode(self.adapter.asks(f"putback: {found}; {then}"))
        return b""

    def _open(self, workspace: Workspace, event: Event) -> bytes:
        workspace.check_root()
        for path in _failures(workspace.paths.store):
            with suppress(OSError):
                # What goes wrong now is told anew; what went wrong before is mended.
                path.unlink(missing_ok=True)
        self._end(workspace, event, Ended.INTERRUPTED, here=False)
        patience = workspace.settings.agent.prompt_seconds
        answer: Answer = {}
        news: list[RelPath] = []
        if not self._bounded(workspace, event, lambda wait: news.extend(_begin(workspace, event, wait)), patience):
            answer = {} if self.adapter.notice is None else self.adapter.notice(_SLOW)
        elif news and self.adapter.context is not None:
            answer = self.adapter.context(event.name, _told(news))
        if not answer and self.adapter.notice is not None:
            warning = _due_warning(workspace)
            answer = self.adapter.notice(f"putback: {warning}") if warning else {}
        return msgspec.json.encode(answer) if answer else b""

    def _end(self, workspace: Workspace, event: Event, ended: Ended, *, here: bool = True) -> None:
        """End the turns of the session, in every tree that it went into; not in this one unless `here`."""
        for where in begun(workspace.paths.store, event.agent, event.session):
            own = where.folder == workspace.paths.folder
            # A work tree that an agent made for itself may be gone again.
            if (own and not here) or (not own and not os.path.isdir(where.root)):
                continue
            try:
                with _session(where, workspace.settings, workspace.settings.agent.prompt_seconds) as opened:
                    from putback.agents import turns

                    turns.end(opened, event, ended)
            except PutbackError as error:
                self._keep(event, error)

    def _bounded(self, workspace: Workspace, event: Event, effect: Callable[[float], object], wait: float) -> bool:
        """Do what captures, a first capture in a process of its own; says whether it was done in time.

        Every other capture reads only what has changed. `wait` is how many seconds it waits for another process.
        """
        if workspace.paths.index.exists():
            effect(wait)
            return True

        def attempt() -> None:
            try:
                effect(wait)
            except Exception as error:
                self._keep(event, error)

        return _within(workspace.settings.agent.prompt_seconds, attempt)

    def _keep(self, event: Event | None, error: Exception) -> None:
        """Keep what went wrong where `status` finds it; a store that cannot take it is told of anyway."""
        code, message = "internal", ""
        if isinstance(error, PutbackError):
            code, message = error.code, error.message
        else:
            from putback import faultlog  # nobody but an error of ours needs it

            with suppress(OSError):
                message = f"internal error; details are in {faultlog.write(error)}"
        if self.store is None:
            return
        failure = Failure(
            agent=self.adapter.name,
            event="" if event is None else event.name,
            code=code,
            message=message or "internal error",
            at_ns=time.time_ns(),
        )
        with suppress(OSError, PutbackError):
            store = Store(Path(os.path.realpath(os.fsdecode(self.store))))
            inside, beside = _failures(store)
            if store.exists():
                write_file(inside, document.encode(failure) + b"\n")
            elif not isinstance(error, UsageError):
                # Nothing was ever captured, and a store is not made for this; nor where it must not be.
                beside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_file(beside, document.encode(failure) + b"\n")


def last_failure(store: Store) -> Failure | None:
    """What went wrong in a hook last; None where nothing did, or nobody can tell."""
    found: list[Failure] = []
    for path in _failures(store):
        with suppress(OSError, PutbackError):
            found.append(document.decode(path.read_bytes(), Failure, "hook failure"))
    return max(found, key=lambda failure: failure.at_ns, default=None)


def _failures(store: Store) -> tuple[Path, Path]:
    """Where a failure is kept: in the store, and beside it as long as there is none."""
    return store.root / FAILURE, store.root.with_name(f"{store.root.name}-{FAILURE}")


def _due_warning(workspace: Workspace) -> str:
    """What the user is to be told of the store's size; empty where nothing is, or was told not long ago."""
    store, limit = workspace.paths.store, workspace.settings.store.max_bytes
    if not usage.warning(usage.recent(store), limit):
        return ""
    told = store.root / WARNED
    with suppress(OSError):
        if 0 <= time.time() - told.stat().st_mtime < _WARN_AGAIN_SECONDS:
            return ""
    warning = usage.warning(usage.measure(store), limit)
    with suppress(OSError):
        if warning:
            write_cache(told, f"{warning}\n".encode(), store.modes)
    return warning


def _forgive(fault: str) -> None:
    """A faulty settings file of the workspace is no reason to leave a turn unprotected."""


def _session(where: WorkspacePaths, settings: Settings, wait: float) -> AbstractContextManager[Session]:
    """A session on a workspace, which waits for another process no longer than an agent may be kept waiting."""
    wait = min(settings.store.lock_wait_seconds, wait)
    store = msgspec.structs.replace(settings.store, lock_wait_seconds=wait)
    return session(where, msgspec.structs.replace(settings, store=store), SILENT, "hook", create=True)


def _begin(workspace: Workspace, event: Event, patience: float) -> list[RelPath]:
    """Begin a turn; returns the paths that were put back since the last one."""
    began = time.monotonic()
    with _session(workspace.paths, workspace.settings, patience) as opened:
        from putback.agents import turns  # imported while git is at work

        news = turns.put_back(opened, event)
        turns.begin(opened, event, lambda: time.monotonic() - began > patience)
    return news


def _begin_late(workspace: Workspace, event: Event, wait: float, *, late: bool) -> None:
    # Whoever holds the workspace may be the capture at the prompt, which was not waited for.
    with suppress(LockedError), _session(workspace.paths, workspace.settings, wait) as opened:
        from putback.agents import turns

        prompt = event.prompt or turns.last_prompt(opened, event)
        turns.begin(opened, msgspec.structs.replace(event, prompt=prompt), lambda: late)


def _snapshot(workspace: Workspace, message: str, wait: float) -> None:
    with _session(workspace.paths, workspace.settings, wait) as opened:
        from putback.ops import snapshot

        snapshot.take(opened, message, frozenset())


def _told(news: Sequence[RelPath]) -> str:
    """What the model is told of paths that were put back."""
    shown = ", ".join(quote(path) for path in news[:_NAMED])
    more = f" and {len(news) - _NAMED} more" if len(news) > _NAMED else ""
    return f"The user has put files back since your last turn; read them again before you edit them: {shown}{more}"


def _absolute(call: Call, cwd: str) -> Call:
    """A call whose paths no longer depend on where the agent is."""
    return msgspec.structs.replace(call, paths=tuple(os.path.join(cwd, path) for path in call.paths))


def _ended(event: Event) -> Ended:
    if event.interrupted or event.point is Point.END:
        return Ended.INTERRUPTED
    return Ended.FAILED if event.failed else Ended.STOPPED


def _within(seconds: float, effect: Callable[[], None]) -> bool:
    """Do it in a process of its own, and wait for that no longer than this; says whether it has ended."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            effect()
        finally:
            os._exit(0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(_POLL_SECONDS)
    return False
