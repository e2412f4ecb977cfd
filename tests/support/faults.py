"""Calls to the system that would change a disk, counted, and made to fail one at a time in a child process."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable

from crash.killing import in_child
from putback.errors import PutbackError

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EFBIG)
CALLS = (
    *("write", "pwrite", "open", "rename", "replace", "link", "fsync", "mkdir", "rmdir", "symlink"),
    *("chmod", "fchmod", "unlink", "ftruncate"),
)


class Faults:
    """Counts the calls that would change a disk, and makes the one with number `failing` fail."""

    def __init__(self, failing: int = -1) -> None:
        self.failing = failing
        self.seen: list[str] = []
        self._lock = threading.Lock()

    def install(self) -> None:
        for name in CALLS:
            true = getattr(os, name)
            false = self._wrap(name, true)
            setattr(os, name, false)
            for known in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_fd):
                if true in known:
                    known.add(false)

    def _wrap(self, name: str, true: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            if _changes_a_disk(name, args):
                with self._lock:
                    number = len(self.seen)
                    self.seen.append(f"{name} from {_caller()}")
                if number == self.failing:
                    code = ERRORS[number % len(ERRORS)]
                    raise OSError(code, os.strerror(code))
            return true(*args, **named)

        return call


def _caller() -> str:
    """Who makes this call, as the innermost lines of putback that are at work."""
    lines: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and len(lines) < 4:
        if "putback" in frame.f_code.co_filename:
            lines.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
        frame = frame.f_back
    return " ".join(lines)


def _changes_a_disk(name: str, args: tuple) -> bool:
    if name == "open":
        return bool(args[1] & (os.O_CREAT | os.O_TRUNC))
    if name in ("write", "pwrite", "ftruncate"):
        return stat.S_ISREG(os.fstat(args[0]).st_mode)
    return True


def count(action: Callable[[], object]) -> list[str]:
    faults = Faults()

    def run() -> None:
        faults.install()
        action()

    status, said = in_child(run, lambda: "\n".join(faults.seen))
    assert status == 0, said
    return said.split("\n")


def fail_at(number: int, action: Callable[[], object]) -> tuple[str, str]:
    """Run `action` with one failing call: which that was, and "" if it ended well, else the error's message."""
    faults = Faults(number)
    told: list[str] = []

    def run() -> None:
        faults.install()
        try:
            action()
        except PutbackError as error:
            told.append(error.message)

    status, said = in_child(run, lambda: "\n".join([*faults.seen[number : number + 1], "", *told]))
    assert status == 0, "it raised " + said.strip().splitlines()[-1] + " at " + _where(said)
    name, _, message = said.partition("\n\n")
    return name.strip(), message


def _where(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if "src/putback" in line]
    return lines[-1] if lines else "?"
