"""A restore that merges, killed: what the merge made is there to go forward with, or nothing has begun."""

from __future__ import annotations

from pathlib import Path

from crash.killing import (
    World,
    fsck,
    kill_at,
    next_snapshot_works,
    reached,
    representative,
    staged_files,
    undecided,
)
from crash.test_kill_restore import check_undecided
from support.trees import File

TEXT = "".join(f"{number}\n" for number in range(20))
SPAN = TEXT.replace("\n3\n", "\nby the span\n")
SINCE = SPAN.replace("\n15\n", "\nsince\n")
TREES = (
    {"clean": TEXT, "mode": File(TEXT.encode(), 0o600), "hot": TEXT, "plain": TEXT},
    {"clean": SPAN, "mode": File(SPAN.encode(), 0o644), "hot": SPAN, "plain": SPAN, "created": "new\n"},
    {"clean": SINCE, "mode": File(SINCE.encode(), 0o644), "hot": TEXT.replace("\n3\n", "\nsince\n"), "plain": SPAN,
     "created": "new\n"},
)  # fmt: skip


def act(world: World) -> None:
    result = world.workspace.restore("@2..@1", merge=True)
    assert (result.merged, result.applied) == (2, 4)


def points(names: list[str]) -> list[int]:
    """The last of the steps between which a merge could make a difference; all with the profile `long`."""
    telling = {"restore.merging", "restore.started", "restore.publishing", "restore.put", "restore.recorded"}
    last = {name: number for number, name in enumerate(names) if name in telling}
    chosen = representative(names)
    return chosen if len(chosen) == len(names) else sorted(last.values())


def test_a_killed_merge_leads_to_either_end(tmp_path: Path, capsys) -> None:
    world = World(tmp_path / "world")
    for tree in TREES[:2]:
        world.become(tree)
        world.workspace.snapshot("taken")
    world.become(TREES[2])
    before = world.tree
    world.save("saved")
    world.load("saved")
    names = reached(lambda: act(world))
    after = world.tree
    assert names.count("restore.merging") == 3
    publishing = names.index("restore.publishing")
    checked: list[object] = []
    for number in points(names):
        world.load("saved")
        kill_at(number, lambda: act(world))
        fsck(world.store)
        found = undecided(world)
        assert not staged_files(world.root)
        if number < publishing:
            assert found is None and world.tree == before, names[number]
        state = (world.tree, found and found.paths)
        if state in checked:
            continue
        checked.append(state)
        if found is None:
            assert world.tree in (before, after), names[number]
            next_snapshot_works(world)
        else:
            check_undecided(world, before, after, thorough=False)
