"""New contents beside the places where they will stand: written, checked and durable, and not yet published."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from putback.fs.durable import Aside, side_by_side
from putback.fs.place import Place
from putback.fs.root import Root
from putback.ops.leftovers import STAGED_PREFIX
from putback.paths import RelPath, parents
from putback.records.change import Kind
from putback.records.plan import Step

# Files that are held open until they are made durable together, while as many more are staged; a process may have
# few descriptors.
OPEN_FILES = 64


def choose_places(root: Root, targets: Iterable[RelPath], token: str) -> dict[RelPath, RelPath]:
    """For each target a new name in the nearest directory above it that can take it now.

    A rename will do from there.
    """
    fit: dict[RelPath, bool] = {}

    def takes_files(directory: RelPath) -> bool:
        if directory not in fit:
            fit[directory] = False
            with suppress(OSError):
                found = root.look(directory)
                fit[directory] = (
                    found is not None and stat.S_ISDIR(found.st_mode) and found.st_mode & 0o300 == 0o300
                )
        return fit[directory]

    places: dict[RelPath, RelPath] = {}
    for number, path in enumerate(targets):
        name = STAGED_PREFIX + f"{token}-{number}".encode()
        above = next(filter(takes_files, parents(path)), None)
        places[path] = RelPath(name if above is None else above + b"/" + name)
    return places


class Staging:
    """The staged files of one restore, by the path of their target. `content` gives the bytes of a digest."""

    def __init__(self, root: Root, content: Callable[[str], Iterator[bytes]]) -> None:
        self._root = root
        self._content = content
        self._places: dict[RelPath, RelPath] = {}
        self._unsynced: list[int] = []
        self._syncing: Aside | None = None
        self.inodes: set[tuple[int, int]] = set()

    def __contains__(self, path: RelPath) -> bool:
        return path in self._places

    def add(self, step: Step, name: RelPath, beside: Place | None) -> None:
        """Stage the content of a step as `name`; `beside` is the step's target, where it can be walked to.

        Raises OSError and IntegrityError, and leaves nothing of this step then.
        """
        path = step.raw
        self._places[path] = name
        try:
            if beside is not None and name.rpartition(b"/")[0] == path.rpartition(b"/")[0]:
                self._write(step, beside.beside(name))
            else:
                with self._root.parent(name) as place:
                    self._write(step, place)
        except BaseException:
            with suppress(OSError):
                self._root.remove(name)
            del self._places[path]
            raise
        if len(self._unsynced) >= OPEN_FILES:
            self._begin_sync()

    def sync(self) -> None:
        """Wait until everything that was staged is durable. Raises OSError."""
        self._begin_sync()
        self._end_sync()

    def publish(self, path: RelPath, place: Place) -> None:
        """Rename the staged file of a target over what stands at its place. Raises OSError."""
        self._root.publish_at(self._places[path], place)
        del self._places[path]

    def discard(self) -> None:
        """Take away what was staged and not published."""
        with suppress(OSError):
            self._end_sync()
        _close(self._unsynced)
        for name in self._places.values():
            with suppress(OSError):
                self._root.remove(name)
        self._places.clear()

    def _write(self, step: Step, place: Place) -> None:
        assert step.goal is not None
        blocks = self._content(step.goal.digest)
        if step.goal.kind is Kind.SYMLINK:
            self._root.stage_link_at(place, b"".join(blocks))
            found = place.lstat()
        else:
            descriptor, found = self._root.stage_file_at(place, blocks, step.goal.mode)
            self._unsynced.append(descriptor)
        self.inodes.add((found.st_dev, found.st_ino))

    def _begin_sync(self) -> None:
        """Make what was staged durable; side by side, so that the disk can serve many with one flush."""
        self._end_sync()
        descriptors, self._unsynced = self._unsynced, []
        if descriptors:
            self._syncing = Aside(lambda: _make_durable(descriptors))

    def _end_sync(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.wait()


def _make_durable(descriptors: list[int]) -> None:
    try:
        side_by_side(os.fsync, descriptors)
    finally:
        _close(descriptors)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    descriptors.clear()
