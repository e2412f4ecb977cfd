"""The process table: who runs, whose child it is, what it is called; and being the one whom orphans come to.

On Linux it is read from /proc; elsewhere `ps` is asked, which cannot tell a process from a later one that was
given the same number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

NAME_CHARACTERS = 200
EXEC_ATTEMPTS = 100

_PS = ("/bin/ps", "-axww", "-o", "pid=,ppid=,pgid=,state=,args=")
_KERNEL_THREAD = 0x00200000  # a flag of theirs: they have no program
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class Process(msgspec.Struct, frozen=True):
    """One line of the table. `started` is in the kernel's ticks since boot, 0 where nobody says."""

    pid: int
    parent: int
    group: int
    dead: bool
    started: int
    arguments: str = ""

    @property
    def identity(self) -> tuple[int, int]:
        """What no later process has."""
        return self.pid, self.started


def table() -> dict[int, Process]:
    """Every process that this one may see, by number. Empty where nobody tells."""
    if sys.platform != "linux":
        return _ask_ps()
    with suppress(OSError):
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return {number: process for number in numbers if (process := _read(number))}
    return {}


def find(pid: int) -> Process | None:
    """The process with this number; None where there is none, or nobody tells."""
    return _read(pid) if sys.platform == "linux" else table().get(pid)


def below(parents: set[int], processes: dict[int, Process]) -> set[int]:
    """The numbers of all descendants of `parents`, without these."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(parents)
    while waiting:
        fresh = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(fresh)
        waiting.extend(fresh)
    return found - parents


def command_line(process: Process, known: str = "") -> str:
    """What was started, in one printable line of at most 200 characters.

    A process that is just ending no longer says; then it is `known`, what it was called before.
    """
    told = b""
    with suppress(OSError):
        told = _contents(process.pid, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
    text = told.decode("utf-8", "replace") or known or process.arguments
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= NAME_CHARACTERS else line[: NAME_CHARACTERS - 1] + "…"


def has_variable(process: Process, assignment: bytes) -> bool:
    """Whether the program was started with `NAME=value` in its environment, as far as we may know."""
    if process.dead:
        return False
    with suppress(OSError):
        for _ in range(EXEC_ATTEMPTS):
            named = _contents(process.pid, "cmdline")
            environment = _contents(process.pid, "environ")
            if named or environment:
                return assignment in environment.split(b"\0")
            # Between two programs a process shows neither: it is just being given the new one's.
            time.sleep(0.001)
    return False


def send(process: Process, number: int) -> None:
    """Send a signal to this process, never to another that was given its number. Not at all where we may not."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform != "linux":
            os.kill(process.pid, number)
            return
        handle = os.pidfd_open(process.pid)
        try:
            now = _read(process.pid)
            if now is not None and now.identity == process.identity:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def alone() -> bool:
    """Whether this process has one thread only, so that nobody else in it starts processes meanwhile."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return False


def has_children() -> bool:
    """Whether this process has any child, ended or not, that nobody has reaped."""
    try:
        ended_child()
    except ChildProcessError:
        return False
    return True


def ended_child() -> int | None:
    """A child of ours that has ended, without reaping it. Raises ChildProcessError where we have none at all."""
    if sys.platform != "linux":
        return None
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if ended is None else ended.si_pid


@contextmanager
def adoption() -> Iterator[bool]:
    """Have orphans below this process come to it, for the length of the block, rather than to init.

    Yields whether they do: on Linux, in a process that is `alone`. In any other the orphans of somebody else's
    children would come, too, and could not be told from ours.
    """
    if sys.platform != "linux" or not alone():
        yield False
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int(0)
    zero = ctypes.c_ulong(0)
    if prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), zero, zero, zero) != 0:
        yield False
        return
    try:
        yield prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), zero, zero, zero) == 0
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(before.value), zero, zero, zero)


def _read(pid: int) -> Process | None:
    try:
        line = _contents(pid, "stat")
    except OSError:
        return None
    # The name, in parentheses, may itself hold spaces and parentheses.
    head, _, rest = line.rpartition(b")")
    fields = rest.split()
    if len(fields) < 20 or int(fields[6]) & _KERNEL_THREAD:
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, int(fields[1]), int(fields[2]), fields[0] in b"ZX", int(fields[19]), f"[{name}]")


def _contents(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def _ask_ps() -> dict[int, Process]:
    found = {}
    with suppress(OSError):
        said = subprocess.run(_PS, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd="/").stdout
        for line in said.decode("utf-8", "replace").splitlines():
            fields = line.split(None, 4)
            if len(fields) == 5 and all(number.isdecimal() for number in fields[:3]):
                pid, parent, group = map(int, fields[:3])
                found[pid] = Process(pid, parent, group, fields[3].startswith("Z"), 0, fields[4])
    return found
