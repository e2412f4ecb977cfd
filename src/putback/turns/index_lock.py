"""The one writer of the user's index: behind git's own lock, all of it or nothing.

The lock is git's `index.lock`. It holds one line, `putback turn <capture id> pid <n>`, for as long as it is held,
so that anybody can see whose it is, after a crash as well. The new index is written beside it, in a file of its
own, and becomes `index` by one rename: whoever reads sees the old one or the new one, whole.

Guaranteed against every writer that takes the lock, as git does. One that does not is noticed where it wrote
before the last look at the index, which comes right before the rename. A process that is killed leaves the lock,
and maybe the file beside it; `holder` tells whose they are and `remove_stale` takes them away. Killed in the
instant between making the lock and writing its line, it leaves a lock that is empty and nobody's, as a killed git
does.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from putback import seams
from putback.errors import LockedError, Stale, StorageError, UnsupportedPath
from putback.fs.place import READ_FLAGS
from putback.git.user_index import NewEntry, UserIndex
from putback.paths import quote
from putback.turns.staged import INDEX, open_git_dir, read_index

LOCK = b"index.lock"

_ID = re.compile(r"[0-9a-f]{64}")
_MARKER = re.compile(rb"putback turn ([0-9a-f]{64}) pid ([1-9][0-9]{0,9})\n")
_LONGEST_MARKER = 200
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVE_OURS = "the next `putback turn` command on that binding removes it; where that is gone, remove the file"
_WAIT = "wait for it to end, then run the command again"
_REMOVE = "wait for the other git command to end; where none runs any more, remove the file"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who says to hold the lock of an index: the turn and process, and whether that lives on this machine.

    `identity` is the lock's device and inode.
    """

    capture_id: str
    pid: int
    alive: bool
    identity: tuple[int, int]


