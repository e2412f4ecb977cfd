"""A snapshot killed at any point leaves the tree alone, the store sound, and the next snapshot able to work."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.killing import World, every_entry_restores, fsck, kill_at, next_snapshot_works, reached, undecided
from support.trees import File, Link, Tree, normal

FIRST = {
    "a": "1\n",
    "b/c": "2\n",
    "run": File(b"#!/bin/sh\n", 0o755),
    "secret": File(b"s\n", 0o600),
    "link": Link("a"),
    "gone": "soon\n",
}
SECOND = {"a": "changed\n", "b/c": "2\n", "run": File(b"#!/bin/sh\n"), "b/new": "3\n", "link": Link("b/c")}
MANY = {f"d{number % 7}/f{number}": f"{number}\n" for number in range(90)}


def _world(base: Path) -> World:
    world = World(base)
    world.become(FIRST)
    return world


def _snapshot(world: World) -> None:
    world.workspace.snapshot("killed")


def _first(base: Path) -> World:
    return _world(base)


def _few_changes(base: Path) -> World:
    world = _world(base)
    world.workspace.snapshot("first")
    world.become(SECOND)
    return world


def _many_changes(base: Path) -> World:
    world = _few_changes(base)
    world.become({**SECOND, **MANY})
    return world


@pytest.mark.slow
@pytest.mark.requirement("K16")
@pytest.mark.parametrize("make", [_first, _few_changes, _many_changes])
def test_killed_snapshot_publishes_all_or_nothing(make, tmp_path: Path) -> None:
    dry = make(tmp_path / "dry")
    names = reached(lambda: _snapshot(dry))
    assert {"capture.scanned", "capture.stored", "capture.before_ref"} <= set(names)
    for number in range(len(names)):
        world = make(tmp_path / str(number))
        tree, entries = world.tree, world.workspace.list()
        kill_at(number, lambda world=world: _snapshot(world))

        assert world.tree == tree, names[number]
        fsck(world.store)
        assert undecided(world) is None
        assert world.workspace.list() == entries, "the entry comes last, after the last seam"
        next_snapshot_works(world)
        every_entry_restores(world, _known(tree))
        fsck(world.store)
        world.remove()


@pytest.mark.slow
def test_killed_scoped_snapshot_leaves_whole_snapshots_right(tmp_path: Path) -> None:
    def action(world: World) -> None:
        world.workspace.snapshot("killed", paths=["b"])

    dry = _few_changes(tmp_path / "dry")
    names = reached(lambda: action(dry))
    for number in range(len(names)):
        world = _few_changes(tmp_path / str(number))
        kill_at(number, lambda world=world: action(world))
        next_snapshot_works(world)
        fsck(world.store)
        world.remove()


def _known(tree: Tree) -> list[Tree]:
    return [tree, normal(FIRST)]
