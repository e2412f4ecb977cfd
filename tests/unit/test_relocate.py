"""A workspace that was moved: its history goes with it where a person says so, and nothing is guessed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crash.killing import kill_at, reached
from putback.cli.main import run as putback
from putback.errors import OutOfOrder, UnknownId, UnknownStateError, UsageError
from putback.fs import lock
from putback.runs.verify import Result
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, git
from support.trees import create, read_back, same
from support.turns import Turning


@pytest.fixture
def moved(tmp_path: Path, open_workspace: OpenWorkspace) -> Workspace:
    """The workspace at `old` had a snapshot, a forgotten path, a run and a restore; then it was moved to `new`."""
    old = tmp_path / "old"
    create(old, {"a": "1\n", "b": "b\n", "secret": "s\n"})
    workspace = open_workspace(old)
    first = workspace.snapshot("first")
    workspace.upkeep.forget(workspace.paths_below(["secret"]))
    (old / "secret").unlink()
    workspace.run(("sh", "-c", "echo run >> a; mkdir d; echo made > d/made"), snapshot=True)
    (tmp_path / "first").write_text(first.id)
    old.rename(tmp_path / "new")
    return open_workspace(tmp_path / "new")


def test_everything_goes_on_as_before(moved: Workspace, tmp_path: Path) -> None:
    first, after = (tmp_path / "first").read_text(), read_back(moved.root)
    assert moved.list() == [] and moved.status().moved_from == (bytes(tmp_path / "old"),)
    with pytest.raises(UnknownId):
        moved.show(first)
    done = moved.upkeep.relocate(bytes(tmp_path / "old"))
    assert (done.old_root.path, done.root.path) == (str(tmp_path / "old"), str(tmp_path / "new"))
    assert (done.entries, done.joined) == (2, 0)
    run, snapshot = moved.list()
    assert moved.show(first).entry == moved.show("@2").entry == snapshot, "the alias moved, too"
    assert (
        moved.status().moved_from == ()
        and not moved.paths.store.workspace(bytes(tmp_path / "old")).folder.exists()
    )
    assert all(check.result is not Result.FAIL for check in moved.runs.verify(run.id))
    checked = moved.upkeep.check(read_share=1.0)
    assert checked.sound, checked
    assert moved.restore(run.id).applied == 3, "its documents say where it was then"
    same(read_back(moved.root), {"a": "1\n", "b": "b\n"})
    moved.undo()
    same(read_back(moved.root), after)
    moved.redo()
    moved.undo()
    assert moved.undo(run.id).applied == 3
    moved.restore(first, exact=True)
    same(read_back(moved.root), {"a": "1\n", "b": "b\n"})
    moved.snapshot("at the new place")
    # And once more: where it was first is still known.
    moved.root.rename(tmp_path / "newer")
    again = Workspace.open(tmp_path / "newer", store=moved.paths.store.root, settings=moved.settings)
    again.upkeep.relocate(bytes(tmp_path / "new"))
    create(again.root, {"a": "1\nrun\n", "d/made": "made\n"})
    assert again.restore(run.id).applied == 3
    again.restore(first, exact=True)
    same(read_back(again.root), {"a": "1\n", "b": "b\n"})


def test_documents_of_another_tree_are_still_refused(moved: Workspace, tmp_path: Path) -> None:
    """The old root is trusted for runs of the history, and for no documents that come along."""
    moved.upkeep.relocate(bytes(tmp_path / "old"))
    run = moved.list()[0].id
    shutil.copytree(moved.paths.runs / run, tmp_path / "documents")
    with pytest.raises(UsageError, match="this run was of"):
        moved.restore_documents(tmp_path / "documents")


def test_what_is_dropped_just_before_it_is_attached_is_unknown(
    moved: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a workspace that is being dropped is waited for, and is nobody's lock any more then."""
    true_hold, old = lock.hold, moved.paths.store.workspace(bytes(tmp_path / "old"))

    @contextmanager
    def hold(path: Path, *how: Any) -> Iterator[None]:
        with true_hold(path, *how):
            if path == old.lock:
                shutil.rmtree(old.folder)
            yield

    monkeypatch.setattr(lock, "hold", hold)
    with pytest.raises(UsageError, match="the store has no history of"):
        moved.upkeep.relocate(bytes(tmp_path / "old"))
    moved.snapshot("goes on")


