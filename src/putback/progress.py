"""How a long operation tells its frontend how far it is, and learns that it should stop.

The library prints nothing. A frontend hands in an object that has these methods; `SILENT` is the one that
does nothing. Cancelling is part of the same conversation: whoever watches may also stop.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What a frontend implements to watch an operation. Calls may come from worker threads."""

    def start(self, phase: str, total: int | None) -> None:
        """A new phase begins; `total` is the number of paths it will handle, where that is known."""

    def advance(self, count: int = 1) -> None:
        """`count` more paths of the current phase are done."""

    def finish(self) -> None:
        """The current phase is over."""

    def waiting(self, holder: str) -> None:
        """Another process holds the lock; `holder` says who, in words for a person."""

    def cancelled(self) -> bool:
        """Whether the operation should stop at the next safe place."""


class Silent:
    """Watches nothing and never cancels."""

    def start(self, phase: str, total: int | None) -> None: ...

    def advance(self, count: int = 1) -> None: ...

    def finish(self) -> None: ...

    def waiting(self, holder: str) -> None: ...

    def cancelled(self) -> bool:
        return False


SILENT: Progress = Silent()


class Shield:
    """Passes everything on to a frontend, except, once it is up, the wish to stop: what follows must be done."""

    def __init__(self, behind: Progress) -> None:
        self.up = False
        self.start = behind.start
        self.advance = behind.advance
        self.finish = behind.finish
        self.waiting = behind.waiting
        self._behind = behind

    def cancelled(self) -> bool:
        return not self.up and self._behind.cancelled()
