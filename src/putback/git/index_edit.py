"""Change a few entries of a large index, and its trees, without taking all of it apart.

An index of 100,000 entries is 10 MB; most captures touch ten of them. The file is cut at the entries that
change, and of the tree objects only those above a change are made anew, out of the entries of their directories
and the ids that the TREE extension has. The result is byte for byte what writing everything would give.

Guaranteed: what is read was checked against its checksum. Not done here: locking, and deciding what may be in a
tree; see `git.index`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import msgspec

from putback.git.index import (
    FIXED_BYTES,
    HEADER_BYTES,
    LONG_NAME,
    RECORD_BYTES,
    DamagedIndex,
    NewIndex,
    check_frame,
    index_header,
    serialize_entry,
    tree_extension,
)
from putback.git.objectid import OID_BYTES, object_id
from putback.git.trees import MODE_TEXT, TREE_TEXT

# Trees are edited by recursion; deeper ones are built anew, out of the paths.
MAX_DEPTH = 100

# To look at so many, all paths are taken apart at once.
MANY_DIRECTORIES = 500

# A position in the file, which is far below 4 GiB.
_CUT = "I"

Changes = Mapping[bytes, bytes | None]
Items = dict[bytes, tuple[bytes, bytes]]


class CachedTree(msgspec.Struct):
    """One directory of the TREE extension: the number of entries in and below it, its tree's id, what is below."""

    count: int = 0
    oid: bytes = b""
    below: dict[bytes, CachedTree] = {}

    def payload(self, name: bytes = b"") -> bytes:
        """The extension's content for this directory and all below."""
        order = sorted(self.below, key=lambda child: (len(child), child))
        head = b"%b\0%d %d\n%b" % (name, self.count, len(order), self.oid)
        return head + b"".join(self.below[child].payload(child) for child in order)