class IndexLock:
    """git's lock on the index of `git_dir`, held for the length of a `with` block.

    `mode` is what the lock and the published index get, whatever the umask: 0o600 or 0o660.
    """

    def __init__(self, git_dir: bytes, capture_id: str, mode: int) -> None:
        if not _ID.fullmatch(capture_id):
            raise ValueError(f"not the id of a turn: {capture_id!r}")
        self._git_dir = git_dir
        self._capture_id = capture_id
        self._mode = mode
        self._directory = -1
        # Held open as long as the lock is: while it is, no other file can have the same inode.
        self._lock = -1
        self._identity = (0, 0)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the lock file that is held."""
        return self._identity

    def __enter__(self) -> Self:
        """Take the lock. Raises LockedError where somebody has it, and StorageError."""
        self._directory = open_git_dir(self._git_dir)
        try:
            self._take()
        except BaseException:
            os.close(self._directory)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with _failing("give the lock of the index back"):
                self._release()
        except StorageError:
            if error is None:
                raise
        finally:
            os.close(self._lock)
            os.close(self._directory)

    def publish(self, compared: UserIndex, changes: Mapping[bytes, NewEntry | None]) -> None:
        """Put the index that `compared` is with the changes made in the place of the one that is there.

        It is on disk before the call returns. Without changes nothing is written. Raises Stale where the index is
        not, byte for byte, `compared` any more, LockedError where the lock is not ours any more, and StorageError;
        the index is untouched then. Raises ValueError as `UserIndex.replaced` does.
        """
        if not changes:
            self._compare(compared)
            return
        data = compared.replaced(changes)
        with _failing("write the new index"):
            descriptor = self._write_beside(data)
        try:
            seams.reach("turn.index_written")
            with _failing("publish the new index"):
                self._put(descriptor, compared)
        finally:
            os.close(descriptor)
        seams.reach("turn.index_published")

    def _take(self) -> None:
        try:
            self._lock = os.open(LOCK, _CREATE, 0o600, dir_fd=self._directory)
        except FileExistsError as error:
            raise _locked(self._git_dir, _holder(self._directory)) from error
        except OSError as error:
            raise StorageError(f"cannot take the lock of the index: {error.strerror}") from error
        try:
            found = os.fstat(self._lock)
            self._identity = (found.st_dev, found.st_ino)
            with _failing("take the lock of the index"):
                os.fchmod(self._lock, self._mode)
                os.write(self._lock, f"putback turn {self._capture_id} pid {os.getpid()}\n".encode())
                os.fsync(self._lock)
                os.fsync(self._directory)
            seams.reach("turn.index_locked")
        except BaseException:
            try:
                self._release()
            finally:
                os.close(self._lock)
            raise

    def _release(self) -> None:
        """Take away what was not published, then the lock, if it is still the one that was taken."""
        with suppress(FileNotFoundError):
            os.unlink(_beside(self._capture_id), dir_fd=self._directory)
        if _identity(self._directory) == self._identity:
            os.unlink(LOCK, dir_fd=self._directory)

    def _write_beside(self, data: bytes) -> int:
        """Write the new index beside the old one, durably; returns its descriptor."""
        name = _beside(self._capture_id)
        # Under the lock nobody else makes this name, so what is there was left behind.
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._directory)
        descriptor = os.open(name, _CREATE, 0o600, dir_fd=self._directory)
        try:
            os.fchmod(descriptor, self._mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _put(self, descriptor: int, compared: UserIndex) -> None:
        found = self._compare(compared)
        if found is not None:
            # git compares the contents of files that are not older than the index; it has to go on doing so.
            os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(descriptor)
        if _identity(self._directory) != self._identity:
            raise LockedError(
                f"the lock {quote(os.path.join(self._git_dir, LOCK))} is not the one that was taken",
                hint="another program has removed it; the index is as that program left it",
            )
        os.rename(_beside(self._capture_id), INDEX, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        os.fsync(self._directory)

    def _compare(self, compared: UserIndex) -> os.stat_result | None:
        """The stat data of the index, which is still what it was. Raises Stale where it is not."""
        try:
            found = read_index(self._directory)
        except UnsupportedPath as error:
            raise Stale(f"the index was replaced while it was locked: {error.message}") from error
        if (None if found is None else found[0]) != compared.data:
            raise Stale("the index was changed while it was locked, by a program that ignores git's lock")
        return None if found is None else found[1]


def holder(git_dir: bytes) -> Holder | None:
    """Who holds the lock of an index for a turn; None where nobody does, or somebody else. Raises StorageError."""
    directory = open_git_dir(git_dir)
    try:
        return _holder(directory)
    finally:
        os.close(directory)


def is_ours(git_dir: bytes, capture_id: str) -> bool:
    """Whether the lock of the index is there for this turn. Raises StorageError."""
    found = holder(git_dir)
    return found is not None and found.capture_id == capture_id


def remove_stale(git_dir: bytes, capture_id: str) -> tuple[bytes, ...]:
    """Take away what a killed process left of this turn in `git_dir`; returns the names.

    The caller holds the lease of the turn's binding, so that whoever made the lock has ended; its number may be
    another process's by now. A lock of anybody else stays. Raises StorageError.
    """
    directory = open_git_dir(git_dir)
    kept = _open(directory)
    try:
        found = _holder(directory)
        mine = found is not None and found.capture_id == capture_id
        removed = []
        with _failing("remove what a turn has left"):
            for name in (_beside(capture_id), LOCK):
                if name != LOCK or (mine and found is not None and _identity(directory) == found.identity):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)
                        removed.append(name)
            os.fsync(directory)
        return tuple(removed)
    finally:
        if kept is not None:
            os.close(kept)
        os.close(directory)


def _beside(capture_id: str) -> bytes:
    """The name of the file in which a turn writes the new index."""
    return b"index.putback-" + capture_id[:12].encode()


def _identity(directory: int) -> tuple[int, int] | None:
    try:
        found = os.stat(LOCK, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)


def _open(directory: int) -> int | None:
    """A descriptor of the lock; as long as it is open no other file can have the same inode."""
    try:
        return os.open(LOCK, READ_FLAGS, dir_fd=directory)
    except OSError:
        return None


def _holder(directory: int) -> Holder | None:
    descriptor = _open(directory)
    if descriptor is None:
        return None
    try:
        found = os.fstat(descriptor)
        text = os.read(descriptor, _LONGEST_MARKER) if stat.S_ISREG(found.st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    marker = _MARKER.fullmatch(text)
    if marker is None:
        return None
    pid = int(marker[2])
    return Holder(marker[1].decode(), pid, _lives(pid), (found.st_dev, found.st_ino))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _locked(git_dir: bytes, found: Holder | None) -> LockedError:
    place = quote(os.path.join(git_dir, LOCK))
    if found is None:
        return LockedError(f"the index is locked by another program: {place} exists", hint=_REMOVE)
    turn = f"the turn {found.capture_id[:12]}"
    if found.alive:
        return LockedError(f"the index is locked by {turn}, pid {found.pid}: {place} exists", hint=_WAIT)
    return LockedError(f"the index was left locked by {turn}, which has died: {place} exists", hint=_REMOVE_OURS)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {what}: {error.strerror}") from error
