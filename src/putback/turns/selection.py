"""What stands at the paths of a turn, in the work tree: literal paths of regular files, and nothing else.

A path is judged by what could go wrong when it is put back: what is no plain file with one name, lies behind
a link, in another repository or on another file system, or is kept out by ignore rules, is refused. All that is
wrong with a selection is told at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from putback.errors import StorageError, UnsafePath, UnsupportedPath, UsageError
from putback.fs.place import blob_id, differ
from putback.fs.root import GONE, Root
from putback.ops.ignore import IgnoreRules
from putback.paths import RelPath, fault, parents, quote
from putback.records.change import PERMISSION_BITS, Kind, Node
from putback.records.turn import MOST_PATHS

Faults = dict[RelPath, str]

_GLOB = frozenset(b"*?")
_SPECIAL_BITS = 0o7000


@dataclass(frozen=True)
class Sight:
    """The stat data of each path, None where nothing stands there; every parent directory is there."""

    looks: Mapping[RelPath, os.stat_result | None]

    @property
    def bytes(self) -> int:
        """The sum of the sizes of the files."""
        return sum(found.st_size for found in self.looks.values() if found is not None)


@dataclass(frozen=True)
class FileContent:
    """One file as it was read."""

    node: Node
    data: bytes


def chosen(given: Iterable[bytes]) -> tuple[RelPath, ...]:
    """The paths of a turn, checked and sorted.

    Raises UnsafePath with every fault, and UsageError for none or too many.
    """
    raw = sorted(set(given))
    if not raw:
        raise UsageError(
            "an exact-path turn needs at least one path", hint="directories and globs are not expanded"
        )
    if len(raw) > MOST_PATHS:
        raise UsageError(f"{len(raw)} paths; an exact-path turn takes at most {MOST_PATHS}")
    faults = [f"{fault(path)}: {quote(path)}" for path in raw if fault(path) is not None]
    if faults:
        raise UnsafePath("; ".join(faults))
    return tuple(RelPath(path) for path in raw)


def look(
    root: Root, selected: Iterable[RelPath], administrative: Collection[tuple[int, int]]
) -> tuple[Sight, Faults]:
    """Look at every path, and say what is wrong with which. Reads no content. Raises StorageError.

    `administrative` are the directories, by device and inode, that hold a repository's or putback's own files.
    """
    looks: dict[RelPath, os.stat_result | None] = {}
    faults: Faults = {}
    above = _Parents(root, frozenset(administrative))
    for path in selected:
        try:
            problem = next(filter(None, (above.fault(parent) for parent in reversed(list(parents(path))))), None)
            found = None if problem else root.look(path)
        except UnsafePath as error:
            problem, found = error.message, None
        except OSError as error:
            raise StorageError(f"cannot look at {quote(path)}: {error.strerror}") from error
        problem = problem or _file_fault(path, found)
        if problem:
            faults[path] = problem
        looks[path] = found
    faults |= _aliases(looks)
    return Sight(looks), faults


def unexpanded(sight: Sight, untracked: Iterable[RelPath]) -> Faults:
    """The paths that name nothing and look like patterns, which nobody will expand."""
    return {
        path: "names no file, and globs are not expanded"
        for path in untracked
        if sight.looks[path] is None and _GLOB & set(path)
    }


def ignored(rules: IgnoreRules, untracked: Sequence[RelPath]) -> Faults:
    """The paths that ignore rules keep out of the user's repository, which does not track them."""
    return dict.fromkeys(rules.ignored_among(untracked), "is ignored")


def read(root: Root, sight: Sight) -> dict[RelPath, FileContent]:
    """The content of every file that was seen. Raises StorageError where one is not as it was seen any more."""
    contents: dict[RelPath, FileContent] = {}
    for path, seen in sight.looks.items():
        if seen is not None:
            try:
                contents[path] = _read(root, path, seen)
            except OSError as error:
                raise StorageError(f"cannot read {quote(path)}: {error.strerror}") from error
    check_still(root, sight)
    return contents


def check_still(root: Root, sight: Sight) -> None:
    """Raise StorageError where a path is not as it was seen any more."""
    for path, seen in sight.looks.items():
        found = root.look(path)
        if (seen is None) != (found is None) or (seen is not None and found is not None and differ(seen, found)):
            raise _changed(path)


def check(*found: Faults, hint: str) -> None:
    """Raise UnsupportedPath with every path at fault."""
    together: dict[RelPath, str] = {}
    for faults in found:
        together = {**faults, **together}
    if together:
        listed = "; ".join(f"{quote(path)} {together[path]}" for path in sorted(together))
        raise UnsupportedPath(f"an exact-path turn does not take: {listed}", hint=hint)


class _Parents:
    """The directories above the paths, each looked at once."""

    def __init__(self, root: Root, administrative: frozenset[tuple[int, int]]) -> None:
        self._root = root
        self._administrative = administrative
        self._faults: dict[RelPath, str] = {}
        self._device = os.stat(root.path).st_dev

    def fault(self, parent: RelPath) -> str:
        """What is wrong with a directory on the way; empty where nothing is."""
        if parent not in self._faults:
            self._faults[parent] = self._look(parent)
        return self._faults[parent]

    def _look(self, parent: RelPath) -> str:
        try:
            found = self._root.lstat(parent)
        except OSError as error:
            if error.errno not in GONE:
                raise
            return f"lies in a directory that is not there: {quote(parent)}"
        if stat.S_ISLNK(found.st_mode):
            return f"lies behind a symbolic link: {quote(parent)}"
        if not stat.S_ISDIR(found.st_mode):
            return f"lies below something that is no directory: {quote(parent)}"
        if (found.st_dev, found.st_ino) in self._administrative:
            return f"lies in an administrative directory: {quote(parent)}"
        if found.st_dev != self._device:
            return f"lies on another file system: {quote(parent)}"
        with self._root.parent(parent + b"/any") as place:
            repository = place.beside(b".git").look()
        return "" if repository is None else f"lies in a nested repository: {quote(parent)}"


def _file_fault(path: RelPath, found: os.stat_result | None) -> str:
    if found is None:
        return ""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "is a directory"
    if not stat.S_ISREG(found.st_mode):
        return "is a special file"
    if found.st_nlink != 1:
        return "is a hard link"
    if found.st_mode & _SPECIAL_BITS:
        return "has set-id or sticky bits"
    return ""


def _aliases(looks: Mapping[RelPath, os.stat_result | None]) -> Faults:
    """The paths that are a file which another path names, too: where names differ in case alone."""
    seen: dict[tuple[int, int], RelPath] = {}
    faults: Faults = {}
    for path, found in looks.items():
        if found is not None:
            first = seen.setdefault((found.st_dev, found.st_ino), path)
            if first != path:
                faults[path] = f"is the same file as {quote(first)}"
    return faults


def _read(root: Root, path: RelPath, seen: os.stat_result) -> FileContent:
    with open(root.open_file(path), "rb") as file:
        if differ(seen, os.fstat(file.fileno())):
            raise _changed(path)
        # One byte more than was seen: a file that grows is not read without end.
        data = file.read(seen.st_size + 1)
    if len(data) != seen.st_size:
        raise _changed(path)
    return FileContent(Node(Kind.FILE, seen.st_mode & PERMISSION_BITS, blob_id([data])), data)


def _changed(path: RelPath) -> StorageError:
    return StorageError(
        f"changed while it was captured: {quote(path)}", hint="nothing was captured; run the command again"
    )
