"""A turn killed at any point: the evidence says what is known, nothing is retried, and one call leads out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crash.killing import kill_at, reached, representative
from putback.cli.main import run
from putback.errors import OutOfOrder
from putback.records.history import EntryKind
from putback.records.turn import TurnRollbackPlan, TurnState
from support.bound import BoundWorld, Side, made, work
from support.hermetic import git
from support.trees import Tree

Sides = tuple[Tree, dict[bytes, Side]]
Action = Callable[[BoundWorld], object]

PARTS = 3


def kill_everywhere(
    world: BoundWorld, action: Action, check: Callable[[str], None], part: int = 0, of: int = 1
) -> None:
    """Kill `action` at each of its seams, every time in the same world, and check what is left."""
    world.save("kept")
    names = reached(lambda: action(world))
    assert names
    for number in representative(names)[part::of]:
        world.load("kept")
        kill_at(number, lambda: action(world))
        try:
            check(names[number])
        except BaseException as error:
            error.add_note(f"killed at seam {number}, {names[number]}")
            raise


def refused(world: BoundWorld, *actions: Callable[[], object]) -> None:
    """Assert that each is refused as out of order, and writes nothing at all."""
    before = world.checksum()
    for action in actions:
        with pytest.raises(OutOfOrder):
            action()
    assert world.checksum() == before, "a refusal wrote something"


def closes(world: BoundWorld) -> None:
    """Assert that an unknown turn is in the way until a person closes it, and that this rewrites no content."""
    assert world.state is TurnState.UNKNOWN
    refused(world, lambda: world.begin("another"), world.seal, world.prepare)
    before, reserved = theirs(world), world.latest.reserved_bytes
    assert world.resolve().state is TurnState.RESOLVED
    assert theirs(world) == before, "resolve wrote content"
    assert world.latest.reserved_bytes == reserved > 0, "what was captured does not count any more"
    assert not world.ours()


def theirs(world: BoundWorld) -> Sides:
    """Both sides without what an application has staged beside its targets."""
    tree = {path: node for path, node in world.tree.items() if not is_staged(path)}
    return tree, world.index


def is_staged(path: bytes) -> bool:
    return path.rpartition(b"/")[2].startswith(b".putback-")


def kinds(world: BoundWorld) -> list[EntryKind]:
    """What the history knows of turns, oldest first."""
    found = [entry.kind for entry in world.workspace.list()]
    return [kind for kind in reversed(found) if kind in (EntryKind.TURN, EntryKind.RESTORE)]


@pytest.mark.requirement("H4", "H14", "H17", "H34")
def test_a_killed_begin(tmp_path: Path) -> None:
    world = made(tmp_path / "world", "bound")
    before, index = world.sides, (world.root / ".git/index").read_bytes()
    seen: set[str] = set()

    def check(_: str) -> None:
        assert world.sides == before and not world.ours()
        assert (world.root / ".git/index").read_bytes() == index
        if not world.listed:
            seen.add("nothing")
        elif world.state is TurnState.BEGUN:
            seen.add("begun")
            refused(world, lambda: world.begin("another"))
            world.seal()
        else:
            seen.add("unknown")
            assert world.latest.detail == "its capture was begun and not completed"
            closes(world)
        world.sound()
        world.next_turn_works()

    kill_everywhere(world, lambda there: there.begin(), check)
    assert seen >= {"begun", "unknown"}


@pytest.mark.requirement("H4", "H14", "H17", "H34")
def test_a_killed_seal(tmp_path: Path) -> None:
    world = made(tmp_path / "world", "worked")
    before, index = world.sides, (world.root / ".git/index").read_bytes()
    begun = world.latest.reserved_bytes
    seen: set[str] = set()

    def check(seam: str) -> None:
        assert world.sides == before and not world.ours()
        assert (world.root / ".git/index").read_bytes() == index
        seen.add(str(world.state))
        if world.state is TurnState.SEALED:
            world.prepare()
            assert kinds(world) == [EntryKind.TURN], "the next command completes the history"
            world.apply()
        else:
            assert world.latest.detail == "its seal was begun and not completed"
            assert world.latest.reserved_bytes > begun
            closes(world)
        world.sound()
        world.next_turn_works()

    kill_everywhere(world, lambda there: there.seal(), check)
    assert seen == {"sealed", "unknown"}


@pytest.mark.requirement("H27", "H32", "H33", "H34", "H35")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_killed_apply(part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = made(tmp_path / "world", "begun")
    before = world.sides
    work(world.root)
    world.seal()
    after, plan = world.sides, world.prepare()
    seams: list[str] = []

    def check(seam: str) -> None:
        seams.append(seam)
        one_of_both(world, before, after)
        told(world, capsys)
        if world.state is TurnState.SEALED:
            assert theirs(world) == after, "something was put back before `started`"
            assert not world.apply(plan).already
        elif world.state is TurnState.APPLIED:
            assert world.sides == before
            assert world.apply(plan).already
        else:
            never_again(world, plan)
        assert not world.ours()
        if world.state is TurnState.APPLIED:
            assert world.sides == before
            assert kinds(world) == [EntryKind.TURN, EntryKind.RESTORE]
        world.sound()
        world.next_turn_works()

    kill_everywhere(world, lambda there: there.apply(plan), check, part, PARTS)
    assert seams


def one_of_both(world: BoundWorld, before: Sides, after: Sides) -> None:
    """Assert that each file is as before or as after, and the index the one or the other as a whole."""
    tree = world.tree
    assert world.index in (before[1], after[1])
    for path in before[0].keys() | after[0].keys():
        assert tree.get(path) in (before[0].get(path), after[0].get(path)), path
    assert all(map(is_staged, tree.keys() - before[0].keys() - after[0].keys()))


def told(world: BoundWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a lock which keeps git out is spoken of wherever somebody would look."""
    locked = (world.root / ".git/index.lock").exists()
    git(world.root, "add", "other", check=False)
    assert (world.root / ".git/index.lock").exists() == locked
    code = run(["-C", str(world.root), "--store", str(world.store), "status"])
    said = capsys.readouterr().out
    assert ("left git's index locked" in world.latest.detail) == locked
    assert ("left git's index locked" in said) == locked
    assert (code == 44) == (world.state is TurnState.UNKNOWN)


