"""The user's own index as bytes: looked into, and cut open at a few paths, without git.

Versions 2, 3 and 4, with ids of 20 or 32 bytes. Unlike `git.index`, which reads what putback has written, this
takes whatever git may have put there, and keeps it: every entry that is not to be changed stays as it is, byte for
byte, with its stat data, its flags and its stages.

Guaranteed: what is parsed had an intact checksum (or the zeros that `index.skipHash` leaves in its place), known
flags, and entries in git's order; what `replaced` returns has the same version, git's order and a checksum.

The resolve-undo records (REUC) stay. The other extensions are caches of what the entries and the work tree say;
they are left out, and git makes them again where the user's configuration asks for them. The untracked cache and
the answers of a file system monitor are among these.

Not done here: no reading or writing of files, and no smudging. git takes an entry for unchanged by its stat data,
unless its mtime is not older than the index file: then it compares contents. A file that was written anew since
then, with its size and time unchanged, is noticed by that alone. So whoever publishes these bytes has to give the
file the mtime of the one it replaces.
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from putback.errors import UnsupportedPath
from putback.git.index import EXECUTABLE, REGULAR, DamagedIndex, stat_bytes
from putback.paths import parents

SUBMODULE: Final = 0o160000

_HEADER = struct.Struct(">4sII")
_SHORT = struct.Struct(">H")
_STAT_BYTES = 40
_NEW_VERSION = 2

_ASSUME_UNCHANGED = 0x8000
_EXTENDED = 0x4000
_STAGE = 0x3000
_LONG_NAME = 0xFFF

# In the second word of flags, which versions 3 and 4 may have.
_SKIP_WORKTREE = 0x4000
_INTENT_TO_ADD = 0x2000
_UNKNOWN = 0xFFFF & ~(_SKIP_WORKTREE | _INTENT_TO_ADD)

# The high byte of a directory's mode. git has such entries in sparse indexes alone.
_DIRECTORY_BYTE = 0o040000 >> 8

_EXPAND = "`git sparse-checkout reapply --no-sparse-index` writes it in full"
_JOIN = "`git update-index --no-split-index` puts it together"


@dataclass(frozen=True, slots=True)
class Item:
    """One entry. `mode` is git's, `oid` in lowercase hex; `stage` is 0 except in a conflict."""

    mode: int
    oid: str
    stage: int
    assume_unchanged: bool
    skip_worktree: bool
    intent_to_add: bool


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What an entry is to be, at stage 0 and without flags.

    `stat` is that of the work tree's file, taken before its content was read, where that content is what is
    staged. Without it git compares the contents when next it looks, and so it does with a file that is not older
    than the index.
    """

    mode: int
    oid: str
    stat: os.stat_result | None = None


@dataclass(frozen=True, slots=True, eq=False)
class UserIndex:
    """An index, cut into entries. `data` is the whole file, None where there is none.

    `names` has the name of each entry, in order, once for each stage.
    """

    data: bytes | None
    version: int
    oid_bytes: int
    names: list[bytes] = field(repr=False)
    _cuts: array[int] = field(repr=False)
    _resolve_undo: bytes = field(default=b"", repr=False)

    def entries_at(self, paths: Iterable[bytes]) -> dict[bytes, tuple[Item, ...]]:
        """The entries of each path, in the order of their stages; none where the index lacks it."""
        return {path: tuple(self._item(number) for number in self._numbers(path)) for path in paths}

    def conflicts(self, path: bytes) -> dict[bytes, tuple[Item, ...]]:
        """The entries that cannot stand beside one at `path`: at the directories above it, then all below it."""
        names = [parent for parent in parents(path) if self._numbers(parent)]
        low = bisect_left(self.names, path + b"/")
        high = bisect_left(self.names, path + b"0", low)  # "0" comes next after "/"
        return self.entries_at(names + self.names[low:high])

    def replaced(self, changes: Mapping[bytes, NewEntry | None]) -> bytes:
        """The whole file with the changes made; None takes an entry away, and is fine where there is none.

        Raises ValueError for a change of what is in conflict, and for a path that would be a file and a directory.
        """
        self._check(changes)
        writer = _Writer(self)
        done = 0
        for name in sorted(changes):
            at = bisect_left(self.names, name, done)
            writer.keep(done, at)
            done = at + len(self._numbers(name))
            new = changes[name]
            if new is not None:
                writer.add(name, self._fixed(name, new))
        writer.keep(done, len(self.names))
        body = writer.body(self._resolve_undo)
        return body + _digest(body, self.oid_bytes)

    def _numbers(self, path: bytes) -> range:
        """Which entries are the path's."""
        first = last = bisect_left(self.names, path)
        while last < len(self.names) and self.names[last] == path:
            last += 1
        return range(first, last)

    def _item(self, number: int) -> Item:
        assert self.data is not None
        start = self._cuts[number]
        end = start + _STAT_BYTES + self.oid_bytes
        flags = int.from_bytes(self.data[end : end + 2], "big")
        extra = int.from_bytes(self.data[end + 2 : end + 4], "big") if flags & _EXTENDED else 0
        return Item(
            mode=int.from_bytes(self.data[start + 24 : start + 28], "big"),
            oid=self.data[start + _STAT_BYTES : end].hex(),
            stage=(flags & _STAGE) >> 12,
            assume_unchanged=bool(flags & _ASSUME_UNCHANGED),
            skip_worktree=bool(extra & _SKIP_WORKTREE),
            intent_to_add=bool(extra & _INTENT_TO_ADD),
        )

    def _fixed(self, name: bytes, new: NewEntry) -> bytes:
        """What stands before the name in a new entry."""
        oid = bytes.fromhex(new.oid)
        if new.mode not in (REGULAR, EXECUTABLE) or len(oid) != self.oid_bytes:
            raise ValueError(f"no entry for a regular file: {new.mode:o} {new.oid}")
        stat = bytes(24) + new.mode.to_bytes(4, "big") + bytes(12)
        if new.stat is not None:
            stat = stat_bytes(new.stat, new.mode)
        return stat + oid + _SHORT.pack(min(len(name), _LONG_NAME))

    def _check(self, changes: Mapping[bytes, NewEntry | None]) -> None:
        """See to it that the changes leave an index that git would have let come about."""
        added = {name for name, new in changes.items() if new is not None}
        for name, items in self.entries_at(changes).items():
            if any(item.stage for item in items):
                raise ValueError(f"{name!r} is in conflict")
        for name in added:
            clashing = [other for other in self.conflicts(name) if changes.get(other, other) is not None]
            if clashing or added.intersection(parents(name)):
                raise ValueError(f"{name!r} would be a file and a directory")


