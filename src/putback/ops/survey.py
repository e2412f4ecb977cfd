"""What stands at the paths that a restore wants to write or remove, where the regular capture cannot say."""

from __future__ import annotations

import stat
from collections.abc import Container, Iterable

from putback import paths
from putback.errors import UnsafePath
from putback.ops import diff
from putback.ops.session import Session
from putback.paths import RelPath
from putback.records.change import PERMISSION_BITS, Change, Kind, Node
from putback.store.captures import TreeState, View


class Survey:
    """One look at the disk, for one restore to `goal`. `state` is the regular capture of the tree as it is now.

    After `look`, `found` has the node of each path that is not what its change says, `present` the files that
    must be held before they are replaced, `examined` every path that the regular capture could not speak for,
    and `unheld` the paths where something stands that cannot be held, with the reason.
    """

    def __init__(self, session: Session, state: TreeState, goal: View) -> None:
        self._session = session
        self._state = state
        self._goal = goal
        self.found: dict[RelPath, Node | None] = {}
        self.present: list[RelPath] = []
        self.examined: set[RelPath] = set()
        self.unheld: dict[RelPath, str] = {}

    def look(self, wanted: Iterable[Change], recorded: View | None, *, measure_all: bool = False) -> None:
        """Find out what is at every wanted path now.

        The changes start from `recorded`, or from the regular capture where it is None.
        """
        moved: dict[RelPath, Node | None] = {}
        if recorded is not None:
            since = diff.changes(self._session.git, recorded, self._state, honest=False)
            moved = {change.path: change.after for change in since}
        for change in wanted:
            node = moved.get(change.path, change.before)
            if node is None or measure_all:
                node = self._look_at(change.path)
            if node != change.before:
                self.found[change.path] = node

    def missing_parents(self, wanted: Iterable[Change]) -> list[Change]:
        """Changes that make the directories which the wanted paths need and which nothing else makes."""
        planned = {change.path for change in wanted}
        needed: dict[RelPath, Change] = {}
        standing: set[RelPath] = set()
        for change in wanted:
            if change.after is None:
                continue
            for above in paths.parents(change.path):
                if above in planned or above in needed or above in standing:
                    continue
                try:
                    there = self._session.root.is_directory(above)
                except OSError as error:
                    self.unheld[change.path] = f"what stands above it cannot be read: {error.strerror}"
                    break
                except UnsafePath as error:
                    self.unheld[change.path] = error.message
                    break
                if there:
                    standing.add(above)
                else:
                    needed[above] = self._directory(above)
        return list(needed.values())

    def _directory(self, path: RelPath) -> Change:
        """The change that makes a directory which no change tells of. A file or link in its place has drifted."""
        goal = Node(Kind.DIRECTORY, self._goal.directories.get(path, 0o755))
        now = self._look_at(path)
        if now is not None:
            self.found[path] = now
        return Change(path, None if now is None else goal, goal)

    def inside(
        self, wanted: Iterable[Change], now: View
    ) -> tuple[dict[RelPath, RelPath], dict[RelPath, list[RelPath]]]:
        """What is in the directories that must give way to something else.

        The first mapping has the directories with something in them that no capture holds, the second what the
        capture `now` holds in each.
        """
        hidden: dict[RelPath, RelPath] = {}
        inside: dict[RelPath, list[RelPath]] = {}
        blocked = [change.path for change in wanted if self._must_give_way(change)]
        if not blocked:
            return hidden, inside
        held = sorted({*diff.listing(self._session.git, now), *now.directories})
        known = frozenset(held)
        for directory in blocked:
            inside[directory] = [path for path in held if path.startswith(directory + b"/")]
            first = self._first_unheld(directory, known)
            if first is not None:
                hidden[directory] = first
        return hidden, inside

    def _must_give_way(self, change: Change) -> bool:
        node = self.found.get(change.path, change.before)
        goal = change.after
        return (
            node is not None
            and node.kind is Kind.DIRECTORY
            and goal is not None
            and goal.kind is not Kind.DIRECTORY
        )

    def _first_unheld(self, directory: RelPath, held: Container[RelPath]) -> RelPath | None:
        for name in self._session.root.names(directory):
            path = RelPath(directory + b"/" + name)
            if paths.fault(path) is not None or path not in held:
                return path
            found = self._session.root.look(path)
            if found is not None and stat.S_ISDIR(found.st_mode):
                inside = self._first_unheld(path, held)
                if inside is not None:
                    return inside
        return None

    def _look_at(self, path: RelPath) -> Node | None:
        """What stands at a path that the regular capture does not hold; notes what must be held first."""
        if not self._state.could_hold(path):
            self.examined.add(path)
        try:
            found = self._session.root.look(path)
            if found is None:
                return None
            if stat.S_ISDIR(found.st_mode):
                return Node(Kind.DIRECTORY, found.st_mode & PERMISSION_BITS)
            if stat.S_ISLNK(found.st_mode) or stat.S_ISREG(found.st_mode):
                node = self._session.root.measure(path)
                self.present.append(path)
                return node
            self.unheld[path] = "a pipe, socket or device stands there, which no capture can hold"
        except OSError as error:
            self.unheld[path] = f"what stands there cannot be read: {error.strerror}"
        except UnsafePath as error:
            self.unheld[path] = error.message
        return None
