"""One file read once: what is at a path, as an object of the store and the stat data that belong to it.

Guaranteed: content that is handed out is what one descriptor gave between two equal stats, and any later
write to the file shows in the stat data. A file that does not hold still is read a second time, then declared
not covered. At most 8 MiB of a file are in memory; what is larger is read in blocks, twice, because its id
must be known before it is stored.

Not done here: confinement to the workspace is the opener's, storing is the caller's. A failure that concerns
the process rather than the path (no descriptors, no memory) is raised, not reported as an outcome.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Literal, Protocol, TypeVar

import msgspec

from putback.errors import Cancelled
from putback.fs.place import STILL_CLOCK_NS, differ, is_young
from putback.git.index import EXECUTABLE, REGULAR, SYMLINK
from putback.git.objectid import object_header, object_id
from putback.progress import Progress

_F = TypeVar("_F")

Reason = Literal["unreadable", "too_large", "changed_while_read", "special_file"]

WHOLE_BYTES = 8 << 20
_BLOCK = 1 << 20

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})
_PROCESS_FAILURES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class Opener(Protocol):
    """How files are reached: inside the workspace, following no link. Calls come from several threads."""

    def open_file(self, path: bytes) -> int:
        """A descriptor of a regular file, opened without following links and without blocking."""

    def read_link(self, path: bytes) -> bytes: ...

    def lstat(self, path: bytes) -> os.stat_result: ...


class Stored(msgspec.Struct, frozen=True):
    """The content is in the store; `st` was taken before it was read, `mode` is git's."""

    path: bytes
    oid: bytes
    st: os.stat_result
    mode: int


class Missing(msgspec.Struct, frozen=True):
    """Neither a file nor a link is there (any more)."""

    path: bytes


class NotCovered(msgspec.Struct, frozen=True):
    """Something is there that the capture does not hold; `size` is 0 where it could not be asked."""

    path: bytes
    reason: Reason
    detail: str
    size: int


Outcome = Stored | Missing | NotCovered


class Content(msgspec.Struct, frozen=True):
    """What a file or a link holds; `stored` becomes true when the caller has stored `data`."""

    stored: Stored
    data: bytes


class Large(msgspec.Struct, frozen=True):
    """A file that is too large to be read whole, and has to go through `Source.stream`."""

    path: bytes


# Given id, size and a way to read the content: store it unless the store has it. False: it was not that id.
Keep = Callable[[bytes, int, Callable[[], Iterator[bytes]]], bool]


