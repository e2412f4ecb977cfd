"""A name in a directory that is held open: whatever is done there needs one walk down to it.

A place is what `fs.root` hands out, and is good for one step: the directory may be moved or replaced at any time,
and only the next walk would notice.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time

from putback.errors import FailedError
from putback.paths import quote
from putback.records.change import LINK_MODE, PERMISSION_BITS, Kind, Node

BLOCK = 1 << 18
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

# The kernel stamps files with a clock that stands still for up to 10 ms: a file as young as that could be
# written again without its stat data telling.
STILL_CLOCK_NS = 20_000_000

Seen = tuple[Node | None, os.stat_result | None]


class Place:
    """`name` in the directory `fd`, which is closed at the end of the `with` block if it is the place's own."""

    __slots__ = ("_own", "fd", "name", "path")

    def __init__(self, path: bytes, fd: int, name: bytes, own: bool) -> None:
        self.path = path
        self.fd = fd
        self.name = name
        self._own = own

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            os.close(self.fd)

    def lstat(self) -> os.stat_result:
        """What stands here, links not followed. Raises OSError."""
        return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)

    def look(self) -> os.stat_result | None:
        """Like `lstat`, but None where nothing stands here."""
        try:
            return self.lstat()
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def beside(self, path: bytes) -> Place:
        """The place of another path in the same directory, for as long as this one is open."""
        return Place(path, self.fd, path.rpartition(b"/")[2], own=False)

    def open_directory(self) -> int:
        """A descriptor of the directory here. Raises OSError."""
        return os.open(self.name, DIRECTORY_FLAGS, dir_fd=self.fd)

    def open_to_read(self) -> int:
        """A descriptor to read what stands here, be it a file or not. Raises OSError."""
        return os.open(self.name, READ_FLAGS, dir_fd=self.fd)

    def examine(self) -> Seen:
        """The node here, its content read, and the stat data taken before that; None where there is none.

        Raises OSError where it cannot be read and FailedError where it is a special file.
        """
        try:
            found = self.lstat()
        except FileNotFoundError:
            return None, None
        if stat.S_ISDIR(found.st_mode):
            return Node(Kind.DIRECTORY, found.st_mode & PERMISSION_BITS), found
        if stat.S_ISLNK(found.st_mode):
            text = os.readlink(self.name, dir_fd=self.fd)
            return Node(Kind.SYMLINK, LINK_MODE, blob_id([text])), found
        if not stat.S_ISREG(found.st_mode):
            raise FailedError(f"a special file stands at {quote(self.path)}")
        descriptor = self.open_to_read()
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise FailedError(f"a special file stands at {quote(self.path)}")
            return Node(Kind.FILE, found.st_mode & PERMISSION_BITS, _digest(descriptor, found.st_size)), found
        finally:
            os.close(descriptor)

    def examine_settled(self) -> Seen:
        """Like `examine`, with stat data that any later write to the file shows in, or None for the stat data.

        Waits until the stat data are old enough for that.
        """
        now_ns = time.time_ns()
        node, found = self.examine()
        if found is not None and is_young(found, now_ns):
            time.sleep(STILL_CLOCK_NS / 1e9)
            node, found = self.examine()
        if found is not None and differ(found, self.lstat()):
            return node, None
        return node, found


def is_young(found: os.stat_result, now_ns: int) -> bool:
    """Whether a write after `now_ns` could leave the stat data as they are."""
    return 0 <= now_ns - found.st_ctime_ns < STILL_CLOCK_NS


def differ(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether the stat data tell of a change of content, mode or identity."""
    return (
        before.st_mtime_ns != after.st_mtime_ns
        or before.st_ctime_ns != after.st_ctime_ns
        or before.st_size != after.st_size
        or before.st_ino != after.st_ino
        or before.st_mode != after.st_mode
    )


def blob_id(blocks: list[bytes]) -> str:
    """git's sha256 id of a blob with this content, in lowercase hex."""
    digest = hashlib.sha256(b"blob %d\0" % sum(len(block) for block in blocks))
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _digest(descriptor: int, size: int) -> str:
    digest = hashlib.sha256(b"blob %d\0" % size)
    while block := os.read(descriptor, BLOCK):
        digest.update(block)
    return digest.hexdigest()


def is_file(found: os.stat_result | None) -> bool:
    """Whether a file or a symbolic link stands there: what captures hold the content of."""
    return found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode))
