"""What one session of an agent has begun in a workspace, on disk: cheap to look at, for every tool call does.

    <workspace>/agents/<agent>-<digest of the session>.open     the turn that is open, one record
    <workspace>/agents/<agent>-<digest of the session>.calls    its tool calls, one line each

The calls are a cache of what the agent said: losing a line loses a name, never a byte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from putback.errors import IntegrityError, StorageError
from putback.fs import modes
from putback.records import document
from putback.records.agent import Call, OpenTurn
from putback.store.layout import OPEN_TURN, Store, WorkspacePaths, workspaces

_CALLS = ".calls"


class SessionFolder(msgspec.Struct, frozen=True):
    """Where one session of an agent keeps what it has begun in a workspace. Making this object touches no disk."""

    where: WorkspacePaths
    agent: str
    session: str

    @property
    def record(self) -> Path:
        return self._path(OPEN_TURN)

    @property
    def calls(self) -> Path:
        return self._path(_CALLS)

    def _path(self, suffix: str) -> Path:
        digest = hashlib.sha256(self.session.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self.where.agents / f"{self.agent}-{digest}{suffix}"

    def load(self) -> OpenTurn | None:
        """The turn that is open; None where none is. Raises IntegrityError where its record is damaged."""
        return _load(self.record)

    def note(self, calls: Iterable[Call]) -> None:
        """Remember tool calls of the open turn; forgets them where none is open."""
        lines = b"".join(document.encode(call) + b"\n" for call in calls)
        if not lines or not self.record.exists():
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with suppress(OSError):
            # One write, so that calls which the agent makes side by side do not mix.
            descriptor = os.open(self.calls, flags, modes.of(self.calls.parent).file)
            try:
                os.write(descriptor, lines)
            finally:
                os.close(descriptor)

    def noted(self) -> list[Call]:
        """The tool calls of the open turn. A line that is no call is passed over."""
        try:
            lines = self.calls.read_bytes().split(b"\n")
        except OSError:
            return []
        found: list[Call] = []
        for line in filter(None, lines):
            with suppress(IntegrityError):
                found.append(document.decode(line, Call, "tool call"))
        return found

    def forget(self) -> None:
        """The turn is over, or was never begun."""
        for path in (self.record, self.calls):
            path.unlink(missing_ok=True)


def open_turns(where: WorkspacePaths) -> list[OpenTurn]:
    """The turns that are open in a workspace, oldest first; records that cannot be read are passed over."""
    found: list[OpenTurn] = []
    for path in where.open_turns():
        with suppress(IntegrityError, StorageError):
            opened = _load(path)
            if opened is not None:
                found.append(opened)
    return sorted(found, key=lambda turn: turn.began_ns)


def begun(store: Store, agent: str, session: str) -> list[WorkspacePaths]:
    """The workspaces in which a session has a turn open, whatever tree it is in now, by their names."""
    found: list[WorkspacePaths] = []
    with suppress(StorageError):
        for where in workspaces(store):
            if os.path.exists(SessionFolder(where, agent, session).record):
                with suppress(IntegrityError, StorageError):
                    if known := where.identity():
                        found.append(msgspec.structs.replace(where, root=known.path))
    return found


def _load(path: Path) -> OpenTurn | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return document.decode(data, OpenTurn, f"open turn {str(path)!r}")
