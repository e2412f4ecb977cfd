"""Reclaiming killed at any point leaves every capture whole, and the next one cleans up after it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from crash.killing import World, every_entry_restores, fsck, kill_at, reached, representative, scratch_files
from putback.git.objectid import object_id
from putback.ops import intake
from support.trees import Tree, create, normal
from support.upkeep import drop, holds_object, litter, loose, packs, reclaim

MANY = {f"d{number % 3}/f{number}": f"{number}\n" * 20 for number in range(7)}


def _noise(number: int) -> bytes:
    """Enough content for a pack of its own, not to be compressed, and the same for the same number."""
    return b"".join(object_id("blob", b"%d %d" % (number, part)) for part in range(1500))


def _world(base: Path) -> tuple[World, list[Tree], str]:
    """Two packs, loose objects, an entry that was dropped, and temporary files; the trees, and the id of what
    nothing needs."""
    world = World(base)
    large = {f"one/{part}": _noise(part) for part in range(7)}
    known, ids, literal = [], [], {}
    for number, added in enumerate((MANY, large, {}, {})):
        if number == 2:
            shutil.rmtree(world.root / "one")
        added = {**added, "changing": _noise(number)}
        create(world.root, added)
        literal = {path: entry for path, entry in literal.items() if path not in large} | added
        ids.append(world.workspace.snapshot(str(number)).id)
        known.append(normal(literal))
    drop(world.workspace, [ids[1]])
    litter(world.store / "objects.git/objects/pack/tmp_pack_abc")
    litter(world.workspace.paths.scratch / "object-1")
    return world, known, ids[1]


@pytest.mark.slow
def test_killed_reclaiming_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FEW_FILES", 5)
    world, known, dead = _world(tmp_path / "world")
    assert len(packs(world.store)) == 2 and loose(world.store)
    world.save("before")
    names = reached(lambda: reclaim(world.workspace))
    assert names.count("reclaim.dropped") >= 4
    assert {"reclaim.chosen", "reclaim.half", "reclaim.published", "reclaim.packed"} <= set(names)
    for number in representative(names):
        world.load("before")
        kill_at(number, lambda: reclaim(world.workspace))
        fsck(world.store)
        halves = world.store.rglob("objects/pack/*.idx")
        assert all(half.with_suffix(".pack").exists() for half in halves), names[number]
        done = reclaim(world.workspace)
        assert not done.waiting, names[number]
        assert not scratch_files(world.store) and not holds_object(world.store, dead)
        assert not loose(world.store)
        assert sorted(os.listdir(world.store / "upkeep")) == ["lock"]
        fsck(world.store)
    every_entry_restores(world, known)


@pytest.mark.slow
def test_a_killed_git_is_no_obstacle(tmp_path: Path) -> None:
    """What it left goes with the next one, also where its own folder is gone."""
    world, known, _ = _world(tmp_path / "world")
    litter(world.store / "upkeep/0011223344556677/pack-1.pack")
    litter(world.store / f"objects.git/objects/pack/pack-{'3' * 64}.pack")
    reclaim(world.workspace)
    assert not scratch_files(world.store) and sorted(os.listdir(world.store / "upkeep")) == ["lock"]
    fsck(world.store)
    every_entry_restores(world, known)
