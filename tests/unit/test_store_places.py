"""Where a store may lie and in what condition it may be found: whatever it is, nothing is lost and all is said."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from putback.errors import IntegrityError, StorageError
from support.hermetic import OpenWorkspace
from support.trees import Link, create, read_back, same

READ_ONLY = ("open", "mkdir", "unlink", "rename", "replace", "link", "symlink", "chmod", "rmdir")


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o277, 0o777])
def test_nobody_else_reads_it_whatever_the_umask(
    mask: int, tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "1"})
    os.umask(mask)
    workspace = open_workspace(tree)
    first = workspace.snapshot()
    create(tree, {"a": "2"})
    workspace.restore(first.id)
    same(read_back(tree), {"a": "1"})
    for place in (store, *store.rglob("*")):
        assert place.lstat().st_mode & 0o077 == 0, place
        assert place.lstat().st_mode & 0o400, place


def test_it_may_be_on_another_file_system(tree: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == tree.stat().st_dev:
        pytest.skip("no other file system at hand")
    place = other / f"putback-test-{os.getpid()}"
    try:
        create(tree, {"a": "1", "b/c": "2", "link": Link("a")})
        before = read_back(tree)
        workspace = open_workspace(tree, store=place)
        first = workspace.snapshot()
        create(tree, {"a": "2"})
        (tree / "b" / "c").unlink()
        workspace.restore(first.id)
        same(read_back(tree), before)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_a_link_to_a_directory_is_that_directory(
    tree: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    create(tree, {"a": "1"})
    first = open_workspace(tree, store=tmp_path / "link").snapshot()
    assert [entry.id for entry in open_workspace(tree, store=tmp_path / "real").list()] == [first.id]


@pytest.mark.parametrize("kind", ["loop", "file", "below a file"])
def test_what_can_be_no_store_is_named(
    kind: str, tree: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "1"})
    place = tmp_path / "place"
    if kind == "loop":
        place.symlink_to("place")
    else:
        place.write_text("somebody's\n")
    chosen = place / "x" if kind == "below a file" else place
    with pytest.raises(StorageError, match="store") as caught:
        open_workspace(tree, store=chosen).snapshot()
    assert str(chosen) in caught.value.message
    assert place.is_symlink() or place.read_text() == "somebody's\n"


def test_one_of_a_newer_putback_is_left_alone(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1"})
    open_workspace(tree).snapshot()
    marker = store / "store.json"
    record = msgspec.json.decode(marker.read_bytes())
    marker.write_bytes(msgspec.json.encode(record | {"version": record["version"] + 1}))
    before = read_back(store)
    for act in (lambda w: w.snapshot(), lambda w: w.list(), lambda w: w.restore("@1"), lambda w: w.status()):
        with pytest.raises(IntegrityError, match="version 2, this putback reads up to 1") as caught:
            act(open_workspace(tree))
        assert "newer putback" in (caught.value.hint or "")
    same(read_back(store), before)


@pytest.mark.parametrize("left", ["store.json", "objects.git", "objects.git/config", "objects.git/HEAD", "lock"])
def test_whatever_is_missing_of_it_is_made(
    left: str, tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    """A first run that was cut short leaves any part of the layout."""
    create(tree, {"a": "1"})
    open_workspace(tree).snapshot()
    for place in sorted(store.iterdir()):
        if place.name != left.partition("/")[0]:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    if "/" in left:
        for place in (store / "objects.git").iterdir():
            if place != store / left:
                shutil.rmtree(place) if place.is_dir() else place.unlink()
    first = open_workspace(tree).snapshot()
    create(tree, {"a": "2"})
    open_workspace(tree).restore(first.id)
    same(read_back(tree), {"a": "1"})


def test_what_reads_works_where_nothing_can_be_written(
    tree: Path, store: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, {"a": "1"})
    workspace = open_workspace(tree)
    first = workspace.snapshot("one")
    create(tree, {"a": "2"})
    workspace.snapshot("two")
    create(tree, {"a": "3"})
    held = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    _make_read_only(store, monkeypatch)
    workspace = open_workspace(tree)
    assert [entry.message for entry in workspace.list()] == ["two", "one"]
    assert workspace.show("@2").entry == workspace.list()[1]
    assert list(workspace.files(first.id)) == [b"a"]
    assert [change.path for change in workspace.diff("@2..@1").changes] == [b"a"]
    assert workspace.status().last is not None
    for act in (
        lambda w: w.snapshot(),
        lambda w: w.restore("@1"),
        lambda w: w.diff("@1"),
        lambda w: w.run(["true"]),
    ):
        with pytest.raises(StorageError, match="Read-only file system"):
            act(open_workspace(tree))
    same(read_back(tree), {"a": "3"})
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == held


def test_a_clock_that_goes_backwards_changes_no_order(
    tree: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = open_workspace(tree)
    now, clock = time.time_ns(), [0]
    monkeypatch.setattr(time, "time_ns", lambda: now + clock[0])
    for number, day in enumerate((0, -400, 3, -20_000)):
        clock[0] = day * 86_400 * 10**9
        create(tree, {"a": f"{number}"})
        workspace.snapshot(f"{number}")
    assert [entry.message for entry in workspace.list()] == ["3", "2", "1", "0"]
    workspace.restore("@3")
    same(read_back(tree), {"a": "1"})
    workspace.undo()
    same(read_back(tree), {"a": "3"})


def _make_read_only(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse what a file system refuses that is mounted read-only."""
    below = os.fsencode(place)

    def inside(path: object) -> bool:
        return not isinstance(path, int) and os.fsencode(path).startswith(below)  # type: ignore[arg-type]

    def refusing(name: str) -> None:
        true = getattr(os, name)

        def call(path: object, *args: object, **named: object) -> object:
            writes = name != "open" or bool(args and int(str(args[0])) & (os.O_RDWR | os.O_WRONLY | os.O_CREAT))
            if writes and inside(path):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            return true(path, *args, **named)

        monkeypatch.setattr(os, name, call)
        for supporting in ("supports_dir_fd", "supports_follow_symlinks", "supports_fd"):
            known = getattr(os, supporting)
            if true in known:
                monkeypatch.setattr(os, supporting, known | {call})

    for name in READ_ONLY:
        refusing(name)
