"""Tree objects out of index entries: what `git write-tree` would make, without starting it. And what is in one.

Guaranteed: the objects are those git would write for the same index, in git's order, each once; the payload
of the TREE extension says the same to git, so that its next `write-tree` has nothing to hash. The time is
linear in the entries once they are sorted.

Not done here: whether a name may be in a tree at all (`..`, `.git`) was decided where the path came in. Only
what would make a malformed tree is refused: an empty component, a path that is a file and a directory, a
mode that no file of ours has.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from putback.errors import IntegrityError
from putback.git.index import EXECUTABLE, REGULAR, SYMLINK, Entries
from putback.git.objectid import OID_BYTES, object_id

# Keyed by the mode field of a record, so that the field needs no decoding.
DIRECTORY = b"40000"
TREE_TEXT = DIRECTORY + b" "
MODE_TEXT = {mode.to_bytes(4, "big"): b"%o " % mode for mode in (REGULAR, EXECUTABLE, SYMLINK)}


class Trees(msgspec.Struct, frozen=True):
    """The root's raw id, every tree as (raw id, content) with the root last, and the TREE payload."""

    root: bytes
    objects: list[tuple[bytes, bytes]]
    cache_tree: bytes


class _Directory:
    """A directory that may still get entries."""

    __slots__ = ("count", "items", "name", "subtrees")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.items: list[bytes] = []
        self.count = 0
        self.subtrees: list[tuple[bytes, bytes]] = []

    def close(self) -> tuple[bytes, bytes]:
        """The raw id and the content of the finished tree."""
        data = b"".join(self.items)
        return object_id("tree", data), data

    def cache_entry(self, oid: bytes) -> bytes:
        """This directory and all below it, as the TREE extension has them."""
        # cache-tree.c searches subtrees by halving, in the order length first, then bytes.
        below = sorted(self.subtrees, key=lambda subtree: (len(subtree[0]), subtree[0]))
        head = b"%b\0%d %d\n%b" % (self.name, self.count, len(below), oid)
        return head + b"".join(payload for _, payload in below)


def build_trees(entries: Entries) -> Trees:
    """All trees of the entries; no entries give the empty tree. Raises ValueError for malformed ones."""
    objects: dict[bytes, bytes] = {}
    stack = [_Directory(b"")]
    prefix = b""
    top = stack[0]
    # Sorted whole paths are in tree order already: a directory's paths go on with "/" after its name.
    for path in sorted(entries):
        cut = path.rfind(b"/") + 1
        if path[:cut] != prefix:
            _enter(stack, prefix, path[:cut], entries, objects)
            prefix = path[:cut]
            top = stack[-1]
        record = entries[path]
        mode = MODE_TEXT.get(record[24:28])
        if mode is None or cut == len(path):
            raise ValueError(f"no tree entry can be made of {path!r} with mode {record[24:28].hex()}")
        top.items.append(b"%b%b\0%b" % (mode, path[cut:], record[40:]))
        top.count += 1
    while len(stack) > 1:
        _leave(stack, objects)
    root, data = stack[0].close()
    objects[root] = data
    return Trees(root, list(objects.items()), stack[0].cache_entry(root))


def items_of(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The mode (as text), the name and the raw id of everything in a tree, out of its content.

    Names are not looked at. Raises IntegrityError where it is malformed otherwise.
    """
    start = 0
    while start < len(data):
        end = data.find(0, start)
        mode, _, name = data[start:end].partition(b" ")
        start = end + 1 + OID_BYTES
        if end < 0 or not name or start > len(data):
            raise IntegrityError("a tree is malformed")
        yield mode, name, data[end + 1 : start]


def _enter(stack: list[_Directory], old: bytes, new: bytes, entries: Entries, objects: dict[bytes, bytes]) -> None:
    """Leave the open directories that `new` (with its trailing slash) is not below, and open the others."""
    old_names, new_names = old.split(b"/")[:-1], new.split(b"/")[:-1]
    shared = 0
    while shared < min(len(old_names), len(new_names)) and old_names[shared] == new_names[shared]:
        shared += 1
    for _ in old_names[shared:]:
        _leave(stack, objects)
    for depth in range(shared, len(new_names)):
        directory = b"/".join(new_names[: depth + 1])
        if not new_names[depth] or directory in entries:
            raise ValueError(f"{directory!r} cannot be a directory")
        stack.append(_Directory(new_names[depth]))


def _leave(stack: list[_Directory], objects: dict[bytes, bytes]) -> None:
    directory = stack.pop()
    oid, data = directory.close()
    objects[oid] = data
    parent = stack[-1]
    parent.items.append(b"%b%b\0%b" % (TREE_TEXT, directory.name, oid))
    parent.count += directory.count
    parent.subtrees.append((directory.name, directory.cache_entry(oid)))