def never_again(world: BoundWorld, plan: TurnRollbackPlan) -> None:
    """Assert that a started application is not gone on with, by nobody and nothing."""
    assert "taking it back was started, and there is no receipt" in world.latest.detail
    assert world.latest.proposal == plan.digest
    refused(world, lambda: world.apply(plan))
    closes(world)
    refused(world, lambda: world.apply(plan))


@pytest.mark.requirement("H34")
def test_a_killed_resolve(tmp_path: Path) -> None:
    """It can be said again, and clears away all that the application left."""
    world = made(tmp_path / "world", "sealed")
    kill_seam(world, "turn.started", lambda: world.apply())
    assert world.state is TurnState.UNKNOWN and world.ours()
    sides = theirs(world)

    def check(_: str) -> None:
        if world.state is TurnState.UNKNOWN:
            assert world.resolve().state is TurnState.RESOLVED
        assert world.sides == sides and not world.ours()
        world.sound()
        world.next_turn_works()

    kill_everywhere(world, lambda there: there.resolve(), check)


@pytest.mark.requirement("H34")
@pytest.mark.parametrize("seam", ["restore.staged", "turn.receipt"])
@pytest.mark.parametrize("way", ["begin", "prepare", "release", "archive"])
def test_what_a_killed_apply_left_is_cleared_by_whatever_comes_next(seam: str, way: str, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    kill_seam(world, seam, lambda: world.apply())
    assert world.ours() and "prepare` unlocks it" in world.latest.detail
    if way == "begin":
        world.begin("another")
    elif way == "prepare":
        world.prepare()
    else:
        options = ["--archive"] if way == "archive" else []
        assert run(["-C", str(world.root), "--store", str(world.store), "turn", "release", *options]) == 0
    assert not world.ours()
    git(world.root, "add", "other")


def kill_seam(world: BoundWorld, seam: str, action: Callable[[], object]) -> None:
    """Kill `action` where it reaches the seam for the first time."""
    world.save("first")
    names = reached(action)
    world.load("first")
    kill_at(names.index(seam), action)


@pytest.mark.requirement("H19", "H20")
def test_a_killed_bind_and_a_killed_release(tmp_path: Path) -> None:
    """The same call again goes on from there; until then the tree is wholly somebody's or nobody's."""
    world = made(tmp_path / "unbound" / "world", "unbound")
    before = world.sides

    def bind_again(_: str) -> None:
        assert world.sides == before
        world.bind()
        world.sound()
        world.next_turn_works()

    kill_everywhere(world, lambda there: there.bind(), bind_again)
    world = made(tmp_path / "bound" / "world", "sealed")
    before = world.sides

    def release_again(_: str) -> None:
        assert world.sides == before and not world.ours()
        if world.bound():
            assert not world.listed or world.state is TurnState.SEALED
            world.turns.release(world.binding)
        assert world.bind().generation == 2
        world.sound()
        world.next_turn_works()

    kill_everywhere(world, lambda there: there.turns.release(there.binding), release_again)
