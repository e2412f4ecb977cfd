"""One pack with its index, written without git: version 2 both, for sha256 repositories.

A PackWriter collects objects in a scratch file and publishes all of them or none. Guaranteed: the pack and
its index are complete and on the disk before either has a name that git looks at; the pack gets its name
first; they may be read by whom `fs.modes` says. When `finish` raises, when the system refuses a write, or when the
writer is left without `finish`, the scratch files are gone.

Not done here: no deltas, no look into the store (an object that another pack holds is written again when it
is added), no check that `deflated` is what `oid` says (git's fsck does that), no locking against a
collector: the caller holds the store's lock. A writer belongs to one thread; `in` may be asked from others.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import sha256
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from isal import isal_zlib

from putback.fs import modes
from putback.fs.durable import sync_directory
from putback.git.objectid import DEFLATE_LEVEL, Kind, deflate, object_header
from putback.git.pack_index import FANOUT, HEADER

_HEADER = struct.Struct(">4sII")
_KIND_NUMBER: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3}
_FAR = 0x80000000
_BLOCK = 1 << 20


class PackWriter:
    """Collects objects for one pack; a context manager that discards what was not finished."""

    def __init__(self, scratch: Path) -> None:
        self._stem = scratch / f"pack-{os.getpid()}-{os.urandom(4).hex()}"
        self._file: FileIO | None = None
        self._closed = False
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._end = 0
        self._positions: dict[bytes, int] = {}
        self._offsets = array("Q")
        self._checksums = array("I")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._positions

    @property
    def count(self) -> int:
        """How many objects the pack holds so far."""
        return len(self._positions)

    @property
    def size(self) -> int:
        """How many bytes the pack has so far."""
        return self._end

    def compress(self, kind: Kind, data: bytes) -> bytes:
        """The form in which `add` wants a content. May be called from any thread."""
        return deflate(data)

    def add(self, kind: Kind, oid: bytes, size: int, deflated: bytes) -> None:
        """Add the object `oid` of `size` bytes, whose zlib stream is `deflated`; once if called twice."""
        if oid in self._positions:
            return
        self._open()
        header = _entry_header(kind, size)
        self._note(oid, self._end, isal_zlib.crc32(deflated, zlib.crc32(header)))
        self._append(header)
        self._append(deflated)

    def add_stream(self, kind: Kind, oid: bytes, size: int, blocks: Iterable[bytes]) -> bool:
        """Add an object whose content arrives in blocks; False, and nothing added, if it is not `oid`.

        An exception out of `blocks` leaves the pack as it was before the call.
        """
        if oid in self._positions:
            return True
        self._open()
        start = self._end
        try:
            checksum, received, digest = self._deflate_blocks(kind, size, blocks)
        except BaseException:
            self._roll_back(start)
            raise
        if received != size or digest != oid:
            self._roll_back(start)
            return False
        self._note(oid, start, checksum)
        return True

    def finish(self, pack_dir: Path) -> Path | None:
        """Publish the pack in `pack_dir` and return its path; None when no object was added."""
        if not self._positions:
            self.abort()
            return None
        try:
            return self._publish(pack_dir)
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard what has not been published; harmless after `finish` and when called twice."""
        self._closed = True
        self._pending.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
            self._part("pack").unlink(missing_ok=True)
            self._part("idx").unlink(missing_ok=True)

    def _part(self, kind: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{kind}.part")

    def _open(self) -> FileIO:
        if self._closed:
            raise ValueError("the pack is finished")
        if self._file is None:
            self._file = _create(self._part("pack"))
            self._append(_HEADER.pack(b"PACK", 2, 0))
        return self._file

    def _note(self, oid: bytes, offset: int, checksum: int) -> None:
        self._positions[oid] = len(self._offsets)
        self._offsets.append(offset)
        self._checksums.append(checksum)

    def _append(self, data: bytes) -> None:
        self._pending.append(data)
        self._end += len(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        try:
            _write_all(self._open(), data)
        except OSError:
            self.abort()
            raise

    def _deflate_blocks(self, kind: Kind, size: int, blocks: Iterable[bytes]) -> tuple[int, int, bytes]:
        """Append an object; its crc32, how many bytes came, and the raw id of those bytes."""
        self._flush()
        digest = sha256(object_header(kind, size))
        stream = isal_zlib.compressobj(DEFLATE_LEVEL)
        received = 0
        header = _entry_header(kind, size)
        checksum = zlib.crc32(header)
        self._append(header)
        for block in blocks:
            received += len(block)
            digest.update(block)
            deflated = stream.compress(block)
            checksum = isal_zlib.crc32(deflated, checksum)
            self._append(deflated)
        deflated = stream.flush()
        self._append(deflated)
        return isal_zlib.crc32(deflated, checksum), received, digest.digest()

    def _roll_back(self, offset: int) -> None:
        if self._file is None:
            return
        self._pending.clear()
        self._pending_bytes = 0
        self._end = offset
        os.ftruncate(self._file.fileno(), offset)
        self._file.seek(offset)

    def _publish(self, pack_dir: Path) -> Path:
        mode = modes.of(self._stem.parent).readonly
        pack_hash = self._seal(mode)
        with _create(self._part("idx")) as file:
            _write_all(file, self._index(pack_hash))
            _settle(file, mode)
        target = pack_dir / f"pack-{pack_hash.hex()}.pack"
        self._part("pack").replace(target)
        try:
            # Without this a power cut could keep the second rename and lose the first.
            sync_directory(pack_dir)
            self._part("idx").replace(target.with_suffix(".idx"))
            sync_directory(pack_dir)
        except BaseException:
            for half in (target.with_suffix(".idx"), target):
                half.unlink(missing_ok=True)
            raise
        return target

    def _seal(self, mode: int) -> bytes:
        """Write the true header and the trailer; the trailer names the pack. It gets its last mode."""
        self._flush()
        file = self._open()
        descriptor = file.fileno()
        os.pwrite(descriptor, _HEADER.pack(b"PACK", 2, self.count), 0)
        digest = sha256()
        for offset in range(0, self._end, _BLOCK):
            digest.update(os.pread(descriptor, _BLOCK, offset))
        _write_all(file, digest.digest())
        _settle(file, mode)
        return digest.digest()

    def _index(self, pack_hash: bytes) -> bytes:
        oids = sorted(self._positions)
        order = [self._positions[oid] for oid in oids]
        near, far = _split_offsets([self._offsets[position] for position in order])
        count = len(oids)
        fanout = [bisect_left(oids, bytes([first + 1])) for first in range(255)]
        parts = [
            HEADER,
            FANOUT.pack(*fanout, count),
            *oids,
            struct.pack(f">{count}I", *(self._checksums[position] for position in order)),
            struct.pack(f">{count}I", *near),
            struct.pack(f">{len(far)}Q", *far),
            pack_hash,
        ]
        body = b"".join(parts)
        return body + sha256(body).digest()


def _entry_header(kind: Kind, size: int) -> bytes:
    """The kind and the size of an object as they stand in front of its zlib stream."""
    byte = _KIND_NUMBER[kind] << 4 | size & 0x0F
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header)


def _split_offsets(offsets: Iterable[int]) -> tuple[list[int], list[int]]:
    """The table of 31-bit offsets, and the table of longer ones that it points into."""
    near: list[int] = []
    far: list[int] = []
    for offset in offsets:
        if offset < _FAR:
            near.append(offset)
        else:
            near.append(_FAR | len(far))
            far.append(offset)
    return near, far


def _create(path: Path) -> FileIO:
    return FileIO(modes.create(path, os.O_RDWR | os.O_EXCL, modes.of(path.parent).file), "r+")


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file.fileno(), rest) :]


def _settle(file: FileIO, mode: int) -> None:
    """Make the file read-only and bring it to the disk."""
    os.fchmod(file.fileno(), mode)
    os.fsync(file.fileno())
