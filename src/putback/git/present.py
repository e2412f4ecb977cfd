"""Which objects the store already holds, without starting git.

An object counts as held where git itself would find it and tell its kind: a loose file that begins as one, or an
entry of a pack whose index belongs to it. Contents are not read; `check` does that. An answer "no" is always safe:
the object is written once more.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from putback.git.objectid import OID_BYTES
from putback.git.pack_index import FANOUT, HEADER, TABLES

_PACK_HEADER = struct.Struct(">4sII")
_KINDS = (b"blob ", b"tree ", b"commit ", b"tag ")
_LOOSE_START = 64


class Present:
    """What lies in the directory `objects`; what comes later may not be noticed."""

    def __init__(self, objects: Path) -> None:
        self._objects = os.fspath(objects)
        self._packs: list[_Pack] | None = None

    def __call__(self, oids: Sequence[bytes]) -> set[bytes]:
        """Those of the raw ids that are held."""
        if self._packs is None:
            self._packs = _open_packs(os.path.join(self._objects, "pack"))
        return {oid for oid in oids if any(oid in pack for pack in self._packs) or self._is_loose(oid)}

    def _is_loose(self, oid: bytes) -> bool:
        name = oid.hex()
        try:
            with open(os.path.join(self._objects, name[:2], name[2:]), "rb", buffering=0) as file:
                start = zlib.decompressobj().decompress(file.read(_LOOSE_START), 32)
        except (OSError, zlib.error):
            return False
        return start.startswith(_KINDS) and b"\0" in start


class _Pack:
    """The index of one pack, mapped into memory. Raises OSError and ValueError where the two are no pair."""

    def __init__(self, stem: str) -> None:
        with open(stem + ".idx", "rb", buffering=0) as file:
            self._index = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._index[: len(HEADER)] != HEADER:
            raise ValueError("no index of version 2")
        self._fanout = FANOUT.unpack_from(self._index, len(HEADER))
        count: int = self._fanout[-1]
        with open(stem + ".pack", "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            signature, version, held = _PACK_HEADER.unpack(os.pread(file.fileno(), _PACK_HEADER.size, 0))
            trailer = os.pread(file.fileno(), OID_BYTES, size - OID_BYTES)
        self._check(count, trailer)
        if (signature, held) != (b"PACK", count) or version not in (2, 3):
            raise ValueError("the pack is not the one of its index")

    def _check(self, count: int, trailer: bytes) -> None:
        least = TABLES + count * (OID_BYTES + 8) + 2 * OID_BYTES
        if len(self._index) < least or self._index[-2 * OID_BYTES : -OID_BYTES] != trailer:
            raise ValueError("the pack is not the one of its index")

    def __contains__(self, oid: bytes) -> bool:
        first = self._fanout[oid[0] - 1] if oid[0] else 0
        start = TABLES + first * OID_BYTES
        found = self._index.find(oid, start, TABLES + self._fanout[oid[0]] * OID_BYTES)
        return found >= 0 and (found - start) % OID_BYTES == 0


def _open_packs(folder: str) -> list[_Pack]:
    packs: list[_Pack] = []
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".idx"):
                with suppress(OSError, ValueError, struct.error):
                    packs.append(_Pack(os.path.join(folder, name[:-4])))
    return packs
