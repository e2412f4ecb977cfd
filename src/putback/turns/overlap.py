"""Whether two trees are the same, or one lies in the other: by name, by identity and by mount.

By name: real paths, equal or one below the other. By identity: the device and inode of one root among those of
the other and of every directory above it. By mount, on Linux: two names of one file system can lead to the same
directory (a bind mount), and the identities above a mount point are those of the tree it was put into; so paths
are mapped to the file system and to the place in it, and compared there. Elsewhere that last comparison is not
made.

Nothing is searched below a root: a tree that was moved away is found again as the directory itself, or above
another one, but not somewhere below another one. An identity on record counts also when its directory has
vanished: should the file system give it to a new one, that is refused until the claim is released.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from putback.errors import StorageError
from putback.paths import quote
from putback.records.turn import Directory

MOUNTS = Path("/proc/self/mountinfo")

Identity = tuple[int, int]
Spot = tuple[bytes, bytes]

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of the table: the directory `inside` of the file system `device` is seen at `point`."""

    number: int
    parent: int
    device: bytes
    inside: bytes
    point: bytes


@dataclass(frozen=True)
class Mounts:
    """The mounts that this process sees; without any, nothing can be said."""

    table: tuple[Mount, ...] = ()

    @classmethod
    def parse(cls, text: bytes) -> Mounts:
        """The table in the form of `/proc/self/mountinfo`. Lines of another form are passed over."""
        found = []
        for line in text.splitlines():
            columns = line.split(b" ")
            if len(columns) >= 5 and columns[0].isdigit() and columns[1].isdigit():
                inside, point = (_ESCAPE.sub(lambda hit: bytes([int(hit[1], 8) & 255]), c) for c in columns[3:5])
                found.append(Mount(int(columns[0]), int(columns[1]), columns[2], inside, point))
        return cls(tuple(found))

    @classmethod
    def here(cls) -> Mounts:
        """The table of this system; empty where it has none."""
        try:
            return cls.parse(MOUNTS.read_bytes())
        except OSError:
            return cls()

    def locate(self, path: bytes) -> Spot | None:
        """The file system that a real path leads to, and the path inside it; None where the table does not say."""
        mount = self._bottom()
        if mount is None:
            return None
        while (above := self._next(mount, path)) is not None:
            mount = above
        rest = path[len(mount.point.rstrip(b"/")) :].strip(b"/")
        return mount.device, os.path.join(mount.inside, rest) if rest else mount.inside

    def _bottom(self) -> Mount | None:
        known = {mount.number for mount in self.table}
        roots = [m for m in self.table if m.point == b"/" and (m.parent not in known or m.parent == m.number)]
        return roots[0] if roots else None

    def _next(self, below: Mount, path: bytes) -> Mount | None:
        """The mount that one comes to next on the way down: of those on `below`, the one with the shortest name.

        A later one may hide it; then it is mounted on it, or on the same mount with a shorter name.
        """
        on = (m for m in self.table if m.parent == below.number and m.number != below.number)
        return min((m for m in on if _within(path, m.point)), key=lambda m: len(m.point), default=None)


@dataclass(frozen=True)
class Ground:
    """Where a tree is, in every way in which another one could be in its way."""

    paths: frozenset[bytes]
    own: frozenset[Identity]
    chain: frozenset[Identity]
    spots: frozenset[Spot] = field(default=frozenset())
    git_paths: frozenset[bytes] = field(default=frozenset())
    git_own: frozenset[Identity] = field(default=frozenset())


def survey(path: bytes, recorded: Identity | None, git_dir: Directory | None, mounts: Mounts) -> Ground:
    """The ground of the tree that is, was or will be at the absolute `path`.

    `recorded` is its identity where one is on record: it counts beside the one that stands there now. `git_dir`
    holds its index. Raises StorageError where the system does not let us look.
    """
    real = os.path.realpath(path)
    own = {found for found in (recorded, _identity(real)) if found is not None}
    chain = own | set(_above(real))
    spot = mounts.locate(real)
    git_paths: frozenset[bytes] = frozenset()
    git_own: set[Identity] = set()
    if git_dir is not None:
        git_paths = frozenset({git_dir.raw, os.path.realpath(git_dir.raw)})
        git_own = {found for found in (git_dir.identity, _identity(git_dir.raw)) if found is not None}
    spots = frozenset() if spot is None else frozenset({spot})
    return Ground(frozenset({path, real}), frozenset(own), frozenset(chain), spots, git_paths, frozenset(git_own))


def overlap(ours: Ground, theirs: Ground) -> str | None:
    """How two trees touch, in words that say what `theirs` is to `ours`; None where they do not."""
    for one in ours.paths:
        for other in theirs.paths:
            if one == other:
                return "the same directory"
            if _within(one, other):
                return "a directory above it"
            if _within(other, one):
                return "a directory below it"
    if ours.own & theirs.own:
        return "the same directory under another name"
    if theirs.own & ours.chain:
        return "a directory above it under another name"
    if ours.own & theirs.chain:
        return "a directory below it under another name"
    if any(_touch(one, other) for one in ours.spots for other in theirs.spots):
        return "a part of the same directory, mounted under another name"
    if ours.git_paths & theirs.git_paths or ours.git_own & theirs.git_own:
        return "a work tree with the same git index"
    return None


def _touch(one: Spot, other: Spot) -> bool:
    return one[0] == other[0] and (_within(one[1], other[1]) or _within(other[1], one[1]))


def _within(path: bytes, above: bytes) -> bool:
    """Whether `path` is `above` or lies below it."""
    return path == above or path.startswith(above.rstrip(b"/") + b"/")


def _above(path: bytes) -> Iterator[Identity]:
    while True:
        found = _identity(path)
        if found is not None:
            yield found
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


def _identity(path: bytes) -> Identity | None:
    """Device and inode of what `path` leads to; None where that is nothing."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise StorageError(f"cannot look at {quote(path)}: {error.strerror}") from error
    return (found.st_dev, found.st_ino)
