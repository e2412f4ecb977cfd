"""What can be relied on, by kind of file system, and how much room there is."""

from __future__ import annotations

import os
from pathlib import Path

_RELIABLE = frozenset(
    {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"tmpfs", b"overlay", b"zfs", b"f2fs", b"bcachefs"}
)


def reliable_directory_times(path: bytes) -> bool:
    """Whether a directory's times change whenever a name in it does. Unknown file systems are not trusted."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return False
    real = os.path.realpath(path)
    best, kind = b"", b""
    for line in table.splitlines():
        fields, _, rest = line.partition(b" - ")
        columns = fields.split(b" ")
        if len(columns) < 5 or not rest:
            continue
        point = columns[4].replace(b"\\040", b" ")
        inside = real == point or real.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= len(best):
            best, kind = point, rest.split(b" ")[0]
    return kind in _RELIABLE


def free_bytes(path: Path) -> int:
    """Bytes that an unprivileged process may still write on the file system of `path`. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def used_bytes(path: Path) -> int:
    """Bytes on disk of all files below `path`; what vanishes meanwhile does not count."""
    total = 0
    pending = [str(path)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        continue
                    try:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    except FileNotFoundError:
                        continue
        except OSError:
            continue
    return total
