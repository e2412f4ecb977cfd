"""The hook of coding agents: which turns there are, what is theirs, and that the agent is never disturbed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from putback.agents import hook as hooks
from putback.agents import registry
from putback.agents.hook import Hook, last_failure
from putback.agents.sessions import SessionFolder, open_turns
from putback.errors import NothingToUndo
from putback.fs import lock
from putback.progress import SILENT
from putback.records.agent import Ended
from putback.records.history import Entry
from putback.store.layout import Store
from support.agents import Agent
from support.hermetic import git, make_repository, settings
from support.trees import create, normal, read_back, same


@pytest.fixture
def agent(tree: Path, store: Path) -> Agent:
    make_repository(tree, {"a": "a\n", "b": "b\n", "sub/c": "c\n"})
    return Agent(tree, store)


def turns(agent: Agent) -> list[Entry]:
    """The turns of the history, oldest first."""
    return [entry for entry in reversed(agent.workspace.list()) if entry.agent is not None]


def paths(agent: Agent, entry: Entry) -> list[bytes]:
    return [change.path for change in agent.workspace.diff(entry.id).changes]


def test_a_turn_is_what_happens_between_prompt_and_stop(agent: Agent) -> None:
    before = read_back(agent.root)
    assert agent.prompt("\n  tidy up  \nand more") == {}
    agent.write("a", "changed\n")
    agent.shell("echo b > b", "b", "b too\n")
    agent.stop()
    (entry,) = turns(agent)
    assert entry.agent is not None
    assert (entry.message, entry.agent.prompt, entry.agent.ended) == ("tidy up", "tidy up", Ended.STOPPED)
    assert paths(agent, entry) == [b"a", b"b"]
    assert [(item.path, item.by) for item in entry.agent.written] == [("a", ("Write",))]
    assert not entry.agent.moved_head and not entry.agent.moved_index
    agent.workspace.undo()
    same(read_back(agent.root), before)


def test_an_interrupted_turn_ends_with_the_next_prompt_or_the_session(agent: Agent) -> None:
    agent.prompt("first")
    agent.write("a", "1\n")
    agent.prompt("second")
    agent.write("b", "2\n")
    agent.stop("SessionEnd", reason="exit")
    first, second = turns(agent)
    assert first.agent is not None and second.agent is not None
    assert [first.agent.ended, second.agent.ended] == [Ended.INTERRUPTED, Ended.INTERRUPTED]
    assert [paths(agent, first), paths(agent, second)] == [[b"a"], [b"b"]]
    assert open_turns(agent.workspace.paths) == []
    agent.stop()
    assert len(turns(agent)) == 2


def test_a_turn_that_failed_says_so(agent: Agent) -> None:
    agent.prompt("first")
    agent.stop("StopFailure")
    (entry,) = turns(agent)
    assert entry.agent is not None and entry.agent.ended is Ended.FAILED and entry.changed == 0


def test_undo_does_not_take_the_turn_before_an_empty_one_for_it(agent: Agent) -> None:
    agent.prompt("first")
    agent.write("a", "1\n")
    agent.stop()
    agent.prompt("only a question")
    agent.stop()
    empty = turns(agent)[-1]
    with pytest.raises(NothingToUndo):
        agent.workspace.undo(empty.id)
    assert (agent.root / "a").read_text() == "1\n"


def test_of_sessions_side_by_side_each_has_what_its_tools_wrote(agent: Agent) -> None:
    other = Agent(agent.root, agent.store, "s2")
    agent.prompt("mine")
    other.prompt("theirs")
    agent.write("a", "mine\n")
    other.write("b", "theirs\n")
    other.write("new/file", "theirs\n")
    agent.stop()
    other.stop()
    mine, theirs = turns(agent)
    assert mine.agent is not None and mine.agent.others == ("s2",)
    agent.workspace.undo(mine.id)
    same(read_back(agent.root), normal({"a": "a\n", "b": "theirs\n", "sub/c": "c\n", "new/file": "theirs\n"}))
    agent.workspace.undo(theirs.id)
    same(read_back(agent.root), normal({"a": "a\n", "b": "b\n", "sub/c": "c\n"}))


def test_a_session_that_ended_meanwhile_keeps_what_it_wrote(agent: Agent) -> None:
    other = Agent(agent.root, agent.store, "s2")
    agent.prompt("long")
    other.prompt("short")
    other.write("b", "theirs\n")
    other.stop()
    agent.write("a", "mine\n")
    agent.stop()
    agent.workspace.undo()
    assert (agent.root / "b").read_text() == "theirs\n" and (agent.root / "a").read_text() == "a\n"


def test_an_earlier_turn_goes_back_where_later_ones_left_its_paths_alone(agent: Agent) -> None:
    for number in range(1, 7):
        agent.prompt(f"turn {number}")
        agent.write(f"own{number}", f"{number}\n")
        if number in (3, 5):
            agent.write("a", f"{number}\n")
        agent.stop()
    (agent.root / "own6").write_text("by the user\n")
    third = turns(agent)[2]
    result = agent.workspace.undo(third.id)
    refused = [outcome.path for outcome in result.outcomes if not outcome.status.applied]
    assert refused == ["a"] and result.applied == 1
    expected = {f"own{number}": f"{number}\n" for number in (1, 2, 4, 5)}
    same(
        read_back(agent.root),
        normal({**expected, "own6": "by the user\n", "a": "5\n", "b": "b\n", "sub/c": "c\n"}),
    )


def test_subagents_are_named(agent: Agent) -> None:
    agent.prompt("delegate")
    agent.write("a", "sub\n", agent_id="ag-1", agent_type="explorer")
    agent.write("a", "main\n", tool="Edit")
    agent.stop()
    (entry,) = turns(agent)
    assert entry.agent is not None
    assert [(item.path, item.by) for item in entry.agent.written] == [("a", ("Write (ag-1)", "Edit"))]


def test_the_tree_is_the_one_the_agent_is_in(agent: Agent, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(agent.root, "worktree", "add", "-q", str(linked))
    moved = Agent(linked, agent.store)
    agent.prompt("first")
    moved.prompt("second")
    moved.write("a", "there\n")
    moved.stop()
    assert turns(agent) == [] and [paths(moved, entry) for entry in turns(moved)] == [[b"a"]]
    assert (agent.root / "a").read_text() == "a\n"


def test_the_repository_of_the_user_is_watched_and_not_touched(agent: Agent) -> None:
    agent.prompt("commit")
    (agent.root / "a").write_text("2\n")
    git(agent.root, "add", "a")
    agent.stop()
    (entry,) = turns(agent)
    assert entry.agent is not None and entry.agent.moved_index and not entry.agent.moved_head
    agent.prompt("again")
    git(agent.root, "commit", "-qm", "by the agent")
    agent.stop()
    entry = turns(agent)[-1]
    assert entry.agent is not None and entry.agent.moved_head


def test_the_model_is_told_once_what_was_put_back(agent: Agent) -> None:
    agent.prompt("first")
    agent.write("a", "1\n")
    agent.stop()
    agent.workspace.undo()
    said = agent.prompt("second")["hookSpecificOutput"]
    assert said["hookEventName"] == "UserPromptSubmit" and said["additionalContext"].endswith(": 'a'")
    agent.stop()
    assert agent.prompt("third") == {}
    assert Agent(agent.root, agent.store, "s2").prompt("new session") == {}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"{}", b'{"hook_event_name": 7}'])
def test_what_is_no_event_disturbs_nobody(agent: Agent, data: bytes) -> None:
    assert Hook(registry.adapter("claude-code"), agent.store, settings()).answer(data) == b""


def test_a_workspace_that_vanished_disturbs_nobody_and_is_told(agent: Agent, tmp_path: Path) -> None:
    agent.prompt("first")
    gone = Agent(tmp_path / "gone", agent.store)
    assert gone.prompt("second") == {}
    failure = last_failure(Store(agent.store))
    assert failure is not None and failure.event == "UserPromptSubmit" and "gone" in failure.message
    assert agent.prompt("third") == {}
    assert last_failure(Store(agent.store)) is None


def test_a_folder_that_is_no_project_is_left_alone(agent: Agent, home: Path) -> None:
    agent.prompt("first")
    assert Agent(home, agent.store).prompt("in the home directory") == {}
    failure = last_failure(Store(agent.store))
    assert failure is not None and failure.code == "unsuitable_root"


def test_a_store_that_is_full_disturbs_nobody(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.prompt("first")
    agent.stop()
    tight = settings(max_bytes=1)
    (agent.root / "big").write_bytes(os.urandom(5000))
    sent = b'{"session_id": "s1", "cwd": "%s", "hook_event_name": "UserPromptSubmit"}' % os.fsencode(agent.root)
    assert Hook(registry.adapter("claude-code"), agent.store, tight).answer(sent) == b""
    failure = last_failure(Store(agent.store))
    assert failure is not None and failure.code == "over_budget"


def test_a_faulty_settings_file_of_the_workspace_is_no_obstacle(agent: Agent) -> None:
    create(agent.root, {".putback.toml": "nonsense = [\n"})
    sent = b'{"session_id": "s1", "cwd": "%s", "hook_event_name": "UserPromptSubmit"}' % os.fsencode(agent.root)
    assert Hook(registry.adapter("claude-code"), agent.store).answer(sent) == b""
    assert len(open_turns(agent.workspace.paths)) == 1


def test_a_first_capture_that_takes_long_goes_on_beside_the_prompt(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = hooks._begin

    def slowly(*arguments: object) -> object:
        time.sleep(0.5)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(hooks, "_begin", slowly)
    sent = b'{"session_id": "s1", "cwd": "%s", "hook_event_name": "UserPromptSubmit"}' % os.fsencode(agent.root)
    impatient = settings(prompt_seconds=0.05)
    said = Hook(registry.adapter("claude-code"), agent.store, impatient).answer(sent)
    assert b"takes long" in said
    os.wait()
    (opened,) = open_turns(agent.workspace.paths)
    assert opened.session == "s1"


def test_a_torn_call_and_a_damaged_turn_are_passed_over(agent: Agent) -> None:
    agent.prompt("first")
    folder = SessionFolder(agent.workspace.paths, "claude-code", "s1")
    agent.write("a", "1\n")
    with open(folder.calls, "ab") as file:
        file.write(b'{"tool": "Wri')
    assert [call.tool for call in folder.noted()] == ["Write", "Write"]
    folder.record.write_bytes(b"garbage")
    assert agent.prompt("second") == {}
    agent.write("b", "2\n")
    agent.stop()
    assert [entry.message for entry in turns(agent)] == ["second"]


def test_before_a_plainly_destructive_command_a_snapshot_is_taken(agent: Agent) -> None:
    agent.prompt("clean up")
    (agent.root / "untracked").write_text("precious\n")
    assert agent.shell("git status && rm -rf build", "b", "2\n") == {}
    assert agent.shell("grep -r rm .", "b", "3\n") == {}
    agent.stop()
    (taken,) = [entry for entry in agent.workspace.list() if not entry.before]
    assert taken.message == "before: git status && rm -rf build"
    (agent.root / "untracked").unlink()
    agent.workspace.restore(taken.id, paths=[agent.root / "untracked"])
    assert (agent.root / "untracked").read_text() == "precious\n"


@pytest.mark.parametrize(("guard", "asked", "taken"), [("ask", True, 1), ("off", False, 0)])
def test_the_guard_asks_or_stays_off_as_the_user_says(agent: Agent, guard: str, asked: bool, taken: int) -> None:
    agent.prompt("clean up")
    sent = {"session_id": "s1", "cwd": str(agent.root), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    data = json.dumps({**sent, "tool_input": {"command": "git clean -fdx"}}).encode()
    said = Hook(registry.adapter("claude-code"), agent.store, settings(guard=guard)).answer(data)
    assert (b'"permissionDecision":"ask"' in said) is asked
    assert sum(not entry.before for entry in agent.workspace.list()) == taken


def test_paths_are_relative_to_where_the_agent_is(agent: Agent) -> None:
    agent.prompt("first")
    given = {"tool_name": "Edit", "tool_input": {"file_path": "c"}, "cwd": str(agent.root / "sub")}
    agent.send("PreToolUse", **given)
    (agent.root / "sub/c").write_text("2\n")
    agent.stop()
    (entry,) = turns(agent)
    assert entry.agent is not None and [item.path for item in entry.agent.written] == ["sub/c"]


def test_a_prompt_waits_for_another_process_no_longer_than_the_settings_say(agent: Agent) -> None:
    agent.prompt("first")
    with lock.hold(agent.workspace.paths.lock, "test", False, 0, SILENT):
        data = json.dumps({"session_id": "s1", "cwd": str(agent.root), "hook_event_name": "Stop"}).encode()
        began = time.monotonic()
        hook = Hook(registry.adapter("claude-code"), agent.store, settings(prompt_seconds=0.1))
        assert hook.answer(data) == b""
        assert time.monotonic() - began < settings().store.lock_wait_seconds / 2
    failure = last_failure(Store(agent.store))
    assert failure is not None and failure.code == "locked"
    agent.stop()
    assert len(turns(agent)) == 1


def test_the_guard_waits_no_longer_either_and_asks_all_the_same(agent: Agent) -> None:
    agent.prompt("clean up")
    given = {"tool_name": "Bash", "tool_input": {"command": "git clean -fdx"}, "hook_event_name": "PreToolUse"}
    data = json.dumps({"session_id": "s1", "cwd": str(agent.root), **given}).encode()
    with lock.hold(agent.workspace.paths.lock, "test", False, 0, SILENT):
        began = time.monotonic()
        hook = Hook(registry.adapter("claude-code"), agent.store, settings(guard="ask", prompt_seconds=0.1))
        assert b"no snapshot could be taken" in hook.answer(data)
        assert time.monotonic() - began < settings().store.lock_wait_seconds / 2
    failure = last_failure(Store(agent.store))
    assert failure is not None and failure.code == "locked"


def test_a_tool_call_does_not_wait_for_the_capture_that_goes_on_beside_the_prompt(agent: Agent) -> None:
    agent.workspace.snapshot()
    with lock.hold(agent.workspace.paths.lock, "test", False, 0, SILENT):
        agent.write("a", "1\n")
    assert open_turns(agent.workspace.paths) == [] and last_failure(Store(agent.store)) is None


def test_a_tool_call_chooses_no_tree_that_was_never_captured(agent: Agent, tmp_path: Path) -> None:
    agent.prompt("first")
    elsewhere = Agent(tmp_path / "other", agent.store)
    elsewhere.root.mkdir()
    elsewhere.write("a", "1\n")
    assert not elsewhere.workspace.paths.exists()


def test_a_work_tree_that_is_gone_again_holds_up_no_end(agent: Agent, tmp_path: Path) -> None:
    git(agent.root, "worktree", "add", "-q", str(tmp_path / "linked"))
    inner = Agent(tmp_path / "linked", agent.store)
    agent.prompt("first")
    inner.write("a", "there\n")
    git(agent.root, "worktree", "remove", "--force", str(tmp_path / "linked"))
    agent.write("a", "here\n")
    agent.stop()
    assert [entry.message for entry in turns(agent)] == ["first"] and last_failure(Store(agent.store)) is None


def test_a_prompt_that_is_told_twice_is_one_turn(agent: Agent) -> None:
    agent.prompt("first")
    agent.prompt("")
    agent.write("a", "1\n")
    agent.stop()
    assert [entry.message for entry in turns(agent)] == ["first"]


def test_a_turn_is_entered_once_although_its_end_was_cut_short(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.prompt("first")
    agent.write("a", "1\n")
    with monkeypatch.context() as patch:
        patch.setattr(SessionFolder, "forget", lambda self: None)
        agent.stop()
    agent.prompt("second")
    agent.stop()
    assert [entry.message for entry in turns(agent)] == ["first", "second"]
