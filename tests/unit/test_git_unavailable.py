"""git is missing, too old, hangs, fails or is killed: one kind of error, and nothing half published."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from crash.killing import SETTINGS, World, fsck, scratch_files, staged_files, undecided
from putback.cli.main import run
from putback.errors import Cancelled, GitUnavailable, PutbackError
from putback.git import command
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.ops.recover import Choice
from putback.progress import Silent
from putback.workspace import Workspace, available
from support.hermetic import git, make_repository, unmoved
from support.trees import Literal, create, same

OLD = {"a": "1\n", "d/b": "2\n", "gone": "3\n"}
NEW = {"a": "changed\n", "d/b": "2\n", "new/x": "4\n"}
GIT = shutil.which("git")

WAYS: dict[str, Callable[[Workspace], object]] = {
    "snapshot": lambda workspace: workspace.snapshot("x"),
    "list": lambda workspace: workspace.list(),
    "show": lambda workspace: workspace.show("@1"),
    "files": lambda workspace: workspace.files("@1"),
    "diff": lambda workspace: workspace.diff("@2"),
    "restore": lambda workspace: workspace.restore("@2"),
    "dry run": lambda workspace: workspace.restore("@2", dry_run=True),
    "undo": lambda workspace: workspace.undo(),
    "redo": lambda workspace: workspace.redo(),
    "status": lambda workspace: workspace.status(),
    "interrupted": lambda workspace: workspace.interrupted(),
    "recover": lambda workspace: workspace.recover(Choice.KEEP),
}
COMMANDS = [
    ["snapshot"],
    ["list"],
    ["show", "@1"],
    ["ls", "@1"],
    ["diff"],
    ["restore", "@2", "--yes"],
    ["undo", "--yes"],
    ["status"],
    ["recover"],
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return taken(tmp_path / "world", OLD, NEW)


def taken(base: Path, *trees: Literal) -> World:
    made = World(base)
    for tree in trees:
        made.become(tree)
        made.workspace.snapshot("taken")
    return made


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a shell script first on PATH as git. `$GIT` is the real one."""

    def install(text: str) -> Path:
        place = script(tmp_path / "bin", "git", text)
        monkeypatch.setenv("PATH", f"{place.parent}:{os.environ['PATH']}")
        return place

    return install


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    place = folder / name
    place.write_text(f"#!/bin/sh\nGIT={GIT}\n{text}\n")
    place.chmod(0o755)
    return place


def untouched(world: World, tree: Literal, entries: int) -> None:
    same(world.tree, tree)
    assert not staged_files(world.root) and not scratch_files(world.store)
    assert len(list(world.workspace.paths.history.iterdir())) == entries


# --- not there, or too old -------------------------------------------------------------------------------------

UNUSABLE = {
    "too old": "echo git version 2.20.0",
    "a little too old": "echo git version 2.33.9",
    "much too old": "echo git version 1.9.5",
    "no version": "echo hello",
    "says nothing": "exit 0",
    "fails": "exit 127",
    "killed": "kill -9 $$",
}


def unavailable_everywhere(world: World) -> None:
    tree = world.tree
    for name, way in WAYS.items():
        with pytest.raises(GitUnavailable) as caught:
            way(world.workspace)
            pytest.fail(f"{name} did not ask for git")
        assert caught.value.exit_code == 69 and caught.value.message.startswith("unavailable: "), name
    with pytest.raises(GitUnavailable):
        available()
    untouched(world, tree, 2)


@pytest.mark.requirement("K14")
@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_git_that_cannot_be_used(text: str, world: World, fake: Callable[[str], Path]) -> None:
    fake(text)
    unavailable_everywhere(world)


