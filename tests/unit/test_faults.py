"""The system refuses one call at a time: an error with a message, nothing lost, nothing half published."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.killing import World, fsck, in_child, next_snapshot_works, scratch_files, staged_files, undecided
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
                    self.seen.append(name)
                if number == self.failing:
                    code = ERRORS[number % len(ERRORS)]
                    raise OSError(code, os.strerror(code))
            return true(*args, **named)

        return call


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


def fail_at(number: int, action: Callable[[], object]) -> str:
    """Run `action` with one failing call: "" if it ended well, the message if it raised as it should."""
    told: list[str] = []

    def run() -> None:
        Faults(number).install()
        try:
            action()
        except PutbackError as error:
            told.append(error.message)

    status, said = in_child(run, lambda: "".join(told))
    assert status == 0, "it raised " + said.strip().splitlines()[-1] + " at " + _where(said)
    return said


def _where(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if "src/putback" in line]
    return lines[-1] if lines else "?"


def each_call(base: Path, make: Callable[[Path], World], action: Callable[[World], object], check) -> None:
    """Fail each call of `action` in turn, each in a world made anew; report all that went wrong."""
    dry = make(base / "dry")
    names = count(lambda: action(dry))
    assert len(names) > 5
    wrong: list[str] = []
    for number, name in enumerate(names):
        world = make(base / str(number))
        before, entries = world.tree, world.workspace.list()
        try:
            message = fail_at(number, lambda world=world: action(world))
            fsck(world.store)
            check(world, before, entries, message)
            next_snapshot_works(world)
            fsck(world.store)
        except Exception as error:
            wrong.append(f"call {number} os.{name}: {type(error).__name__}: {error}")
        else:
            world.remove()
    assert not wrong, f"{len(wrong)} of {len(names)} went wrong\n" + "\n\n".join(wrong)


def taken(base: Path, *trees: dict) -> World:
    world = World(base)
    for tree in trees:
        world.become(tree)
        world.workspace.snapshot("taken")
    return world


def first(base: Path) -> World:
    world = World(base)
    world.become(OLD)
    return world


def few(base: Path) -> World:
    world = taken(base, OLD)
    world.become(NEW)
    return world


def many(base: Path) -> World:
    world = taken(base, OLD)
    world.become({**NEW, **MANY})
    return world


def check_snapshot(world: World, before: Tree, entries: list, message: str) -> None:
    same(world.tree, before)
    assert len(world.workspace.list()) == len(entries) + (not message), f"{message!r}, and the history disagrees"
    assert not scratch_files(world.store), f"left behind after {message!r}"
    assert undecided(world) is None


@pytest.mark.slow
@pytest.mark.parametrize("make", [first, few, many])
def test_snapshot_survives_each_refused_call(make, tmp_path: Path) -> None:
    each_call(tmp_path, make, lambda world: world.workspace.snapshot("x"), check_snapshot)


def check_restore(world: World, before: Tree, entries: list, message: str) -> None:
    left = staged_files(world.root)
    if undecided(world) is not None:
        assert message
        world.workspace.recover(Choice.BACK)
    elif len(world.workspace.list()) > len(entries):
        assert not left, "staged files are left"
        world.workspace.undo()
    else:
        assert not left, "staged files are left"
    same(world.tree, before)


@pytest.mark.slow
def test_restore_survives_each_refused_call(tmp_path: Path) -> None:
    each_call(
        tmp_path, lambda base: taken(base, OLD, NEW), lambda world: world.workspace.restore("@2"), check_restore
    )
