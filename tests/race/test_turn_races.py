"""Somebody else is at work while a turn is: exactly one wins, nothing outside is written, no edit is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from crash.killing import in_child, reached, representative
from putback import seams
from putback.cli.main import run
from putback.errors import (
    LockedError,
    OutOfOrder,
    OverlappingClaim,
    PutbackError,
    Stale,
    UnknownStateError,
)
from putback.records.turn import TurnState
from putback.store.history import History
from putback.turns.catalog import Turns
from putback.workspace import Workspace
from support.bound import PATHS, BoundWorld, made, work, write
from support.hermetic import git, make_repository, settings
from support.trees import Tree, create, read_back
from support.waiting import until

# --- two of us -------------------------------------------------------------------------------------------------


def together(*actions: Callable[[], object]) -> list[str]:
    """Run each in a child of its own, all let go at one instant; what each came to: a word or an error's code."""
    gate, go = os.pipe()
    answers = []
    for action in actions:
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(gate, 1)
            os.write(sink, outcome(action).encode())
            os._exit(0)
        os.close(sink)
        answers.append((child, source))
    os.close(gate)
    os.close(go)
    found = []
    for child, source in answers:
        with open(source) as stream:
            found.append(stream.read())
        os.waitpid(child, 0)
    return sorted(found)


def outcome(action: Callable[[], object]) -> str:
    try:
        answer = action()
    except PutbackError as error:
        return error.code
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "already" if getattr(answer, "already", False) else "done"


def impatient(world: BoundWorld) -> Turns:
    """The turns of a world for somebody who waits for no lock."""
    return Workspace.open(world.root, store=world.store, settings=settings(lock_wait_seconds=0.0)).turns


@contextmanager
def at(seam: str, action: Callable[[], object]) -> Iterator[list[str]]:
    """Do something the first time that a seam is reached; yields the seams that were."""
    names: list[str] = []

    def observer(name: str) -> None:
        names.append(name)
        if name == seam and names.count(seam) == 1:
            action()

    seams.observe(observer)
    try:
        yield names
    finally:
        seams.observe(None)
    assert seam in names, f"never came to {seam}"


@pytest.mark.requirement("H4", "H19")
def test_of_many_who_begin_one_does(tmp_path: Path) -> None:
    world = made(tmp_path / "world")
    before = world.sides
    assert together(*[lambda: world.begin("mine")] * 4) == ["done", *["out_of_order"] * 3]
    assert len(world.listed) == 1 and world.state is TurnState.BEGUN
    assert world.sides == before
    world.sound()


@pytest.mark.requirement("H19", "H35")
def test_of_many_who_apply_one_does(tmp_path: Path) -> None:
    world = made(tmp_path / "world", "begun")
    before = world.sides
    work(world.root)
    world.seal()
    plan = world.prepare()
    assert together(*[lambda: world.apply(plan)] * 3) == ["already", "already", "done"]
    assert world.sides == before and world.state is TurnState.APPLIED
    assert not world.ours()
    world.sound()


@pytest.mark.requirement("H19")
@pytest.mark.parametrize("upto", ["bound", "worked", "sealed"])
def test_who_does_not_wait_is_told_that_it_is_locked(upto: str, tmp_path: Path) -> None:
    world = made(tmp_path / "world", upto)
    act = {
        "bound": lambda turns: turns.begin(
            turns.binding("mine"), turns.next_turn(turns.binding("mine"), "t"), PATHS
        ),
        "worked": lambda turns: turns.seal(turns.binding("mine"), world.latest.capture_id),
        "sealed": lambda turns: turns.prepare(turns.binding("mine"), world.latest.capture_id),
    }[upto]
    with world.turns.lease(world.binding):
        before = world.checksum()
        for locked in (lambda: act(impatient(world)), lambda: impatient(world).release(world.binding)):
            assert "LockedError: locked by another process" in in_child(locked)[1]
        assert world.checksum() == before
    act(impatient(world))


