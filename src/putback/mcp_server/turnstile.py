"""Calls pass one at a time, each on a thread of its own, and stop when their caller gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from putback.progress import Silent

T = TypeVar("T")


class Stoppable(Silent):
    """Progress that nobody watches, and that stops the operation at work once `stop` is set."""

    def __init__(self) -> None:
        self.stop = threading.Event()

    def cancelled(self) -> bool:
        return self.stop.is_set()


class Turnstile:
    """Lets one call pass after another. `progress` is the one that all of them were given."""

    def __init__(self, progress: Stoppable) -> None:
        self._progress = progress
        self._free = anyio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work on a thread; it must not raise. Where this task is cancelled, the operation is told to stop,
        and waited for: it ends at its next safe place, with nothing half-done."""
        async with self._free:
            self._progress.stop = threading.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(_set_at_the_end, self._progress.stop)
                result = await anyio.to_thread.run_sync(work)
                group.cancel_scope.cancel()
            return result

    async def close(self) -> None:
        """Stop the call at work, wait for it, and let no other pass."""
        self._progress.stop.set()
        await self._free.acquire()


async def _set_at_the_end(stop: threading.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()