@pytest.mark.requirement("K14")
@pytest.mark.parametrize("path", ["/nonexistent", "", "/dev/null:/etc/passwd"])
def test_git_that_is_not_there(path: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    unavailable_everywhere(world)


@pytest.mark.requirement("K14")
def test_git_that_is_no_program(world: World, fake: Callable[[str], Path]) -> None:
    fake("").chmod(0o644)
    os.environ["PATH"] = os.environ["PATH"].split(":")[0]
    unavailable_everywhere(world)


@pytest.mark.requirement("K14")
@pytest.mark.parametrize("text", [b"\x7fELF garbage", b"", b"#!/no/such/interpreter\n"])
def test_git_that_cannot_be_executed(text: bytes, world: World, fake: Callable[[str], Path]) -> None:
    fake("").write_bytes(text)
    for way in WAYS.values():
        with pytest.raises(PutbackError):
            way(world.workspace)


@pytest.mark.requirement("K14")
@pytest.mark.parametrize("arguments", COMMANDS, ids=[" ".join(command) for command in COMMANDS])
def test_the_command_line_ends_with_69(
    arguments: list[str], world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    common = ["-C", str(world.root), "--store", str(world.store)]
    assert run([*common, *arguments]) == 69
    said = capsys.readouterr().err
    assert "unavailable: git is not on PATH" in said and "Traceback" not in said
    assert run([*common, "--json", *arguments]) == 69
    assert '"git_unavailable"' in capsys.readouterr().out


@pytest.mark.requirement("K14")
def test_git_that_goes_away_in_the_middle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when we asked for its version, and is not when it is needed."""
    found = msgspec.structs.replace(command.find(), program="/nonexistent/git")
    monkeypatch.setattr(command, "find", lambda **_: found)
    tree = world.tree
    for name in ("snapshot", "show", "diff", "restore", "undo"):
        with pytest.raises(PutbackError) as caught:
            WAYS[name](world.workspace)
        assert isinstance(caught.value, GitUnavailable) or name == "undo", name
    untouched(world, tree, 2)


# --- the n-th call goes wrong ----------------------------------------------------------------------------------

BROKEN = {
    "fails": 'echo "fatal: broken" >&2; exit 128',
    "ends with 1": "exit 1",
    "killed": "kill -9 $$",
    "killed when all is done": '"$GIT" "$@"; kill -9 $$',
    "terminated": "kill -15 $$",
    "missing": "",
}
# With 1 these say that nothing matches, or that a key is not set. Nobody can tell such a lie from the truth.
LAWFUL = {("ends with 1", "check-ignore"), ("ends with 1", "config")}


class Breaking:
    """Counts the git processes that are started; the one with number `failing` is another program."""

    def __init__(self, failing: int, program: str) -> None:
        self.failing = failing
        self.program = program
        self.asked: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def installed(self) -> Iterator[None]:
        true = Git.start

        def start(git: Git, *arguments: str | bytes, reads: bool) -> subprocess.Popen[bytes]:
            with self._lock:
                number = len(self.asked)
                self.asked.append(os.fsdecode(arguments[0]))
            if number == self.failing:
                git = msgspec.structs.replace(git, program=self.program)
            return true(git, *arguments, reads=reads)

        Git.start = start
        try:
            yield
        finally:
            Git.start = true

    @property
    def name(self) -> str:
        return self.asked[self.failing]


def each_call(
    program: str, action: Callable[[], object], check: Callable[[PutbackError | None, str], None]
) -> None:
    """Break each git call of `action` in turn, until twice there is none of that number: some take fewer calls."""
    wrong: list[str] = []
    number = beyond = 0
    while beyond < 2:
        breaking = Breaking(number, program)
        error: PutbackError | None = None
        try:
            with breaking.installed():
                action()
        except PutbackError as raised:
            error = raised
        except Exception as raised:
            wrong.append(f"call {number} {breaking.name}: raised {type(raised).__name__}: {raised}")
        if number >= len(breaking.asked):
            beyond += 1
            check(error, "none")
            continue
        beyond = 0
        try:
            check(error, breaking.name)
        except Exception as raised:
            wrong.append(f"call {number} {breaking.name}: {type(raised).__name__}: {raised}, after {error!r}")
        number += 1
    assert number > 5
    assert not wrong, "\n\n".join(wrong)


def program(name: str, folder: Path) -> str:
    return str(script(folder, name.replace(" ", "-"), BROKEN[name])) if BROKEN[name] else "/nonexistent/git"


@pytest.mark.slow
@pytest.mark.requirement("K14", "K16")
@pytest.mark.parametrize("name", BROKEN.keys())
def test_snapshot_survives_each_git_call_that_goes_wrong(name: str, tmp_path: Path) -> None:
    """In a repository, so that every question to the user's git is among the calls."""
    world = World(tmp_path / "world")
    make_repository(world.root, {".gitignore": "*.log\n", "tracked.log": "t\n", **OLD})
    git(world.root, "add", "-f", "tracked.log")
    git(world.root, "commit", "-q", "-m", "tracked although ignored")
    create(world.root, {"private": "p\n", "by-config": "c\n", "other.log": "l\n"})
    (world.root / ".git" / "info").mkdir(exist_ok=True)
    (world.root / ".git" / "info" / "exclude").write_text("private\n")
    (world.root / ".git" / "own-excludes").write_text("by-config\n")
    git(world.root, "config", "core.excludesFile", ".git/own-excludes")
    expected = set(world.workspace.files(world.workspace.snapshot("first").id))
    assert b"tracked.log" in expected and expected.isdisjoint({b"private", b"by-config", b"other.log"})
    turn = 0

    def action() -> None:
        nonlocal turn
        turn += 1
        create(world.root, {"a": f"{turn}\n"})
        if turn % 2:
            world.workspace.paths.state.unlink(missing_ok=True)
        world.workspace.snapshot("broken")

    entries = 1

    def check(error: PutbackError | None, call: str) -> None:
        nonlocal entries
        tree = world.tree
        assert not scratch_files(world.store) and not staged_files(world.root)
        history = world.workspace.list()
        assert len(history) == entries + (error is None), "half published"
        entries = len(history)
        if error is None:
            found = set(world.workspace.files("@1"))
            shown = world.workspace.show("@1").capture
            if (name, call) not in LAWFUL:
                assert found == expected or shown.warnings, f"silently another scope: {found ^ expected}"
        if name == "missing" and error is not None:
            assert isinstance(error, GitUnavailable)
        world.workspace.snapshot("next")
        entries += 1
        assert set(world.workspace.files("@1")) == expected
        same(world.tree, tree)

    with unmoved(world.root):
        each_call(program(name, tmp_path / "bin"), action, check)
    fsck(world.store)


@pytest.mark.slow
@pytest.mark.requirement("K14", "K16")
@pytest.mark.parametrize("name", BROKEN.keys())
def test_restore_survives_each_git_call_that_goes_wrong(name: str, tmp_path: Path) -> None:
    world = taken(tmp_path / "world", OLD, NEW)
    old = world.workspace.list()[1].id
    entries = 2

    def check(error: PutbackError | None, call: str) -> None:
        nonlocal entries
        assert not staged_files(world.root)
        if undecided(world) is not None:
            assert error is not None
            world.workspace.recover(Choice.BACK)
        elif error is None:
            same(world.tree, OLD)
            world.workspace.undo()
        else:
            assert len(world.workspace.list()) == entries, "an entry, but an error"
        entries = len(world.workspace.list())
        same(world.tree, NEW)
        assert not scratch_files(world.store)

    each_call(program(name, tmp_path / "bin"), lambda: world.workspace.restore(old), check)
    fsck(world.store)


# --- it does not answer ----------------------------------------------------------------------------------------


def hangs(at: str, notes: Path) -> str:
    """Does not answer the command `at`, and has a child of its own that holds its output open."""
    return f'case "$*" in *"{at}"*) sleep 300 & echo $$ $! >> {notes}; wait;; *) exec "$GIT" "$@";; esac'


def gone(notes: Path) -> bool:
    """Whether every process that noted itself has ended (or is only waiting to be reaped)."""
    for pid in notes.read_text().split():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state not in "ZX":
            return False
    return True


def ends_soon(action: Callable[[], object]) -> None:
    began = time.monotonic()
    action()
    assert time.monotonic() - began < 8, "it took too long to end"


AT = ["version", "diff-files", "check-ignore", "cat-file --batch", "diff-tree", "config"]


@pytest.mark.slow
@pytest.mark.requirement("K16")
@pytest.mark.parametrize("at", AT)
def test_git_that_hangs_is_stopped_with_its_children(
    at: str, world: World, fake: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notes = tmp_path / "pids"
    create(world.root, {"a": "once more\n"})
    tree, old = world.tree, world.workspace.list()[1].id
    with monkeypatch.context() as patch:
        patch.setenv("PATH", os.environ["PATH"])
        fake(hangs(at, notes))
        patch.setattr(command, "find", partial(command.find, time_limit=0.6))

        def action() -> None:
            with pytest.raises(GitUnavailable) as caught:
                world.workspace.restore(old)
            assert caught.value.exit_code == 69

        ends_soon(action)
    assert notes.exists(), "git was never asked"
    until = time.monotonic() + 2
    while not gone(notes) and time.monotonic() < until:
        time.sleep(0.02)
    assert gone(notes), "a process of git's is still there"
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
    if undecided(world) is not None:
        world.workspace.recover(Choice.BACK)
    same(world.tree, tree)
    world.workspace.restore(old)
    same(world.tree, OLD)


class Stopping(Silent):
    """Cancels after some seconds."""

    def __init__(self, after: float) -> None:
        self._until = time.monotonic() + after

    def cancelled(self) -> bool:
        return time.monotonic() >= self._until


def stopping(world: World, after: float) -> Workspace:
    return Workspace.open(world.root, store=world.store, settings=SETTINGS, progress=Stopping(after))


@pytest.mark.requirement("K16")
@pytest.mark.parametrize("name", [name for name in WAYS if name not in ("list", "status", "interrupted")])
def test_cancelled_from_the_start(name: str, world: World) -> None:
    tree = world.tree
    with pytest.raises(Cancelled) as caught:
        WAYS[name](stopping(world, 0))
    assert caught.value.exit_code == 130
    untouched(world, tree, 2)
    world.workspace.snapshot("next")


@pytest.mark.requirement("K16")
def test_first_snapshot_cancelled_from_the_start(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    world.become(OLD)
    with pytest.raises(Cancelled):
        stopping(world, 0).snapshot("x")
    assert world.workspace.list() == []
    world.workspace.snapshot("next")


@pytest.mark.slow
@pytest.mark.requirement("K16")
@pytest.mark.parametrize("at", ["diff-files", "check-ignore", "diff-tree"])
@pytest.mark.parametrize("name", ["snapshot", "restore"])
def test_cancelled_while_git_hangs(
    name: str, at: str, world: World, fake: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, at) == ("snapshot", "diff-tree"):
        pytest.skip("a snapshot compares no trees")
    create(world.root, {"a": "once more\n", "fresh/y": "y\n"})
    tree, notes = world.tree, tmp_path / "pids"
    fake(hangs(at, notes))

    def action() -> None:
        with pytest.raises(Cancelled):
            WAYS[name](stopping(world, 1.0))

    ends_soon(action)
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
    assert notes.exists(), "git was never asked"
    until = time.monotonic() + 2
    while not gone(notes) and time.monotonic() < until:
        time.sleep(0.02)
    assert gone(notes)
    assert undecided(world) is None
    untouched(world, tree, 2)
    world.workspace.snapshot("next")


class Counting(Silent):
    """Cancels when it is asked for the n-th time."""

    def __init__(self, number: int) -> None:
        self.left = number

    def cancelled(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.slow
@pytest.mark.requirement("K16")
@pytest.mark.parametrize("name", ["snapshot", "restore"])
def test_cancelled_at_every_place_where_it_is_asked(name: str, tmp_path: Path) -> None:
    world = taken(tmp_path / "world", OLD, NEW)
    old, tree = world.workspace.list()[1].id, world.tree
    for number in range(200):
        progress = Counting(number)
        workspace = Workspace.open(world.root, store=world.store, settings=SETTINGS, progress=progress)
        entries = len(world.workspace.list())
        try:
            if name == "snapshot":
                workspace.snapshot("x")
            else:
                workspace.restore(old)
        except Cancelled:
            assert not staged_files(world.root) and not scratch_files(world.store), f"asked {number} times"
            if undecided(world) is not None:
                world.workspace.recover(Choice.BACK)
            else:
                assert len(world.workspace.list()) == entries
            same(world.tree, tree)
        else:
            break
    assert 3 < number < 199


@pytest.mark.slow
@pytest.mark.requirement("K16")
def test_a_restore_that_is_cancelled_has_touched_nothing_or_all(tmp_path: Path) -> None:
    """`Cancelled` says of itself that nothing half-done has been published."""
    world = taken(tmp_path / "world", OLD, NEW)
    old = world.workspace.list()[1].id
    for number in range(200):
        workspace = Workspace.open(world.root, store=world.store, settings=SETTINGS, progress=Counting(number))
        try:
            workspace.restore(old)
        except Cancelled:
            assert undecided(world) is None, f"asked {number} times: cancelled, and the state is unknown"
            same(world.tree, NEW)
        else:
            break


# --- the door itself -------------------------------------------------------------------------------------------


def test_much_input_to_a_slow_reader_arrives(tmp_path: Path) -> None:
    """More than a pipe holds, to a process that begins to read after more than one time-out of ours."""
    slow = script(tmp_path / "bin", "slow", "sleep 0.7; exec wc -c")
    given = b"x" * 500_000
    assert Git(str(slow)).run("anything", given=given).out.strip() == b"500000"


def test_much_input_to_a_process_that_does_not_read_it(tmp_path: Path) -> None:
    rude = script(tmp_path / "bin", "rude", "echo done")
    assert Git(str(rude)).run("anything", given=b"x" * 500_000).out == b"done\n"


def test_much_input_and_much_output(tmp_path: Path) -> None:
    both = script(tmp_path / "bin", "both", "exec cat")
    given = os.urandom(1 << 20)
    assert Git(str(both)).run("anything", given=given).out == given


def test_much_to_say_on_standard_error(tmp_path: Path) -> None:
    loud = script(tmp_path / "bin", "loud", "head -c 300000 /dev/zero | tr '\\0' e >&2; exit 1")
    with pytest.raises(PutbackError):
        Git(str(loud)).run("anything")


@pytest.mark.slow
def test_time_limit_with_input_that_nobody_reads(tmp_path: Path) -> None:
    deaf = script(tmp_path / "bin", "deaf", "sleep 300 & wait")

    def action() -> None:
        with pytest.raises(GitUnavailable):
            Git(str(deaf), time_limit=0.3).run("anything", given=b"x" * 500_000)

    ends_soon(action)


def test_a_cancelled_git_is_not_even_started(tmp_path: Path) -> None:
    note = tmp_path / "started"
    program = script(tmp_path / "bin", "noting", f"touch {note}")
    with pytest.raises(Cancelled):
        Git(str(program), lambda: True).run("anything")
    assert not note.exists()


@pytest.mark.parametrize(
    "text", ["exit 0", "cat", "kill -9 $$", "echo hello; cat", "printf 'x blob 5\\nabc'", "exec sleep 300"]
)
def test_a_reader_of_objects_that_talks_nonsense(text: str, tmp_path: Path) -> None:
    program = script(tmp_path / "bin", "nonsense", text)
    with ObjectReader(Git(str(program), time_limit=0.4)) as reader:
        for _ in range(2):
            with pytest.raises(PutbackError):
                reader.read("a" * 64, "blob")


def test_a_reader_asked_again_after_it_gave_up_does_not_mix_answers_up(world: World) -> None:
    """A content that was not read to its end must not be taken for the next one."""
    where = world.workspace.paths
    nodes = {path: node for path, node in world.workspace.files("@1").items() if node.digest}
    first, second = (nodes[b"a"].digest, nodes[b"d/b"].digest)
    big = os.urandom(3 << 20)
    create(world.root, {"big": big})
    large = world.workspace.files(world.workspace.snapshot("big").id)[b"big"].digest
    with ObjectReader(command.find().on(where.store.git_dir)) as reader:
        stream = reader.stream(large, "blob")
        next(stream)
        stream.close()
        for digest, content in ((first, b"changed\n"), (second, b"2\n")):
            try:
                assert reader.read(digest, "blob") == content
            except PutbackError:
                pytest.fail("the rest of a content that was given up was taken for the next answer")


@pytest.mark.requirement("K14")
def test_a_stopped_git_is_continued_or_ended_with_us(tmp_path: Path) -> None:
    """A git that a signal has stopped answers no more; the time limit ends it all the same."""
    stopped = script(tmp_path / "bin", "stopped", "kill -STOP $$")

    def action() -> None:
        with pytest.raises(GitUnavailable):
            Git(str(stopped), time_limit=0.3).run("anything")

    ends_soon(action)
    assert signal.SIGSTOP
