"""Change a few entries of a large index, and its trees, without taking all of it apart.

An index of 100,000 entries is 10 MB; most captures touch ten of them. The file is cut at the entries that
change, and of the tree objects only those above a change are made anew, out of the old ones that the TREE
extension names. The result is byte for byte what writing everything would give.

Guaranteed: what is read was checked against its checksum. Not done here: locking, and deciding what may be in a
tree; see `git.index`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from putback.git.index import (
    FIXED_BYTES,
    HEADER_BYTES,
    RECORD_BYTES,
    DamagedIndex,
    check_frame,
    index_header,
    replace_index,
    serialize_entry,
    tree_extension,
)
from putback.git.objectid import OID_BYTES, object_id
from putback.git.trees import MODE_TEXT, TREE_TEXT

Changes = Mapping[bytes, bytes | None]
ReadTree = Callable[[bytes], bytes]


@dataclass
class CachedTree:
    """One directory of the TREE extension: the number of entries in and below it, its tree's id, what is below."""

    count: int = 0
    oid: bytes = b""
    below: dict[bytes, CachedTree] = field(default_factory=dict)

    def payload(self, name: bytes = b"") -> bytes:
        """The extension's content for this directory and all below."""
        order = sorted(self.below, key=lambda child: (len(child), child))
        head = b"%b\0%d %d\n%b" % (name, self.count, len(order), self.oid)
        return head + b"".join(self.below[child].payload(child) for child in order)


