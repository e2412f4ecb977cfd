"""A restore killed at any point: nothing is lost, and `recover` leads to either end exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crash.killing import (
    World,
    every_entry_restores,
    fsck,
    kill_at,
    next_snapshot_works,
    reached,
    representative,
    snapshot_works,
    staged_files,
    undecided,
)
from putback.cli.main import run
from putback.errors import UnknownStateError
from putback.ops.recover import Choice
from support.trees import Dir, File, Link, Tree, normal, same

Shape = tuple[dict, dict]
Operation = tuple[Callable[[Path, Shape], World], Callable[[World], object]]

FILES: Shape = (
    {
        "same": "same\n",
        "changed": "old\n",
        "mode": File(b"m\n", 0o755),
        "gone/deep/x": "x\n",
        "relinked": Link("same"),
    },
    {
        "same": "same\n",
        "changed": "new\n",
        "mode": File(b"m\n", 0o640),
        "extra/y": "y\n",
        "relinked": Link("changed"),
    },
)
KINDS: Shape = (
    {
        "dir-to-file": "a file again\n",
        "file-to-dir/inner": "inner\n",
        "link-to-file": "text\n",
        "file-to-link": Link("link-to-file"),
        "dir-to-link": Link("file-to-dir"),
        "link-to-dir/z": "z\n",
    },
    {
        "dir-to-file/child": "child\n",
        "file-to-dir": "a file\n",
        "link-to-file": Link("dir-to-file"),
        "file-to-link": "text\n",
        "dir-to-link/q": "q\n",
        "link-to-dir": Link("dir-to-file"),
    },
)
DIRECTORIES: Shape = (
    {
        "empty": Dir(0o750),
        "closed": Dir(0o555),
        "closed/x": "x\n",
        "opened": Dir(0o755),
        "opened/x": "x\n",
        "back": Dir(0o500),
        "back/x": "x\n",
    },
    {
        "new-empty": Dir(0o700),
        "closed": Dir(0o755),
        "closed/x": "changed\n",
        "opened": Dir(0o555),
        "opened/x": "x\n",
        "away": Dir(0o500),
        "away/x": "x\n",
    },
)
SHAPES = {"files": FILES, "kinds": KINDS, "directories": DIRECTORIES}


def ready_to_restore(base: Path, shape: Shape) -> World:
    world = World(base)
    for tree in shape:
        world.become(tree)
        world.workspace.snapshot("taken")
    return world


def ready_to_undo(base: Path, shape: Shape) -> World:
    world = ready_to_restore(base, shape[::-1])
    world.workspace.restore("@2")
    return world


def ready_to_redo(base: Path, shape: Shape) -> World:
    world = ready_to_undo(base, shape[::-1])
    world.workspace.undo()
    return world


OPERATIONS: dict[str, Operation] = {
    "restore": (ready_to_restore, lambda world: world.workspace.restore("@2")),
    "undo": (ready_to_undo, lambda world: world.workspace.undo()),
    "redo": (ready_to_redo, lambda world: world.workspace.redo()),
}


def check_decided(world: World, before: Tree, after: Tree) -> None:
    assert world.tree in (before, after), "nothing is undecided, but the tree is neither as before nor after"
    next_snapshot_works(world)
    every_entry_restores(world, [before, after])


def check_undecided(world: World, before: Tree, after: Tree, *, thorough: bool) -> None:
    """Everything that must hold while an operation that leads from `before` to `after` is undecided."""
    for operation in (world.workspace.undo, world.workspace.redo):
        with pytest.raises(UnknownStateError) as caught:
            operation()
        assert caught.value.exit_code == 44
    assert status(world) == 44
    mixed = world.tree
    for path in before.keys() | after.keys():
        ends = (before.get(path), after.get(path), None)
        assert mixed.get(path) in ends or isinstance(mixed[path], Dir), path
    name = world.base.name + "-killed"
    world.save(name)
    for choice, expected in ((Choice.KEEP, mixed), (Choice.FORWARD, after), (Choice.BACK, before)):
        world.load(name)
        world.workspace.recover(choice)
        same(world.tree, expected)
        assert undecided(world) is None and status(world) == 0
    world.forget(name)
    snapshot_works(world)
    if thorough:
        every_entry_restores(world, [before, after])
        fsck(world.store)


def status(world: World) -> int:
    return run(["-C", str(world.root), "--store", str(world.store), "--json", "status"])


def kill_everywhere(
    base: Path, make: Callable[[Path], World], action: Callable[[World], object], times: int = 2
) -> None:
    """Kill `action` at its seams in turn, each time in a copy of one world; report all that went wrong."""
    world = make(base / "world")
    before = world.tree
    world.save("saved")
    world.load("saved")
    names = reached(lambda: action(world))
    after = world.tree
    assert before != after and "restore.publishing" in names
    wrong: list[str] = []
    checked: list[object] = []
    for number in representative(names, times):
        world.load("saved")
        kill_at(number, lambda: action(world))
        try:
            check_killed(world, before, after, number < names.index("restore.publishing"), checked)
        except Exception as error:
            wrong.append(f"killed at {number} {names[number]}: {type(error).__name__}: {error}")
            world.save(f"wrong-{number}")
    assert not wrong, "\n\n".join(wrong)


def check_killed(world: World, before: Tree, after: Tree, early: bool, checked: list[object]) -> None:
    """What must hold after a kill; the long checks are made once for each state that a kill can leave."""
    fsck(world.store)
    found = undecided(world)
    assert not staged_files(world.root)
    if early:
        assert found is None
        same(world.tree, before)
    state = (world.tree, found and found.paths, len(world.workspace.list()))
    if state in checked:
        return
    checked.append(state)
    if found is None:
        check_decided(world, before, after)
    else:
        check_undecided(world, before, after, thorough=len(checked) % 4 == 2)


@pytest.mark.slow
@pytest.mark.requirement("K10", "K16")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_killed_restore_leads_to_either_end(shape: Shape, tmp_path: Path, capsys) -> None:
    make, action = OPERATIONS["restore"]
    kill_everywhere(tmp_path, lambda base: make(base, shape), action)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["undo", "redo"])
def test_killed_undo_and_redo_lead_to_either_end(name: str, tmp_path: Path, capsys) -> None:
    make, action = OPERATIONS[name]
    # They are restores to another target: the steps in between are those of the test above.
    kill_everywhere(tmp_path, lambda base: make(base, FILES), action, times=1)


def test_shapes_are_restored_when_nothing_is_killed(tmp_path: Path) -> None:
    for name, shape in SHAPES.items():
        world = ready_to_restore(tmp_path / name, shape)
        world.workspace.restore("@2")
        same(world.tree, normal(shape[0]))
        world.workspace.undo()
        same(world.tree, normal(shape[1]))
        world.workspace.redo()
        same(world.tree, normal(shape[0]))
