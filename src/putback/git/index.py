"""The git index as a file: versions 2 and 3 of sha256 repositories, read and written without git.

An index is a dictionary from path to a record of 72 bytes: the ten stat fields of an entry in the order of
the file (ctime, mtime, device, inode, mode, uid, gid, size; all cut to 32 bits as git does) and the raw
object id. Records are kept packed because a capture holds 100,000 of them and looks into few.

Guaranteed: what is read had an intact checksum, a known version, stage 0 only, paths that are sorted, unique
and free of NUL, and no extension that changes what the entries mean. What is written is version 2; it
replaces the file in one step. The same entries give the same bytes.

Not done here: no locking (the caller holds a lock), no fsync (an index is a cache: one that a power cut has
damaged is refused and built again), no judgement of paths, and no smudging. An entry whose mtime is not
older than the index file is compared by content by git itself, and readers that use `same_stat` must do so.

The flags assume-valid and skip-worktree are dropped on reading. An intent-to-add entry is left out: it
names no content.
"""

from __future__ import annotations

import os
import struct
from hashlib import sha256
from pathlib import Path
from stat import S_ISLNK, S_ISREG, S_IXUSR
from typing import Final, Self

from putback.fs import modes
from putback.git.objectid import OID_BYTES

Entries = dict[bytes, bytes]

REGULAR: Final = 0o100644
EXECUTABLE: Final = 0o100755
SYMLINK: Final = 0o120000

_SIGNATURE = b"DIRC"
_HEADER = struct.Struct(">4sII")
HEADER_BYTES = _HEADER.size
_STAT = struct.Struct(">10I")
_WORD = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_MASK = 0xFFFFFFFF
RECORD_BYTES = _STAT.size + OID_BYTES
FIXED_BYTES = RECORD_BYTES + _SHORT.size

_EXTENDED = 0x4000
_STAGE = 0x3000
LONG_NAME = 0xFFF
_INTENT_TO_ADD = 0x2000

_PADDING = tuple(b"\0" * (8 - (FIXED_BYTES + length) % 8) for length in range(8))


class DamagedIndex(ValueError):
    """The file is no index that this module can vouch for."""


def git_mode(st_mode: int) -> int | None:
    """The mode git gives to a file of this kind; None when git has no entry for the kind."""
    if S_ISREG(st_mode):
        return EXECUTABLE if st_mode & S_IXUSR else REGULAR
    return SYMLINK if S_ISLNK(st_mode) else None


def make_record(st: os.stat_result, mode: int, oid: bytes) -> bytes:
    """The record of a file with this stat data, git mode and raw object id."""
    if len(oid) != OID_BYTES:
        raise ValueError(f"an object id has {OID_BYTES} bytes, not {len(oid)}")
    return stat_bytes(st, mode) + oid


def record_mode(record: bytes) -> int:
    return int.from_bytes(record[24:28], "big")


def record_size(record: bytes) -> int:
    """The size at the time of the stat, modulo 4 GiB."""
    return int.from_bytes(record[36:40], "big")


def record_oid(record: bytes) -> bytes:
    return record[40:]


def tree_part(record: bytes | None) -> bytes | None:
    """What a record says in a tree: mode and object id."""
    return None if record is None else record[24:28] + record[40:]


def same_stat(record: bytes, st: os.stat_result) -> bool:
    """Whether the stat data say that the file is what the record was made of.

    The device is left out, as git leaves it out: it changes between mounts of the same file system.
    """
    mode = git_mode(st.st_mode)
    if mode is None:
        return False
    now = stat_bytes(st, mode)
    return record[:16] == now[:16] and record[20:40] == now[20:]


def stat_bytes(st: os.stat_result, mode: int) -> bytes:
    """The ten stat fields of an entry, in the order of the file."""
    ctime, mtime, size = st.st_ctime_ns, st.st_mtime_ns, st.st_size
    return _STAT.pack(
        ctime // 1_000_000_000 & _MASK,
        ctime % 1_000_000_000,
        mtime // 1_000_000_000 & _MASK,
        mtime % 1_000_000_000,
        st.st_dev & _MASK,
        st.st_ino & _MASK,
        mode,
        st.st_uid & _MASK,
        st.st_gid & _MASK,
        # git keeps 0 for "unknown", so a multiple of 4 GiB must not become 0.
        size & _MASK or (0x80000000 if size else 0),
    )