def test_a_copy_is_another_workspace(tree: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1\n"})
    open_workspace(tree).snapshot("first")
    shutil.copytree(tree, tmp_path / "copy" / "tree")
    copy = open_workspace(tmp_path / "copy" / "tree")
    assert copy.status().moved_from == (), "it is still there"
    with pytest.raises(UsageError, match="is still at") as caught:
        copy.upkeep.relocate(bytes(tree))
    assert "a copy has a history of its own" in (caught.value.hint or "")
    assert len(open_workspace(tree).list()) == 1 and copy.list() == []


def test_candidates_are_named_the_likeliest_first(tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    for name in ("one/app", "two/app", "three/other"):
        create(tmp_path / name, {"a": f"{name}\n"})
        open_workspace(tmp_path / name).snapshot(name)
    (tmp_path / "three/other").rename(tmp_path / "app")
    shutil.rmtree(tmp_path / "one/app")
    workspace = open_workspace(tmp_path / "app")
    assert workspace.status().moved_from == (bytes(tmp_path / "three/other"), bytes(tmp_path / "one/app"))
    with pytest.raises(UsageError, match="the store has no history of") as caught:
        workspace.upkeep.relocate(bytes(tmp_path / "nowhere"))
    assert str(tmp_path / "three/other") in (caught.value.hint or "")
    with pytest.raises(UsageError, match="already; nothing was changed"):
        workspace.upkeep.relocate(bytes(tmp_path / "app"))
    # A link that leads here from the old place is not the directory that was there.
    (tmp_path / "three/other").symlink_to(tmp_path / "app")
    assert workspace.upkeep.relocate(bytes(tmp_path / "three/other")).entries == 1
    # A snapshot at the place of another one's history begins a new one, and guesses nothing.
    create(tmp_path / "one/app", {"a": "new\n"})
    assert len(open_workspace(tmp_path / "one/app").list()) == 1


@pytest.mark.slow
def test_what_was_under_way_at_the_old_place_comes_first(tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    old = tmp_path / "old"
    create(old, {"a": "1\n"})
    workspace = open_workspace(old)
    first = workspace.snapshot("first").id

    def restore() -> object:
        (old / "a").write_text("2\n")
        return workspace.restore(first)

    kill_at(reached(restore).index("restore.publishing"), restore)
    old.rename(tmp_path / "new")
    new = open_workspace(tmp_path / "new")
    with pytest.raises(UnknownStateError, match="cut short before the workspace was moved") as caught:
        new.upkeep.relocate(bytes(old))
    assert "putback recover" in (caught.value.hint or "")
    assert new.list() == []


@pytest.mark.slow
def test_a_bound_tree_is_released_first(turning: Turning, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    sealed = turning.over("a", act=lambda: turning.write("a", "changed\n"))
    old = turning.root
    old.rename(tmp_path / "new")
    workspace = open_workspace(tmp_path / "new")
    with pytest.raises(OutOfOrder, match="is bound as 'mine'") as caught:
        workspace.upkeep.relocate(bytes(old))
    assert caught.value.hint == "`putback turn release -b mine` gives it up"
    turning.turns.release(turning.binding)
    bound = workspace.turns.bind(binding_id="mine", owner="ann").binding
    done = workspace.upkeep.relocate(bytes(old))
    assert (done.entries, done.joined) == (1, 0)
    assert workspace.show(sealed.id).entry is not None
    assert sorted(path.name for path in (workspace.paths.turns / "mine").iterdir()) == ["1", "2"]
    begun = workspace.turns.begin(bound, workspace.turns.next_turn(bound, "next"), [b"a"])
    assert workspace.turns.seal(bound, begun.id).sealed
    assert git(workspace.root, "status", "--porcelain", "a")


def test_the_command_line(moved: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--store", str(moved.paths.store.root), "-C", str(moved.root)]
    putback([*base, "status"])
    assert f"if this was at {tmp_path}/old, `putback relocate OLD`" in capsys.readouterr().out
    assert putback([*base, "relocate", "../elsewhere"]) == 2
    assert str(tmp_path / "old") in capsys.readouterr().err
    assert putback([*base, "--json", "relocate", "../old"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "old_root": {"path": str(tmp_path / "old")},
        "root": {"path": str(tmp_path / "new")},
        "entries": 2,
        "joined": 0,
    }


def test_what_else_stands_at_the_old_place_is_not_the_workspace(
    tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    for name in ("linked/app", "taken/app"):
        create(tmp_path / name, {"a": f"{name}\n"})
        open_workspace(tmp_path / name).snapshot(name)
    (tmp_path / "linked").rename(tmp_path / "moved")
    (tmp_path / "linked").symlink_to(tmp_path / "moved")
    assert open_workspace(tmp_path / "moved/app").upkeep.relocate(bytes(tmp_path / "linked/app")).entries == 1
    (tmp_path / "taken/app").rename(tmp_path / "away")
    create(tmp_path / "taken/app", {"a": "another directory\n"})
    assert open_workspace(tmp_path / "away").status().moved_from == (bytes(tmp_path / "taken/app"),)
    assert open_workspace(tmp_path / "away").upkeep.relocate(bytes(tmp_path / "taken/app")).entries == 1
