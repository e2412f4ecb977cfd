"""Somebody swaps files under our hands, at every seam: nothing outside is touched, nothing is lost unheld."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from crash.killing import World, fsck, reached, staged_files, undecided
from putback import seams
from putback.errors import PutbackError
from putback.git.objectid import object_id
from putback.ops.recover import Choice
from putback.ops.restore import Restored
from support.trees import Dir, File, Link, create, destroy, normal, read_back, same

OLD = {
    "d/changed": "old\n",
    "d/gone": "old gone\n",
    "d/mode": File(b"m\n", 0o755),
    "e/link": Link("../d/changed"),
    "kept": "kept\n",
    "to-dir/inner": "inner\n",
    "to-file": "a file again\n",
    "closed": Dir(0o555),
    "closed/x": "x\n",
}
NEW = {
    "d/changed": "new\n",
    "d/extra": "extra\n",
    "d/mode": File(b"m\n", 0o640),
    "e/link": Link("../kept"),
    "kept": "kept\n",
    "to-dir": "a file\n",
    "to-file/child": "child\n",
    "closed": Dir(0o555),
    "closed/x": "other\n",
    "away": Dir(0o500),
    "away/x": "away\n",
}
TARGETS = ("d/changed", "d/gone", "d/mode", "d/extra", "e/link", "to-dir", "to-file/child", "closed/x", "away/x")
VICTIMS = dict.fromkeys(("changed", "gone", "mode", "extra", "link", "x", "child", "victim"), "victim\n")
VICTIM = object_id("blob", b"victim\n").hex()

# Here the last look at a target lies behind us. What is swapped in now is what `ops.apply` does not guarantee.
TOO_LATE = ("restore.put", "restore.remove")
RESTORE_SEAMS = {
    *("capture.scanned", "capture.stored", "capture.objects", "capture.indexed"),
    *("capture.before_ref", "capture.after_ref"),
    *("restore.safe", "restore.started", "restore.stage", "restore.staged", "restore.publishing"),
    *("restore.open_directory", "restore.before_put", "restore.put", "restore.make_directory"),
    *("restore.before_remove", "restore.remove", "restore.published", "restore.recorded"),
}


def ready_to_restore(base: Path) -> World:
    world = World(base)
    for tree in (OLD, NEW):
        world.become(tree)
        world.workspace.snapshot("taken")
    create(world.base / "outside", VICTIMS)
    return world


def ready_to_snapshot(base: Path) -> World:
    world = World(base)
    world.become(OLD)
    world.workspace.snapshot("first")
    world.become(NEW)
    create(world.base / "outside", VICTIMS)
    return world


OPERATIONS = {
    "restore": (ready_to_restore, lambda world: world.workspace.restore("@2")),
    "snapshot": (ready_to_snapshot, lambda world: world.workspace.snapshot("swapped")),
}


@cache
def all_seams(operation: str) -> tuple[str, ...]:
    make, action = OPERATIONS[operation]
    with tempfile.TemporaryDirectory() as base:
        world = make(Path(base) / "world")
        return tuple(reached(lambda: action(world)))


def some_seams(operation: str) -> list[tuple[int, str]]:
    """The first and the last time that each seam is reached; with the profile `long` one in the middle, too."""
    long = hypothesis.settings.default == hypothesis.settings.get_profile("long")
    names = all_seams(operation)
    chosen: set[int] = set()
    for name in names:
        places = [number for number, other in enumerate(names) if other == name]
        chosen |= {places[0], places[-1], *([places[len(places) // 2]] if long else [])}
    return [(number, names[number]) for number in sorted(chosen)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for operation in OPERATIONS:
        if f"at_{operation}" in metafunc.fixturenames:
            found = some_seams(operation)
            metafunc.parametrize(f"at_{operation}", found, ids=[f"{number}-{name}" for number, name in found])


# --- what somebody does ----------------------------------------------------------------------------------------


def drift(path: str) -> bytes:
    return f"drifted {path}\n".encode()


def clear(full: Path) -> None:
    if full.is_dir() and not full.is_symlink():
        shutil.rmtree(full)
    elif os.path.lexists(full):
        full.unlink()


def each_target(world: World, put: Callable[[Path, str], None]) -> None:
    for path in TARGETS:
        full = world.root / path
        if full.parent.is_dir() and not full.parent.is_symlink():
            put(full, path)


def other_content(world: World) -> None:
    """In place where that can be done: the inode stays."""

    def put(full: Path, path: str) -> None:
        if not full.is_file() or full.is_symlink():
            clear(full)
        full.write_bytes(drift(path))

    each_target(world, put)


def other_file(world: World) -> None:
    """Another file renamed there, of the same time."""

    def put(full: Path, path: str) -> None:
        before = full.lstat() if os.path.lexists(full) else None
        new = full.with_name("on-its-way")
        new.write_bytes(drift(path))
        if before is not None:
            os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
        if full.is_dir() and not full.is_symlink():
            shutil.rmtree(full)
        new.rename(full)

    each_target(world, put)


def link_outside(world: World) -> None:
    def put(full: Path, path: str) -> None:
        clear(full)
        full.symlink_to(world.base / "outside" / "victim")

    each_target(world, put)


def link_to_directory_outside(world: World) -> None:
    def put(full: Path, path: str) -> None:
        clear(full)
        full.symlink_to(world.base / "outside")

    each_target(world, put)


def parent_outside(world: World) -> None:
    for name in ("d", "e", "to-file", "to-dir", "closed", "away"):
        full = world.root / name
        if full.is_dir() and not full.is_symlink():
            full.rename(full.with_name(f"moved-{name}"))
            full.symlink_to(world.base / "outside")


def pipe(world: World) -> None:
    def put(full: Path, path: str) -> None:
        clear(full)
        os.mkfifo(full)

    each_target(world, put)


def directory(world: World) -> None:
    def put(full: Path, path: str) -> None:
        clear(full)
        full.mkdir()
        (full / "drifted").write_bytes(drift(path))

    each_target(world, put)


def staged_content(world: World) -> None:
    for name in staged_files(world.root):
        full = world.root / name
        if full.is_file() and not full.is_symlink():
            full.write_bytes(b"evil\n")


def staged_link(world: World) -> None:
    for name in staged_files(world.root):
        clear(world.root / name)
        (world.root / name).symlink_to(world.base / "outside" / "victim")


Swap = Callable[[World], None]
SWAPS: list[Swap] = [
    other_content,
    other_file,
    link_outside,
    link_to_directory_outside,
    parent_outside,
    pipe,
    directory,
]


@contextmanager
def swapping(world: World, number: int, swap: Swap) -> Iterator[None]:
    """Swap when the seam with this number is reached; outside must be the same after it all."""
    left = number

    def observer(_: str) -> None:
        nonlocal left
        if left == 0:
            swap(world)
        left -= 1

    before = outside(world)
    seams.observe(observer)
    try:
        yield
    finally:
        seams.observe(None)
    assert left < 0, "the seam was not reached"
    assert outside(world) == before, "something outside the workspace has changed"


def outside(world: World) -> object:
    place = world.base / "outside"
    stats = {path.name: path.lstat() for path in (place, *place.iterdir())}
    return read_back(place), {
        name: (found.st_mode, found.st_mtime_ns, found.st_ctime_ns) for name, found in stats.items()
    }


# --- what must hold --------------------------------------------------------------------------------------------


def git(world: World, *arguments: str) -> str:
    return subprocess.run(
        ["git", f"--git-dir={world.store}/objects.git", *arguments],
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"},
    ).stdout.decode()


def held(world: World) -> set[str]:
    """The ids of all objects that some capture holds."""
    return {line[:64] for line in git(world, "rev-list", "--objects", "--all").splitlines()}


def on_disk(world: World) -> dict[str, bytes]:
    return {
        str(path.relative_to(world.root)): path.read_bytes()
        for path in world.root.rglob("*")
        if stat.S_ISREG(path.lstat().st_mode)
    }


def lost(world: World, contents: set[bytes]) -> set[bytes]:
    """Those of the contents that neither the workspace nor a capture has."""
    missing = contents - set(on_disk(world).values())
    if not missing:
        return set()
    kept = held(world)
    return {content for content in missing if object_id("blob", content).hex() not in kept}


def goes_on(world: World) -> None:
    """The next commands work; afterwards nothing of ours is left in the workspace."""
    if undecided(world) is not None:
        world.workspace.recover(Choice.KEEP)
    world.workspace.snapshot("goes on")
    assert not [name for name in staged_files(world.root) if not name.startswith("moved-")]


def attempt(world: World) -> Restored | PutbackError:
    try:
        return world.workspace.restore("@2")
    except PutbackError as error:
        return error


def told_the_truth(world: World, done: Restored) -> None:
    """Whatever is said to have gone back is there as the snapshot has it."""
    tree, goal = read_back(world.root), normal(OLD)
    for outcome in done.outcomes:
        if outcome.status.applied:
            path = outcome.path.encode()
            assert tree.get(path) == goal.get(path), f"{outcome.path} is said to be {outcome.status}"


@pytest.mark.requirement("K11", "K12", "D9")
@pytest.mark.parametrize("swap", SWAPS)
def test_restore_over_what_was_swapped(swap: Swap, at_restore: tuple[int, str], tmp_path: Path) -> None:
    number, name = at_restore
    world = ready_to_restore(tmp_path / "world")
    made: set[bytes] = set()

    def swap_and_note(_: World) -> None:
        swap(world)
        made.update(content for content in on_disk(world).values() if content.startswith(b"drifted"))

    with swapping(world, number, swap_and_note):
        done = attempt(world)
    gone = lost(world, made)
    assert len(gone) <= (name in TOO_LATE), f"lost: {gone}"
    assert not lost(world, {b"new\n", b"extra\n", b"child\n", b"away\n", b"other\n"})
    if isinstance(done, Restored):
        after_the_last_look = all_seams("restore").index("restore.published") < number
        if not after_the_last_look:
            told_the_truth(world, done)
        if made and name.startswith("restore.") and not after_the_last_look:
            assert done.failed or lost(world, made) or set(on_disk(world).values()).isdisjoint(made)
    else:
        assert done.message and (undecided(world) is None or name.startswith("capture."))
    assert VICTIM not in held(world), "a capture holds what lies outside"
    goes_on(world)
    assert VICTIM not in held(world), "a capture holds what lies outside"


@pytest.mark.parametrize("swap", [staged_content, staged_link])
def test_restore_of_what_was_staged_and_swapped(swap: Swap, at_restore: tuple[int, str], tmp_path: Path) -> None:
    number, name = at_restore
    if name.startswith("capture."):
        pytest.skip("nothing is staged then")
    world = ready_to_restore(tmp_path / "world")
    staged: list[str] = []

    def swap_and_note(_: World) -> None:
        staged.extend(staged_files(world.root))
        swap(world)

    with swapping(world, number, swap_and_note):
        done = attempt(world)
    assert not lost(world, {b"new\n", b"extra\n", b"child\n", b"away\n", b"other\n"})
    if isinstance(done, Restored):
        told_the_truth(world, done)
        assert done.failed or not staged
    goes_on(world)
    assert VICTIM not in held(world)


def test_the_seams_of_a_restore_are_those_that_we_know() -> None:
    assert set(all_seams("restore")) == RESTORE_SEAMS


@pytest.mark.requirement("K10")
@pytest.mark.parametrize("swap", SWAPS)
def test_snapshot_of_what_was_swapped(swap: Swap, at_snapshot: tuple[int, str], tmp_path: Path) -> None:
    """The one under way holds what was there at some time, or says so; the next holds what is there, exactly."""
    number, _ = at_snapshot
    world = ready_to_snapshot(tmp_path / "world")
    with swapping(world, number, swap):
        try:
            first = world.workspace.snapshot("swapped")
        except PutbackError:
            first = None
    tree = world.tree
    taken = world.workspace.snapshot("after")
    assert VICTIM not in held(world), "a capture holds what lies outside"
    same(world.tree, tree)
    special = {item.raw for item in taken.capture.not_covered}
    covered = {path: entry for path, entry in tree.items() if path not in special}
    destroy(world.root)
    world.workspace.restore(taken.id)
    same(world.tree, covered)
    if first is not None:
        names = set(world.workspace.files(first.id)) | {item.raw for item in first.capture.not_covered}
        contents = {entry.content for entry in (*normal(NEW).values(), *tree.values()) if isinstance(entry, File)}
        destroy(world.root)
        world.workspace.restore(first.id, exact=True)
        assert names
        for path, entry in world.tree.items():
            assert not isinstance(entry, File) or entry.content in contents, f"{path!r} was never {entry}"


# --- while a file is read --------------------------------------------------------------------------------------

SMALL, LARGE = b"s" * 70_000, b"l" * (9 << 20)
Change = Callable[[Path], None]


def grows(full: Path) -> None:
    with full.open("ab") as file:
        file.write(b"more\n")


def shrinks(full: Path) -> None:
    os.truncate(full, full.stat().st_size // 2)


def is_written_in_place(full: Path) -> None:
    size = full.stat().st_size
    with full.open("r+b") as file:
        file.seek(size - 7)
        file.write(b"%07d" % (os.stat(full).st_mtime_ns % 10**7))


def vanishes(full: Path) -> None:
    full.unlink(missing_ok=True)


def is_replaced(full: Path) -> None:
    new = full.with_name("new")
    new.write_bytes(full.read_bytes()[::-1] + b"replaced\n")
    new.rename(full)


def becomes_runnable(full: Path) -> None:
    full.chmod(full.stat().st_mode ^ 0o100)


def becomes_a_link(full: Path) -> None:
    clear(full)
    full.symlink_to(full.parent.parent / "outside" / "victim")


def becomes_a_pipe(full: Path) -> None:
    clear(full)
    os.mkfifo(full)


def becomes_a_directory(full: Path) -> None:
    clear(full)
    full.mkdir(exist_ok=True)


CHANGES: list[Change] = [
    grows,
    shrinks,
    is_written_in_place,
    vanishes,
    is_replaced,
    becomes_runnable,
    becomes_a_link,
    becomes_a_pipe,
    becomes_a_directory,
]


class Reading:
    """Changes a file in the middle of being read: `skip` reads later, up to `times` times. Reads are short."""

    def __init__(self, full: Path, change: Change, times: int, skip: int = 0) -> None:
        self.full, self.change, self.left, self.skip = full, change, times, skip
        self.contents: set[bytes] = set()
        self._inodes: set[int] = set()
        self._busy = False
        self.note()

    def note(self) -> None:
        if self.full.is_file() and not self.full.is_symlink():
            self.contents.add(self.full.read_bytes())
            self._inodes.add(self.full.stat().st_ino)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("read", "pread"):
            patch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, true: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(fd: int, most: int, *rest: int) -> bytes:
            ours = not self._busy and os.fstat(fd).st_ino in self._inodes
            data = true(fd, max(1, most // 2) if ours else most, *rest)
            if ours and self.skip > 0:
                self.skip -= 1
            elif ours and self.left > 0:
                self._busy = True
                self.left -= 1
                if os.path.lexists(self.full):
                    self.change(self.full)
                self.note()
                self._busy = False
            return data

        return call


@pytest.mark.requirement("K10")
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "always"])
@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("change", CHANGES)
def test_file_that_does_not_hold_still(
    change: Change, content: bytes, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "world")
    world.become({"moving": content, "still": "still\n"})
    create(world.base / "outside", VICTIMS)
    before = outside(world)
    reading = Reading(world.root / "moving", change, times)
    with monkeypatch.context() as patch:
        reading.install(patch)
        taken = world.workspace.snapshot("moving")
    assert reading.left < times, "the file was not read"
    node = world.workspace.files(taken.id).get(b"moving")
    reasons = {item.path: str(item.reason) for item in taken.capture.not_covered}
    if node is None:
        gone = {vanishes: None, becomes_a_directory: None, becomes_a_pipe: "special_file"}
        assert reasons.get("moving") == gone.get(change, "changed_while_read")
    elif str(node.kind) == "file":
        assert node.digest in {object_id("blob", each).hex() for each in reading.contents}, (
            "a mixture was captured"
        )
        assert "moving" not in reasons
    assert b"still" in world.workspace.files(taken.id)

    tree = world.tree
    settled = world.workspace.snapshot("settled")
    destroy(world.root)
    world.workspace.restore(settled.id)
    same(
        world.tree,
        {path: entry for path, entry in tree.items() if change is not becomes_a_pipe or path != b"moving"},
    )
    assert outside(world) == before and VICTIM not in held(world)


@pytest.mark.requirement("K10")
@pytest.mark.parametrize("skip", [2, 30, 45, 52])
@pytest.mark.parametrize("change", [grows, shrinks, is_written_in_place, is_replaced])
def test_large_file_that_changes_while_it_is_hashed_or_stored(
    change: Change, skip: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read twice: once for its id, once for the store."""
    world = World(tmp_path / "world")
    world.become({"moving": LARGE})
    reading = Reading(world.root / "moving", change, 1, skip)
    with monkeypatch.context() as patch:
        reading.install(patch)
        taken = world.workspace.snapshot("moving")
    assert reading.left == 0, "the file was not read"
    fsck(world.store)
    node = world.workspace.files(taken.id).get(b"moving")
    assert node is not None and node.digest in {object_id("blob", each).hex() for each in reading.contents}
    (world.root / "moving").unlink()
    world.workspace.restore(taken.id)
    assert (world.root / "moving").read_bytes() in reading.contents


@pytest.mark.parametrize("change", [grows, shrinks, is_replaced, vanishes, becomes_a_pipe, becomes_a_link])
def test_file_that_moves_while_it_is_held_for_a_restore(
    change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ignored file stands where a restore writes: it is captured first, or the restore ends before it."""
    world = World(tmp_path / "world")
    world.become({"moving": "captured\n"})
    world.workspace.snapshot("not ignored")
    world.become({"moving": SMALL, ".gitignore": "moving\n"})
    create(world.base / "outside", VICTIMS)
    before = outside(world)
    reading = Reading(world.root / "moving", change, 1000)
    with monkeypatch.context() as patch:
        reading.install(patch)
        done = _restore_oldest(world)
    standing = world.root / "moving"
    if isinstance(done, Restored) and standing.is_file() and standing.read_bytes() == b"captured\n":
        kept = held(world)
        last = [each for each in reading.contents if object_id("blob", each).hex() in kept]
        assert last, "nothing of the file that was replaced is held"
    assert outside(world) == before
    goes_on(world)


def _restore_oldest(world: World) -> Restored | PutbackError:
    try:
        return world.workspace.restore(world.workspace.list()[-1].id)
    except PutbackError as error:
        return error
