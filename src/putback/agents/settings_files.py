"""The only code that writes the files in which agents keep their hooks: each whole, in one step, its mode kept.

Before anything is written, a file is looked at with everything that speaks against writing it. A symbolic link is
followed where it leads to a file of the user's own inside `within` (the home directory, or the project): what it
leads to is written, the link stays. What is not there yet is made, directories too, and goes again with the last
file of ours. Files are read again just before they are replaced: what changed meanwhile is never written over.

Not kept: extended attributes and access lists of a file that is replaced.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from putback.errors import RefusedError, Stale, StorageError
from putback.fs import durable

LARGEST = 4 << 20
# What tells that a directory was there, and empty, before we came.
KEPT = ".putback-was-here"


@dataclass(frozen=True)
class SettingsFile:
    """A file as it is named and as it is, `target` is where it is; no `data` and no `mode`: there is none."""

    path: Path
    target: Path
    within: Path
    data: bytes | None = None
    mode: int | None = None

    @property
    def follows(self) -> bool:
        """Whether a link leads to it."""
        return self.path != self.target


def look(path: Path, within: Path) -> SettingsFile:
    """The file at `path`, which may be missing, if it may be written. Raises RefusedError and StorageError."""
    try:
        return _look(path, Path(os.path.realpath(within)), path.relative_to(within))
    except OSError as error:
        raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _look(path: Path, base: Path, inside: Path) -> SettingsFile:
    plain = base / inside
    target = Path(os.path.realpath(plain))
    if not target.is_relative_to(base):
        raise RefusedError(f"{str(path)!r} leads out of {str(base)!r}, to {str(target)!r}")
    if target != plain and not target.exists() and plain.is_symlink():
        raise RefusedError(f"{str(path)!r} is a link to {str(target)!r}, where nothing is")
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return SettingsFile(plain, target, base)
    try:
        found = os.fstat(descriptor)
        if fault := _fault(found):
            raise RefusedError(f"{str(path)!r} {fault}")
        with open(descriptor, "rb", closefd=False) as file:
            return SettingsFile(plain, target, base, file.read(), stat.S_IMODE(found.st_mode))
    finally:
        os.close(descriptor)


def _fault(found: os.stat_result) -> str:
    """What speaks against writing a file. Its mode is asked, because root may write everything."""
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if not found.st_mode & stat.S_IWUSR:
        return "is read-only"
    if found.st_nlink > 1:
        return "has several names (hard links); replacing it would part them"
    return f"has {found.st_size:,} bytes; settings have at most {LARGEST:,}" if found.st_size > LARGEST else ""


def write(file: SettingsFile, data: bytes, mode: int) -> None:
    """Put `data` where `file` was looked at. A new one gets `mode`, less the umask. Raises Stale, StorageError."""
    folder = file.target.parent
    try:
        _make_directories(folder, file.within)
        part = folder / f".{file.target.name}.{os.urandom(4).hex()}.putback-part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(part, flags, mode if file.mode is None else file.mode), "wb") as new:
                new.write(data)
                if file.mode is not None:
                    os.fchmod(new.fileno(), file.mode)
                new.flush()
                os.fsync(new.fileno())
            _check_unchanged(file)
            part.replace(file.target)
        finally:
            part.unlink(missing_ok=True)
        durable.sync_directory(folder)
    except OSError as error:
        raise StorageError(f"cannot write {str(file.path)!r}: {error.strerror}") from error


def remove(file: SettingsFile) -> None:
    """Remove a file as it was looked at. Raises Stale and StorageError."""
    try:
        _check_unchanged(file)
        file.target.unlink()
    except OSError as error:
        raise StorageError(f"cannot remove {str(file.path)!r}: {error.strerror}") from error


def tidy(folder: Path, within: Path) -> None:
    """Remove a directory if it is empty and was made by us, and so on upwards; what cannot be removed stays."""
    empty = True
    while folder != within and folder.is_relative_to(within):
        try:
            if KEPT in os.listdir(folder):
                (folder / KEPT).unlink()
                empty = False
            if empty:
                folder.rmdir()
        except OSError:
            empty = False
        folder = folder.parent


def _check_unchanged(file: SettingsFile) -> None:
    """Raises Stale, and OSError."""
    try:
        descriptor = os.open(file.target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        now = None
    else:
        with open(descriptor, "rb") as there:
            now = there.read(LARGEST + 1)
    if now != file.data:
        raise Stale(f"{str(file.path)!r} has changed meanwhile; it was not touched", hint="do it again")


def _make_directories(folder: Path, within: Path) -> None:
    """Make what is missing, and leave a note in a directory that was there but empty. Raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    if folder != within and folder.is_relative_to(within) and not os.listdir(folder):
        os.close(os.open(folder / KEPT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for path in reversed(missing):
        path.mkdir()
