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
from putback.agents.sessions import SessionFolder
from putback.config import Settings
from putback.errors import PutbackError
from putback.fs.durable import write_cache, write_file
from putback.opening import session
from putback.paths import RelPath, quote
from putback.progress import SILENT
from putback.records import document
from putback.records.agent import Call, Ended, Event, Failure, Point
from putback.store import usage
from putback.store.layout import Store
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
        except PutbackError as error:
            self._keep(event, error)
        return self.adapter.silence

    def _workspace(self, event: Event) -> Workspace:
        # The agent says where it works, and that may be another work tree than the one it was started in.
        return Workspace.open(event.cwd or ".", store=self.store, settings=self.settings, forgive=_forgive)

    def _act(self, workspace: Workspace, event: Event) -> bytes:
        if event.point is Point.OPEN:
            return self._open(workspace, event)
        folder = SessionFolder(workspace.paths, event.agent, event.session)
        if event.point in (Point.BEFORE, Point.AFTER):
            folder.note(_absolute(call, event.cwd) for call in event.calls)
            if event.point is Point.BEFORE:
                return self._guard(workspace, event)
        elif folder.record.exists():
            with _session(workspace) as opened:
                from putback.agents import turns

                turns.end(opened, event, _ended(event))
        return b""

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
        workspace.snapshot(f"before: {first_line(commands[0])}")
        if policy == "ask" and self.adapter.asks is not None:
            return msgspec.json.encode(self.adapter.asks(f"putback: {found}; a snapshot was taken first"))
        return b""

    def _open(self, workspace: Workspace, event: Event) -> bytes:
        workspace.check_root()
        with suppress(OSError):
            # What goes wrong now is told anew; what went wrong before is mended.
            (workspace.paths.store.root / FAILURE).unlink(missing_ok=True)
        patience = workspace.settings.agent.prompt_seconds
        answer: Answer = {}
        if workspace.paths.index.exists():
            # Every capture but the first reads only what has changed.
            news = _begin(workspace, event, patience)
            if news and self.adapter.context is not None:
                answer = self.adapter.context(event.name, _told(news))
        elif not _within(patience, lambda: self._begin_first(workspace, event, patience)):
            answer = {} if self.adapter.notice is None else self.adapter.notice(_SLOW)
        if not answer and self.adapter.notice is not None:
            warning = _due_warning(workspace)
            answer = self.adapter.notice(f"putback: {warning}") if warning else {}
        return msgspec.json.encode(answer) if answer else b""

    def _begin_first(self, workspace: Workspace, event: Event, patience: float) -> None:
        try:
            _begin(workspace, event, patience)
        except PutbackError as error:
            self._keep(event, error)

    def _keep(self, event: Event | None, error: PutbackError) -> None:
        """Keep what went wrong where `status` finds it; a store that cannot take it is told of anyway."""
        if self.store is None:
            return
        failure = Failure(
            agent=self.adapter.name,
            event="" if event is None else event.name,
            code=error.code,
            message=error.message,
            at_ns=time.time_ns(),
        )
        with suppress(OSError, PutbackError):
            place = Path(os.path.realpath(os.fsdecode(self.store)))
            if Store(place).exists():
                write_file(place / FAILURE, document.encode(failure) + b"\n")


def last_failure(store: Store) -> Failure | None:
    """What went wrong in a hook last; None where nothing did, or nobody can tell."""
    with suppress(OSError, PutbackError):
        return document.decode((store.root / FAILURE).read_bytes(), Failure, "hook failure")
    return None


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


def _session(workspace: Workspace) -> AbstractContextManager[Session]:
    """A session on the workspace, for which an agent is not kept waiting longer than a prompt may be."""
    settings = workspace.settings
    patience = min(settings.store.lock_wait_seconds, settings.agent.prompt_seconds)
    store = msgspec.structs.replace(settings.store, lock_wait_seconds=patience)
    chosen = msgspec.structs.replace(settings, store=store)
    return session(workspace.paths, chosen, SILENT, "hook", create=True)


def _begin(workspace: Workspace, event: Event, patience: float) -> list[RelPath]:
    """Begin a turn; returns the paths that were put back since the last one."""
    began = time.monotonic()
    with _session(workspace) as opened:
        from putback.agents import turns  # imported while git is at work

        news = turns.put_back(opened, event)
        turns.begin(opened, event, lambda: time.monotonic() - began > patience)
    return news


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
