"""The system refuses one call at a time: an error with a message, nothing lost, nothing half published."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from crash.killing import (
    World,
    fsck,
    is_long,
    next_snapshot_works,
    representative,
    scratch_files,
    snapshot_works,
    staged_files,
    undecided,
)
from putback.ops.recover import Choice
from support.faults import count, fail_at
from support.trees import Dir, File, Link, Tree, same

OLD = {
    "changed": "old\n",
    "mode": File(b"m\n", 0o755),
    "gone/deep/x": "x\n",
    "relinked": Link("same"),
    "to-dir/inner": "inner\n",
    "to-file": "a file\n",
    "empty": Dir(0o750),
}
NEW = {
    "changed": "new\n",
    "mode": File(b"m\n", 0o640),
    "relinked": Link("changed"),
    "to-dir": "a file\n",
    "to-file/child": "child\n",
    "extra/y": "y\n",
}
MANY = {f"d{number % 3}/f{number}": f"{number}\n" for number in range(70)}


class Scene(Protocol):
    """What is done again and again, each time with another failing call."""

    world: World

    def prepare(self, turn: int) -> None:
        """Make everything ready, with contents that no turn before has stored."""

    def act(self) -> object: ...

    def check(self, before: Tree, entries: int, message: str) -> None:
        """What must hold after the call failed; `message` is "" if `act` ended well all the same."""


def calls(scene: Scene) -> list[str]:
    """Every call that a scene makes, in order."""
    scene.prepare(0)
    return count(scene.act)


def each_call(scene: Scene, part: int = 0, parts: int = 1, beside: Scene | None = None) -> None:
    """Fail each call of a scene in turn, or every so-manieth; report all that went wrong.

    Calls that the scene `beside` makes, too, are left to it, but for the profile `long` of hypothesis.
    """
    names = calls(scene)
    assert len(names) > 5
    others = set() if beside is None or is_long() else set(calls(beside))
    chosen = [number for number in representative(names) if names[number] not in others]
    assert chosen
    wrong: list[str] = []
    for turn, number in enumerate(chosen[part::parts], 1):
        scene.prepare(turn)
        world = scene.world
        before, entries = world.tree, len(world.workspace.list())
        name = names[number]
        try:
            name, message = fail_at(number, scene.act)
            if not name:
                name = f"not reached: {names[number]}"
            scene.check(before, entries, message)
            if not name.startswith("unlink"):
                # What a failing unlink leaves is the next command's to clear away.
                assert not scratch_files(world.store), f"left behind after {message!r}"
            snapshot_works(world)
            if turn % 8 == 0:
                fsck(world.store)
        except Exception as error:
            wrong.append(f"call {number} os.{name}: {type(error).__name__}: {error}")
    fsck(scene.world.store)
    next_snapshot_works(scene.world)
    assert not wrong, f"{len(wrong)} of {len(names)} went wrong\n" + "\n\n".join(wrong)


def varied(literal: dict, turn: int) -> dict:
    """The same tree with other contents."""
    return {
        name: Link(f"{entry.target}-{turn}")
        if isinstance(entry, Link)
        else File(entry.content + b"%d\n" % turn, entry.mode)
        if isinstance(entry, File)
        else f"{entry}{turn}\n"
        if isinstance(entry, str)
        else entry
        for name, entry in literal.items()
    }


class Snapshot:
    """A first snapshot, or one with few or many changes."""

    def __init__(self, base: Path, change: dict | None) -> None:
        self._base = base
        self._change = change
        self.world = World(base / "world")

    def prepare(self, turn: int) -> None:
        if self._change is None:
            self.world = World(self._base / str(turn))
            self.world.become(OLD)
            return
        if turn == 0:
            self.world.become(OLD)
            self.world.workspace.snapshot("first")
        self.world.become(varied(self._change if turn % 2 else {**OLD, **self._many}, turn))

    @property
    def _many(self) -> dict:
        return MANY if self._change is not None and len(self._change) > len(MANY) else {}

    def act(self) -> object:
        return self.world.workspace.snapshot("x")

    def check(self, before: Tree, entries: int, message: str) -> None:
        same(self.world.tree, before)
        found = len(self.world.workspace.list())
        assert found == entries + (not message), f"{message!r}, and the history disagrees"
        assert undecided(self.world) is None


class Restore:
    """Back from NEW to OLD. What NEW has beside OLD was captured once, so that it is removed."""

    def __init__(self, base: Path) -> None:
        self.world = World(base / "world")
        self._old = ""

    def prepare(self, turn: int) -> None:
        if turn == 0:
            self.world.become(OLD)
            self._old = self.world.workspace.snapshot("old").id
            self.world.become(NEW)
            self.world.workspace.snapshot("new")
        self.world.become(varied(NEW, turn))

    def act(self) -> object:
        return self.world.workspace.restore(self._old)

    def check(self, before: Tree, entries: int, message: str) -> None:
        world = self.world
        left = staged_files(world.root)
        if undecided(world) is not None:
            assert message
            world.workspace.recover(Choice.BACK)
        else:
            assert not left, "staged files are left"
            if len(world.workspace.list()) > entries:
                world.workspace.undo()
        same(world.tree, before)
        assert not staged_files(world.root)


@pytest.mark.slow
@pytest.mark.parametrize("change", [None, NEW, {**NEW, **MANY}], ids=["first", "few", "many"])
def test_snapshot_survives_each_refused_call(change: dict | None, tmp_path: Path) -> None:
    beside = None if change is NEW else Snapshot(tmp_path / "beside", NEW)
    each_call(Snapshot(tmp_path, change), beside=beside)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_restore_survives_each_refused_call(part: int, tmp_path: Path) -> None:
    each_call(Restore(tmp_path), part, 3, beside=Snapshot(tmp_path / "beside", NEW))
