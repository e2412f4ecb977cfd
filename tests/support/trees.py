"""Tree literals: a directory tree as a dictionary from path to what stands there.

    create(root, {"a": "text\n", "run.sh": File(b"#!/bin/sh\n", 0o755), "l": Link("a"), "empty": Dir(0o700)})

The normal form, which `read_back` and `normal` give, has bytes as paths, and every directory in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass

Name = str | bytes
Root = str | bytes | os.PathLike[str]


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int = 0o644

    def __str__(self) -> str:
        shown = repr(self.content) if len(self.content) <= 60 else hashlib.sha256(self.content).hexdigest()[:12]
        return f"file {self.mode:04o} {len(self.content)} bytes {shown}"


@dataclass(frozen=True)
class Link:
    target: Name

    def __str__(self) -> str:
        return f"link to {os.fsencode(self.target)!r}"


@dataclass(frozen=True)
class Dir:
    mode: int = 0o755

    def __str__(self) -> str:
        return f"directory {self.mode:04o}"


@dataclass(frozen=True)
class Fifo:
    def __str__(self) -> str:
        return "pipe"


Entry = str | bytes | File | Link | Dir | Fifo
Literal = Mapping[Name, Entry] | Mapping[str, Entry] | Mapping[bytes, Entry]
Tree = dict[bytes, File | Link | Dir | Fifo]


def _entry(entry: Entry) -> File | Link | Dir | Fifo:
    if isinstance(entry, str | bytes):
        return File(entry.encode() if isinstance(entry, str) else entry)
    return Link(os.fsencode(entry.target)) if isinstance(entry, Link) else entry


def normal(literal: Literal) -> Tree:
    """The literal in normal form: directories that only paths imply are 0755."""
    tree: Tree = {}
    for name, entry in literal.items():
        path = os.fsencode(name)
        tree[path] = _entry(entry)
        while path := os.path.dirname(path):
            tree.setdefault(path, Dir())
    return dict(sorted(tree.items()))


def create(root: Root, literal: Literal) -> None:
    """Make the tree below `root`, which may exist and hold other things."""
    base = os.fsencode(root)
    os.makedirs(base, exist_ok=True)
    directories: list[tuple[bytes, int]] = []
    given = {os.fsencode(name) for name in literal}
    for path, entry in normal(literal).items():
        full = os.path.join(base, path)
        if isinstance(entry, Dir):
            existed = os.path.isdir(full)
            os.makedirs(full, exist_ok=True)
            if path in given or not existed:
                directories.append((full, entry.mode))
        else:
            put(full, entry)
    for full, mode in reversed(directories):
        os.chmod(full, mode)


def put(full: bytes, entry: File | Link | Fifo) -> None:
    """Make one file, link or pipe, in the place of another file or link."""
    if os.path.lexists(full) and (os.path.islink(full) or not isinstance(entry, File)):
        os.unlink(full)
    if isinstance(entry, Link):
        os.symlink(os.fsencode(entry.target), full)
    elif isinstance(entry, Fifo):
        os.mkfifo(full)
    else:
        with open(full, "wb") as file:
            file.write(entry.content)
        os.chmod(full, entry.mode)


def read_back(root: Root) -> Tree:
    """The tree below `root` in normal form; whatever is called `.git` is passed over."""
    tree: Tree = {}
    _read(os.fsencode(root), b"", tree)
    return dict(sorted(tree.items()))


def _read(base: bytes, prefix: bytes, tree: Tree) -> None:
    for name in os.listdir(os.path.join(base, prefix)):
        if name == b".git":
            continue
        path = os.path.join(prefix, name)
        full = os.path.join(base, path)
        found = os.lstat(full)
        if stat.S_ISDIR(found.st_mode):
            tree[path] = Dir(stat.S_IMODE(found.st_mode))
            _read(base, path, tree)
        elif stat.S_ISLNK(found.st_mode):
            tree[path] = Link(os.readlink(full))
        elif stat.S_ISREG(found.st_mode):
            with open(full, "rb") as file:
                tree[path] = File(file.read(), stat.S_IMODE(found.st_mode))
        else:
            tree[path] = Fifo()


def differences(found: Literal, expected: Literal) -> list[str]:
    """One line per path that differs; none where the trees are the same."""
    left, right = normal(found), normal(expected)
    return [
        f"{path!r}: found {left.get(path, 'nothing')}, expected {right.get(path, 'nothing')}"
        for path in sorted(left.keys() | right.keys())
        if left.get(path) != right.get(path)
    ]


def same(found: Literal, expected: Literal) -> None:
    """Assert that two trees are the same."""
    lines = differences(found, expected)
    assert not lines, "\n".join(["the trees differ:", *lines])


def destroy(root: Root) -> None:
    """Remove everything below `root` except what is called `.git` at the top."""
    base = os.fsencode(root)
    for name in os.listdir(base):
        full = os.path.join(base, name)
        if name == b".git":
            continue
        if os.path.isdir(full) and not os.path.islink(full):
            shutil.rmtree(full)
        else:
            os.unlink(full)
