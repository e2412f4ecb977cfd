"""A prune killed at any point: what is listed comes back, and the next prune ends it."""

from __future__ import annotations

import pytest

from crash.killing import World, fsck, kill_at, reached, representative, scratch_files
from putback.records.history import EntryKind
from putback.records.retention import Keep
from putback.records.upkeep import Pruned
from support.hermetic import git
from support.trees import normal, same

KEEP = Keep(last=2)
TREES = [{"a": f"{number}\n", "d/b": f"{number}\n"} for number in range(4)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two runs and three snapshots; two of the snapshots are to stay, one run for undo."""
    made = World(tmp_path_factory.mktemp("prune") / "world")
    made.become(TREES[0])
    for number in (0, 1):
        made.workspace.run(["sh", "-c", f"echo run {number} > a"], snapshot=True)
    for tree in TREES[1:]:
        made.become(tree)
        made.workspace.snapshot("taken")
    other = World(made.base.with_name("gone"))
    other.become(TREES[0])
    gone = made.workspace.open(other.root, store=made.store)
    gone.snapshot("gone")
    other.remove()
    made.save("whole")
    return made


def prune(world: World) -> Pruned:
    return world.workspace.upkeep.prune(KEEP, vanished=True)


def refs(world: World) -> set[str]:
    out = git(world.store / "objects.git", "for-each-ref", "--format=%(refname)").decode().split()
    return {line.rpartition("/")[2] for line in out}


def test_killed_at_every_seam(world: World) -> None:
    points = reached(lambda: prune(world))
    assert {"prune.recorded", "prune.unlisted", "prune.evidence", "prune.released"} <= set(points)
    assert {"vanished.unlisted", "vanished.released", "vanished.emptied"} <= set(points)
    ours = [number for number in representative(points) if points[number].startswith(("prune.", "vanished."))]
    for number in ours:
        world.load("whole")
        kill_at(number, lambda: prune(world))
        world.save("killed")
        _what_is_listed_comes_back(world)
        world.load("killed")
        world.forget("killed")
        prune(world)
        entries = world.workspace.list()
        assert [entry.kind for entry in entries] == [EntryKind.SNAPSHOT, EntryKind.SNAPSHOT, EntryKind.RUN]
        assert refs(world) == {oid for entry in entries for oid in (entry.after, entry.before) if oid}
        assert [path.name for path in world.workspace.paths.runs.iterdir()] == [entries[-1].id]
        assert len(list((world.store / "workspaces").iterdir())) == 1
        assert not world.workspace.paths.pruning.exists() and not scratch_files(world.store)
        fsck(world.store)


def _what_is_listed_comes_back(world: World) -> None:
    workspace = world.workspace
    assert not workspace.runs.unfinished()
    for entry in workspace.list():
        workspace.show(entry.id)
        if entry.kind is EntryKind.SNAPSHOT:
            held = workspace.files(entry.id)
            assert [node.digest for node in held.values()] and set(held) == {b"a", b"d/b"}
    newest = workspace.list()[0]
    world.become(TREES[0])
    workspace.restore(newest.id, exact=True)
    same(world.tree, normal(TREES[3]))
    workspace.undo()
