"""A recover, or a restore that supersedes an interrupted one, that is killed itself loses nothing either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crash.killing import World, fsck, kill_at, reached, representative, staged_files, undecided
from crash.test_kill_restore import FILES, ready_to_restore
from putback.ops.recover import Choice
from support.trees import Tree, normal, same

BEFORE, AFTER = normal(FILES[1]), normal(FILES[0])


def half_restored(base: Path) -> World:
    """A world in which a restore was killed when it was about to put its third path in place."""
    dry = ready_to_restore(base.with_name(base.name + "-dry"), FILES)
    names = reached(lambda: dry.workspace.restore("@2"))
    third = [number for number, name in enumerate(names) if name == "restore.put"][2]
    world = ready_to_restore(base, FILES)
    kill_at(third, lambda: world.workspace.restore("@2"))
    assert undecided(world) is not None and not staged_files(world.root)
    assert world.tree not in (BEFORE, AFTER)
    return world


def leads_back(world: World) -> None:
    """Assert that the tree before the first, interrupted restore can still be had."""
    if undecided(world) is not None:
        world.workspace.recover(Choice.BACK)
    for _ in range(3):
        if world.tree == BEFORE:
            break
        world.workspace.undo()
    same(world.tree, BEFORE)


def kill_everywhere_in(base: Path, action: Callable[[World], object], expected: Tree) -> None:
    world = half_restored(base / "world")
    world.save("saved")
    names = reached(lambda: action(world))
    same(world.tree, expected)
    wrong = []
    for number in representative(names):
        world.load("saved")
        kill_at(number, lambda: action(world))
        fsck(world.store)
        try:
            leads_back(world)
            assert not staged_files(world.root)
        except Exception as error:
            wrong.append(f"killed at {number} {names[number]}: {type(error).__name__}: {error}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("choice", list(Choice))
def test_killed_recover_loses_nothing(choice: Choice, tmp_path: Path) -> None:
    expected = {Choice.BACK: BEFORE, Choice.FORWARD: AFTER, Choice.KEEP: half_restored(tmp_path / "look").tree}
    kill_everywhere_in(tmp_path, lambda world: world.workspace.recover(choice), expected[choice])


@pytest.mark.slow
def test_killed_restore_over_an_interrupted_one_loses_nothing(tmp_path: Path) -> None:
    kill_everywhere_in(tmp_path, lambda world: world.workspace.restore("@2", exact=True), AFTER)
