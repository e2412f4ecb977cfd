"""What a pack holds, read from its index: the ids, and how many bytes of the pack each takes.

Only version 2 of sha256 repositories, which is what `git.packs` and git itself write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from putback.git.objectid import OID_BYTES

_HEADER = b"\377tOc\0\0\0\2"
_FANOUT = struct.Struct(">256I")
_TABLES = len(_HEADER) + _FANOUT.size
_FAR = 1 << 31
_BLOCK = 1 << 20


class PackIndex:
    """The index beside `pack`. Raises OSError, and ValueError where it is no index that belongs to a pack."""

    def __init__(self, pack: Path) -> None:
        data = pack.with_suffix(".idx").read_bytes()
        if data[: len(_HEADER)] != _HEADER or len(data) < _TABLES + 2 * OID_BYTES:
            raise ValueError("no index of version 2")
        if sha256(memoryview(data)[:-OID_BYTES]).digest() != data[-OID_BYTES:]:
            raise ValueError("the index is damaged")
        self.pack = pack
        self.size = pack.stat().st_size
        self._data = data
        self._count: int = _FANOUT.unpack_from(data, len(_HEADER))[-1]
        if len(data) < _TABLES + self._count * (OID_BYTES + 8) + 2 * OID_BYTES:
            raise ValueError("the index is cut off")

    def __len__(self) -> int:
        return self._count

    def sizes(self) -> Iterator[tuple[bytes, int]]:
        """Every raw id with the bytes that it takes in the pack, in no order."""
        offsets = self._offsets()
        order = sorted(range(self._count), key=offsets.__getitem__)
        ends = [offsets[at] for at in order[1:]] + [self.size - OID_BYTES]
        data = self._data
        for at, end in zip(order, ends, strict=True):
            start = _TABLES + at * OID_BYTES
            yield data[start : start + OID_BYTES], end - offsets[at]

    def _offsets(self) -> list[int]:
        near_start = _TABLES + self._count * (OID_BYTES + 4)
        near = struct.unpack_from(f">{self._count}I", self._data, near_start)
        far_start = near_start + 4 * self._count

        def offset(value: int) -> int:
            if value < _FAR:
                return value
            return int(struct.unpack_from(">Q", self._data, far_start + 8 * (value - _FAR))[0])

        return [offset(value) for value in near]


def is_whole(pack: Path) -> bool:
    """Whether a pack is what its own checksum says; reads all of it."""
    digest = sha256()
    try:
        with open(pack, "rb", buffering=0) as file:
            left = pack.stat().st_size - OID_BYTES
            while left > 0 and (block := file.read(min(_BLOCK, left))):
                digest.update(block)
                left -= len(block)
            return left == 0 and file.read() == digest.digest()
    except OSError:
        return False
