"""Forgetting and relocating killed at any point: nothing happened, or the next command brings it to its end."""

from __future__ import annotations

import shutil
from pathlib import Path

from crash.killing import (
    SETTINGS,
    World,
    every_entry_restores,
    fsck,
    kill_at,
    reached,
    representative,
    scratch_files,
)
from putback.records.history import Entry
from putback.records.retention import Keep
from putback.workspace import Workspace
from support.stores import bytes_of
from support.trees import Tree, create, normal, read_back, same

SECRET = b"hunter2-hunter2-hunter2"

ONE: Tree = normal({".env": SECRET, "a": "1\n", "d/x": "x\n"})
TWO: Tree = normal({".env": SECRET + b"2", "a": "2\n"})


def without(tree: Tree) -> Tree:
    return {path: entry for path, entry in tree.items() if path != b".env"}


def ready_to_forget(base: Path) -> World:
    world = World(base)
    for tree in (ONE, TWO):
        world.become(tree)
        world.workspace.snapshot("taken")
    world.workspace.restore("@2")
    return world


def forget(world: World) -> object:
    workspace = world.workspace
    return workspace.upkeep.forget(workspace.paths_below([".env"]))


def ours(names: list[str]) -> list[int]:
    """Where to kill: reclaiming has tests of its own."""
    return [number for number in representative(names) if not names[number].startswith("reclaim.")]


def refs_of(world: World) -> list[str]:
    return sorted(path.name for path in world.store.glob("objects.git/refs/putback/*/*"))


def told(entries: list[Entry]) -> list[tuple[object, ...]]:
    return [(entry.seq, entry.kind, entry.created_ns, entry.message, entry.changed) for entry in entries]


def test_forget(tmp_path: Path) -> None:
    ready = ready_to_forget(tmp_path / "ready")
    ready.save("fresh")
    before, refs = ready.workspace.list(), refs_of(ready)
    names = reached(lambda: forget(ready))
    assert {"exchange.decided", "exchange.released", "forget.purged"} <= set(names)
    for number in ours(names):
        ready.load("fresh")
        kill_at(number, lambda: forget(ready))
        # Whatever comes next goes on with it.
        assert not ready.workspace.upkeep.check().unlisted
        now = ready.workspace.list()
        assert told(now) == told(before), names[number]
        decided = number >= names.index("exchange.decided")
        assert (now != before) is decided, "all of it, or nothing"
        held = ready.workspace.files(before[-1].id)
        assert (b".env" in held) is not decided, names[number]
        if not decided:
            assert refs_of(ready) == refs, names[number]
        fsck(ready.store)
        if decided:
            assert SECRET not in bytes_of(ready.store), names[number]
            assert not list(ready.store.glob("workspaces/*/exchange"))
        else:
            forget(ready)
            assert SECRET not in bytes_of(ready.store), names[number]
        assert not scratch_files(ready.store), names[number]
        if names[number] in ("exchange.decided", "exchange.closed"):
            (ready.root / ".env").unlink()
            every_entry_restores(ready, [without(ONE), without(TWO)])


def moved(base: Path) -> tuple[World, Workspace]:
    """A workspace with a history that was moved to a place with one."""
    world = World(base)
    world.become(ONE)
    world.workspace.snapshot("old one")
    world.become(TWO)
    world.workspace.run(("sh", "-c", "echo run >> a"), snapshot=True)
    world.root.rename(base / "elsewhere")
    workspace = at_new_place(world)
    workspace.snapshot("new")
    create(workspace.root, {"a": "3\n"})
    workspace.snapshot("newer")
    return world, workspace


def at_new_place(world: World) -> Workspace:
    return Workspace.open(world.base / "elsewhere", store=world.store, settings=SETTINGS)


def test_relocate(tmp_path: Path) -> None:
    world, workspace = moved(tmp_path / "world")
    shutil.copytree(world.store, tmp_path / "fresh")
    tree = read_back(workspace.root)
    here = workspace.list()
    there = Workspace.open(tmp_path, store=world.store).paths.store.workspace(bytes(world.root))
    old_refs = refs_of(world)

    def act() -> object:
        return at_new_place(world).upkeep.relocate(bytes(world.root))

    names = reached(act)
    assert {"exchange.decided", "exchange.taken", "exchange.transferred", "exchange.released"} <= set(names)
    for number in ours(names):
        shutil.rmtree(world.store)
        shutil.copytree(tmp_path / "fresh", world.store)
        kill_at(number, act)
        workspace = at_new_place(world)
        now = workspace.list()
        decided = number >= names.index("exchange.decided")
        if not decided:
            assert now == here and there.exists(), names[number]
            act()
            now = workspace.list()
        workspace.status()
        assert [entry.message for entry in now] == ["newer", "new", "sh -c echo run >> a", "old one"]
        assert [entry.seq for entry in now] == [4, 3, 2, 1], names[number]
        assert refs_of(world) == old_refs and not there.exists()
        assert len(list(world.store.glob("objects.git/refs/putback/elsewhere-*/*"))) == len(old_refs)
        fsck(world.store)
        assert not scratch_files(world.store) and not list(world.store.glob("workspaces/*/exchange"))
        if names[number] not in ("exchange.decided", "exchange.entered", "exchange.closed"):
            continue
        assert workspace.undo(force=True).applied == 1, "the run"
        assert workspace.restore("@4", exact=True).entry is not None
        same(read_back(workspace.root), ONE)
        workspace.restore("@1", exact=True)
        same(read_back(workspace.root), tree)


def test_a_prune_ends_a_forgetting_that_was_cut_short_first(tmp_path: Path) -> None:
    ready = ready_to_forget(tmp_path / "ready")
    ready.workspace.run(("sh", "-c", "sleep 1.1; echo run >> a"), snapshot=True)
    ready.save("fresh")
    names = reached(lambda: forget(ready))
    for seam in ("exchange.anchored", "exchange.decided", "exchange.entered"):
        ready.load("fresh")
        kill_at(names.index(seam), lambda: forget(ready))
        ready.workspace.upkeep.prune(Keep(last=1))
        assert [entry.kind for entry in ready.workspace.list()] == ["run", "restore"], seam
        assert not ready.workspace.upkeep.check(read_share=1.0).damage, seam


def test_what_is_on_its_way_is_not_dropped(tmp_path: Path) -> None:
    """The old place looks like one that vanished, and its index lies where no other does."""
    world = World(tmp_path / "world")
    world.become(ONE)
    world.workspace.snapshot("one")
    world.become(TWO)
    seams = reached(lambda: world.workspace.snapshot("x"))
    world.become(normal({**ONE, "promised": "by the index alone\n"}))
    kill_at(seams.index("capture.before_ref"), lambda: world.workspace.snapshot("two"))
    world.root.rename(world.base / "elsewhere")
    shutil.copytree(world.store, tmp_path / "fresh")

    def act() -> object:
        return at_new_place(world).upkeep.relocate(bytes(world.root))

    names = reached(act)
    for seam in ("exchange.decided", "exchange.transferred"):
        shutil.rmtree(world.store)
        shutil.copytree(tmp_path / "fresh", world.store)
        kill_at(names.index(seam), act)
        gone = at_new_place(world).upkeep.prune(Keep(), vanished=True).vanished
        assert ["on its way" in item.kept for item in gone] == [True] * (seam == "exchange.decided")
        workspace = at_new_place(world)
        assert [entry.message for entry in workspace.list()] == ["x", "one"]
        workspace.snapshot("after")
        assert not workspace.upkeep.check(read_share=1.0).damage, seam
