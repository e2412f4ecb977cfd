"""Random histories of edits, snapshots, restores, undo and redo, against the naive model in `props.model`.

The default run is short. Thousands of steps: `pytest --hypothesis-profile=long tests/props`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, note, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from props import model
from putback.errors import NothingToUndo, UnsafePath
from putback.git.objectid import object_id
from putback.ops.restore import Restored
from putback.records.change import Kind, Node
from putback.records.plan import Status
from putback.workspace import Workspace
from support.hermetic import git, git_checksum
from support.hermetic import settings as chosen
from support.trees import Dir, Fifo, File, Link, Tree, read_back, same

NAMES = (
    b"a",
    b"b.log",
    b"d",
    b"d/a",
    b"d/b.log",
    b"d/e",
    b"d/e/a",
    b"d/e/b.log",
    b"d/e/f",
    b"e",
    b"e/a",
    b"e/f",
    b"e/f/a",
    b"f",
    b"x\n \xff",
)
names = strategies.sampled_from(NAMES)
contents = strategies.sampled_from([b"1", b"2", b"33", b"", b"44\r\n"])
file_modes = strategies.sampled_from([0o644, 0o644, 0o600, 0o755, 0o444, 0o700])
directory_modes = strategies.sampled_from([0o755, 0o755, 0o700, 0o555])
rules = strategies.sampled_from(
    [b"", b"*.log\n", b"*.log\n!b.log\n", b"e/\n", b"/d\n", b"a\n", b"d/e/a\n", b"*\n!.gitignore\n", b"f\n!/e/f\n"]
)
rule_places = strategies.sampled_from([b".gitignore", b"d/.gitignore", b"e/.gitignore", b"d/e/.gitignore"])
scopes = strategies.frozensets(names, min_size=1, max_size=3)
numbers = strategies.integers(0, 30)


class History(RuleBasedStateMachine):
    """The disk, putback, and what the model says of both."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="putback-props-"))
        self.root = os.fsencode(self.base / "tree")
        os.mkdir(self.root)
        self.ws = Workspace.open(self.root, store=self.base / "store", settings=chosen())
        self.tree: Tree = {}
        self.tracked: frozenset[bytes] = frozenset()
        self.snapshots: list[tuple[str, model.Held]] = []
        self.known: set[bytes] = set()
        self.done: list[model.Done] = []
        self.undone: list[tuple[model.Done, model.Done]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.base)

    def full(self, path: bytes) -> bytes:
        return os.path.join(self.root, path)

    def clear(self, path: bytes) -> None:
        """Make room for a path: nothing stands there, and every parent is a directory."""
        for above in reversed(model.parents(path)):
            if not isinstance(self.tree.get(above), Dir):
                self.remove(above)
                os.mkdir(self.full(above))
        self.remove(path)

    def remove(self, path: bytes) -> None:
        full = self.full(path)
        if os.path.isdir(full) and not os.path.islink(full):
            shutil.rmtree(full)
        elif os.path.lexists(full):
            os.unlink(full)
        self.tree = read_back(self.root)

    @rule(path=names, content=contents, mode=file_modes)
    def write(self, path: bytes, content: bytes, mode: int) -> None:
        if isinstance(self.tree.get(path), File):
            with open(self.full(path), "wb") as file:
                file.write(content)
        else:
            self.clear(path)
            with open(self.full(path), "wb") as file:
                file.write(content)
            os.chmod(self.full(path), mode)
        self.tree = read_back(self.root)

    @rule(path=names, content=contents)
    def replace(self, path: bytes, content: bytes) -> None:
        self.clear(path)
        with open(self.full(path), "wb") as file:
            file.write(content)
        os.utime(self.full(path), ns=(10**18, 10**18))
        self.tree = read_back(self.root)

    @rule(path=names, text=strategies.sampled_from([b"a", b"d", b"nowhere", b".."]))
    def link(self, path: bytes, text: bytes) -> None:
        self.clear(path)
        os.symlink(text, self.full(path))
        self.tree = read_back(self.root)

    @rule(path=names, mode=directory_modes)
    def make_directory(self, path: bytes, mode: int) -> None:
        self.clear(path)
        os.mkdir(self.full(path))
        os.chmod(self.full(path), mode)
        self.tree = read_back(self.root)

    @rule(path=names)
    def make_pipe(self, path: bytes) -> None:
        if path in (b"f", b"e/f"):
            self.clear(path)
            os.mkfifo(self.full(path))
            self.tree = read_back(self.root)

    @rule(number=numbers)
    def delete(self, number: int) -> None:
        if self.tree:
            self.remove(sorted(self.tree)[number % len(self.tree)])

    @rule(number=numbers, mode=file_modes, directory_mode=directory_modes)
    def chmod(self, number: int, mode: int, directory_mode: int) -> None:
        able = [path for path, entry in sorted(self.tree.items()) if isinstance(entry, File | Dir)]
        if able:
            path = able[number % len(able)]
            os.chmod(self.full(path), directory_mode if isinstance(self.tree[path], Dir) else mode)
            self.tree = read_back(self.root)

    @rule(number=numbers, to=names)
    def rename(self, number: int, to: bytes) -> None:
        able = [path for path in sorted(self.tree) if not to.startswith(path) and not path.startswith(to)]
        if able:
            source = able[number % len(able)]
            self.clear(to)
            if os.path.lexists(self.full(source)):
                os.rename(self.full(source), self.full(to))
            self.tree = read_back(self.root)

    @rule(place=rule_places, text=rules)
    def ignore(self, place: bytes, text: bytes) -> None:
        self.clear(place)
        if text:
            with open(self.full(place), "wb") as file:
                file.write(text)
        self.tree = read_back(self.root)

    @rule(scope=strategies.one_of(strategies.just(frozenset()), strategies.just(frozenset()), scopes))
    def snapshot(self, scope: frozenset[bytes]) -> None:
        taken = self.ws.snapshot(paths=sorted(scope))
        held = model.capture(self.tree, scope, self.tracked)
        self.snapshots.append((taken.id, held))
        self.known |= held.files.keys() | held.directories.keys()
        assert taken.capture.files == len(held.files)
        found, expected = self.ws.files(taken.id), {path: _node(entry) for path, entry in held.listing.items()}
        assert sorted(found.items()) == sorted(expected.items())

    @precondition(lambda self: self.snapshots)
    @rule(number=numbers, exact=strategies.booleans(), paths=strategies.just(frozenset()) | scopes)
    def restore(self, number: int, exact: bool, paths: frozenset[bytes]) -> None:
        asked, goal = self.snapshots[-1 - number % len(self.snapshots)]
        expected = model.restore(self.tree, goal, self.known, paths, exact=exact, tracked=self.tracked)
        try:
            result = self.ws.restore(asked, paths=sorted(paths), exact=exact)
        except UnsafePath:
            nodes = {**goal.files, **goal.directories}
            nodes |= {above: Dir() for path in nodes for above in model.parents(path)}
            assert any(path not in nodes and path not in self.tree for path in paths)
            return
        self.compare(result, expected)
        if expected.applied:
            self.done.append(model.Done(expected.applied))
            self.undone.clear()

    @precondition(lambda self: self.snapshots)
    @rule(number=numbers)
    def diff(self, number: int) -> None:
        asked, goal = self.snapshots[-1 - number % len(self.snapshots)]
        expected = model.restore(self.tree, goal, self.known, exact=True, tracked=self.tracked)
        found = {bytes(change.path) for change in self.ws.diff(asked, patch=False).changes}
        files = {path for path, pair in expected.applied.items() if not any(isinstance(e, Dir) for e in pair)}
        note(f"diff {found} expected {files}")
        assert files - found == set() or expected.refused

    @precondition(lambda self: self.snapshots)
    @rule()
    def undo(self) -> None:
        if not self.done:
            with pytest.raises(NothingToUndo):
                self.ws.undo()
        elif taken := self.take_back(self.done[-1], self.ws.undo):
            self.undone.append((self.done.pop(), taken))

    @precondition(lambda self: self.snapshots)
    @rule()
    def redo(self) -> None:
        if not self.undone:
            with pytest.raises(NothingToUndo):
                self.ws.redo()
        elif self.take_back(self.undone[-1][1], self.ws.redo):
            self.done.append(self.undone.pop()[0])

    def take_back(self, done: model.Done, act: Callable[[], Restored]) -> model.Done | None:
        """Take back what was done; what that did, or None where it did nothing."""
        try:
            expected = model.shift(self.tree, model.reverse(done.applied))
        except model.Complicated:
            return None
        self.compare(act(), expected)
        return model.Done(expected.applied) if expected.applied else None

    def compare(self, result: Restored, expected: model.Outcome) -> None:
        note(f"plan: {result.plan.steps}\nleft: {result.plan.left}\nrefused: {result.plan.refused}")
        same(read_back(self.root), expected.tree)
        applied = {bytes(outcome.raw) for outcome in result.outcomes if outcome.status.applied}
        assert applied == expected.applied.keys()
        refused = {bytes(outcome.raw) for outcome in result.outcomes if outcome.status is Status.REFUSED}
        assert refused == expected.refused
        assert not any(outcome.status is Status.FAILED for outcome in result.outcomes)
        assert (result.entry is not None) == bool(expected.applied)
        self.tree = expected.tree

    @invariant()
    def nothing_is_touched_unasked(self) -> None:
        same(read_back(self.root), self.tree)


