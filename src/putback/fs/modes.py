"""Who may read and write what lies in our own store: one user alone, or the members of a group.

The policy is decided once, by the record of the store (`store.layout`), which makes the directories in the store's
root accordingly. Everything further down follows the directory that it is made in, as its group does, so that no
writer has to be told. A directory appears with its mode; it is never seen, nor left behind, with another.

Not done here: nothing is chowned, and what is there already keeps its mode.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class Modes(NamedTuple):
    """The modes of directories, of files, and of files that are never written again."""

    directory: int
    file: int
    readonly: int


PRIVATE = Modes(0o700, 0o600, 0o400)
GROUP = Modes(stat.S_ISGID | 0o770, 0o660, 0o440)


def of(folder: Path) -> Modes:
    """The modes of what is made in a directory of the store, other than its root. Raises OSError."""
    # Only what was made as a group's is one: somebody's setgid directory is not, whatever its group may do there.
    return GROUP if stat.S_IMODE(folder.stat().st_mode) == GROUP.directory else PRIVATE


def directory(path: Path, modes: Modes | None = None, scratch: Path | None = None) -> bool:
    """Make a directory, and those missing above it, unless there is one. Returns whether it was made.

    Its mode is exactly that of `modes`, whatever the umask; None: of those that the directory above it asks for.
    `scratch` is where a killed process may leave an empty directory; None: beside it, by a name in `.part`.
    Raises OSError.
    """
    if path.is_dir():
        return False
    directory(path.parent)
    mode = (modes or of(path.parent)).directory
    part = (scratch or path.parent) / f"{path.name}.{os.urandom(4).hex()}.part"
    part.mkdir(stat.S_IRWXU)
    try:
        part.chmod(mode)
        if mode == GROUP.directory and stat.S_IMODE(part.stat().st_mode) != mode:
            raise OSError(errno.EPERM, f"the system does not give it the mode {mode:o}", str(path))
        with _alone(path.parent):
            made = not path.is_dir()
            if made:
                part.rename(path)
    except OSError:
        with suppress(OSError):
            part.rmdir()
        if path.is_dir():
            return False
        raise
    if not made:
        part.rmdir()
    return made


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from giving a name in this directory to a directory of theirs.

    A rename takes the place of a directory that is empty, and who is about to write into that one loses it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def create(path: Path, flags: int, mode: int) -> int:
    """Open a file for which `flags` say whether it may be there, with exactly this mode, whatever the umask.

    One that is there has to be the user's own. Links are not followed. Raises OSError; then there is nothing new.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        if flags & os.O_EXCL:
            path.unlink(missing_ok=True)
        raise
    return descriptor
