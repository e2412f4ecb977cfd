"""One event of a coding agent, from its bytes to our answer. The agent is never failed, and never kept long.

Whatever goes wrong here is told to the user by `status`, not to the agent: an agent that stops because its safety
net has a hole would only be run without one. A capture that takes long goes on in a process of its own, and the
agent goes on meanwhile; its turn says then that it began late.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from putback import config
from putback.agents import turns
from putback.agents.adapter import Adapter
from putback.agents.turns import SessionFolder
from putback.config import Settings
from putback.errors import PutbackError
from putback.fs.durable import write_file
from putback.opening import session
from putback.progress import SILENT
from putback.records import document
from putback.records.agent import Ended, Event, Failure, Point
from putback.records.history import Cause, EntryKind
from putback.store.history import History
from putback.workspace import PathArgument, Workspace

POLL_SECONDS = 0.005
_NAMED = 20


@dataclass(frozen=True)
class Hook:
    """The hook of one agent. `store` is where captures are kept; `settings` replace what files say."""

    adapter: Adapter
    store: PathArgument | None = None
    settings: Settings | None = None

    def answer(self, data: bytes, name: str = "") -> bytes:
        """What to print for an event; raises nothing that the agent would see."""
        try:
            event = self.adapter.decode(data, name)
        except PutbackError as error:
            self._failed(None, None, error)
            return self.adapter.silence
        workspace: Workspace | None = None
        try:
            if event.point in _MEANT:
                workspace = self._workspace(event)
                return self._act(workspace, event) or self.adapter.silence
        except PutbackError as error:
            self._failed(workspace, event, error)
        return self.adapter.silence

    def _workspace(self, event: Event) -> Workspace:
        # The agent works where it says; where it does not say, where it has started us.
        return Workspace.open(
            event.cwd or ".", store=self.store, settings=self.settings, forgive=lambda fault: None
        )

    def _act(self, workspace: Workspace, event: Event) -> bytes:
        if event.point is Point.OPEN:
            return self._open(workspace, event)
        folder = SessionFolder(workspace.paths, event.agent, event.session)
        if event.point in (Point.BEFORE, Point.AFTER):
            folder.note(event.calls)
        elif event.point in _ENDS and folder.record.exists():
            ended = Ended.FAILED if event.failed else Ended.STOPPED
            if event.interrupted or event.point is Point.END:
                ended = Ended.INTERRUPTED
            with _session(workspace) as opened:
                turns.end(opened, event, ended)
        return b""

    def _open(self, workspace: Workspace, event: Event) -> bytes:
        workspace.check_root()
        news = _taken_back(workspace, event)
        done = _within(workspace.settings.agent.wait_seconds, lambda late: _begin(workspace, event, late))
        said: dict[str, object] = {}
        if not done and self.adapter.notice is not None:
            said |= self.adapter.notice("putback: the first capture of this folder takes long and goes on")
        if news and self.adapter.context is not None:
            said |= self.adapter.context(event.name, news)
        return msgspec.json.encode(said) if said else b""

    def _failed(self, workspace: Workspace | None, event: Event | None, error: PutbackError) -> None:
        """Keep what went wrong where `status` finds it."""
        failure = Failure(
            agent=self.adapter.name,
            event="" if event is None else event.name,
            code=error.code,
            message=error.message,
            at_ns=time.time_ns(),
        )
        try:
            root = workspace.paths.store.root if workspace is not None else Path(os.fsdecode(self.store or ""))
            if root.is_dir() and root.is_absolute():
                write_file(root / FAILURE, document.encode(failure) + b"\n")
        except OSError:
            return


FAILURE = "hook-failure.json"
_ENDS = frozenset({Point.CLOSE, Point.END})
_MEANT = frozenset({Point.OPEN, Point.BEFORE, Point.AFTER, *_ENDS})