class _Writer:
    """Puts the entries of a new file together, out of what stands in the old one and what is new."""

    def __init__(self, old: UserIndex) -> None:
        self._old = old
        self._parts: list[bytes | memoryview] = [b""]
        self._count = 0
        self._before = b""

    def keep(self, first: int, last: int) -> None:
        """Take over the entries from number `first` to before `last`."""
        if first == last:
            return
        old = self._old
        assert old.data is not None
        start, end = old._cuts[first], old._cuts[last]
        before = old.names[first - 1] if first else b""
        if old.version == 4 and before != self._before:
            # What is written of a name leans on the entry before it.
            fixed = _STAT_BYTES + old.oid_bytes + 2
            fixed += 2 * (old.data[start + fixed - 2] >> 6 & 1)
            self._parts += [old.data[start : start + fixed], _compressed(self._before, old.names[first])]
            start = old._cuts[first + 1]
        self._parts.append(memoryview(old.data)[start:end])
        self._count += last - first
        self._before = old.names[last - 1]

    def add(self, name: bytes, fixed: bytes) -> None:
        """Put a new entry here."""
        self._parts.append(fixed)
        if self._old.version == 4:
            self._parts.append(_compressed(self._before, name))
        else:
            self._parts.append(name + bytes(8 - (len(fixed) + len(name)) % 8))
        self._count += 1
        self._before = name

    def body(self, extensions: bytes) -> bytes:
        """The file without its checksum."""
        self._parts[0] = _HEADER.pack(b"DIRC", self._old.version, self._count)
        return b"".join([*self._parts, extensions])


def empty(oid_bytes: int) -> UserIndex:
    """The index of a repository that has no index file."""
    return UserIndex(None, _NEW_VERSION, oid_bytes, [], array("Q", [_HEADER.size]))


def parse(data: bytes, oid_bytes: int) -> UserIndex:
    """Cut an index file open. `oid_bytes` is 20 in a repository of sha1 ids, 32 in one of sha256 ids.

    Raises DamagedIndex where git would not read it either, and UnsupportedPath for a split or a sparse index and
    for one that needs more than is known here.
    """
    end = len(data) - oid_bytes
    if end < _HEADER.size:
        raise DamagedIndex(f"index is truncated to {len(data)} bytes")
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC":
        raise DamagedIndex(f"index signature is {signature!r}")
    if version not in (2, 3, 4):
        raise DamagedIndex(f"index version {version} is not known")
    if data[end:] not in (_digest(memoryview(data)[:end], oid_bytes), bytes(oid_bytes)):
        raise DamagedIndex("index checksum does not match")
    try:
        names, cuts = _cut(data, count, version, oid_bytes)
    except (IndexError, ValueError, struct.error) as error:
        raise DamagedIndex(f"index is malformed: {error}") from error
    if cuts[-1] > end:
        raise DamagedIndex("index entries run into the checksum")
    undo = b"".join(part for name, part in _extensions(data, cuts[-1], end) if name == b"REUC")
    index = UserIndex(data, version, oid_bytes, names, cuts, undo)
    _check_order(index)
    return index


