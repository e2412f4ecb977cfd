"""The capture after a restore says what a scan of the whole tree would say, whether or not there was one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from crash.killing import World, fsck
from putback import seams
from putback.ops import follow, restore
from putback.ops.follow import Followed
from putback.store.captures import TreeState
from support.trees import Dir, File, Link, create

OLD = {
    "changed": "old\n",
    "mode": File(b"m\n", 0o640),
    "setuid": File(b"s\n", 0o755),
    "gone/deep/x": "x\n",
    "gone/empty": Dir(0o750),
    "relinked": Link("same"),
    "file-or-link": "file\n",
    "kept/y": "y\n",
    ".gitignore": "*.o\nlate/\n",
    "kept/built.o": "ignored\n",
    "sub/.gitignore": "*.tmp\n",
}
NEW = {
    **{path: OLD[path] for path in ("kept/y", ".gitignore", "kept/built.o", "sub/.gitignore")},
    "changed": "new\n",
    "mode": File(b"m\n", 0o600),
    "setuid": File(b"s\n", 0o700),
    "relinked": Link("changed"),
    "file-or-link": Link("changed"),
    "extra/y": "y\n",
    "extra/z": "z\n",
}
SCANNED: dict[str, object] = {
    "rules are put back": {".gitignore": "*.tmp\n", "sub/scratch.tmp": "t\n"},
    "a file where a directory was": {"kept": "no directory\n"},
    "a directory where a file was": {"changed/inner": "i\n"},
    "an ignored file goes": {"gone/deep/x": "x\n", ".gitignore": "nothing\n"},
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "world")
    world.become(OLD)
    world.workspace.snapshot("old")
    return world


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each restore was followed, as against a scan."""
    seen: list[bool] = []

    def spy(capturer: object, known: Followed) -> TreeState | None:
        state = follow.follow(capturer, known)
        seen.append(state is not None)
        return state

    monkeypatch.setattr(restore, "follow", spy)
    return seen


def same_as_a_scan(world: World, after: str) -> None:
    """A snapshot with nothing to go by but the tree is like the capture with this id."""
    paths = world.workspace.paths
    for cache in (paths.index, paths.state):
        cache.unlink()
    taken = world.workspace.snapshot("scanned anew")
    parts = {}
    for oid in (after, taken.id):
        listed = subprocess.run(
            ["git", f"--git-dir={world.store}/objects.git", "ls-tree", oid], capture_output=True, check=True
        ).stdout.decode()
        parts[oid] = {line.split()[3]: line.split()[2] for line in listed.splitlines()}
    for name in ("files", "directories", "modes", "ignored"):
        assert parts[after][name] == parts[taken.id][name], name
    record = world.workspace.show(after).capture
    for field in ("files", "bytes", "ignored", "not_covered", "nested_repositories", "privileged", "repository"):
        assert getattr(record, field) == getattr(taken.capture, field), field
    fsck(world.store)


@pytest.mark.parametrize("settled", [False, True])
def test_an_ordinary_restore_is_followed(world: World, followed: list[bool], settled: bool) -> None:
    world.become(NEW)
    if settled:
        for path in world.root.rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
        time.sleep(0.05)
        world.workspace.snapshot("settled")
    done = world.workspace.restore("@2" if settled else "@1", exact=True)
    assert followed == [True] and done.entry is not None
    same_as_a_scan(world, done.entry.after)


def test_so_are_its_undo_and_redo(world: World, followed: list[bool]) -> None:
    world.become(NEW)
    world.workspace.restore("@1", exact=True)
    undone, redone = world.workspace.undo(), world.workspace.redo()
    assert followed == [True] * 3
    assert undone.entry is not None and redone.entry is not None
    same_as_a_scan(world, redone.entry.after)


@pytest.mark.parametrize("change", SCANNED.values(), ids=SCANNED)
def test_what_only_a_scan_can_tell_is_scanned(
    world: World, followed: list[bool], change: dict[str, object]
) -> None:
    for path in change:
        if (world.root / path).is_dir():
            shutil.rmtree(world.root / path)
        for above in (world.root / path).parents:
            if above.is_file():
                above.unlink()
        (world.root / path).unlink(missing_ok=True)
    create(world.root, change)
    done = world.workspace.restore("@1", exact=True)
    assert followed == [False] and done.entry is not None
    same_as_a_scan(world, done.entry.after)


def test_a_file_that_is_ignored_now_is_scanned(world: World, followed: list[bool]) -> None:
    """It was captured before the rule came; it comes back, and the capture holds it because it was asked for."""
    create(world.root, {"late.o": "l\n"})
    (world.root / ".gitignore").write_text("late/\n")
    world.workspace.snapshot("not ignored")
    (world.root / "late.o").unlink()
    (world.root / ".gitignore").write_text(OLD[".gitignore"])
    world.workspace.snapshot("ignored")
    done = world.workspace.restore("@2", paths=[world.root / "late.o"])
    assert followed == [False] and done.entry is not None and done.applied == 1
    assert b"late.o" in world.workspace.files(done.entry.after)


@pytest.mark.parametrize("seam", ["restore.published", "capture.objects"])
def test_who_writes_meanwhile_is_seen_by_the_next_capture(world: World, followed: list[bool], seam: str) -> None:
    world.become(NEW)
    world.workspace.snapshot("new")
    (world.root / "changed").write_text("newer\n")
    reached: list[str] = []

    def observer(name: str) -> None:
        reached.append(name)
        if name == seam and "restore.published" in reached:
            (world.root / "kept/y").write_text("meanwhile\n")
            (world.root / "kept/new").write_text("meanwhile, too\n")

    seams.observe(observer)
    try:
        world.workspace.restore("@1")
    finally:
        seams.observe(None)
    assert followed == [True]
    held = world.workspace.files(world.workspace.snapshot("next").id)
    assert b"kept/new" in held
    assert held[b"kept/y"].digest != held[b"changed"].digest
    (world.root / "kept/y").write_text("lost\n")
    world.workspace.restore("@1")
    assert (world.root / "kept/y").read_text() == "meanwhile\n"


def test_what_is_written_to_a_target_after_it_was_read_back_is_not_in_the_capture(
    world: World, followed: list[bool]
) -> None:
    world.become(NEW)
    published = False

    def observer(name: str) -> None:
        nonlocal published
        published = published or name == "restore.published"
        if published and name == "capture.objects":
            (world.root / "changed").write_text("mine\n")

    seams.observe(observer)
    try:
        done = world.workspace.restore("@1")
    finally:
        seams.observe(None)
    assert followed == [True] and done.entry is not None
    assert world.workspace.files(done.entry.after)[b"changed"] == world.workspace.files("@1")[b"changed"]
    assert world.workspace.diff("@1").changes[0].path == b"changed"