class IndexEditor:
    """An index file, cut into entries. `paths` are in order; `trees` is None where the file does not say."""

    def __init__(self, data: bytes) -> None:
        version, count, end = check_frame(data)
        if version != 2:
            raise DamagedIndex(f"index version {version} has no fixed cuts")
        self._data = data
        self.paths: list[bytes] = []
        self._cuts: list[int] = []
        try:
            position = self._cut(count)
            self.trees = _cached_trees(data[position:end])
        except (IndexError, ValueError, struct.error) as error:
            raise DamagedIndex(f"index is malformed: {error}") from error
        if any(low >= high for low, high in pairwise(self.paths)):
            raise DamagedIndex("index entries are not sorted")

    @classmethod
    def read(cls, path: Path) -> IndexEditor:
        """Raises DamagedIndex and OSError, FileNotFoundError included."""
        return cls(path.read_bytes())

    def record(self, path: bytes) -> bytes | None:
        """The record of a path, None where the index lacks it."""
        at = bisect_left(self.paths, path)
        if at == len(self.paths) or self.paths[at] != path:
            return None
        return self._data[self._cuts[at] : self._cuts[at] + RECORD_BYTES]

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Every path with its record, in order."""
        for path, start in zip(self.paths, self._cuts, strict=False):
            yield path, self._data[start : start + RECORD_BYTES]

    def write(self, path: Path, changes: Changes, cache_tree: bytes) -> None:
        """Put an index file at `path` with the changes made; None removes an entry. Raises OSError."""
        view = memoryview(self._data)
        parts: list[bytes | memoryview] = [b""]
        count = len(self.paths)
        done = 0
        for name in sorted(changes):
            record = changes[name]
            at = bisect_left(self.paths, name, done)
            present = at < len(self.paths) and self.paths[at] == name
            parts.append(view[self._cuts[done] : self._cuts[at]])
            done = at + present
            count += (record is not None) - present
            if record is not None:
                parts.append(serialize_entry(name, record))
        parts.append(view[self._cuts[done] : self._cuts[-1]])
        parts.append(tree_extension(cache_tree))
        parts[0] = index_header(count)
        replace_index(path, b"".join(parts))

    def _cut(self, count: int) -> int:
        """Find where the entries begin; returns where the last one ends."""
        data, start = self._data, HEADER_BYTES
        for _ in range(count):
            length = data[start + RECORD_BYTES] << 8 | data[start + RECORD_BYTES + 1]
            name = start + FIXED_BYTES
            if length >= 0xFFF:
                if length > 0xFFF:
                    raise DamagedIndex("index entry has flags that ours never have")
                length = data.index(0, name + length) - name
            self.paths.append(data[name : name + length])
            self._cuts.append(start)
            start += (FIXED_BYTES + length + 8) & ~7
        self._cuts.append(start)
        return start


def edit_trees(trees: CachedTree, changes: Changes, read_tree: ReadTree) -> list[tuple[bytes, bytes]]:
    """Make the changes in `trees`; returns the new tree objects (raw id, content), the root's last.

    `read_tree` gives the content of an old tree. Raises ValueError where a path would be a file and a directory.
    """
    grouped: dict[bytes, dict[bytes, bytes | None]] = {}
    for path, record in changes.items():
        directory, _, name = path.rpartition(b"/")
        grouped.setdefault(directory, {})[name] = record
    wanted: dict[bytes, set[bytes]] = {b"": set()}
    for directory in grouped:
        while directory:
            above, _, name = directory.rpartition(b"/")
            wanted.setdefault(above, set()).add(name)
            directory = above
    objects: list[tuple[bytes, bytes]] = []
    _edit(trees, b"", grouped, wanted, read_tree, objects)
    return objects


def _edit(
    tree: CachedTree,
    path: bytes,
    grouped: Mapping[bytes, Mapping[bytes, bytes | None]],
    wanted: Mapping[bytes, set[bytes]],
    read_tree: ReadTree,
    objects: list[tuple[bytes, bytes]],
) -> None:
    items = _parse_tree(read_tree(tree.oid)) if tree.oid else {}
    files = grouped.get(path, {})
    for name, record in files.items():
        if record is None and name in items and items[name][0] != TREE_TEXT:
            del items[name]
            tree.count -= 1
    for name in wanted.get(path, ()):
        child = tree.below.get(name) or CachedTree()
        if name in items and items[name][0] != TREE_TEXT:
            raise ValueError(f"{path + b'/' + name!r} is a file and a directory")
        before = child.count
        _edit(child, path + b"/" + name if path else name, grouped, wanted, read_tree, objects)
        tree.count += child.count - before
        if child.count:
            tree.below[name] = child
            items[name] = (TREE_TEXT, child.oid)
        else:
            tree.below.pop(name, None)
            items.pop(name, None)
    for name, record in files.items():
        if record is not None:
            if name in items and items[name][0] == TREE_TEXT:
                raise ValueError(f"{path + b'/' + name!r} is a file and a directory")
            tree.count += name not in items
            items[name] = (MODE_TEXT[record[24:28]], record[40:])
    data = b"".join(
        b"%b%b\0%b" % (mode, name, oid) for name, (mode, oid) in sorted(items.items(), key=_tree_order)
    )
    tree.oid = object_id("tree", data)
    objects.append((tree.oid, data))


def _tree_order(item: tuple[bytes, tuple[bytes, bytes]]) -> bytes:
    name, (mode, _) = item
    return name + b"/" if mode == TREE_TEXT else name


def _parse_tree(data: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    items: dict[bytes, tuple[bytes, bytes]] = {}
    start = 0
    while start < len(data):
        space = data.index(b" ", start) + 1
        end = data.index(0, space)
        items[data[space:end]] = (data[start:space], data[end + 1 : end + 1 + OID_BYTES])
        start = end + 1 + OID_BYTES
    return items


def _cached_trees(extensions: bytes) -> CachedTree | None:
    """The TREE extension among the extensions; None where it is missing or does not cover everything."""
    start = 0
    while start < len(extensions):
        size = int.from_bytes(extensions[start + 4 : start + 8], "big")
        if extensions[start : start + 4] == b"TREE":
            payload = extensions[start + 8 : start + 8 + size]
            found = _parse_cache(payload, 0)
            return None if found is None or found[2] != len(payload) else found[1]
        start += 8 + size
    return None


def _parse_cache(payload: bytes, start: int) -> tuple[bytes, CachedTree, int] | None:
    end = payload.index(0, start)
    name = payload[start:end]
    line_end = payload.index(b"\n", end)
    count, below = map(int, payload[end + 1 : line_end].split(b" "))
    if count < 0:
        return None
    position = line_end + 1 + OID_BYTES
    tree = CachedTree(count, payload[line_end + 1 : position])
    for _ in range(below):
        child = _parse_cache(payload, position)
        if child is None:
            return None
        tree.below[child[0]] = child[1]
        position = child[2]
    return name, tree, position
