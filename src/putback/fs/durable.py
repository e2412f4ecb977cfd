"""Files of our own store: written whole, durable before they are visible, readable by the owner alone."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Put `data` at `path` in one step; with `replace` false the name must be new. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if replace:
            part.replace(path)
        else:
            os.link(part, path)
            part.unlink()
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_cache(path: Path, data: bytes) -> None:
    """Like `write_file`, but without waiting for the disk: for what can be made again. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
    part.replace(path)


def sync_directory(folder: Path) -> None:
    """Make the names in `folder` durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
