"""The confined handle of a workspace root: the only code that opens workspace files for writing.

Every path is walked from the root's descriptor one component at a time, with O_NOFOLLOW and O_DIRECTORY, so a
symbolic link in the way is an error and never a way out, also when it is swapped in while we walk. The last
component is never followed either. New content is written beside its target and renamed over it.

Not guaranteed: isolation against a process that writes the same file in the instant between the last look at a
target and the rename.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from putback.errors import RefusedError, StorageError, UnsafePath
from putback.fs.place import BLOCK, DIRECTORY_FLAGS, GONE, READ_FLAGS, Place, Seen
from putback.paths import RelPath, fault, parse, quote, within
from putback.records.change import PERMISSION_BITS, Node

__all__ = ["GONE", "Root", "chmod", "remove", "store_inside"]

HOLE = 4096

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# A NUL anywhere, or a component that is empty, `.`, `..` or reads as `.git`.
_NEVER = re.compile(rb"\0|(?:\A|/)(?:\.{0,2}|\.git)(?:/|\Z)", re.IGNORECASE)


class Root:
    """A workspace root, held open. `forbidden` is where our own store lies inside it, if it does.

    `path` is a real path: whoever puts a symbolic link in the place of the root does not lead us elsewhere.
    """

    def __init__(self, path: bytes, forbidden: RelPath | None = None) -> None:
        needed = (os.open, os.rename, os.unlink, os.mkdir, os.rmdir, os.symlink, os.stat, os.readlink)
        if not all(call in os.supports_dir_fd for call in needed):
            raise RefusedError("this platform cannot confine writes to a directory; nothing was done")
        self.path = path
        self._forbidden: set[RelPath] = set() if forbidden is None else {forbidden}
        try:
            self._fd = os.open(path, DIRECTORY_FLAGS)
        except OSError as error:
            raise StorageError(f"cannot open the workspace {quote(path)}: {error.strerror}") from error

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def parent(self, path: bytes) -> Place:
        """The place that `path` names, its directory held open, for a `with` block.

        Raises OSError where a component is missing, is no directory or is a symbolic link, and UnsafePath where
        the path could not be one of the workspace's.
        """
        self._check(path)
        *above, name = path.split(b"/")
        top = fd = self._fd
        for component in above:
            try:
                below = os.open(component, DIRECTORY_FLAGS, dir_fd=fd)
            finally:
                if fd != top:
                    os.close(fd)
            fd = below
        return Place(path, fd, name, own=fd != top)

    def _check(self, path: bytes) -> None:
        if self._forbidden and within(path, self._forbidden):
            raise UnsafePath(f"inside putback's own store: {quote(path)}")
        if _NEVER.search(path):
            raise UnsafePath(f"{fault(path)}: {quote(path)}")

    def lstat(self, path: bytes) -> os.stat_result:
        """What stands at `path`, links not followed. Raises OSError."""
        with self.parent(path) as place:
            return place.lstat()

    def look(self, path: bytes) -> os.stat_result | None:
        """Like `lstat`, but None where nothing stands there, or only behind a symbolic link."""
        try:
            return self.lstat(path)
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def is_directory(self, path: bytes) -> bool:
        """Whether a directory stands at `path`, and not behind a link. Raises OSError."""
        found = self.look(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def open_file(self, path: bytes) -> int:
        """A descriptor to read the regular file at `path`; never waits, never follows. Raises OSError."""
        with self.parent(path) as place:
            descriptor = place.open_to_read()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file")
        return descriptor

    def read_link(self, path: bytes) -> bytes:
        """The text of the symbolic link at `path`. Raises OSError."""
        with self.parent(path) as place:
            return os.readlink(place.name, dir_fd=place.fd)

    def measure(self, path: bytes) -> Node | None:
        """The node that stands at `path`, its content read; None where there is none.

        Raises OSError where it cannot be read and FailedError where it is a special file.
        """
        return self.examine(path)[0]

    def examine(self, path: bytes) -> Seen:
        """Like `measure`, with the stat data taken before the content was read."""
        try:
            place = self.parent(path)
        except OSError as error:
            if error.errno in GONE:
                return None, None
            raise
        with place:
            return place.examine()

    def names(self, path: RelPath | None) -> list[bytes]:
        """The names in a directory, the root's where `path` is None. Raises OSError."""
        if path is None:
            return [os.fsencode(name) for name in os.listdir(self._fd)]
        with self.parent(path) as place:
            directory = place.open_directory()
            try:
                return [os.fsencode(entry) for entry in os.listdir(directory)]
            finally:
                os.close(directory)

    def stage_file(self, path: RelPath, blocks: Iterable[bytes], mode: int) -> None:
        """Write a new regular file at `path`; see `stage_file_at`."""
        with self.parent(path) as place:
            os.close(self.stage_file_at(place, blocks, mode)[0])

    def stage_file_at(self, place: Place, blocks: Iterable[bytes], mode: int) -> tuple[int, os.stat_result]:
        """Write a new regular file at a place where nothing stands; its descriptor, for `os.fsync`, and stat data.

        Runs of zeros become holes. Created readable by the owner alone; `mode` (masked to permission bits) is
        set only once the content is whole. Raises OSError, and leaves nothing behind then.
        """
        descriptor = os.open(place.name, _CREATE, 0o600, dir_fd=place.fd)
        try:
            _write_sparse(descriptor, blocks)
            os.fchmod(descriptor, mode & PERMISSION_BITS)
            return descriptor, os.fstat(descriptor)
        except BaseException:
            os.close(descriptor)
            os.unlink(place.name, dir_fd=place.fd)
            raise

    def stage_link(self, path: RelPath, target: bytes) -> None:
        """Make a symbolic link at `path`, which must not exist. Raises OSError."""
        with self.parent(path) as place:
            self.stage_link_at(place, target)

    def stage_link_at(self, place: Place, target: bytes) -> None:
        """Make a symbolic link at a place where nothing stands. Raises OSError."""
        os.symlink(target, place.name, dir_fd=place.fd)

    def sync_file(self, path: RelPath) -> None:
        """Make a file's content durable. Raises OSError."""
        with self.parent(path) as place:
            descriptor = place.open_to_read()
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: RelPath | None) -> None:
        """Make the names in a directory durable. Raises OSError."""
        if path is None:
            os.fsync(self._fd)
            return
        with self.parent(path) as place:
            directory = place.open_directory()
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def publish(self, staged: RelPath, target: RelPath) -> None:
        """Rename a staged file over its target. Raises OSError."""
        with self.parent(target) as place:
            self.publish_at(staged, place)

    def publish_at(self, staged: RelPath, place: Place) -> None:
        """Rename a staged file over what stands at the place. Raises OSError."""
        self._check(staged)
        folder, _, name = staged.rpartition(b"/")
        if folder == place.path.rpartition(b"/")[0]:
            os.rename(name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
            return
        with self.parent(staged) as source:
            os.rename(source.name, place.name, src_dir_fd=source.fd, dst_dir_fd=place.fd)

    def chmod(self, path: RelPath, mode: int) -> None:
        """Set permission bits of a file or directory; a link is refused. Special bits stay as they are."""
        with self.parent(path) as place:
            chmod(place, mode)

    def make_directory(self, path: RelPath, mode: int) -> None:
        """Make a directory, owner-only first, then with `mode` masked to permission bits. Raises OSError."""
        with self.parent(path) as place:
            os.mkdir(place.name, 0o700, dir_fd=place.fd)
            try:
                directory = place.open_directory()
                try:
                    os.fchmod(directory, mode & PERMISSION_BITS)
                finally:
                    os.close(directory)
            except OSError:
                os.rmdir(place.name, dir_fd=place.fd)
                raise

    def remove(self, path: RelPath) -> None:
        """Remove a file or link. Raises OSError."""
        with self.parent(path) as place:
            remove(place)

    def remove_directory(self, path: RelPath) -> None:
        """Remove a directory that is empty. Raises OSError."""
        with self.parent(path) as place:
            os.rmdir(place.name, dir_fd=place.fd)


def remove(place: Place) -> None:
    """Remove a file or link. Raises OSError."""
    os.unlink(place.name, dir_fd=place.fd)


def chmod(place: Place, mode: int) -> None:
    """Set permission bits of a file or directory; a link is refused. Special bits stay as they are."""
    flags = DIRECTORY_FLAGS if stat.S_ISDIR(place.lstat().st_mode) else READ_FLAGS
    try:
        descriptor = os.open(place.name, flags, dir_fd=place.fd)
    except PermissionError:
        _chmod_unreadable(place, mode)
        return
    try:
        special = os.fstat(descriptor).st_mode & 0o7000
        os.fchmod(descriptor, special | (mode & PERMISSION_BITS))
    finally:
        os.close(descriptor)


def store_inside(root: Path, store: Path) -> RelPath | None:
    """Where the store lies inside the workspace, as a path relative to it; None where it lies outside."""
    if store == root or root not in store.parents:
        return None
    return parse(os.fsencode(store.relative_to(root)))


def _write_sparse(descriptor: int, blocks: Iterable[bytes]) -> None:
    end = 0
    written = 0
    for block in blocks:
        for start in range(0, len(block), BLOCK):
            part = block[start : start + BLOCK] if len(block) > BLOCK else block
            end += len(part)
            if _is_hole(part):
                os.lseek(descriptor, len(part), os.SEEK_CUR)
                continue
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view) :]
            written = end
    if written != end:
        os.ftruncate(descriptor, end)


def _is_hole(block: bytes) -> bool:
    return len(block) >= HOLE and not any(block[:HOLE]) and block.count(0) == len(block)


def _chmod_unreadable(place: Place, mode: int) -> None:
    """For a file whose own bits keep us from opening it: without following a link, also one just swapped in."""
    if not hasattr(os, "O_PATH"):
        os.chmod(place.name, mode & PERMISSION_BITS, dir_fd=place.fd, follow_symlinks=False)
        return
    handle = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd)
    try:
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            raise OSError(errno.ELOOP, "a symbolic link")
        os.chmod(f"/proc/self/fd/{handle}", mode & PERMISSION_BITS)
    finally:
        os.close(handle)