class IndexEditor:
    """An index file, cut into entries. `trees` is None where the file does not say.

    `checksum` is the file's own, at its end. `cuts` says where the entries begin, and where the last one ends,
    in a form that can be kept: with it the next editor of the same file need not look for them.
    """

    def __init__(self, data: bytes, cuts: bytes = b"", *, verified: bool = False) -> None:
        """`verified` says that `data` was compared with its checksum. Raises DamagedIndex."""
        version, count, end = check_frame(data, verified=verified)
        if version != 2:
            raise DamagedIndex(f"index version {version} has no fixed cuts")
        self._data, self._end = data, end
        self.checksum = data[end:]
        self._paths: list[bytes] | None = None
        self._cuts = _unpack(cuts, count)
        try:
            position = self._cuts[-1] if self._cuts else self._cut(count)
            self.trees = _cached_trees(data[position:end])
        except (IndexError, ValueError, struct.error) as error:
            raise DamagedIndex(f"index is malformed: {error}") from error

    @classmethod
    def read(cls, path: Path) -> IndexEditor:
        """Raises DamagedIndex and OSError, FileNotFoundError included."""
        return cls(path.read_bytes())

    @classmethod
    def blank(cls) -> IndexEditor:
        """The index of nothing."""
        body = index_header(0)
        return cls(body + sha256(body).digest())

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._cuts) - 1

    @property
    def cuts(self) -> bytes:
        table = self._cuts.tobytes()
        return sha256(table).digest() + table

    @property
    def paths(self) -> list[bytes]:
        """All paths, in order."""
        if self._paths is None:
            self._paths = [self._path(at) for at in range(len(self))]
        return self._paths

    def _path(self, at: int) -> bytes:
        data, start = self._data, self._cuts[at] + FIXED_BYTES
        length = data[start - 2] << 8 | data[start - 1]
        return data[start : start + length if length < LONG_NAME else data.index(0, start + length)]

    def _find(self, path: bytes, first: int = 0) -> int:
        """Where a path stands or would have to stand, from the entry `first` on."""
        if self._paths is not None:
            return bisect_left(self._paths, path, first)
        return bisect_left(range(len(self)), path, first, key=self._path)

    def record(self, path: bytes) -> bytes | None:
        """The record of a path, None where the index lacks it."""
        at = self._find(path)
        if at == len(self) or self._path(at) != path:
            return None
        return self._data[self._cuts[at] : self._cuts[at] + RECORD_BYTES]

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Every path with its record, in order."""
        for path, start in zip(self.paths, self._cuts, strict=False):
            yield path, self._data[start : start + RECORD_BYTES]

    def files_in(self, prefix: bytes) -> Iterator[bytes]:
        """The paths of the files directly in a directory; `prefix` ends with a slash, or is empty for the root."""
        at = self._find(prefix)
        while at < len(self):
            path = self._path(at)
            if not path.startswith(prefix):
                return
            slash = path.find(b"/", len(prefix))
            if slash < 0:
                yield path
                at += 1
            else:
                # The first path that is not in the directory below: "0" comes after "/".
                at = self._find(path[:slash] + b"0", at)

    def changed(self, changes: Changes, payload: bytes, trees: CachedTree | None) -> IndexEditor:
        """The index with the changes made; None removes an entry. This index is as it was.

        `payload` is what the new one is to say of its trees, `trees` the same, where that is known.
        """
        view = memoryview(self._data)
        parts: list[bytes | memoryview] = [b""]
        paths: list[bytes] = []
        cuts = array(_CUT)
        done = 0
        end = HEADER_BYTES
        for name in sorted(changes):
            record = changes[name]
            at = self._find(name, done)
            present = at < len(self) and self._path(at) == name
            end = self._keep(done, at, end, paths, cuts)
            parts.append(view[self._cuts[done] : self._cuts[at]])
            done = at + present
            if record is not None:
                entry = serialize_entry(name, record)
                parts.append(entry)
                paths.append(name)
                cuts.append(end)
                end += len(entry)
        cuts.append(self._keep(done, len(self), end, paths, cuts))
        parts.append(view[self._cuts[done] : self._cuts[-1]])
        parts.append(tree_extension(payload))
        parts[0] = index_header(len(cuts) - 1)
        body = b"".join(parts)
        made = object.__new__(IndexEditor)
        made.checksum = sha256(body).digest()
        made._paths = None if self._paths is None else paths
        made._data, made._end = body, len(body)
        made._cuts, made.trees = cuts, trees
        return made

    def _keep(self, first: int, last: int, start: int, paths: list[bytes], cuts: array[int]) -> int:
        """Add the entries from `first` to before `last`, from the position `start` on; returns where they end."""
        if self._paths is not None:
            paths += self._paths[first:last]
        kept = self._cuts[first:last]
        shift = start - self._cuts[first]
        cuts.extend(array(_CUT, [cut + shift for cut in kept]) if shift else kept)
        return self._cuts[last] + shift

    def beside(self, path: Path) -> NewIndex:
        """Write the index beside the file that it is to replace. Raises OSError."""
        return NewIndex(path, memoryview(self._data)[: self._end], self.checksum)

    def write(self, path: Path) -> None:
        """Put the index at `path`. Raises OSError."""
        with self.beside(path) as new:
            new.publish()

    def listing(self, tree: CachedTree, prefix: bytes, at: int) -> tuple[Items, dict[bytes, int]]:
        """What the tree of the directory `prefix` holds, whose entries begin with number `at`, in tree order.

        With it, for each directory below, the number of its first entry. Raises ValueError where `tree` is not
        what the entries say.
        """
        items: Items = {}
        starts: dict[bytes, int] = {}
        path_of = self._path if self._paths is None else self._paths.__getitem__
        cuts, data, cut = self._cuts, self._data, len(prefix)
        end = at + tree.count
        if tree.count and not (end <= len(self) and path_of(at)[:cut] == path_of(end - 1)[:cut] == prefix):
            raise ValueError(f"the index does not hold {prefix!r} as it says")
        while at < end:
            path = path_of(at)
            slash = path.find(b"/", cut)
            if slash < 0:
                start = cuts[at]
                items[path[cut:]] = (MODE_TEXT[data[start + 24 : start + 28]], data[start + 40 : start + 72])
                at += 1
                continue
            child = tree.below.get(path[cut:slash])
            if child is None or child.count < 1:
                raise ValueError(f"the index does not say what is in {path[:slash]!r}")
            items[path[cut:slash]] = (TREE_TEXT, child.oid)
            starts[path[cut:slash]] = at
            at += child.count
        if at != end or starts.keys() != tree.below.keys():
            raise ValueError(f"the index does not hold {prefix!r} as it says")
        return items, starts

    def _cut(self, count: int) -> int:
        """Find where the entries begin, and check that they are in order; returns where the last one ends."""
        data, start = self._data, HEADER_BYTES
        paths: list[bytes] = []
        cuts: list[int] = []
        for _ in range(count):
            length = data[start + RECORD_BYTES] << 8 | data[start + RECORD_BYTES + 1]
            name = start + FIXED_BYTES
            if length >= LONG_NAME:
                if length > LONG_NAME:
                    raise DamagedIndex("index entry has flags that ours never have")
                length = data.index(0, name + length) - name
            paths.append(data[name : name + length])
            cuts.append(start)
            start += (FIXED_BYTES + length + 8) & ~7
        cuts.append(start)
        if any(low >= high for low, high in pairwise(paths)):
            raise DamagedIndex("index entries are not sorted")
        self._paths, self._cuts = paths, array(_CUT, cuts)
        return start


def _unpack(cuts: bytes, count: int) -> array[int]:
    """What `IndexEditor.cuts` holds for an index of `count` entries; empty where it is not whole."""
    table = array(_CUT)
    digest, kept = cuts[:OID_BYTES], cuts[OID_BYTES:]
    if len(kept) == (count + 1) * table.itemsize and sha256(kept).digest() == digest:
        table.frombytes(kept)
    return table


def is_deep(changes: Changes) -> bool:
    """Whether the changes are too far below the root for `edit_trees`."""
    return any(path.count(b"/") > MAX_DEPTH for path in changes)


def edit_trees(index: IndexEditor, changes: Changes) -> tuple[CachedTree, list[tuple[bytes, bytes]]]:
    """The trees of an index with the changes made, and the new tree objects (raw id, content), the root's last.

    The index has to have trees, and stays as it is; the changes are not deep. Raises ValueError where a path would
    be a file and a directory.
    """
    grouped: dict[bytes, dict[bytes, bytes | None]] = {}
    for path, record in changes.items():
        cut = path.rfind(b"/") + 1
        grouped.setdefault(path[:cut], {})[path[cut:]] = record
    wanted: dict[bytes, set[bytes]] = {b"": set()}
    for directory in grouped:
        while directory:
            cut = directory.rfind(b"/", 0, -1) + 1
            wanted.setdefault(directory[:cut], set()).add(directory[cut:-1])
            directory = directory[:cut]
    assert index.trees is not None
    if len(wanted) > MANY_DIRECTORIES:
        _ = index.paths  # once for all
    edit = _Edit(index, grouped, wanted, [])
    return edit.make(index.trees, b"", 0), edit.objects


class _Edit(msgspec.Struct):
    """One edit. `grouped` has the changes by directory (with its slash), `wanted` the directories to go into."""

    index: IndexEditor
    grouped: Mapping[bytes, Mapping[bytes, bytes | None]]
    wanted: Mapping[bytes, set[bytes]]
    objects: list[tuple[bytes, bytes]]

    def make(self, tree: CachedTree, prefix: bytes, at: int) -> CachedTree:
        """The new tree of the directory `prefix`, whose entries begin with number `at`."""
        items, starts = self.index.listing(tree, prefix, at)
        files = self.grouped.get(prefix, {})
        grown = False
        for name, record in files.items():
            if record is None and name in items and items[name][0] != TREE_TEXT:
                del items[name]
        below = dict(tree.below)
        for name in self.wanted.get(prefix, ()):
            if name in items and items[name][0] != TREE_TEXT:
                raise ValueError(f"{prefix + name!r} is a file and a directory")
            child = self.make(below.get(name) or CachedTree(), prefix + name + b"/", starts.get(name, 0))
            if child.count:
                grown |= name not in items
                below[name] = child
                items[name] = (TREE_TEXT, child.oid)
            else:
                below.pop(name, None)
                items.pop(name, None)
        for name, record in files.items():
            if record is not None:
                if name in items and items[name][0] == TREE_TEXT:
                    raise ValueError(f"{prefix + name!r} is a file and a directory")
                grown |= name not in items
                items[name] = (MODE_TEXT[record[24:28]], record[40:])
        # What was only replaced or taken away leaves the order as it was.
        ordered = sorted(items.items(), key=_tree_order) if grown else items.items()
        data = b"".join([b"%b%b\0%b" % (mode, name, oid) for name, (mode, oid) in ordered])
        count = len(items) - len(below) + sum(child.count for child in below.values())
        made = CachedTree(count, object_id("tree", data), below)
        self.objects.append((made.oid, data))
        return made


def _tree_order(item: tuple[bytes, tuple[bytes, bytes]]) -> bytes:
    name, (mode, _) = item
    return name + b"/" if mode == TREE_TEXT else name


def _cached_trees(extensions: bytes) -> CachedTree | None:
    """The TREE extension among the extensions; None where it is missing, deep or does not cover everything."""
    start = 0
    while start < len(extensions):
        size = int.from_bytes(extensions[start + 4 : start + 8], "big")
        if extensions[start : start + 4] == b"TREE":
            return read_trees(extensions[start + 8 : start + 8 + size])
        start += 8 + size
    return None


def read_trees(payload: bytes) -> CachedTree | None:
    """What a TREE payload says; None where it is deep or not complete. Raises ValueError and IndexError."""
    found = _parse_cache(payload, 0, MAX_DEPTH)
    return None if found is None or found[2] != len(payload) else found[1]


def _parse_cache(payload: bytes, start: int, deep: int) -> tuple[bytes, CachedTree, int] | None:
    end = payload.index(0, start)
    name = payload[start:end]
    line_end = payload.index(b"\n", end)
    count, below = map(int, payload[end + 1 : line_end].split(b" "))
    if count < 0 or (below and not deep):
        return None
    position = line_end + 1 + OID_BYTES
    tree = CachedTree(count, payload[line_end + 1 : position])
    for _ in range(below):
        child = _parse_cache(payload, position, deep - 1)
        if child is None:
            return None
        tree.below[child[0]] = child[1]
        position = child[2]
    return name, tree, position
