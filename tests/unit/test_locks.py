"""Several processes at once: they wait or say who is in the way, and what a killed one left is no obstacle."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from crash.killing import SETTINGS, World, fsck, in_child, scratch_files
from putback import seams
from putback.cli.main import run
from putback.errors import Cancelled, LockedError, StorageError
from putback.fs import lock
from putback.fs.durable import write_file
from putback.ops.recover import Choice
from putback.progress import SILENT, Silent
from putback.workspace import Workspace
from support.hermetic import git, make_repository, settings, unmoved
from support.trees import create, destroy, same

TREE = {"a": "1\n", "d/b": "2\n"}


class Watching(Silent):
    """Notes who it is waited for, and gives up after some seconds where told to."""

    def __init__(self, patience: float = 60.0) -> None:
        self.holders: list[str] = []
        self.asked = 0
        self._until = time.monotonic() + patience

    def waiting(self, holder: str) -> None:
        self.holders.append(holder)

    def cancelled(self) -> bool:
        self.asked += 1
        return time.monotonic() > self._until


class Other:
    """Another process that is at work on a workspace, stopped in the middle of it, until it is let go."""

    def __init__(self, action: Callable[[], object], seam: str) -> None:
        held, self._go = os.pipe()
        source, sink = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._go)
                stopped = False

                def observer(name: str) -> None:
                    nonlocal stopped
                    if name == seam and not stopped:
                        stopped = True
                        os.write(sink, b"x")
                        os.read(held, 1)

                seams.observe(observer)
                action()
                code = 0
            finally:
                os._exit(code)
        os.close(held)
        os.close(sink)
        assert os.read(source, 1) == b"x", "the other process never came to its seam"
        os.close(source)
        self._running = True

    def let_go(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

    def end(self) -> int:
        self.let_go()
        self._running = False
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.end() == -signal.SIGKILL

    def tidy(self) -> None:
        if self._running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.end()


@contextmanager
def busy(
    world: World, action: Callable[[Workspace], object] | None = None, seam: str = "capture.scanned"
) -> Iterator[Other]:
    chosen = action or (lambda workspace: workspace.snapshot("other"))
    other = Other(lambda: chosen(world.workspace), seam)
    try:
        yield other
    finally:
        other.tidy()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world")
    made.become(TREE)
    made.workspace.snapshot("first")
    create(made.root, {"a": "changed\n"})
    return made


def opened(world: World, progress: Silent = SILENT, wait: float = 0.3) -> Workspace:
    chosen = settings(lock_wait_seconds=wait)
    return Workspace.open(world.root, store=world.store, settings=chosen, progress=progress)


WAYS: dict[str, Callable[[Workspace], object]] = {
    "snapshot": lambda workspace: workspace.snapshot("x"),
    "restore": lambda workspace: workspace.restore("@1"),
    "dry run": lambda workspace: workspace.restore("@1", dry_run=True),
    "undo": lambda workspace: workspace.undo(),
    "redo": lambda workspace: workspace.redo(),
    "diff": lambda workspace: workspace.diff("@1"),
    "show": lambda workspace: workspace.show("@1"),
    "files": lambda workspace: workspace.files("@1"),
    "recover": lambda workspace: workspace.recover(Choice.KEEP),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_workspace_in_use_is_locked_and_the_holder_is_named(
    way: Callable[[Workspace], object], world: World
) -> None:
    tree = world.tree
    with busy(world) as other:
        with pytest.raises(LockedError) as caught:
            way(opened(world))
        assert caught.value.exit_code == 45 and caught.value.code == "locked"
        assert f"pid {other.pid}, snapshot" in caught.value.message
        assert "0.3 s" in caught.value.message and caught.value.hint
        same(world.tree, tree)
        assert other.end() == 0
    assert len(world.workspace.list()) == 2


@pytest.mark.parametrize("seam", ["restore.safe", "restore.staged", "restore.put"])
def test_a_workspace_that_is_being_restored_is_locked(seam: str, world: World) -> None:
    with busy(world, lambda workspace: workspace.restore("@1"), seam) as other:
        with pytest.raises(LockedError) as caught:
            opened(world).snapshot("meanwhile")
        assert f"pid {other.pid}, restore" in caught.value.message
        assert other.end() == 0
    same(world.tree, TREE)


def test_list_does_not_wait(world: World) -> None:
    with busy(world):
        assert [entry.message for entry in opened(world).list()] == ["first"]


def test_status_does_not_wait_where_nothing_is_undecided(world: World) -> None:
    with busy(world):
        assert opened(world).status().entries == 1


def test_the_command_line_ends_with_45(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["-C", str(world.root), "--store", str(world.store), "-c", "store.lock_wait_seconds=0.2"]
    common += ["-c", "store.min_free_bytes=0"]
    with busy(world) as other:
        assert run([*common, "snapshot"]) == 45
        assert f"pid {other.pid}" in capsys.readouterr().err
        assert run([*common, "--json", "snapshot"]) == 45
        assert '"locked"' in capsys.readouterr().out


@pytest.mark.slow
def test_who_waits_learns_for_whom_once_and_then_goes_on(world: World) -> None:
    watching = Watching()
    with busy(world) as other:
        let_go = time.monotonic() + 1.5

        class Patient(Watching):
            def cancelled(self) -> bool:
                if time.monotonic() > let_go:
                    other.let_go()
                return False

        watching = Patient()
        taken = opened(world, watching, wait=30).snapshot("waited")
        assert other.end() == 0
    (holder,) = watching.holders
    assert re.fullmatch(rf"pid {other.pid}, snapshot, since \d{{4}}-\d\d-\d\dT[\d:+]+", holder)
    assert [entry.message for entry in world.workspace.list()] == ["waited", "other", "first"]
    assert world.workspace.list()[0].id == taken.id


@pytest.mark.requirement("K16")
def test_who_waits_can_give_up(world: World) -> None:
    with busy(world):
        began = time.monotonic()
        with pytest.raises(Cancelled):
            opened(world, Watching(patience=0.2), wait=30).snapshot("x")
        assert time.monotonic() - began < 5
    assert len(world.workspace.list()) == 1


@pytest.mark.parametrize("seam", ["capture.scanned", "capture.objects", "capture.indexed", "capture.before_ref"])
def test_a_killed_holder_leaves_no_lock(seam: str, world: World) -> None:
    with busy(world, seam=seam) as other:
        other.kill()
    opened(world, wait=0).snapshot("next")
    assert not scratch_files(world.store)
    fsck(world.store)


@pytest.mark.requirement("K16")
def test_git_processes_of_a_killed_holder_hold_no_lock(world: World, tmp_path: Path) -> None:
    """A hung git outlives its killed parent; it must not have inherited the lock."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    script = bin_ / "git"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *diff-files*) echo $$ > {tmp_path}/pid; exec sleep 60;; esac\n'
        f'PATH={os.environ["PATH"]} exec git "$@"\n'
    )
    script.chmod(0o755)

    def action() -> None:
        os.environ["PATH"] = f"{bin_}:{os.environ['PATH']}"
        world.workspace.snapshot("hangs")

    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            action()
        os._exit(0)
    try:
        until = time.monotonic() + 10
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.kill(int((tmp_path / "pid").read_text()), 0)
        opened(world, wait=0).snapshot("next")
    finally:
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_lock_file_that_says_nothing_or_nonsense_is_no_matter(world: World) -> None:
    for text in (b"", b"\xff\0\x1b[2J", b"x" * 100_000):
        (world.workspace.paths.lock).write_bytes(text)
        opened(world, wait=0).snapshot("next")


