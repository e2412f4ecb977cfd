"""Retention by itself: where it is configured, in the background, once for each change; what the cap then is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from putback.cli.main import run as putback
from putback.errors import LockedError, OverBudget
from putback.fs import lock
from putback.progress import SILENT
from putback.records.upkeep import Reclaimed
from putback.upkeep import automatic, reclaim
from putback.upkeep.automatic import Request
from putback.upkeep.catalog import Upkeep
from putback.workspace import Workspace
from support.agents import Agent
from support.hermetic import OpenWorkspace, settings
from support.trees import create
from support.waiting import until


@pytest.fixture
def workspace(tree: Path, open_workspace: OpenWorkspace) -> Workspace:
    create(tree, {"a": "0\n"})
    return open_workspace(tree, keep_last=2)


def snapshots(workspace: Workspace, count: int) -> None:
    for number in range(count):
        (workspace.root / "a").write_text(f"{number}\n")
        workspace.snapshot(str(number))


def listed(workspace: Workspace) -> list[str]:
    return [entry.message for entry in workspace.list()]


def settle(workspace: Workspace, wait_seconds: float = 0.0) -> None:
    automatic.settle(workspace.upkeep, wait_seconds)


def test_a_capture_by_itself_drops_nothing(workspace: Workspace) -> None:
    snapshots(workspace, 3)
    assert len(listed(workspace)) == 3


def test_the_process_in_the_background_keeps_what_the_user_said(workspace: Workspace) -> None:
    snapshots(workspace, 3)
    assert workspace.upkeep.retain() == ""
    until(lambda: automatic.settled(workspace.paths) is not None)
    assert listed(workspace) == ["2", "1"]


def test_what_it_is_told_survives_any_name_of_the_store(workspace: Workspace, tmp_path: Path) -> None:
    store = Path(os.fsdecode(os.fsencode(tmp_path) + b"/st\xff"))
    other = Workspace.open(workspace.root, store=store, settings=workspace.settings)
    snapshots(other, 3)
    request = Request(os.fsencode(store), other.paths.root, other.settings)
    command = [sys.executable, "-P", "-m", "putback.upkeep.automatic"]
    subprocess.run(command, input=msgspec.json.encode(request), check=True)
    assert listed(other) == ["2", "1"]


def test_it_is_done_once_for_each_change(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    reclaimed: list[int] = []
    monkeypatch.setattr(
        Upkeep, "reclaim", lambda _: reclaimed.append(1) or Reclaimed(bytes_before=0, bytes_after=0)
    )
    snapshots(workspace, 3)
    assert automatic.is_due(workspace.paths, workspace.settings)
    settle(workspace)
    assert not automatic.is_due(workspace.paths, workspace.settings)
    started: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *given, **_: started.append(given))
        workspace.upkeep.retain()
    assert started == []
    assert automatic.is_due(workspace.paths, settings(keep_last=1)), "other rules are a change"
    snapshots(workspace, 1)
    settle(workspace)
    assert listed(workspace) == ["0", "2"]
    assert len(reclaimed) == 1, "packs are not written again and again"
    chosen = settings(keep_last=1, max_bytes=1)
    settle(Workspace.open(workspace.root, store=workspace.paths.store.root, settings=chosen))
    assert len(reclaimed) == 2, "but they are where the cap is near"


def test_what_others_kept_from_being_freed_is_done_the_next_time(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots(workspace, 3)
    full = msgspec.structs.replace(workspace.settings.store, max_bytes=1)
    crowded = Workspace.open(
        workspace.root,
        store=workspace.paths.store.root,
        settings=msgspec.structs.replace(workspace.settings, store=full),
    )
    with lock.hold(workspace.paths.store.lock, "another", True, 1.0, SILENT), monkeypatch.context() as patched:
        patched.setattr(reclaim, "PATIENCE_SECONDS", 0.0)
        settle(crowded)
    assert automatic.is_due(crowded.paths, crowded.settings) and crowded.upkeep.over_cap() == ""
    settle(crowded)
    assert not automatic.is_due(crowded.paths, crowded.settings) and crowded.upkeep.over_cap()


def test_without_rules_nothing_is_started(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "a\n"})
    plain = open_workspace(tree)
    plain.snapshot()
    assert plain.upkeep.retain() == "" and not automatic.is_due(plain.paths, plain.settings)


def test_at_most_one_is_at_work_on_a_store(workspace: Workspace) -> None:
    snapshots(workspace, 3)
    store = workspace.paths.store
    with lock.hold(store.maintenance, "another", False, 1.0, SILENT), pytest.raises(LockedError):
        settle(workspace)
    assert len(listed(workspace)) == 3


def test_a_cap_that_cannot_be_kept_is_told_once_and_stays_in_status(
    tree: Path, store: Path, open_workspace: OpenWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    cap = 200_000
    for name in ("a", "b"):
        (tree / name).write_bytes(os.urandom(70_000))
    workspace = open_workspace(tree, keep_last=3, max_bytes=cap)
    workspace.snapshot("1")
    (tree / "a").write_bytes(os.urandom(70_000))
    workspace.snapshot("2")
    settle(workspace)
    assert "its cap is 200,000" in workspace.upkeep.over_cap()
    assert "keep less" in workspace.upkeep.retain() and workspace.upkeep.retain() == ""
    options = ["-c", "retention.keep_last=3", "-c", f"store.max_bytes={cap}", "-c", "store.min_free_bytes=0"]
    putback(["-C", str(tree), "--store", str(store), *options, "status"])
    assert "its cap is 200,000" in capsys.readouterr().out
    (tree / "b").write_bytes(os.urandom(70_000))
    workspace.snapshot("3")
    (tree / "a").write_bytes(os.urandom(140_000))
    with pytest.raises(OverBudget, match="the limit is 400,000"):
        workspace.snapshot("4")


def test_room_is_made_first_where_the_background_has_not_come_to_it(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    workspace = open_workspace(tree, keep_last=1, max_bytes=200_000)
    for number in range(6):
        (tree / "a").write_bytes(os.urandom(120_000))
        workspace.upkeep.make_room()
        workspace.snapshot(str(number))
    assert listed(workspace)[0] == "5" and len(listed(workspace)) <= 3


def test_a_turn_of_an_agent_has_retention_done_too(
    tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, {"a": "a\n"})
    agent = Agent(tree, store)
    called: list[int] = []
    monkeypatch.setattr("support.agents.settings", lambda: settings(keep_last=5))
    monkeypatch.setattr(Upkeep, "retain", lambda _: called.append(1) or "")
    agent.prompt("work")
    agent.write("a", "b\n")
    agent.stop()
    assert called == [1]


def test_the_command_line_has_retention_done(
    workspace: Workspace, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    monkeypatch.setattr(automatic, "start", lambda *_: called.append(1))
    here = ["-C", str(workspace.root), "--store", str(store), "-q", "-c", "retention.keep_last=9"]
    for words in (["snapshot"], ["run", "--snapshot", "--", "sh", "-c", "echo x > a"], ["undo", "--yes"]):
        assert putback([*here, *words]) == 0
    assert len(called) == 3
    putback([*here, "restore", "@1", "--dry-run"])
    assert len(called) == 3