def _cut(data: bytes, count: int, version: int, oid_bytes: int) -> tuple[list[bytes], array[int]]:
    """The names of the entries, and where each begins; at last where the last one ends."""
    names: list[bytes] = []
    cuts = array("Q")
    start, flags_at, name = _HEADER.size, _STAT_BYTES + oid_bytes, b""
    for _ in range(count):
        cuts.append(start)
        flags = data[start + flags_at] << 8 | data[start + flags_at + 1]
        at = start + flags_at + 2
        if flags & _EXTENDED:
            _check_extra(data, at, version)
            at += 2
        if version == 4:
            kept, at = _shared(data, at, name)
            end = data.index(0, at)
            name = name[:kept] + data[at:end]
            after = end + 1
        else:
            end = data.index(0, at)
            name = data[at:end]
            after = end + 8 - (end - start) % 8
        length = flags & _LONG_NAME
        if length != min(len(name), _LONG_NAME):
            raise DamagedIndex("index entry does not end where it says")
        if data[start + 26] == _DIRECTORY_BYTE:
            raise UnsupportedPath("a sparse index is not taken by an exact-path turn", hint=_EXPAND)
        names.append(name)
        start = after
    cuts.append(start)
    return names, cuts


def _check_extra(data: bytes, at: int, version: int) -> None:
    if version < 3:
        raise DamagedIndex("index entry has extended flags, which version 2 does not have")
    if _SHORT.unpack_from(data, at)[0] & _UNKNOWN:
        raise DamagedIndex("index entry has flags that are not known")


def _shared(data: bytes, at: int, before: bytes) -> tuple[int, int]:
    """How many bytes a name of version 4 has of the one before it, and where the rest begins."""
    byte = data[at]
    cut = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        cut = cut + 1 << 7 | byte & 0x7F
    if cut > len(before):
        raise DamagedIndex("index entry leans on more than there is")
    return len(before) - cut, at + 1


def _compressed(before: bytes, name: bytes) -> bytes:
    """A name as version 4 writes it after the entry `before`."""
    pairs = enumerate(zip(before, name, strict=False))
    shared = next((at for at, (one, other) in pairs if one != other), min(len(before), len(name)))
    value = len(before) - shared
    number = [value & 0x7F]
    while value := value >> 7:
        value -= 1
        number.append(0x80 | value & 0x7F)
    return bytes(reversed(number)) + name[shared:] + b"\0"


def _extensions(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """The extensions with their names, those included that nobody knows but may be ignored."""
    while position < end:
        name = data[position : position + 4]
        if position + 8 > end:
            raise DamagedIndex(f"index extension {name!r} is truncated")
        _check_extension(name)
        after = position + 8 + int.from_bytes(data[position + 4 : position + 8], "big")
        if after > end:
            raise DamagedIndex(f"index extension {name!r} runs into the checksum")
        yield name, data[position:after]
        position = after


def _check_extension(name: bytes) -> None:
    """A name that begins with no capital is git's way to say: not to be ignored."""
    if name == b"link":
        raise UnsupportedPath("a split index is not taken by an exact-path turn", hint=_JOIN)
    if name == b"sdir":
        raise UnsupportedPath("a sparse index is not taken by an exact-path turn", hint=_EXPAND)
    if not b"A" <= name[:1] <= b"Z":
        raise UnsupportedPath(f"the index needs an extension that is not known: {name!r}")


def _check_order(index: UserIndex) -> None:
    """Names ascend; one that comes twice has different stages, which ascend, and no stage 0."""
    before = b""
    # git leaves names out where a split index has them in its shared part, so this comes after the extensions.
    if b"" in index.names:
        raise DamagedIndex("index holds an empty path")
    for number, name in enumerate(index.names):
        if name < before:
            raise DamagedIndex("index entries are not sorted")
        if name == before and not 0 < index._item(number - 1).stage < index._item(number).stage:
            raise DamagedIndex("index names a path twice")
        before = name


def _digest(data: bytes | memoryview, oid_bytes: int) -> bytes:
    if oid_bytes == 20:
        return hashlib.sha1(data, usedforsecurity=False).digest()
    return hashlib.sha256(data).digest()