def test_what_the_lock_says_is_printable(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    with held(place):
        place.write_bytes(b"pid 1\x1b[2J\nnew line\xff")
        with pytest.raises(LockedError) as caught, held(place):
            pass
        assert caught.value.message.isprintable(), caught.value.message


def held(place: Path, *, shared: bool = False) -> AbstractContextManager[None]:
    return lock.hold(place, command="test", shared=shared, wait_seconds=0, progress=SILENT)


def test_a_lock_that_is_a_link_is_not_followed(world: World, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("victim\n")
    world.workspace.paths.lock.unlink()
    world.workspace.paths.lock.symlink_to(victim)
    with pytest.raises(StorageError):
        opened(world).snapshot("x")
    assert victim.read_text() == "victim\n"


def test_a_lock_that_was_moved_away_while_it_was_waited_for_is_none(tmp_path: Path) -> None:
    place = tmp_path / "workspace" / "lock"
    place.parent.mkdir()

    class Moving(Silent):
        def cancelled(self) -> bool:
            place.parent.rename(tmp_path / "moved")
            os.close(descriptor)
            return False

    with held(place):
        pass
    descriptor = os.open(place, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(StorageError, match="went away"), lock.hold(place, "test", False, 5.0, Moving()):
        pass


def test_the_lock_goes_with_an_error_too(world: World) -> None:
    for _ in range(2):
        with pytest.raises(Exception, match="unknown id"):
            opened(world, wait=0).restore("f" * 64)
    opened(world, wait=0).snapshot("next")


LEFTOVERS = [
    "workspaces/{name}/index.lock",
    "workspaces/{name}/scratch/object-" + "a" * 64,
    "workspaces/{name}/scratch/pack-1-deadbeef.pack",
    "workspaces/{name}/scratch/user-git/index",
    "workspaces/{name}/state.deadbeef.part",
    "workspaces/{name}/index.deadbeef.part",
    "objects.git/HEAD.lock",
    "objects.git/config.lock",
    "objects.git/packed-refs.lock",
    "objects.git/packed-refs.new",
    "objects.git/index.lock",
    "objects.git/gc.pid",
    "objects.git/objects/pack/tmp_pack_abcdef",
    "objects.git/objects/pack/tmp_idx_abcdef",
    "objects.git/objects/aa/tmp_obj_abcdef",
    "objects.git/refs/putback/{name}/" + "b" * 64 + ".lock",
    "store.json.deadbeef.part",
    "workspaces/{name}/workspace.json.deadbeef.part",
    "workspaces/{name}/history/README",
]


@pytest.mark.parametrize("place", LEFTOVERS)
def test_leftovers_in_the_store_are_no_obstacle(place: str, world: World) -> None:
    full = world.store / place.format(name=world.workspace.paths.name)
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_bytes(b"left over\n")
    tree = world.tree
    taken = opened(world, wait=0).snapshot("next")
    destroy(world.root)
    opened(world, wait=0).restore(taken.id)
    same(world.tree, tree)
    opened(world, wait=0).undo()
    assert len(world.workspace.list()) == 4


def test_a_torn_index_and_a_torn_state_are_no_obstacle(world: World) -> None:
    for file in (world.workspace.paths.index, world.workspace.paths.state):
        data = file.read_bytes()
        for torn in (b"", data[:-7], data[: len(data) // 2], b"x" * 50):
            file.write_bytes(torn)
            tree = world.tree
            taken = opened(world, wait=0).snapshot("next")
            destroy(world.root)
            opened(world, wait=0).restore(taken.id)
            same(world.tree, tree)


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "config.lock"])
def test_the_users_locks_are_no_obstacle_and_stay(name: str, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    make_repository(world.root, TREE)
    (world.root / ".git" / name).write_bytes(b"somebody is at work\n")
    with unmoved(world.root):
        opened(world, wait=0).snapshot("one")
        create(world.root, {"a": "changed\n"})
        opened(world, wait=0).restore("@1")
        opened(world, wait=0).undo()
    assert (world.root / ".git" / name).read_bytes() == b"somebody is at work\n"


@pytest.mark.requirement("K5")
def test_the_users_git_is_not_kept_waiting(tmp_path: Path) -> None:
    """While a capture is under way, the user's own git can take its index lock."""
    world = World(tmp_path / "world")
    make_repository(world.root, TREE)
    create(world.root, {"a": "changed\n"})
    for seam in ("capture.scanned", "capture.stored"):
        with busy(world, seam=seam):
            git(world.root, "add", "-A")
            git(world.root, "commit", "-q", "--allow-empty", "-m", "meanwhile")


# --- all at once -----------------------------------------------------------------------------------------------


def together(actions: list[Callable[[], object]]) -> list[tuple[int, str]]:
    """Run each action in a process of its own, all beginning at the same moment."""
    start = time.monotonic() + 0.15
    sources = []
    for action in actions:
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            code, said = 1, "killed"
            try:
                os.close(source)
                time.sleep(max(0.0, start - time.monotonic()))
                try:
                    action()
                    code, said = 0, ""
                except BaseException as error:
                    said = f"{type(error).__name__}: {error}"
                os.write(sink, said.encode("utf-8", "backslashreplace"))
            finally:
                os._exit(code)
        os.close(sink)
        sources.append((child, source))
    ends = []
    for child, source in sources:
        with open(source, "rb") as stream:
            said = stream.read().decode()
        ends.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said))
    return ends


def many(base: Path, number: int) -> list[Path]:
    roots = [base / f"tree{each}" for each in range(number)]
    for each, root in enumerate(roots):
        create(root, {"own": f"{each}\n", "shared": "the same for all\n"})
    return roots


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_workspaces_that_make_their_store_at_once(number: int, tmp_path: Path) -> None:
    """Each makes the store where it finds none. Parts of files once had names that two processes shared."""
    for attempt in range(6):
        base = tmp_path / str(attempt)
        roots = many(base, number)

        def action(root: Path, base: Path = base) -> None:
            Workspace.open(root, store=base / "store", settings=SETTINGS).snapshot("at once")

        ends = together([lambda root=root: action(root) for root in roots])
        assert ends == [(0, "")] * number
        for root in roots:
            workspace = Workspace.open(root, store=base / "store", settings=SETTINGS)
            assert [entry.message for entry in workspace.list()] == ["at once"]
        assert not scratch_files(base / "store")
        fsck(base / "store")


def test_parts_of_files_have_names_of_their_own(tmp_path: Path) -> None:
    """Many processes write one file at once: each write is whole, and none takes another's part away."""
    place = tmp_path / "file"
    texts = [str(number).encode() * 50_000 for number in range(4)]

    def write(text: bytes) -> None:
        for _ in range(20):
            write_file(place, text)

    ends = together([lambda text=text: write(text) for text in texts])
    assert ends == [(0, "")] * 4
    assert place.read_bytes() in texts and [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_one_workspace_first_captured_by_four_processes_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    world.become(TREE)
    actions = [lambda n=number: opened(world, wait=60).snapshot(f"{n}") for number in range(4)]
    assert together(actions) == [(0, "")] * 4
    assert sorted(entry.message for entry in world.workspace.list()) == ["0", "1", "2", "3"]
    assert [entry.seq for entry in world.workspace.list()] == [4, 3, 2, 1]
    fsck(world.store)


@pytest.mark.slow
@pytest.mark.requirement("K8")
def test_many_snapshots_from_four_processes_in_two_workspaces(tmp_path: Path) -> None:
    worlds = many(tmp_path, 2)
    store = tmp_path / "store"

    def action(number: int) -> None:
        root = worlds[number % 2]
        for turn in range(6):
            create(root, {f"by{number}": f"{turn}\n", f"d{turn}/by{number}": "x\n"})
            workspace = Workspace.open(root, store=store, settings=settings(lock_wait_seconds=120))
            workspace.snapshot(f"{number}/{turn}")

    ends = together([lambda number=number: action(number) for number in range(4)])
    assert ends == [(0, "")] * 4
    for each, root in enumerate(worlds):
        workspace = Workspace.open(root, store=store, settings=SETTINGS)
        entries = workspace.list()
        wanted = {f"{number}/{turn}" for number in (each, each + 2) for turn in range(6)}
        assert {entry.message for entry in entries} == wanted and len(entries) == 12
        assert [entry.seq for entry in entries] == list(range(12, 0, -1))
        for entry in entries:
            number, turn = entry.message.split("/")
            assert f"d{turn}/by{number}".encode() in workspace.files(entry.id)
    assert not scratch_files(store)
    fsck(store)


@pytest.mark.slow
def test_captures_and_restores_at_once(tmp_path: Path) -> None:
    """One restores to and fro while others capture the same tree: each capture is one of the two trees."""
    world = World(tmp_path / "world")
    for tree in ({"a": "1\n", "b": "1\n"}, {"a": "2\n", "b": "2\n", "c": "2\n"}):
        world.become(tree)
        world.workspace.snapshot("known")
    known = [world.workspace.files(entry.id) for entry in world.workspace.list()]
    ids = [entry.id for entry in world.workspace.list()]

    def restores() -> None:
        for number in range(6):
            opened(world, wait=60).restore(ids[1 - number % 2])

    def captures() -> None:
        for _ in range(6):
            opened(world, wait=60).snapshot("between")

    assert together([restores, captures, captures]) == [(0, "")] * 3
    for entry in world.workspace.list():
        if entry.message == "between":
            assert world.workspace.files(entry.id) in known
    fsck(world.store)


def test_a_command_in_another_process_says_who_it_is(world: World) -> None:
    """Through the real command line, as an agent would be in the way of a person."""
    arguments = [sys.executable, "-m", "putback", "-C", str(world.root), "--store", str(world.store)]
    arguments += ["-c", "store.min_free_bytes=0", "-c", "store.lock_wait_seconds=0.2", "snapshot"]
    with busy(world) as other:
        done = subprocess.run(arguments, capture_output=True, check=False, timeout=30)
        assert done.returncode == 45, done.stderr
        assert f"pid {other.pid}, snapshot".encode() in done.stderr
    status, said = in_child(lambda: opened(world, wait=0).snapshot("after"))
    assert status == 0, said


def test_the_store_is_locked_against_reclaiming_while_a_capture_runs(world: World) -> None:
    with busy(world):
        with pytest.raises(LockedError), held(world.store / "lock"):
            pass
        with held(world.store / "lock", shared=True):
            pass
