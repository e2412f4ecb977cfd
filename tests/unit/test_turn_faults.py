"""The system refuses one call at a time, or somebody interrupts: a turn is refused or unknown, nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from crash.killing import in_child, reached, representative
from putback import seams
from putback.cli.main import run
from putback.records.turn import TurnState
from support.bound import BoundWorld, made, work
from support.faults import count, fail_at
from support.hermetic import git

Action = Callable[[BoundWorld], object]
PARTS = 2


def each_fault(world: BoundWorld, action: Action, check: Callable[[str], None], part: int = 0) -> None:
    """Let each call fail in the same world, and check what is left; by default some places."""
    world.save("kept")
    names = count(lambda: action(world))
    assert len(names) > 5
    long = hypothesis.settings.default == hypothesis.settings.get_profile("long")
    wrong = []
    for number in representative(names)[part :: PARTS if long else PARTS * 5]:
        world.load("kept")
        name = names[number]
        try:
            name, message = fail_at(number, lambda: action(world))
            check(message)
            assert not world.ours(), f"left behind: {world.ours()}"
            world.sound()
            # What a failing unlink leaves in the store is the next snapshot's to clear away.
            world.next_turn_works(clean=not name.startswith("unlink"))
        except Exception as error:
            wrong.append(f"call {number} os.{name}: {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {len(names)} went wrong\n" + "\n\n".join(wrong)


def settled(world: BoundWorld) -> None:
    """A turn that is unknown is closed by a person, and one that is begun is sealed."""
    if world.listed and world.state is TurnState.UNKNOWN:
        assert world.resolve().state is TurnState.RESOLVED
    elif world.listed and world.state is TurnState.BEGUN:
        world.seal()


@pytest.mark.requirement("H14", "H17", "H34")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("step", ["begin", "seal"])
def test_a_capture_survives_each_refused_call(step: str, part: int, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "bound" if step == "begin" else "worked")
    before, index = world.sides, (world.root / ".git/index").read_bytes()

    def check(message: str) -> None:
        assert world.sides == before
        assert (world.root / ".git/index").read_bytes() == index
        done = {"begin": TurnState.BEGUN, "seal": TurnState.SEALED}[step]
        if not message:
            assert world.state is done
        settled(world)

    each_fault(world, lambda there: getattr(there, step)(), check, part)


@pytest.mark.requirement("H26", "H33", "H34")
@pytest.mark.parametrize("part", range(PARTS))
def test_an_application_survives_each_refused_call(part: int, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "begun")
    before = world.sides
    work(world.root)
    world.seal()
    after, plan = world.sides, world.prepare()

    def check(message: str) -> None:
        tree, index = world.sides
        assert index in (before[1], after[1])
        ends = (before[0], after[0])
        lost = [path for path in after[0] if tree.get(path) not in [end.get(path) for end in ends]]
        assert not lost, f"neither as before nor as after: {lost}"
        if world.state is TurnState.SEALED:
            assert message and index == after[1]
            assert {path: node for path, node in tree.items() if b".putback-" not in path} == after[0]
            assert not world.apply(plan).already
        elif world.state is TurnState.UNKNOWN:
            assert "was started and not completed" in message
            settled(world)
            return
        else:
            assert not message or "was taken back" in message, message
            assert world.apply(plan).already
        assert world.sides == before

    each_fault(world, lambda there: there.apply(plan), check, part)


@pytest.mark.requirement("H34")
def test_a_closing_survives_each_refused_call(tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    plan = world.prepare()
    world.turns.apply(world.binding, plan, yes=True, actor="a", reason="b")
    world.begin("open")
    sides = world.sides

    def check(message: str) -> None:
        assert world.sides == sides
        assert world.state is (TurnState.BEGUN if message else TurnState.RESOLVED) or "events" in message
        settled(world)

    each_fault(world, lambda there: there.resolve(), check)


# --- Ctrl-C -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("H34")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_during_an_application(times: int, tmp_path: Path) -> None:
    """Once: before the first effect it ends there, after that what was begun is finished. Twice: at once."""
    world = made(tmp_path / "world", "begun")
    before = world.sides
    work(world.root)
    world.seal()
    after, plan = world.sides, world.prepare()
    options = ["--proposal", plan.digest, "--actor", "me", "--reason", "why", "--yes"]
    where = ["-C", str(world.root), "--store", str(world.store)]
    world.save("kept")
    names = reached(lambda: world.apply(plan))
    for number in representative(names):
        world.load("kept")
        code, said = interrupted(number, times, [*where, "turn", "apply", world.latest.capture_id, *options])
        where_ = f"{names[number]}: {code}, {said!r}"
        assert "Traceback" not in said and "internal error" not in said, where_
        tree, index = world.sides
        assert index in (before[1], after[1]), where_
        assert not (world.root / ".git/index.lock").exists(), where_
        if world.state is TurnState.SEALED:
            assert code == 130 and (tree, index) == after, where_
        elif world.state is TurnState.APPLIED:
            assert code in (0, 130) and (tree, index) == before, where_
        else:
            assert times == 2 and code in (44, 130), where_
            assert "turn resolve" in said, where_
            world.resolve()
        assert not world.ours(), where_
        git(world.root, "add", "other")


def interrupted(number: int, times: int, arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command line that gets Ctrl-C at the seam with this number, and what it said."""
    codes: list[int] = []
    source, sink = os.pipe()

    def call() -> None:
        sys.stdout = sys.stderr = os.fdopen(sink, "w")
        left = number

        def observer(_: str) -> None:
            nonlocal left
            if left == 0:
                for _ in range(times):
                    os.kill(os.getpid(), signal.SIGINT)
            left -= 1

        seams.observe(observer)
        codes.append(run(arguments))
        sys.stdout.flush()

    status, answer = in_child(call, lambda: str(codes[0]))
    os.close(sink)
    with open(source) as stream:
        said = stream.read()
    assert status == 0, answer
    return int(answer), said
