"""A lock that dies with its holder: flock on a file whose text says who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from putback.errors import Cancelled, LockedError, StorageError
from putback.fs.durable import write_new_file
from putback.progress import Progress

POLL_SECONDS = 0.05
SAY_SO_AFTER_SECONDS = 1.0


@contextmanager
def hold(path: Path, command: str, shared: bool, wait_seconds: float, progress: Progress) -> Iterator[None]:
    """Hold the lock at `path` for the length of the block.

    Waits for another holder up to `wait_seconds` and tells `progress` who it is. Raises LockedError after that,
    Cancelled where the caller gave up first. The file stays; only the kernel's lock on it counts. Where it is not
    the one at `path` any more once it is held, because what it stood for was dropped or moved, StorageError is
    raised.
    """
    try:
        descriptor = _open(path)
    except OSError as error:
        raise StorageError(f"cannot open the lock {str(path)!r}: {error.strerror}") from error
    try:
        _acquire(descriptor, shared, wait_seconds, progress)
        if not _is_at(descriptor, path):
            raise StorageError(f"the lock {str(path)!r} went away while another process held it", hint="try again")
        if not shared:
            _say_who(descriptor, command)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock exclusively; nobody holds one that is not there or cannot be looked at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        # What only reads may go on; what writes will be refused where it does.
        return os.open(path, flags & ~os.O_RDWR)
    # It appears with its mode: another member of a group must not find it closed for an instant. Whoever was
    # faster may have swept our half away.
    with suppress(FileExistsError, FileNotFoundError):
        write_new_file(path, b"", path.parent)
    return os.open(path, flags)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _acquire(descriptor: int, shared: bool, wait_seconds: float, progress: Progress) -> None:
    flags = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    began = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, flags)
            return
        except BlockingIOError:
            waited = time.monotonic() - began
        if waited >= wait_seconds:
            raise LockedError(
                f"locked by another process ({holder(descriptor)}); waited {wait_seconds:g} s",
                hint="wait for it to end, then run the command again",
            )
        if progress.cancelled():
            raise Cancelled("cancelled while waiting for a lock")
        if not told and waited >= SAY_SO_AFTER_SECONDS:
            progress.waiting(holder(descriptor))
            told = True
        time.sleep(POLL_SECONDS)


def _say_who(descriptor: int, command: str) -> None:
    """For the message that others print while they wait; the lock holds without it."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()}, {command}, since {since}\n".encode(), 0)


def holder(descriptor: int) -> str:
    """What the lock file says of its holder, in one printable line."""
    text = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
    return "".join(c for c in text if c.isprintable()) or "unknown"