def read_index(path: Path) -> Entries:
    """The entries of an index file; none when there is no file. Raises DamagedIndex and OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    version, count, end = check_frame(data)
    try:
        entries, position, left_out = _parse_entries(data, count, version)
    except (IndexError, ValueError, struct.error) as error:
        raise DamagedIndex(f"index entry is malformed: {error}") from error
    if position > end:
        raise DamagedIndex("index entries run into the checksum")
    _check_extensions(data, position, end)
    _check_paths(entries, count - left_out)
    return entries


def check_frame(data: bytes, *, verified: bool = False) -> tuple[int, int, int]:
    """Version, number of entries and the position of the checksum, which is verified unless it was before."""
    end = len(data) - OID_BYTES
    if end < _HEADER.size:
        raise DamagedIndex(f"index is truncated to {len(data)} bytes")
    signature, version, count = _HEADER.unpack_from(data)
    if signature != _SIGNATURE:
        raise DamagedIndex(f"index signature is {signature!r}")
    if version not in (2, 3):
        raise DamagedIndex(f"index version {version} is not supported")
    if not verified and sha256(memoryview(data)[:end]).digest() != data[end:]:
        raise DamagedIndex("index checksum does not match")
    return version, count, end


def _parse_entries(data: bytes, count: int, version: int) -> tuple[Entries, int, int]:
    """The entries, the position after the last one, and how many were left out."""
    entries: Entries = {}
    start = _HEADER.size
    left_out = 0
    for _ in range(count):
        name_start = start + FIXED_BYTES
        flags = data[start + 72] << 8 | data[start + 73]
        extra = 0
        if flags > LONG_NAME:
            extra = _extra_flags(data, name_start, flags, version)
            name_start += 2 if flags & _EXTENDED else 0
            flags &= LONG_NAME
        name_end = name_start + flags if flags < LONG_NAME else data.index(0, name_start + LONG_NAME)
        if data[name_end]:
            raise DamagedIndex("index entry does not end where it says")
        if extra & _INTENT_TO_ADD:
            left_out += 1
        else:
            entries[data[name_start:name_end]] = data[start : start + RECORD_BYTES]
        start = name_end + 8 - (name_end - start) % 8
    return entries, start, left_out


def _extra_flags(data: bytes, position: int, flags: int, version: int) -> int:
    if flags & _STAGE:
        raise DamagedIndex("index holds an unmerged entry")
    if not flags & _EXTENDED:
        return 0
    if version < 3:
        raise DamagedIndex("index entry has extended flags, which version 2 does not have")
    (extra,) = _SHORT.unpack_from(data, position)
    return int(extra)


def _check_extensions(data: bytes, position: int, end: int) -> None:
    while position < end:
        name = data[position : position + 4]
        # A name that begins with no capital (link, sdir) is git's way to say: not to be ignored.
        if not b"A" <= name[:1] <= b"Z":
            raise DamagedIndex(f"index extension {name!r} is not supported")
        if position + 8 > end:
            raise DamagedIndex(f"index extension {name!r} is truncated")
        position += 8 + int(_WORD.unpack_from(data, position + 4)[0])
    if position != end:
        raise DamagedIndex("index extension runs into the checksum")


def _check_paths(entries: Entries, count: int) -> None:
    if len(entries) != count:
        raise DamagedIndex("index names a path twice")
    paths = list(entries)
    if b"" in entries or 0 in b"".join(paths):
        raise DamagedIndex("index holds a path that is empty or has a NUL")
    if paths != sorted(paths):
        raise DamagedIndex("index entries are not sorted")


def write_index(path: Path, entries: Entries, cache_tree: bytes | None) -> None:
    """Replace the index file by one with these entries and, when given, the payload of a TREE extension.

    The caller holds the lock of this index, so whatever lies at `<name>.lock` is left over from a crash.
    """
    body = serialize(entries, cache_tree)
    with NewIndex(path, body, sha256(body).digest()) as new:
        new.publish()


class NewIndex:
    """An index file beside the one whose place it is to take; a context manager that removes it unless it does.

    Written by then, but not visible: what its entries promise may still be on the way to the disk. See
    `write_index` for the lock. Methods raise OSError.
    """

    def __init__(self, path: Path, body: bytes | memoryview, checksum: bytes) -> None:
        self._path = path
        self._file: Path | None = path.with_name(path.name + ".lock")
        # One that another member of a group left cannot be made ours.
        self._file.unlink(missing_ok=True)
        descriptor = modes.create(self._file, os.O_WRONLY | os.O_EXCL, modes.of(path.parent).file)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file.fileno(), body)
                _write_all(file.fileno(), checksum)
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def publish(self) -> None:
        """Put it in its place, in one step."""
        if self._file is not None:
            self._file.replace(self._path)
            self._file = None

    def discard(self) -> None:
        """Remove it, where it was not published."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None


def serialize(entries: Entries, cache_tree: bytes | None) -> bytes:
    """The file that `write_index` writes, without its checksum."""
    parts = [index_header(len(entries))]
    append = parts.append
    flags = [_SHORT.pack(length) for length in range(LONG_NAME + 1)]
    for name in sorted(entries):
        length = len(name)
        append(entries[name])
        append(flags[length] if length < LONG_NAME else flags[LONG_NAME])
        append(name)
        append(_PADDING[length % 8])
    if cache_tree is not None:
        append(tree_extension(cache_tree))
    return b"".join(parts)


def index_header(count: int) -> bytes:
    """What a file with `count` entries begins with."""
    return _HEADER.pack(_SIGNATURE, 2, count)


def serialize_entry(name: bytes, record: bytes) -> bytes:
    """One entry as it stands in the file."""
    length = len(name)
    return record + _SHORT.pack(min(length, LONG_NAME)) + name + _PADDING[length % 8]


def tree_extension(payload: bytes) -> bytes:
    """The TREE extension with this payload."""
    return b"TREE" + _WORD.pack(len(payload)) + payload


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