@pytest.mark.requirement("H21")
@pytest.mark.parametrize("seam", ["turn.locked", "turn.started", "turn.index_written", "turn.receipt"])
def test_no_claim_comes_or_goes_while_a_turn_is_taken_back(seam: str, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    plan = world.prepare()
    another = make_repository(tmp_path / "another")
    made_claims = world.store / "claims"

    def try_all() -> None:
        for act in (
            lambda: Workspace.open(another, store=world.store, settings=now).turns.bind(binding_id="another"),
            lambda: impatient(world).bind(binding_id="second"),
            lambda: impatient(world).bind(provider="git-worktree", binding_id="third"),
            lambda: impatient(world).release(world.binding),
            lambda: impatient(world).begin(world.binding, world.turns.next_turn(world.binding, "x"), PATHS),
        ):
            status, said = in_child(act)
            assert status == 1 and "LockedError" in said, said
        assert sorted(path.name for path in made_claims.iterdir()) == ["gate", "mine.json"]

    now = settings(lock_wait_seconds=0.0)
    with at(seam, try_all):
        assert not world.apply(plan).already
    assert not (tmp_path / "world/tree.worktrees").exists()
    with pytest.raises(OverlappingClaim):
        impatient(world).bind(binding_id="second")
    Workspace.open(another, store=world.store, settings=now).turns.bind(binding_id="another")


@pytest.mark.requirement("H21")
def test_a_claim_that_waits_comes_when_the_turn_is_over(tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    plan, another = world.prepare(), make_repository(tmp_path / "another")
    claim = world.store / "claims/another.json"
    started: list[subprocess.Popen[bytes]] = []

    def bind_elsewhere() -> None:
        where = ["-C", str(another), "--store", str(world.store), "-c", "store.lock_wait_seconds=60"]
        arguments = [sys.executable, "-m", "putback", *where, "turn", "bind", "--id", "another"]
        started.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        # It says so once it waits.
        assert b"waiting for another putback" in started[0].stderr.readline()

    with at("turn.started", bind_elsewhere), pytest.MonkeyPatch.context() as patch:
        # The last that an application does is to write its entry of the history.
        true, there = History.add, []
        patch.setattr(History, "add", lambda *words: (there.append(claim.exists()), true(*words)))
        world.apply(plan)
    assert there == [False]
    assert started[0].wait() == 0 and claim.exists()


# --- the user's git ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("H26", "H27")
def test_while_git_holds_its_lock_nothing_is_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = made(tmp_path / "world", "sealed")
    plan = world.prepare()
    (world.root / ".git/info").mkdir(exist_ok=True)
    (world.root / ".git/info/attributes").write_text("other filter=slow\n")
    write(world.root, "other", b"staged meanwhile\n")
    waits = f"touch {tmp_path}/held; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; cat"
    adding = subprocess.Popen(["git", "-c", f"filter.slow.clean={waits}", "add", "other"], cwd=world.root)
    try:
        until((tmp_path / "held").exists)
        before = world.checksum()
        with pytest.raises(LockedError, match="another program"):
            world.apply(plan)
        options = ["--proposal", plan.digest, "--actor", "me", "--reason", "why", "--yes"]
        where = ["-C", str(world.root), "--store", str(world.store)]
        assert run([*where, "turn", "apply", world.latest.capture_id, *options]) == 45
        assert "index.lock" in capsys.readouterr().err
        assert world.checksum() == before and world.state is TurnState.SEALED
    finally:
        (tmp_path / "go").touch()
        assert adding.wait() == 0
    assert not world.apply(plan).already
    assert world.index[b"other"][0] == b"staged meanwhile\n"


@pytest.mark.requirement("H23", "H26")
@pytest.mark.parametrize("path", PATHS, ids=os.fsdecode)
def test_what_git_stages_between_proposal_and_application_makes_it_stale(path: bytes, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    plan = world.prepare()
    git(world.root, "update-index", "--add", "--cacheinfo", f"100644,{blob(world, b'new')},{os.fsdecode(path)}")
    before, records = world.sides, world.checksum()
    with pytest.raises(Stale, match="index"):
        world.apply(plan)
    assert world.sides == before and world.state is TurnState.SEALED
    assert world.checksum() == records and not world.ours()


def blob(world: BoundWorld, content: bytes) -> str:
    return git(world.root, "hash-object", "-w", "--stdin", given=content).strip().decode()


def ignoring_the_lock(world: BoundWorld, path: str) -> Callable[[], None]:
    """Somebody who writes the index without asking whether it is locked."""

    def act() -> None:
        index = world.root / ".git/index"
        mine = index.with_name("mine")
        shutil.copy(index, mine)
        entry = f"100644,{blob(world, b'by force')},{path}"
        environment = {**os.environ, "GIT_INDEX_FILE": str(mine)}
        arguments = ["git", "update-index", "--add", "--cacheinfo", entry]
        subprocess.run(arguments, cwd=world.root, env=environment, check=True)
        mine.rename(index)

    return act


@pytest.mark.requirement("H26", "H27", "H34")
@pytest.mark.parametrize("path", ["d/staged", "other"])
def test_a_writer_that_ignores_the_lock_before_the_look(path: str, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    plan, after = world.prepare(), world.sides
    with at("turn.index_locked", ignoring_the_lock(world, path)):
        result = outcome(lambda: world.apply(plan))
    assert world.index[path.encode()][0] == b"by force"
    assert result == ("done" if path == "other" else "stale")
    assert path == "other" or world.tree == after[0]
    assert not world.ours()


@pytest.mark.requirement("H27", "H34")
@pytest.mark.parametrize("path", ["d/staged", "other"])
@pytest.mark.parametrize("seam", ["turn.started", "turn.worktree_published", "turn.index_written"])
def test_a_writer_that_ignores_the_lock_after_the_look_is_not_written_over(
    seam: str, path: str, tmp_path: Path
) -> None:
    world = made(tmp_path / "world", "sealed")
    plan, index = world.prepare(), world.index
    with at(seam, ignoring_the_lock(world, path)), pytest.raises(UnknownStateError, match="ignores git's lock"):
        world.apply(plan)
    assert world.index == {**index, path.encode(): (b"by force", 0o100644)}
    assert world.state is TurnState.UNKNOWN and not world.ours()
    with pytest.raises(OutOfOrder):
        world.apply(plan)
    world.resolve()
    world.sound()


@pytest.mark.requirement("H27")
@pytest.mark.parametrize("seam", ["turn.locked", "turn.started", "turn.index_written"])
def test_a_lock_that_somebody_removed_is_not_published_through(seam: str, tmp_path: Path) -> None:
    """They removed ours by hand, and their git took its own."""
    world = made(tmp_path / "world", "sealed")
    plan, index = world.prepare(), world.index
    lock = world.root / ".git/index.lock"

    def replace() -> None:
        lock.unlink()
        lock.write_bytes(b"another's\n")

    with at(seam, replace), pytest.raises(UnknownStateError, match="not the one that was taken"):
        world.apply(plan)
    assert world.index == index and lock.read_bytes() == b"another's\n"
    world.resolve()
    assert lock.read_bytes() == b"another's\n"


@pytest.mark.requirement("H23")
@pytest.mark.parametrize("seam", ["turn.index_locked"])
def test_head_that_moves_before_the_look_makes_it_stale(seam: str, tmp_path: Path) -> None:
    world = made(tmp_path / "world", "sealed")
    plan, after = world.prepare(), world.sides
    with at(seam, lambda: git(world.root, "symbolic-ref", "HEAD", "refs/heads/other")), pytest.raises(Stale):
        world.apply(plan)
    assert world.sides == after and world.state is TurnState.SEALED


# --- files swapped under our hands ------------------------------------------------------------------------------

# Here the last look at a target lies behind us. What is swapped in now is what `ops.apply` does not guarantee.
TOO_LATE = ("restore.put", "restore.remove")
# No target was looked at for the last time before anything is written beside it.
BEFORE_THE_LOOK = ("turn.index_locked", "turn.locked", "turn.announced")


def clear(full: Path) -> None:
    if full.is_dir() and not full.is_symlink():
        shutil.rmtree(full)
    elif os.path.lexists(full):
        full.unlink()


def each(world: BoundWorld, put: Callable[[Path], object]) -> None:
    for path in PATHS:
        full = world.root / os.fsdecode(path)
        if full.parent.is_dir() and not full.parent.is_symlink():
            put(full)


def edited(world: BoundWorld) -> None:
    """In place where that can be done: the inode stays."""
    each(world, lambda full: full.write_bytes(b"an edit of %b\n" % os.fsencode(full.name)))


def other_file(world: BoundWorld) -> None:
    """Another file renamed there, of the same size and time."""

    def put(full: Path) -> None:
        before = full.lstat() if os.path.lexists(full) else None
        new = full.with_name("on-its-way")
        new.write_bytes(b"x" * (before.st_size if before else 5))
        if before is not None:
            os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
        new.rename(full)

    each(world, put)


def link_outside(world: BoundWorld) -> None:
    each(world, lambda full: (clear(full), full.symlink_to(world.base / "outside" / "victim")))


def link_to_directory_outside(world: BoundWorld) -> None:
    each(world, lambda full: (clear(full), full.symlink_to(world.base / "outside")))


def parent_outside(world: BoundWorld) -> None:
    for name in ("d", "e"):
        full = world.root / name
        if not full.is_symlink():
            full.rename(full.with_name(f"moved-{name}"))
            full.symlink_to(world.base / "outside")


def directory(world: BoundWorld) -> None:
    def put(full: Path) -> None:
        clear(full)
        full.mkdir()
        (full / "inside").write_bytes(b"an edit\n")

    each(world, put)


def pipe(world: BoundWorld) -> None:
    each(world, lambda full: (clear(full), os.mkfifo(full)))


def mode(world: BoundWorld) -> None:
    each(world, lambda full: full.exists() and full.chmod(0o600))


def second_name(world: BoundWorld) -> None:
    each(world, lambda full: full.exists() and (full.with_name(f"same-as-{full.name}")).hardlink_to(full))


CHANGES = (
    *(edited, other_file, link_outside, link_to_directory_outside, parent_outside, directory, pipe, mode),
    second_name,
)
VICTIMS = dict.fromkeys(("victim", "staged", "unstaged", "untracked", "created"), "victim\n")


@cache
def apply_seams() -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as base:
        world = made(Path(base) / "world", "sealed")
        plan = world.prepare()
        return tuple(reached(lambda: world.apply(plan)))


def places() -> list[tuple[int, str]]:
    return [(number, apply_seams()[number]) for number in representative(apply_seams())]


def some_changes(number: int) -> tuple[Callable[[BoundWorld], None], ...]:
    """Three of them, others at each place; with the profile `long` all."""
    if hypothesis.settings.default == hypothesis.settings.get_profile("long"):
        return CHANGES
    return tuple(CHANGES[(number * 2 + step) % len(CHANGES)] for step in (0, 3, 6))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", places(), ids=[f"{number}-{name}" for number, name in places()])


@pytest.mark.requirement("H26", "H29", "H34", "H36")
def test_files_swapped_under_an_application(place: tuple[int, str], tmp_path: Path) -> None:
    number, seam = place
    world = made(tmp_path / "world", "sealed")
    create(world.base / "outside", VICTIMS)
    plan, end, outside = world.prepare(), world.tree, read_back(world.base / "outside")
    world.save("kept")
    for change in some_changes(number):
        world.load("kept")
        result, swapped = apply_swapped(world, lambda: world.apply(plan), number, change)
        try:
            assert read_back(world.base / "outside") == outside, "something outside was written"
            check_swapped(world, result, end, swapped, seam)
            if change is not parent_outside:
                if world.state is TurnState.UNKNOWN:
                    tree = tree_of_theirs(world)
                    world.resolve()
                    assert world.tree == tree
                assert not world.ours()
            assert read_back(world.base / "outside") == outside
            git(world.root, "fsck", "--strict")
        except BaseException as error:
            error.add_note(f"{change.__name__} at {seam}: {result}")
            raise


def apply_swapped(
    world: BoundWorld, action: Callable[[], object], number: int, change: Callable[[BoundWorld], None]
) -> tuple[str, Tree]:
    """Apply while a change is made at the seam with this number; what came of it, and the tree as it was left."""
    left, swapped = number, Tree()

    def observer(_: str) -> None:
        nonlocal left
        if left == 0:
            change(world)
            swapped.update(tree_of_theirs(world))
        left -= 1

    seams.observe(observer)
    try:
        return outcome(action), swapped
    finally:
        seams.observe(None)


def tree_of_theirs(world: BoundWorld) -> Tree:
    return {path: node for path, node in world.tree.items() if b".putback-" not in path}


def check_swapped(world: BoundWorld, result: str, end: Tree, swapped: Tree, seam: str) -> None:
    """Assert that whatever somebody put there is still there, and that the state says what happened."""
    states = {"done": TurnState.APPLIED, "unknown_state": TurnState.UNKNOWN}
    assert world.state is states.get(result, TurnState.SEALED)
    assert ":" not in result, f"no error of ours: {result}"
    tree = tree_of_theirs(world)
    if world.state is TurnState.SEALED:
        assert tree == swapped, "refused, and yet something was touched"
        return
    put = [path for path in swapped if swapped[path] != end.get(path)]
    lost = [path for path in put if tree.get(path) != swapped[path]]
    assert len(lost) <= (seam in TOO_LATE), f"edits are lost: {lost}"
    # A second name elsewhere changes nothing at the paths of the turn.
    changed = [path for path in put if path in (*PATHS, b"d", b"e")]
    assert not changed or seam not in BEFORE_THE_LOOK, "begun, though something had changed"
    assert not changed or result != "done" or seam == "turn.receipt", "a receipt for what does not stand there"
