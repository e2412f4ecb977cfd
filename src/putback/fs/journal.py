"""An append-only file of JSON lines, each durable before the call returns.

A torn last line (the machine stopped in the middle of a write) is not an entry and is dropped on reading.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from putback.fs.durable import sync_directory


class Journal:
    """A journal open for appending."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        try:
            sync_directory(path.parent)
        except OSError:
            os.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def append(self, line: bytes) -> None:
        """Add one line and wait until it is on disk. Raises OSError."""
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(self._fd, view) :]
        os.fsync(self._fd)


def read_lines(path: Path) -> list[bytes]:
    """The whole lines of a journal; empty where there is none. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1]
