"""Leaving the state of an interrupted restore: which paths go where, and what does not leave it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from crash.killing import World, in_child, undecided
from putback import seams
from putback.errors import FailedError, IntegrityError, NothingToUndo, UnknownId, UnknownStateError
from putback.ops.recover import Choice, Standing
from support.trees import normal, same

OLD = {"a": "old a\n", "b": "old b\n", "c": "old c\n"}
NEW = {"a": "new a\n", "b": "new b\n", "c": "new c\n"}


def kill_after(world: World, puts: int) -> None:
    """Restore OLD over NEW, and die when this many paths have been put back."""

    def observer(name: str) -> None:
        nonlocal puts
        if name == "restore.put" or name == "restore.published":
            if puts == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            puts -= 1

    def action() -> None:
        seams.observe(observer)
        world.workspace.restore("@2")

    assert in_child(action)[0] == -signal.SIGKILL


@pytest.fixture
def world(tmp_path: Path) -> World:
    """OLD and NEW are captured, NEW stands; a restore of OLD was killed after `a`."""
    made = World(tmp_path / "world")
    for tree in (OLD, NEW):
        made.become(tree)
        made.workspace.snapshot("taken")
    kill_after(made, 1)
    assert made.workspace.interrupted() is not None
    return made


def test_each_path_stands_before_or_after(world: World) -> None:
    found = undecided(world)
    assert found is not None
    assert found.paths == {b"a": Standing.AFTER, b"b": Standing.BEFORE, b"c": Standing.BEFORE}


@pytest.mark.parametrize(
    ("choice", "expected"), [(Choice.BACK, NEW), (Choice.FORWARD, OLD), (Choice.KEEP, {**NEW, "a": "old a\n"})]
)
def test_a_choice_leads_to_its_tree_and_out_of_the_state(world: World, choice: Choice, expected: dict) -> None:
    world.workspace.recover(choice)
    same(world.tree, expected)
    assert undecided(world) is None
    with pytest.raises(FailedError):
        world.workspace.recover(choice)


@pytest.mark.parametrize("choice", list(Choice))
def test_a_path_at_other_is_never_touched(world: World, choice: Choice) -> None:
    (world.root / "b").write_text("mine\n")
    inode = (world.root / "b").stat()
    found = undecided(world)
    assert found is not None and found.paths[b"b"] is Standing.OTHER
    result = world.workspace.recover(choice)
    after = (world.root / "b").stat()
    assert (after.st_ino, after.st_mtime_ns) == (inode.st_ino, inode.st_mtime_ns)
    assert (world.root / "b").read_text() == "mine\n"
    if choice is not Choice.KEEP:
        assert result.failed and [o.path for o in result.outcomes if o.status == "refused"] == ["b"]


@pytest.mark.parametrize("choice", list(Choice))
def test_every_choice_is_recorded(world: World, choice: Choice) -> None:
    entries = len(world.workspace.list())
    world.workspace.recover(choice)
    new = world.workspace.list()[:-entries]
    assert new and any(entry.cause == "recover" for entry in new)


@pytest.mark.parametrize(("done", "choice"), [(0, Choice.BACK), (3, Choice.FORWARD)])
def test_a_choice_that_has_nothing_to_write_is_recorded_too(tmp_path: Path, done: int, choice: Choice) -> None:
    world = World(tmp_path / "world")
    for tree in (OLD, NEW):
        world.become(tree)
        world.workspace.snapshot("taken")
    kill_after(world, done)
    world.workspace.recover(choice)
    assert undecided(world) is None
    assert any(entry.cause == "recover" for entry in world.workspace.list())


def test_undo_takes_a_recover_back(world: World) -> None:
    mixed = world.tree
    world.workspace.recover(Choice.FORWARD)
    world.workspace.undo()
    same(world.tree, mixed)


def test_a_kept_state_can_be_undone(world: World) -> None:
    world.workspace.recover(Choice.KEEP)
    world.workspace.undo()
    same(world.tree, normal(NEW))


def test_dry_run_leaves_the_state_unknown(world: World) -> None:
    world.workspace.restore("@1", dry_run=True)
    assert undecided(world) is not None


def test_a_declined_restore_leaves_the_state_unknown(world: World) -> None:
    world.workspace.restore("@1", confirm=lambda _: False)
    assert undecided(world) is not None


def test_a_mistyped_restore_leaves_the_state_unknown(world: World) -> None:
    with pytest.raises(UnknownId):
        world.workspace.restore("0" * 64)
    assert undecided(world) is not None


def test_a_restore_that_succeeds_supersedes_the_state(world: World) -> None:
    world.workspace.restore("@1")
    same(world.tree, NEW)
    assert undecided(world) is None


def test_snapshots_go_on_and_the_state_stays_unknown(world: World) -> None:
    world.workspace.snapshot("in between")
    assert undecided(world) is not None
    with pytest.raises(UnknownStateError):
        world.workspace.undo()
    world.workspace.recover(Choice.BACK)
    same(world.tree, NEW)


def test_a_restore_that_was_recorded_is_not_undecided(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    for tree in (OLD, NEW):
        world.become(tree)
        world.workspace.snapshot("taken")

    def action() -> None:
        seams.observe(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == "restore.recorded" else None)
        world.workspace.restore("@2")

    assert in_child(action)[0] == -signal.SIGKILL
    assert len(world.workspace.list()) == 3
    assert undecided(world) is None
    world.workspace.undo()
    same(world.tree, NEW)
    with pytest.raises(NothingToUndo):
        world.workspace.undo()


def test_a_failing_recover_loses_nothing(world: World) -> None:
    """The objects that going back needs are not there for a while."""
    objects = world.store / "objects.git" / "objects"
    away = world.base / "objects"
    shutil.copytree(objects, away)
    for file in [*objects.glob("??/*"), *objects.glob("pack/*")]:
        file.unlink()
    with pytest.raises(IntegrityError):
        world.workspace.recover(Choice.BACK)
    shutil.copytree(away, objects, dirs_exist_ok=True)
    if undecided(world) is None:
        world.workspace.undo()
    else:
        world.workspace.recover(Choice.BACK)
    same(world.tree, NEW)
