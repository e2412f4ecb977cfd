"""The system refuses one call at a time: an error with a message, nothing lost, nothing half published."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from crash.killing import (
    World,
    fsck,
    in_child,
    next_snapshot_works,
    representative,
    scratch_files,
    snapshot_works,
    staged_files,
    undecided,
)
from putback.errors import PutbackError
from putback.ops.recover import Choice
from support.trees import Dir, File, Link, Tree, same

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EFBIG)
CALLS = (
    *("write", "pwrite", "open", "rename", "replace", "link", "fsync", "mkdir", "rmdir", "symlink"),
    *("chmod", "fchmod", "unlink", "ftruncate"),
)

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


class Faults:
    """Counts the calls that would change a disk, and makes the one with number `failing` fail."""

    def __init__(self, failing: int = -1) -> None:
        self.failing = failing
        self.seen: list[str] = []
        self._lock = threading.Lock()

    def install(self) -> None:
        for name in CALLS:
            true = getattr(os, name)
            false = self._wrap(name, true)
            setattr(os, name, false)
            for known in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_fd):
                if true in known:
                    known.add(false)

    def _wrap(self, name: str, true: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            if _changes_a_disk(name, args):
                with self._lock:
                    number = len(self.seen)
                    self.seen.append(f"{name} from {_caller()}")
                if number == self.failing:
                    code = ERRORS[number % len(ERRORS)]
                    raise OSError(code, os.strerror(code))
            return true(*args, **named)

        return call


def _caller() -> str:
    """Who makes this call, as the innermost lines of putback that are at work."""
    lines: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and len(lines) < 4:
        if "putback" in frame.f_code.co_filename:
            lines.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
        frame = frame.f_back
    return " ".join(lines)


def _changes_a_disk(name: str, args: tuple) -> bool:
    if name == "open":
        return bool(args[1] & (os.O_CREAT | os.O_TRUNC))
    if name in ("write", "pwrite", "ftruncate"):
        return stat.S_ISREG(os.fstat(args[0]).st_mode)
    return True


def count(action: Callable[[], object]) -> list[str]:
    faults = Faults()

    def run() -> None:
        faults.install()
        action()

    status, said = in_child(run, lambda: "\n".join(faults.seen))
    assert status == 0, said
    return said.split("\n")


def fail_at(number: int, action: Callable[[], object]) -> tuple[str, str]:
    """Run `action` with one failing call: which that was, and "" if it ended well, else the error's message."""
    faults = Faults(number)
    told: list[str] = []

    def run() -> None:
        faults.install()
        try:
            action()
        except PutbackError as error:
            told.append(error.message)

    status, said = in_child(run, lambda: "\n".join([*faults.seen[number : number + 1], "", *told]))
    assert status == 0, "it raised " + said.strip().splitlines()[-1] + " at " + _where(said)
    name, _, message = said.partition("\n\n")
    return name.strip(), message


def _where(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if "src/putback" in line]
    return lines[-1] if lines else "?"


class Scene(Protocol):
    """What is done again and again, each time with another failing call."""

    world: World

    def prepare(self, turn: int) -> None:
        """Make everything ready, with contents that no turn before has stored."""

    def act(self) -> object: ...

    def check(self, before: Tree, entries: int, message: str) -> None:
        """What must hold after the call failed; `message` is "" if `act` ended well all the same."""


def each_call(scene: Scene, part: int = 0, parts: int = 1) -> None:
    """Fail each call of a scene in turn, or every so-manieth; report all that went wrong."""
    scene.prepare(0)
    names = count(scene.act)
    assert len(names) > 5
    wrong: list[str] = []
    for turn, number in enumerate(representative(names)[part::parts], 1):
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
    each_call(Snapshot(tmp_path, change))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_restore_survives_each_refused_call(part: int, tmp_path: Path) -> None:
    each_call(Restore(tmp_path), part, 3)