class SourceFailed(Exception):
    """Reading failed while an object was being stored; tells it from a failure to write."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Source:
    """The files of a workspace, for reading. May be used from several threads."""

    def __init__(self, opener: Opener, max_file_bytes: int, progress: Progress) -> None:
        self._opener = opener
        self._max_file_bytes = max_file_bytes
        self._progress = progress

    def read(self, path: bytes) -> Content | Large | Missing | NotCovered:
        """What is at the path, whole; of a large file only that it is one."""
        found = self._attempt(path, self._read_whole)
        if isinstance(found, NotCovered) and found.reason == "changed_while_read":
            found = self._attempt(path, self._read_whole)
        assert not isinstance(found, Stored)
        return found

    def stream(self, path: bytes, keep: Keep) -> Content | Outcome:
        """Have a large file stored by `keep`, a block at a time. What is no large file any more is read."""
        found = self._attempt(path, partial(self._read_blocks, keep))
        if isinstance(found, NotCovered) and found.reason == "changed_while_read":
            found = self._attempt(path, partial(self._read_blocks, keep))
        assert not isinstance(found, Large)
        return found

    def _attempt(self, path: bytes, read: Callable[[bytes, int], _F]) -> _F | Content | Missing | NotCovered:
        try:
            descriptor = self._opener.open_file(path)
        except OSError as error:
            return self._not_opened(path, error)
        try:
            return read(path, descriptor)
        except SourceFailed as failed:
            return _unreadable(path, failed.error, 0)
        finally:
            os.close(descriptor)

    def _read_whole(self, path: bytes, descriptor: int) -> Content | Large | Missing | NotCovered:
        try:
            before = _settled_stat(descriptor)
            size = before.st_size
            if (refusal := self._refusal(path, before)) is not None:
                return refusal
            if size > WHOLE_BYTES:
                return Large(path)
            data = os.read(descriptor, size + 1)
            while len(data) < size and (more := os.read(descriptor, size + 1 - len(data))):
                data += more
            if len(data) != size or differ(before, os.fstat(descriptor)):
                return _moving(path, size)
        except OSError as error:
            return _unreadable(path, error, 0)
        return Content(_stored(path, object_id("blob", data), before), data)

    def _read_blocks(self, keep: Keep, path: bytes, descriptor: int) -> Stored | Missing | NotCovered:
        before = _guarded(_settled_stat, descriptor)
        size = before.st_size
        if (refusal := self._refusal(path, before)) is not None:
            return refusal
        digest = sha256(object_header("blob", size))
        for block in self._blocks(descriptor, size):
            digest.update(block)
        if differ(before, _guarded(os.fstat, descriptor)):
            return _moving(path, size)
        oid = digest.digest()
        if not keep(oid, size, partial(self._blocks, descriptor, size)):
            return _moving(path, size)
        if differ(before, _guarded(os.fstat, descriptor)):
            return _moving(path, size)
        return _stored(path, oid, before)

    def _blocks(self, descriptor: int, size: int) -> Iterator[bytes]:
        """The content, and one byte more than `size` if there is more: a file that grows comes to an end."""
        offset = 0
        while offset <= size:
            if self._progress.cancelled():
                raise Cancelled("cancelled")
            try:
                block = os.pread(descriptor, min(_BLOCK, size + 1 - offset), offset)
            except OSError as error:
                raise SourceFailed(error) from error
            if not block:
                return
            offset += len(block)
            yield block

    def _refusal(self, path: bytes, st: os.stat_result) -> Missing | NotCovered | None:
        if not stat.S_ISREG(st.st_mode):
            return _no_file(path, st)
        if st.st_size > self._max_file_bytes:
            detail = f"{st.st_size} bytes, the limit is {self._max_file_bytes}"
            return NotCovered(path, "too_large", detail, st.st_size)
        return None

    def _not_opened(self, path: bytes, error: OSError) -> Content | Missing | NotCovered:
        """What is at a path that cannot be opened as a file: often a link, which is no failure."""
        if error.errno in _GONE:
            return Missing(path)
        try:
            st = self._opener.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                return self._read_link(path, st)
        except OSError as second:
            return _not_seen(path, second)
        if stat.S_ISREG(st.st_mode):
            return (
                _moving(path, st.st_size) if error.errno == errno.ELOOP else _unreadable(path, error, st.st_size)
            )
        return _no_file(path, st)

    def _read_link(self, path: bytes, before: os.stat_result) -> Content | NotCovered:
        if _young(before):
            time.sleep(STILL_CLOCK_NS / 1e9)
            before = self._opener.lstat(path)
        text = self._opener.read_link(path)
        if differ(before, self._opener.lstat(path)):
            return _moving(path, before.st_size)
        return Content(Stored(path, object_id("blob", text), before, SYMLINK), text)


def _settled_stat(descriptor: int) -> os.stat_result:
    """The stat data of a file, once they are old enough that a later write cannot leave them as they are."""
    st = os.fstat(descriptor)
    if _young(st):
        time.sleep(STILL_CLOCK_NS / 1e9)
        st = os.fstat(descriptor)
    return st


def _young(st: os.stat_result) -> bool:
    return is_young(st, time.time_ns())


def _guarded(ask: Callable[[int], os.stat_result], descriptor: int) -> os.stat_result:
    try:
        return ask(descriptor)
    except OSError as error:
        raise SourceFailed(error) from error


def _stored(path: bytes, oid: bytes, st: os.stat_result) -> Stored:
    return Stored(path, oid, st, EXECUTABLE if st.st_mode & stat.S_IXUSR else REGULAR)


def _moving(path: bytes, size: int) -> NotCovered:
    return NotCovered(path, "changed_while_read", "it changed while it was read, twice", size)


def _unreadable(path: bytes, error: OSError, size: int) -> NotCovered | Missing:
    if error.errno in _PROCESS_FAILURES:
        raise error
    if error.errno in _GONE:
        return Missing(path)
    return NotCovered(path, "unreadable", error.strerror or str(error), size)


def _not_seen(path: bytes, error: OSError) -> Missing | NotCovered:
    if error.errno == errno.ELOOP:
        # From a call that follows no link this means that a directory above has become one.
        return Missing(path)
    if error.errno == errno.EINVAL:
        # It was a link when we asked, and was none when we read it.
        return _moving(path, 0)
    return _unreadable(path, error, 0)


def _no_file(path: bytes, st: os.stat_result) -> Missing | NotCovered:
    if stat.S_ISDIR(st.st_mode):
        return Missing(path)
    names = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return NotCovered(path, "special_file", names.get(stat.S_IFMT(st.st_mode), "a device"), st.st_size)
