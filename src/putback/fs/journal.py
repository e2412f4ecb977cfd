"""An append-only file of JSON lines, made durable line by line or many at a time.

A torn last line (the machine stopped in the middle of a write) is not an entry: it is dropped on reading, and cut
off before anything is appended after it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from putback.fs import modes
from putback.fs.durable import read_file, sync_directory

BUFFER_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 16
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Journal:
    """A journal open for appending, by one process at a time.

    After a write has failed nothing more can be appended: what the file ends with is not known any more. It can
    be reopened, which cuts off a torn line.
    """

    def __init__(self, path: Path) -> None:
        """Begin a new journal. Raises OSError; FileExistsError where there is one."""
        self._begin(modes.create(path, _FLAGS | os.O_EXCL, modes.of(path.parent).file))
        try:
            self._lock()
            sync_directory(path.parent)
        except OSError:
            os.close(self._fd)
            raise

    @classmethod
    def reopen(cls, path: Path, check: Callable[[BinaryIO], None]) -> Self:
        """Go on with a journal whose writer is gone.

        `check` reads the file first; what it raises leaves the file as it was. Raises BlockingIOError where the
        writer still lives, and OSError.
        """
        self = cls.__new__(cls)
        self._begin(os.open(path, _FLAGS))
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise OSError(f"not a regular file: {str(path)!r}")
            self._lock()
            with open(os.dup(self._fd), "rb") as file:
                file.seek(0)
                check(file)
            self._cut_torn_line()
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def _begin(self, descriptor: int) -> None:
        self._fd = descriptor
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._failed = False

    def _lock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is buffered, without waiting for the disk, and close. Raises OSError."""
        try:
            if not self._failed:
                self._write()
        finally:
            os.close(self._fd)

    def append(self, line: bytes) -> None:
        """Add one line and wait until it, and all before it, is on disk. Raises OSError."""
        self.add(line)
        self.sync()

    def add(self, line: bytes) -> None:
        """Add one line, durable at the next `append` or `sync`. Raises OSError."""
        if self._failed:
            raise OSError("an earlier write failed")
        self._waiting.append(line)
        self._waiting_bytes += len(line) + 1
        if self._waiting_bytes >= BUFFER_BYTES:
            self._write()

    def sync(self) -> None:
        """Wait until every line is on disk. Raises OSError."""
        self._write()
        try:
            os.fsync(self._fd)
        except OSError:
            self._failed = True
            raise

    def _write(self) -> None:
        if self._failed:
            raise OSError("an earlier write failed")
        if not self._waiting:
            return
        view = memoryview(b"\n".join([*self._waiting, b""]))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._failed = True
        while view:
            view = view[os.write(self._fd, view) :]
        self._failed = False

    def _cut_torn_line(self) -> None:
        size = os.fstat(self._fd).st_size
        end = size
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._fd, end)
            os.fsync(self._fd)


def read_lines(path: Path) -> list[bytes]:
    """The whole lines of a journal; empty where there is none. Raises OSError."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1]