def _node(entry: object) -> Node:
    if isinstance(entry, Dir):
        return Node(Kind.DIRECTORY, entry.mode)
    if isinstance(entry, Link):
        return Node(Kind.SYMLINK, 0o777, object_id("blob", os.fsencode(entry.target)).hex())
    assert isinstance(entry, File) and not isinstance(entry, Fifo)
    return Node(Kind.FILE, entry.mode, object_id("blob", entry.content).hex())


class RepositoryHistory(History):
    """The same in a git repository, where tracked files are captured though ignored, and whose git never moves."""

    def __init__(self) -> None:
        super().__init__()
        git(self.base / "tree", "init", "-q", "--template=")
        self.checksum = git_checksum(self.base / "tree")

    @rule(number=numbers)
    def track(self, number: int) -> None:
        files = [path for path, entry in sorted(self.tree.items()) if isinstance(entry, File | Link)]
        if files:
            self.change_index("add", "-f", "--", files[number % len(files)])

    @rule(number=numbers)
    def forget(self, number: int) -> None:
        if self.tracked:
            self.change_index("rm", "-q", "--cached", "--", sorted(self.tracked)[number % len(self.tracked)])

    def change_index(self, *arguments: str | bytes) -> None:
        place = self.base / "tree"
        git(place, "--literal-pathspecs", *arguments, check=False)
        self.tracked = frozenset(filter(None, git(place, "ls-files", "-z").split(b"\0")))
        self.checksum = git_checksum(place)

    @invariant()
    def the_users_git_does_not_move(self) -> None:
        assert git_checksum(self.base / "tree") == self.checksum


@pytest.mark.slow
@pytest.mark.requirement("K2", "K5", "K10")
class TestRepositoryHistory(RepositoryHistory.TestCase):
    settings = settings(suppress_health_check=list(HealthCheck), deadline=None)


@pytest.mark.slow
@pytest.mark.requirement("K2", "K8", "K10", "K11", "K12", "K13")
class TestHistory(History.TestCase):
    settings = settings(suppress_health_check=list(HealthCheck), deadline=None)
