"""What a command leaves running when it has ended: found, and waited for, ended or left, as the caller chose.

A process is the command's if it is in the command's process group, if it was started with the caller's mark in
its environment, if it came to us as an orphan, or if it descends from one of these. Orphans come to us on Linux
and only while this process has a single thread, as the command line has; in a program with several threads, a
process that left the group is found by its mark alone. What ran below this process before the command did is
never the command's.
"""

from __future__ import annotations

import enum
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Literal

import msgspec

from putback.runs import processes
from putback.runs.processes import Process

FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.2
REAP_EVERY_SECONDS = 1.0

Fate = Literal["waited", "ended", "left"]


class Leftovers(enum.StrEnum):
    """What to do with processes that outlive the command."""

    WAIT = "wait"
    END = "end"
    LEAVE = "leave"


class Survivor(msgspec.Struct, frozen=True):
    """A process that outlived the command: its command line in printable characters, and what became of it."""

    pid: int
    command: str
    fate: Fate


class Offspring:
    """The processes that one command starts. A context, entered before the command and left after it."""

    def __init__(self, mark: str | None) -> None:
        self._mark = None if mark is None else os.fsencode(mark)
        self._group = 0
        self._adopts = False
        self._before: set[tuple[int, int]] = set()
        self._found: dict[tuple[int, int], Process] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._unmarked: set[tuple[int, int]] = set()
        self._reaped_at = 0.0
        self._context = ExitStack()

    def __enter__(self) -> Offspring:
        self._adopts = self._context.enter_context(processes.adoption())
        present = processes.table() if self._adopts and processes.has_children() else {}
        self._before = {present[pid].identity for pid in processes.below({os.getpid()}, present)}
        return self

    def __exit__(self, *raised: object) -> None:
        self._context.close()

    def of(self, group: int) -> None:
        """The command has been started: its process group, and number, is this."""
        self._group = group

    def reap(self) -> None:
        """While the command runs: clear away orphans of it that came to us and have ended. Cheap without any."""
        if not self._adopts or time.monotonic() - self._reaped_at < REAP_EVERY_SECONDS:
            return
        if processes.ended_child() in (None, self._group):
            return
        self._reaped_at = time.monotonic()
        for process in processes.table().values():
            if process.dead and process.pid != self._group and self._came_to_us(process):
                _reap(process)

    def settle(
        self, choice: Leftovers, *, wait_seconds: float, grace_seconds: float, pause: Callable[[float], bool]
    ) -> tuple[Survivor, ...]:
        """After the command has ended and was reaped: deal with what is left, and say what that was.

        `pause` waits for so many seconds, or less, and answers whether the caller is tired of waiting: then
        what would be waited for is left, and what would be given time to end is killed.
        """
        if choice is Leftovers.LEAVE:
            self._look()
        elif choice is Leftovers.WAIT:
            self._until_gone(wait_seconds, None, pause)
        else:
            for number in (signal.SIGTERM, signal.SIGKILL):
                self._until_gone(grace_seconds, number, pause)
        left = {process.identity for process in self._look()}
        over: Fate = "ended" if choice is Leftovers.END else "waited"
        return tuple(
            Survivor(pid, self._names[pid, started], "left" if (pid, started) in left else over)
            for pid, started in sorted(self._found)
        )

    def _until_gone(self, seconds: float, number: int | None, pause: Callable[[float], bool]) -> None:
        """Look again and again until nothing is left, at most so long; send each process `number` once."""
        sent: set[tuple[int, int]] = set()
        deadline = time.monotonic() + seconds
        length = FIRST_PAUSE_SECONDS
        while alive := self._look():
            for process in alive:
                if number is not None and process.identity not in sent:
                    sent.add(process.identity)
                    processes.send(process, number)
                    processes.send(process, signal.SIGCONT)  # what is stopped would not end
            remaining = deadline - time.monotonic()
            if remaining <= 0 or pause(min(length, remaining)):
                return
            length = min(length * 2, LONGEST_PAUSE_SECONDS)

    def _look(self) -> list[Process]:
        """The command's processes that run now. Reaps those that have ended and are ours to reap."""
        if self._adopts and not processes.has_children():
            return []  # whatever is left would descend from an orphan, and that from us
        present = processes.table()
        mine = {pid for pid, process in present.items() if self._is_root(process)}
        # The number of a group is not given away while one of it lives; afterwards it means nothing.
        if not any(present[pid].group == self._group for pid in mine):
            self._group = 0
        mine |= processes.below(mine, present)
        mine -= {os.getpid(), *(pid for pid in mine if present[pid].identity in self._before)}
        alive = []
        for process in (present[pid] for pid in sorted(mine)):
            if not process.dead:
                self._found[process.identity] = process
                known = self._names.get(process.identity, "")
                self._names[process.identity] = processes.command_line(process, known)
                alive.append(process)
            elif process.parent == os.getpid():
                _reap(process)
        return alive

    def _is_root(self, process: Process) -> bool:
        if process.identity in self._before or process.pid == os.getpid():
            return False
        return (
            process.identity in self._found
            or (self._group != 0 and process.group == self._group)
            or self._came_to_us(process)
            or self._is_marked(process)
        )

    def _came_to_us(self, process: Process) -> bool:
        adopted = self._adopts and process.parent == os.getpid() and process.identity not in self._before
        return adopted and processes.alone()

    def _is_marked(self, process: Process) -> bool:
        if self._mark is None or process.identity in self._unmarked:
            return False
        if processes.has_variable(process, self._mark):
            return True
        self._unmarked.add(process.identity)
        return False


def _reap(process: Process) -> None:
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
