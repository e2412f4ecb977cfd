"""Dropping entries: what goes, what stays whatever the rules say, and that all that stays comes back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from putback.cli.main import run as putback
from putback.errors import OverBudget
from putback.fs import lock
from putback.progress import SILENT
from putback.records.history import EntryKind
from putback.records.retention import Keep, Why
from putback.records.upkeep import Pruned, Pruning, Vanished
from putback.runs.unfinished import unfinished
from putback.store.layout import Store
from putback.workspace import Workspace
from support.agents import Agent
from support.hermetic import OpenWorkspace, git, make_repository, unmoved
from support.trees import create, normal, read_back, same
from support.turns import Turning

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def workspace(tree: Path, open_workspace: OpenWorkspace) -> Workspace:
    create(tree, {"a": "0\n"})
    return open_workspace(tree)


@pytest.fixture
def say(tree: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Call the command line: exit code, output, notes."""

    def said(*words: str) -> tuple[int, str, str]:
        code = putback(["-C", str(tree), "--store", str(store), *words])
        out = capsys.readouterr()
        return code, out.out, out.err

    return said


def edit(workspace: Workspace, content: str) -> None:
    (workspace.root / "a").write_text(content)


def snapshots(workspace: Workspace, *messages: str) -> list[str]:
    """A snapshot with each message, of a file with that content; their ids, oldest first."""
    found = []
    for message in messages:
        edit(workspace, message)
        found.append(workspace.snapshot(message).id)
    return found


def listed(workspace: Workspace) -> list[str]:
    """The messages of the history, oldest first."""
    return [entry.message for entry in reversed(workspace.list())]


def anchored(workspace: Workspace) -> set[str]:
    out = git(workspace.paths.store.git_dir, "for-each-ref", "--format=%(refname)")
    return {line.rpartition("/")[2] for line in out.decode().split()}


def move(workspace: Workspace, hours: Callable[[str], int]) -> None:
    """Have each entry made that many hours later, by its message."""
    for path in workspace.paths.history.iterdir():
        record = json.loads(path.read_bytes())
        record["created_ns"] += hours(record["message"]) * 3600 * 10**9
        path.write_text(json.dumps(record))


def whys(result: Pruned) -> dict[str, tuple[Why, ...]]:
    return {item.message: item.kept for item in result.judged}


def test_what_no_rule_keeps_goes_with_its_capture_and_the_rest_comes_back(workspace: Workspace) -> None:
    ids = snapshots(workspace, "1", "2", "3")
    asked = workspace.upkeep.prune(Keep(last=2), dry_run=True)
    assert not asked.done and asked.reclaimed is None and listed(workspace) == ["1", "2", "3"]
    done = workspace.upkeep.prune(Keep(last=2))
    assert done.done and done.judged == asked.judged
    assert [item.id for item in done.dropped] == ids[:1]
    assert listed(workspace) == ["2", "3"] and anchored(workspace) == set(ids[1:])
    assert not workspace.paths.pruning.exists()
    workspace.restore(ids[1])
    same(read_back(workspace.root), normal({"a": "2"}))
    assert workspace.upkeep.prune(Keep(last=2)).dropped == ()


def test_no_rule_drops_nothing(workspace: Workspace) -> None:
    snapshots(workspace, "1", "2")
    assert workspace.upkeep.prune(Keep()).judged == ()
    assert listed(workspace) == ["1", "2"]


def test_safety_captures_go_with_the_restores_that_are_undone_for_good(workspace: Workspace) -> None:
    (first, *_) = snapshots(workspace, "1", "2")
    workspace.restore(first)
    workspace.undo()
    workspace.run(["sh", "-c", "echo run > a"], snapshot=True)
    before = len(anchored(workspace))
    result = workspace.upkeep.prune(Keep(last=1))
    assert [entry.kind for entry in workspace.list()] == [EntryKind.RUN]
    assert len(result.dropped) == 4 and before > 2 and len(anchored(workspace)) == 2
    workspace.undo()
    same(read_back(workspace.root), normal({"a": "2"}))


