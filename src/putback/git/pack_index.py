"""The indexes of packs: which objects a pack holds, where they begin, and how many bytes of it each takes.

Only version 2 of sha256 repositories, which is what `git.packs` and git itself write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from putback.git.objectid import OID_BYTES

HEADER = b"\377tOc\0\0\0\2"
FANOUT = struct.Struct(">256I")
TABLES = len(HEADER) + FANOUT.size
_FAR = 1 << 31
_NOWHERE = -1


class PackIndex:
    """The index beside `pack`. Raises OSError, and ValueError where it is no index that belongs to a pack."""

    def __init__(self, pack: Path) -> None:
        data = pack.with_suffix(".idx").read_bytes()
        found = fault(data)
        if found:
            raise ValueError(found)
        self.pack = pack
        self.size = pack.stat().st_size
        self._data = data
        self._count = count(data)

    def __len__(self) -> int:
        return self._count

    def sizes(self) -> Iterator[tuple[bytes, int]]:
        """Every raw id with the bytes that it takes in the pack, in no order."""
        places = _offsets(self._data, self._count)
        order = sorted(range(self._count), key=places.__getitem__)
        ends = [places[at] for at in order[1:]] + [self.size - OID_BYTES]
        for at, end in zip(order, ends, strict=True):
            yield _oid(self._data, at), end - places[at]


def fault(data: bytes) -> str:
    """Why the content of an index cannot be believed; empty where it can."""
    if len(data) < TABLES + 2 * OID_BYTES or sha256(memoryview(data)[:-OID_BYTES]).digest() != data[-OID_BYTES:]:
        return "its index does not match its checksum"
    if data[: len(HEADER)] != HEADER:
        return "its index is of no known version"
    if len(data) < TABLES + count(data) * (OID_BYTES + 8) + 2 * OID_BYTES:
        return "its index is cut off"
    return ""


def count(data: bytes) -> int:
    """How many objects an index says there are."""
    return int(FANOUT.unpack_from(data, len(HEADER))[-1])


def named(index: Path) -> list[tuple[bytes, int]]:
    """What an index says, also a damaged one as far as it can be taken apart: raw ids, and where they begin."""
    try:
        data = index.read_bytes()
        most = min(count(data), max(0, len(data) - TABLES) // (OID_BYTES + 8))
        places = _offsets(data, most)
    except (OSError, struct.error):
        return []
    return [(_oid(data, at), place) for at, place in enumerate(places) if place != _NOWHERE]


def ids(index: Path) -> set[bytes]:
    """The raw ids that an index says are in its pack; empty where it cannot be read."""
    return {oid for oid, _ in named(index)}


def _oid(data: bytes, at: int) -> bytes:
    start = TABLES + at * OID_BYTES
    return data[start : start + OID_BYTES]


def _offsets(data: bytes, number: int) -> list[int]:
    near_start = TABLES + number * (OID_BYTES + 4)
    far_start = near_start + 4 * number

    def offset(value: int) -> int:
        if value < _FAR:
            return value
        place = far_start + 8 * (value - _FAR)
        return int(struct.unpack_from(">Q", data, place)[0]) if place + 8 <= len(data) else _NOWHERE

    return [offset(value) for value in struct.unpack_from(f">{number}I", data, near_start)]
