"""Packs and loose objects as files: whether they are what they say, and what can be read of those that are not.

Nothing here starts git or believes an index: an object is what its content hashes to, wherever it was found. The
whole content of an object is in memory while it is read.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from putback.git import pack_index
from putback.git.objectid import OID_BYTES, Kind, object_id

_KINDS: dict[int, Kind] = {1: "commit", 2: "tree", 3: "blob"}
_OFS_DELTA, _REF_DELTA = 6, 7
_PACK_HEADER = struct.Struct(">4sII")
_BLOCK = 1 << 20
# git itself makes no longer chains than 4095.
_DEEPEST = 5000
_LOOSE = re.compile(r"[0-9a-f]{62}")


class Unreadable(ValueError):
    """An object of which the bytes at its place make no sense."""


class PackFiles(msgspec.Struct, frozen=True, order=True):
    """A pack and its index, of which one may be missing."""

    stem: str

    @property
    def pack(self) -> Path:
        return Path(self.stem + ".pack")

    @property
    def index(self) -> Path:
        return Path(self.stem + ".idx")

    @property
    def name(self) -> str:
        return self.pack.name


def packs(objects: Path) -> list[PackFiles]:
    """The packs in an object directory, by name. Raises OSError."""
    try:
        names = os.listdir(objects / "pack")
    except FileNotFoundError:
        return []
    stems = {name[: -len(end)] for name in names for end in (".pack", ".idx") if name.endswith(end)}
    return [PackFiles(str(objects / "pack" / stem)) for stem in sorted(stems) if stem.startswith("pack-")]


def side_files(objects: Path) -> list[Path]:
    """What git keeps beside packs and can make again: it ends with a checksum of its own. Raises OSError."""
    folder = objects / "pack"
    if not folder.is_dir():
        return []
    ends = (".rev", ".bitmap")
    return sorted(path for path in folder.iterdir() if path.suffix in ends or path.name == "multi-pack-index")


def loose(objects: Path) -> Iterator[tuple[str, Path]]:
    """The id and the place of every loose object. Raises OSError."""
    for first in range(256):
        folder = objects / f"{first:02x}"
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            if _LOOSE.fullmatch(name):
                yield folder.name + name, folder / name


def index_fault(files: PackFiles) -> str:
    """Why an index cannot be believed, or does not belong to its pack; empty where all is well. Raises OSError."""
    if not files.index.exists():
        return "it has no index"
    if not files.pack.exists():
        return "the pack of this index is gone"
    data = files.index.read_bytes()
    fault = pack_index.fault(data)
    if fault:
        return fault
    count = pack_index.count(data)
    with open(files.pack, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = os.pread(file.fileno(), _PACK_HEADER.size, 0)
        trailer = os.pread(file.fileno(), OID_BYTES, max(0, size - OID_BYTES))
    if len(head) < _PACK_HEADER.size or _PACK_HEADER.unpack(head) not in (
        (b"PACK", 2, count),
        (b"PACK", 3, count),
    ):
        return "its beginning is not that of its index"
    if trailer != data[-2 * OID_BYTES : -OID_BYTES]:
        return "its end is not that of its index"
    return ""


def checksum_fault(path: Path) -> str:
    """Why a file is damaged that ends with its own sha256; empty where it is not. Raises OSError."""
    digest = sha256()
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size - OID_BYTES
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
        trailer = file.read(OID_BYTES + 1)
    return "" if trailer == digest.digest() else "it does not match its checksum"


def loose_fault(path: Path, oid: str) -> str:
    """Why a loose object is not what its name says; empty where it is. Raises OSError."""
    stream = zlib.decompressobj()
    digest = sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(stream.decompress(block))
                if stream.unused_data:
                    return "something follows after its end"
        digest.update(stream.flush())
    except zlib.error:
        return "it does not inflate"
    if not stream.eof:
        return "it is cut off"
    return "" if digest.hexdigest() == oid else "its content is another one"


class PackReader:
    """One pack, read by position. Raises OSError where it cannot be mapped, Unreadable for a damaged object."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            self._data: bytes | mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self._end = len(self._data) - OID_BYTES
        self._at: dict[bytes, int] = {}

    def objects(self, index: Path) -> Iterator[tuple[bytes, Kind, bytes]]:
        """Every object that can be read, as raw id, kind and content: those that `index` points to, and those that
        follow each other from the beginning. What the index says else is not believed."""
        told = pack_index.named(index)
        offsets = dict.fromkeys(offset for _, offset in told)
        offsets.update(dict.fromkeys(self._sequence()))
        for oid, offset in told:
            self._at.setdefault(oid, offset)
        seen: set[bytes] = set()
        for offset in sorted(offsets):
            try:
                kind, data = self.read(offset)
            except Unreadable:
                continue
            oid = object_id(kind, data)
            if oid not in seen:
                seen.add(oid)
                yield oid, kind, data

    def read(self, offset: int) -> tuple[Kind, bytes]:
        """The object at a position, its deltas applied."""
        deltas: list[bytes] = []
        for _ in range(_DEEPEST):
            number, size, start = self._header(offset)
            if number == _OFS_DELTA:
                base, start = self._distance(start)
                deltas.append(self._inflate(start, size)[0])
                offset -= base
            elif number == _REF_DELTA:
                oid = bytes(self._data[start : start + OID_BYTES])
                deltas.append(self._inflate(start + OID_BYTES, size)[0])
                if oid not in self._at:
                    raise Unreadable("a delta against what is not here")
                offset = self._at[oid]
            elif number in _KINDS:
                return _KINDS[number], _apply(self._inflate(start, size)[0], deltas)
            else:
                raise Unreadable("no object begins here")
        raise Unreadable("a chain of deltas without an end")

    def _sequence(self) -> Iterator[int]:
        """Where objects begin, one after the other, as far as that can be told."""
        offset = _PACK_HEADER.size
        while offset < self._end:
            try:
                number, size, start = self._header(offset)
                if number == _OFS_DELTA:
                    start = self._distance(start)[1]
                elif number == _REF_DELTA:
                    start += OID_BYTES
                elif number not in _KINDS:
                    return
                following = self._inflate(start, size)[1]
            except Unreadable:
                return
            yield offset
            offset = following

    def _header(self, offset: int) -> tuple[int, int, int]:
        """The kind's number, the size, and where the content begins."""
        if not _PACK_HEADER.size <= offset < self._end:
            raise Unreadable("outside the pack")
        byte = self._data[offset]
        number, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            offset += 1
            if offset >= self._end or shift > 60:
                raise Unreadable("a header without an end")
            byte = self._data[offset]
            size |= (byte & 0x7F) << shift
            shift += 7
        return number, size, offset + 1

    def _distance(self, start: int) -> tuple[int, int]:
        """How far back the base of a delta lies, and where the delta begins."""
        byte = self._byte(start)
        distance = byte & 0x7F
        while byte & 0x80:
            start += 1
            byte = self._byte(start)
            distance = (distance + 1) << 7 | byte & 0x7F
        if distance <= 0:
            raise Unreadable("a delta against itself")
        return distance, start + 1

    def _byte(self, position: int) -> int:
        if position >= self._end:
            raise Unreadable("outside the pack")
        return self._data[position]

    def _inflate(self, start: int, size: int) -> tuple[bytes, int]:
        """A content of just this size, and where its stream ends."""
        stream = zlib.decompressobj()
        parts: list[bytes] = []
        length, position = 0, start
        try:
            while not stream.eof and position < self._end and length <= size:
                block = self._data[position : min(position + _BLOCK, self._end)]
                parts.append(stream.decompress(block, size + 1 - length))
                length += len(parts[-1])
                position += len(block) - len(stream.unused_data) - len(stream.unconsumed_tail)
        except zlib.error as error:
            raise Unreadable(str(error)) from error
        if not stream.eof or length != size:
            raise Unreadable("its size is another one")
        return b"".join(parts), position


def _apply(data: bytes, deltas: list[bytes]) -> bytes:
    """What the deltas, the last one first, make of a content."""
    for delta in reversed(deltas):
        try:
            data = _patched(data, delta)
        except IndexError as error:
            raise Unreadable("a delta that is cut off") from error
    return data


def _patched(base: bytes, delta: bytes) -> bytes:
    base_size, at = _length(delta, 0)
    size, at = _length(delta, at)
    if base_size != len(base):
        raise Unreadable("a delta against another content")
    out: list[bytes] = []
    while at < len(delta):
        order = delta[at]
        at += 1
        if not order & 0x80:
            if not order:
                raise Unreadable("an unknown order in a delta")
            out.append(delta[at : at + order])
            at += order
            continue
        offset = length = 0
        for bit in range(7):
            if order & 1 << bit:
                if bit < 4:
                    offset |= delta[at] << 8 * bit
                else:
                    length |= delta[at] << 8 * (bit - 4)
                at += 1
        out.append(base[offset : offset + (length or 0x10000)])
    made = b"".join(out)
    if len(made) != size:
        raise Unreadable("a delta of another size")
    return made


def _length(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