def test_undo_and_redo_go_on_as_before(workspace: Workspace) -> None:
    first, *_ = snapshots(workspace, "1", "2")
    workspace.restore(first)
    edit(workspace, "mine")
    workspace.restore(first, force=True)
    workspace.undo()
    snapshots(workspace, "3")
    result = workspace.upkeep.prune(Keep(last=1))
    assert set(whys(result).values()) == {(Why.LAST,), (Why.UNDO,), (Why.UNDONE,), ()}
    workspace.redo(force=True)
    same(read_back(workspace.root), normal({"a": "1"}))
    workspace.undo(force=True)
    workspace.undo(force=True)
    same(read_back(workspace.root), normal({"a": "2"}))


def test_the_evidence_of_a_dropped_run_goes_too(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[Path] = []
    remove = shutil.rmtree

    def watched(path: Path, **how: Any) -> None:
        removed.append(path)
        remove(path, **how)

    monkeypatch.setattr(shutil, "rmtree", watched)
    old = workspace.run(["sh", "-c", "echo 1 > a"], snapshot=True)
    new = workspace.run(["sh", "-c", "echo 2 > a"], snapshot=True)
    workspace.upkeep.prune(Keep(last=1))
    assert not old.folder.exists() and new.folder.exists()
    assert not list(workspace.paths.scratch.iterdir())
    # Where it was, a half of it would pass for a run that has no end.
    assert workspace.paths.scratch / old.folder.name in removed and old.folder not in removed


def test_what_an_interrupted_run_needs_stays(workspace: Workspace) -> None:
    """Its supervisor was killed when the history had it and the receipt was not there yet."""
    done = workspace.run(["sh", "-c", "echo 1 > a"], snapshot=True)
    (done.folder / "receipt.json").rename(workspace.root.parent / "aside")
    snapshots(workspace, "2", "3")
    assert [run.id for run in unfinished(workspace.paths)] == [done.entry.id]
    result = workspace.upkeep.prune(Keep(last=1))
    assert [item.kept for item in result.judged] == [(Why.LAST,), (), (Why.UNFINISHED, Why.UNDO)]
    assert done.folder.exists() and {done.entry.before, done.entry.after} <= anchored(workspace)


@pytest.mark.parametrize("name", ["journal", "journal.damaged-2"])
def test_what_a_journal_names_stays_also_where_it_cannot_be_read(workspace: Workspace, name: str) -> None:
    ids = snapshots(workspace, "1", "2", "3")
    (workspace.paths.folder / name).write_text(f'{{"before":"{ids[0]}", damaged')
    assert whys(workspace.upkeep.prune(Keep(last=1))) == {"3": (Why.LAST,), "2": (), "1": (Why.UNFINISHED,)}
    assert anchored(workspace) == {ids[0], ids[2]}


def test_what_an_open_turn_of_an_agent_needs_stays(tree: Path, store: Path) -> None:
    make_repository(tree, {"a": "a\n"})
    agent = Agent(tree, store)
    agent.prompt("work")
    agent.write("a", "changed\n")
    workspace = agent.workspace
    snapshots(workspace, "1", "2")
    move(workspace, lambda _: 1)
    before = anchored(workspace)
    assert len(workspace.upkeep.prune(Keep(last=1)).dropped) == 1
    assert len(anchored(workspace)) == len(before) - 1
    agent.stop()
    assert listed(agent.workspace) == ["2", "work"]
    agent.workspace.undo(force=True)
    assert (tree / "a").read_text() == "a\n"


def test_what_a_bound_turn_needs_stays_and_can_still_be_taken_back(turning: Turning) -> None:
    turn = turning.over("a", act=lambda: turning.write("a", "changed\n"))
    workspace = Workspace.open(turning.root, store=turning.store)
    snapshots(workspace, "x")
    with unmoved(turning.root):
        result = workspace.upkeep.prune(Keep(last=1))
    assert not result.dropped and Why.BOUND_TURN in result.judged[1].kept
    turning.write("a", "changed\n")
    turning.apply(turn)


def test_a_damaged_record_stays_with_all_that_it_may_name_and_stops_nothing(workspace: Workspace) -> None:
    ids = snapshots(workspace, "1", "2", "3", "4")
    (damaged,) = workspace.paths.history.glob(f"*{ids[1]}*")
    os.truncate(damaged, 90)
    result = workspace.upkeep.prune(Keep(last=1))
    assert [(item.id, item.kept) for item in result.judged][2] == (ids[1], (Why.DAMAGED,))
    assert damaged.exists() and anchored(workspace) == {ids[1], ids[3]}
    assert listed(workspace) == ["4"]


def test_captures_of_a_record_that_tells_nothing_any_more_stay(workspace: Workspace) -> None:
    run = workspace.run(["sh", "-c", "echo 1 > a"], snapshot=True).entry
    snapshots(workspace, "2", "3")
    move(workspace, lambda _: 1)
    os.truncate(next(workspace.paths.history.glob(f"*{run.id}*")), 20)
    assert len(workspace.upkeep.prune(Keep(last=1)).dropped) == 1
    assert {run.before, run.after} <= anchored(workspace)


def test_what_a_damaged_record_names_stays_though_it_was_to_go(workspace: Workspace) -> None:
    run = workspace.run(["sh", "-c", "echo 1 > a"], snapshot=True).entry
    path = next(workspace.paths.history.glob(f"*{run.id}*"))
    path.write_bytes(path.read_bytes()[:-3])
    workspace.paths.pruning.write_bytes(msgspec.json.encode(Pruning(captures=(run.before, run.after))))
    workspace.upkeep.prune(Keep(last=1))
    assert {run.before, run.after} <= anchored(workspace)


def test_a_capture_without_an_entry_stays_while_an_older_entry_does(workspace: Workspace) -> None:
    """Somebody may hold its id: it was never listed, so nothing says that it is not wanted."""
    ids = snapshots(workspace, "old", "bare", "new")
    (entry,) = workspace.paths.history.glob(f"*{ids[1]}*")
    entry.unlink()
    move(workspace, lambda message: -1 if message == "old" else 1)
    assert workspace.upkeep.prune(Keep(last=2)).bare == 0 and ids[1] in anchored(workspace)
    assert workspace.upkeep.prune(Keep(last=1)).bare == 1
    assert anchored(workspace) == {ids[2]}


def test_what_a_killed_prune_had_put_on_record_is_dropped_by_the_next(workspace: Workspace) -> None:
    """Its entry is gone and it is younger than what stays, so that nothing else would tell it from a bare one."""
    ids = snapshots(workspace, "1", "2")
    record = Pruning(captures=(ids[1],), runs=("f" * 64,))
    workspace.paths.pruning.write_bytes(msgspec.json.encode(record))
    next(workspace.paths.history.glob(f"*{ids[1]}*")).unlink()
    workspace.upkeep.prune(Keep(last=5))
    assert anchored(workspace) == {ids[0]} and not workspace.paths.pruning.exists()


def test_locks_that_a_killed_git_left_stop_nothing(workspace: Workspace) -> None:
    ids = snapshots(workspace, "1", "2")
    git_dir = workspace.paths.store.git_dir
    for lock_file in (f"refs/putback/{workspace.paths.name}/{ids[0]}.lock", "packed-refs.lock"):
        (git_dir / lock_file).touch()
    workspace.upkeep.prune(Keep(last=1))
    assert anchored(workspace) == {ids[1]}


def test_a_note_of_a_killed_prune_never_costs_an_entry(workspace: Workspace) -> None:
    ids = snapshots(workspace, "1", "2")
    workspace.paths.pruning.write_bytes(msgspec.json.encode(Pruning(captures=tuple(ids))))
    workspace.upkeep.prune(Keep(last=5))
    assert anchored(workspace) == set(ids)
    workspace.paths.pruning.write_bytes(b"damaged")
    workspace.upkeep.prune(Keep(last=1))
    assert anchored(workspace) == {ids[1]}


# Workspaces whose root is gone


@pytest.fixture
def gone(tmp_path: Path, open_workspace: OpenWorkspace) -> Workspace:
    """A workspace with one snapshot, whose directory has been removed."""
    root = tmp_path / "gone"
    create(root, {"f": "f\n"})
    made = open_workspace(root)
    made.snapshot("one")
    (root / "f").unlink()
    root.rmdir()
    return made


def vanished(workspace: Workspace, **how: Any) -> Vanished:
    (found,) = workspace.upkeep.prune(Keep(), vanished=True, **how).vanished
    return found


def test_a_vanished_workspace_goes_whole_and_only_on_request(workspace: Workspace, gone: Workspace) -> None:
    ids = snapshots(workspace, "1", "2")
    workspace.upkeep.prune(Keep(last=1))
    assert gone.paths.exists()
    found = vanished(workspace, dry_run=True)
    assert gone.paths.exists() and found.name == os.fsencode(gone.root)
    assert (found.entries, found.bytes, found.kept) == (1, 2, "")
    assert vanished(workspace) == found
    assert not gone.paths.folder.exists() and anchored(workspace) == {ids[1]}
    assert workspace.upkeep.prune(Keep(), vanished=True).vanished == ()


def test_a_root_that_is_there_again_has_a_new_history(workspace: Workspace, gone: Workspace) -> None:
    snapshots(workspace, "1")
    vanished(workspace)
    create(gone.root, {"g": "g\n"})
    gone.snapshot("again")
    assert listed(gone) == ["again"]


def test_what_may_only_be_unplugged_needs_another_word(workspace: Workspace, gone: Workspace) -> None:
    snapshots(workspace, "1")
    record = json.loads(gone.paths.marker.read_bytes())
    gone.paths.marker.write_text(json.dumps({**record, "device": record["device"] + 1}))
    assert "not mounted" in vanished(workspace).kept and gone.paths.exists()
    assert not vanished(workspace, unmounted=True).kept and not gone.paths.exists()


def test_a_vanished_workspace_in_use_stays(workspace: Workspace, gone: Workspace) -> None:
    snapshots(workspace, "1")
    with lock.hold(gone.paths.lock, "somebody", False, 1.0, SILENT):
        assert "locked by another process" in vanished(workspace).kept
    gone.paths.journal.write_text("{}\n")
    assert "a restore was interrupted" in vanished(workspace).kept
    gone.paths.journal.unlink()
    create(gone.paths.exchange, {"plan.json": "nonsense"})
    assert "the plan of that is damaged" in vanished(workspace).kept
    shutil.rmtree(gone.paths.exchange)
    run = gone.paths.runs / ("a" * 64)
    run.mkdir(parents=True)
    assert "is not closed" in vanished(workspace).kept
    run.rmdir()
    gone.paths.agents.mkdir()
    (gone.paths.agents / "x.open").touch()
    assert "a turn of a coding agent" in vanished(workspace).kept
    os.utime(gone.paths.agents / "x.open", (0, 0))
    assert gone.paths.exists() and not vanished(workspace).kept


def test_a_vanished_work_tree_that_is_bound_stays(turning: Turning, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    turning.root.rename(tmp_path / "aside")
    found = vanished(Workspace.open(other, store=turning.store))
    assert "it is bound as" in found.kept
    (tmp_path / "aside").rename(turning.root)


def test_a_folder_of_which_nobody_knows_what_it_is_stays(workspace: Workspace, gone: Workspace) -> None:
    snapshots(workspace, "1")
    moved = gone.paths.folder.with_name("moved-0123456789ab")
    gone.paths.folder.rename(moved)
    (moved.with_name("empty-0123456789ab")).mkdir()
    assert workspace.upkeep.prune(Keep(), vanished=True).vanished == () and moved.exists()


# The command


def test_without_a_rule_the_command_says_which_there_are(workspace: Workspace, say: Say) -> None:
    snapshots(workspace, "1")
    code, out, err = say("prune", "--yes")
    assert (code, out) == (2, "") and "--keep-last" in err and "--vanished" in err
    assert say("prune", "--keep-last", "0")[0] == 2
    assert "'14x' is not a length of time" in say("prune", "--keep-within", "14x")[2]
    assert say("prune", "--keep-last", "1", "--unmounted")[0] == 2


def test_without_a_terminal_and_without_yes_nothing_is_dropped(workspace: Workspace, say: Say) -> None:
    snapshots(workspace, "1", "2")
    code, out, err = say("prune", "--keep-last", "1")
    assert code == 43 and "1 entry would be dropped, 2 before" in out and "--yes" in err
    assert listed(workspace) == ["1", "2"]
    code, out, _ = say("prune", "--keep-last", "1", "--dry-run")
    assert code == 0 and "keep" in out and "(last)" in out and listed(workspace) == ["1", "2"]
    code, out, _ = say("prune", "--keep-last", "1", "--yes")
    assert code == 0 and "freed" in out and listed(workspace) == ["2"]
    assert say("prune", "--keep-last", "1")[0] == 0, "there is nothing to ask"


def test_json_says_what_became_of_each_entry(workspace: Workspace, say: Say) -> None:
    snapshots(workspace, "1", "2")
    code, out, _ = say("--json", "prune", "--keep-last", "1")
    assert code == 43 and json.loads(out)["done"] is False
    code, out, _ = say("--json", "prune", "--keep-last", "1", "--vanished", "--yes")
    found = json.loads(out)
    assert code == 0 and found["done"] and found["dropped"] == 1
    assert [entry["kept"] for entry in found["entries"]] == [["last"], []]
    assert found["reclaimed"]["bytes_before"] > 0 and found["vanished"] == []


def test_rules_of_the_configuration_count_where_none_is_given(workspace: Workspace, say: Say) -> None:
    snapshots(workspace, "1", "2", "3")
    configured = ("-c", "retention.keep_last=1", "prune", "--yes")
    assert say(*configured, "--vanished")[0] == 0 and listed(workspace) == ["1", "2", "3"]
    assert say(*configured, "--keep-last", "2")[0] == 0 and listed(workspace) == ["2", "3"]
    assert say(*configured)[0] == 0 and listed(workspace) == ["3"]


def test_a_store_at_its_cap_says_what_drops_entries(workspace: Workspace, open_workspace: OpenWorkspace) -> None:
    snapshots(workspace, "1")
    (workspace.root / "big").write_bytes(os.urandom(9000))
    with pytest.raises(OverBudget) as raised:
        open_workspace(workspace.root, max_bytes=9000).snapshot()
    assert raised.value.hint is not None and "putback prune --keep-last" in raised.value.hint


def test_a_history_that_is_pruned_meanwhile_is_read_all_the_same(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from putback.store.history import History

    snapshots(workspace, "1", "2")
    names = History(workspace.paths.history).names()
    monkeypatch.setattr(History, "names", lambda _: names)
    (workspace.paths.history / names[1].file).unlink()
    found, damaged = History(workspace.paths.history).readable()
    assert [entry.message for entry in found] == ["2"] and damaged == []


def test_nothing_was_ever_captured(workspace: Workspace, store: Path) -> None:
    assert workspace.upkeep.prune(Keep(last=1), vanished=True) == Pruned(done=True)
    assert not Store(store).root.exists()
