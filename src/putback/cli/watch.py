"""Progress on standard error: nothing for the first second, then a bar on a terminal; and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

QUIET_SECONDS = 1.0


class Watch:
    """Shows a long operation to a person. The first Ctrl-C asks it to stop at the next safe place."""

    def __init__(self) -> None:
        self.silent = False
        self._began = time.monotonic()
        self._stop = False
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._phase = ""
        self._total: int | None = None
        self._done = 0

    def install(self) -> None:
        """Take over Ctrl-C. A second one ends the process the usual way."""
        signal.signal(signal.SIGINT, self._interrupt)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While a person is asked, Ctrl-C is an answer."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def start(self, phase: str, total: int | None) -> None:
        with self._lock:
            self._phase, self._total, self._done = phase, total, 0
            if self._bar is not None:
                self._bar.update(self._task, description=phase, total=total, completed=0)

    def advance(self, count: int = 1) -> None:
        with self._lock:
            self._done += count
            if self._bar is None and self._wanted():
                self._open()
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done)

    def finish(self) -> None: ...

    def close(self) -> None:
        """Take the bar off the screen."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def waiting(self, holder: str) -> None:
        click.echo(f"waiting for another putback ({holder})", err=True)

    def cancelled(self) -> bool:
        return self._stop

    def _wanted(self) -> bool:
        return not self.silent and time.monotonic() - self._began > QUIET_SECONDS and sys.stderr.isatty()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._phase, total=self._total)
        self._bar.start()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._stop = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
