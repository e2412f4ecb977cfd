"""Four processes on one store, killed at random: then all that is listed comes back, and nothing is left over.

Each captures, restores and undoes in a workspace of its own, and prunes, reclaims and checks the store of all.
PUTBACK_SOAK_SECONDS says for how long; PUTBACK_SOAK_SEED repeats the choices of a run, though not its timing.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from pathlib import Path

import pytest

from crash.killing import SETTINGS, World, fsck, scratch_files
from putback.errors import LockedError, NothingToUndo, UnknownStateError
from putback.fs import lock
from putback.ops.recover import Choice
from putback.progress import SILENT
from putback.records.retention import Keep
from support.hermetic import git
from support.trees import File, Link, Tree, normal, read_back, same
from support.waiting import gone, until

SECONDS = float(os.environ.get("PUTBACK_SOAK_SECONDS", "6"))
SEED = int(os.environ.get("PUTBACK_SOAK_SEED", "0")) or random.SystemRandom().getrandbits(30)
PROCESSES = 4
KEPT = 4
KILL_EVERY_SECONDS = 0.4


class Place(World):
    """A workspace of its own in a store that all share."""

    @property
    def store(self) -> Path:
        return self.base.parent / "store"

    @property
    def faults(self) -> Path:
        return self.base / "faults"


def _tree(seed: int) -> Tree:
    """The tree that stands for a number: files that all have, one that changes a little, many now and then."""
    chance = random.Random(seed)
    text = [f"line {number}" for number in range(400)]
    text[chance.randrange(400)] = f"{seed}"
    literal = {
        **{f"same/{number}": f"{number}\n" for number in range(6)},
        "text": "\n".join(text),
        "run": File(b"#!/bin/sh\n", chance.choice((0o755, 0o700))),
        "link": Link(f"same/{chance.randrange(6)}"),
        f"only/{seed % 7}": f"{seed % 11}\n",
    }
    if chance.random() < 0.2:
        literal |= {f"many/{number}": f"{seed % 3} {number}\n" for number in range(80)}
    return normal(literal)


def _snapshot(place: Place, chance: random.Random) -> None:
    seed = chance.getrandbits(20)
    place.become(_tree(seed))
    place.workspace.snapshot(str(seed))


def _restore(place: Place, chance: random.Random) -> None:
    entries = [entry for entry in place.workspace.list() if not entry.before]
    if entries:
        entry = chance.choice(entries)
        place.workspace.restore(entry.id, exact=True, force=True)
        same(place.tree, _tree(int(entry.message)))


def _undo(place: Place, chance: random.Random) -> None:
    try:
        place.workspace.undo(force=True)
    except NothingToUndo:
        pass


def _prune(place: Place, chance: random.Random) -> None:
    place.workspace.upkeep.prune(Keep(last=KEPT))


def _reclaim(place: Place, chance: random.Random) -> None:
    done = place.workspace.upkeep.reclaim()
    assert not done.unreadable, done


def _check(place: Place, chance: random.Random) -> None:
    for entry in place.workspace.list():
        place.workspace.show(entry.id)
    with lock.hold(place.store / "lock", "check", True, SETTINGS.store.lock_wait_seconds, SILENT):
        # Not fsck: it lists the objects before the refs, and captures go on meanwhile.
        git(place.store, "--git-dir=objects.git", "rev-list", "--objects", "--all", "--quiet")


WORK = (_snapshot, _snapshot, _snapshot, _restore, _undo, _prune, _reclaim, _check)


def _recovered(place: Place) -> None:
    if place.workspace.interrupted() is not None:
        place.workspace.recover(Choice.BACK)


def _work(place: Place, seed: int, until_then: float) -> None:
    """What one process does until it is killed, or the time is over; a fault is written down."""
    chance = random.Random(seed)
    action: object = _recovered
    try:
        _recovered(place)
        while time.monotonic() < until_then:
            action = chance.choice(WORK)
            try:
                action(place, chance)
            except LockedError:
                pass
    except UnknownStateError:
        traceback.print_exc()
    except BaseException:
        place.faults.write_text(f"{action} {traceback.format_exc()}")


def _start(place: Place, seed: int, until_then: float) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            _work(place, seed, until_then)
        finally:
            os._exit(0)
    return child


def _run(places: list[Place], chance: random.Random) -> int:
    """Let them work, and kill one after the other; how many were killed."""
    until_then = time.monotonic() + SECONDS
    at_work = [_start(place, chance.getrandbits(30), until_then) for place in places]
    killed = 0
    while (left := until_then - time.monotonic()) > 0:
        time.sleep(min(left, chance.random() * 2 * KILL_EVERY_SECONDS))
        number = chance.randrange(len(places))
        os.kill(at_work[number], signal.SIGKILL)
        os.waitpid(at_work[number], 0)
        killed += 1
        at_work[number] = _start(places[number], chance.getrandbits(30), until_then)
    for pid in at_work:
        os.waitpid(pid, 0)
    return killed


@pytest.mark.slow
def test_soak(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    places = [Place(tmp_path / f"place{number}") for number in range(PROCESSES)]
    for place in places:
        place.become(_tree(1))
        place.workspace.snapshot("1")
    killed = _run(places, chance)
    assert killed
    faults = [place.faults.read_text() for place in places if place.faults.exists()]
    assert not faults, f"seed {SEED}\n" + "\n".join(faults)
    _no_git_left(tmp_path)
    for place in places:
        _recovered(place)
        place.workspace.snapshot("1")
        same(place.tree, read_back(place.root))
    places[0].workspace.upkeep.reclaim()
    assert not scratch_files(places[0].store), f"seed {SEED}"
    fsck(places[0].store)
    for place in places:
        _every_entry_comes_back(place)
    assert not list(tmp_path.rglob(".putback-*")), f"seed {SEED}"


def _every_entry_comes_back(place: Place) -> None:
    workspace = place.workspace
    for entry in workspace.list()[1:]:
        workspace.show(entry.id)
        if not entry.before:
            workspace.restore(entry.id, exact=True)
            same(place.tree, _tree(int(entry.message)))


def _no_git_left(below: Path) -> None:
    """Wait for processes of git whose parent was killed: they end when they come to notice it."""
    name = os.fsencode(below)

    def theirs() -> list[str]:
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if name in Path("/proc", pid, "environ").read_bytes() and not gone(int(pid)):
                    found.append(pid)
            except OSError:
                continue
        return found

    until(lambda: not theirs())
