"""Undo of one turn of many: six turns of an agent, another session and the user at work in the same files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from putback.cli.main import run
from putback.errors import NothingToUndo
from putback.ops import merge
from putback.ops.restore import Restored
from putback.records.history import Entry
from putback.records.plan import Status
from support.agents import Agent
from support.hermetic import make_repository, unmoved
from support.trees import File, Tree, normal, read_back, same

TURNS = range(1, 7)


def lines(**changed: str) -> str:
    """Sixty lines; `l5="x"` has another text in the fifth."""
    return "".join(changed.get(f"l{number}", f"line {number}") + "\n" for number in range(1, 61))


def shared(*turns: int, other: bool = True, user: bool = True) -> str:
    """The file that everybody writes to, with the lines of these turns, the other session and the user."""
    changed = {f"l{number * 5}": f"by turn {number}" for number in turns}
    return lines(
        **changed, **({"l40": "by the other"} if other else {}), **({"l50": "by the user"} if user else {})
    )


BEGINNING = {
    "shared": lines(),
    "hot": lines(),
    "moved-from": lines(),
    "gone": "was here\n",
    "lost": "was here, too\n",
    "script": File(lines().encode(), 0o644),
    "picture": "\0before",
    "untouched": "u\n",
}
# What turn 3 changed, and what becomes of it: alone, and with --merge.
THIRD = {
    "own3": Status.REMOVED,
    "moved-from": Status.RECREATED,
    "link-away": Status.REMOVED,
    "shared": Status.MERGED,
    "script": Status.MERGED,
    "hot": merge.SAME_LINES,
    "gone": merge.MADE_ANEW,
    "extended": merge.NOT_BEFORE,
    "moved-to": merge.NOT_BEFORE,
    "picture": merge.BINARY,
    "lost": merge.REMOVED,
}


def edit(agent: Agent, path: str, old: str, new: str) -> None:
    text = (agent.root / path).read_text()
    assert text.count(old + "\n") == 1
    agent.write(path, text.replace(old + "\n", new + "\n"), tool="Edit")


def third(agent: Agent) -> None:
    """What only turn 3 does; the shell does some of it."""
    edit(agent, "hot", "line 30", "by turn 3")
    agent.shell("mv moved-from moved-to", "extended", "new in turn 3\n")
    (agent.root / "moved-from").rename(agent.root / "moved-to")
    (agent.root / "gone").unlink()
    agent.write("lost", "by turn 3\n")
    (agent.root / "script").chmod(0o755)
    (agent.root / "picture").write_text("\0turn 3")
    (agent.root / "link-away").symlink_to("shared")


def fifth(agent: Agent) -> None:
    edit(agent, "hot", "by turn 3", "by turn 5")
    agent.write("extended", "new in turn 3\nmore in turn 5\n")
    agent.write("gone", "anew\n")
    (agent.root / "lost").unlink()
    agent.write("picture", "\0turn 5")


def build(agent: Agent) -> None:
    """Six turns; between them the user writes, and another session has a turn of its own."""
    other = Agent(agent.root, agent.store, "s2")
    for number in TURNS:
        agent.prompt(f"turn {number}")
        agent.write(f"own{number}", f"{number}\n")
        edit(agent, "shared", f"line {number * 5}", f"by turn {number}")
        {3: third, 5: fifth}.get(number, lambda _: None)(agent)
        agent.stop()
        if number == 3:
            text = (agent.root / "shared").read_text()
            (agent.root / "shared").write_text(text.replace("line 50\n", "by the user\n"))
            (agent.root / "by-the-user").write_text("mine\n")
        if number == 4:
            other.prompt("the other")
            edit(other, "shared", "line 40", "by the other")
            other.write("of-the-other", "o\n")
            other.stop()
    with (agent.root / "moved-to").open("a") as file:
        file.write("the user, after all turns\n")
    (agent.root / "script").write_text(lines(l1="by the user"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The world after six turns, and a copy of it for each test to begin from at the same place."""
    base = tmp_path_factory.mktemp("turns")
    agent = Agent(base / "tree", base / "store")
    make_repository(agent.root, BEGINNING)
    build(agent)
    shutil.copytree(base, base.with_name("kept-turns"), symlinks=True)
    return base


@pytest.fixture
def agent(built: Path) -> Agent:
    for part in ("tree", "store"):
        shutil.rmtree(built / part)
        shutil.copytree(built.with_name("kept-turns") / part, built / part, symlinks=True)
    return Agent(built / "tree", built / "store")


def turns(agent: Agent, session: str = "s1") -> list[Entry]:
    """The turns of one session, oldest first."""
    entries = reversed(agent.workspace.list())
    return [entry for entry in entries if entry.agent is not None and entry.agent.session == session]


def become(tree: Tree, changed: dict[str, str | File | None]) -> Tree:
    """The tree with some paths as they are given; None for one that is not there."""
    kept = {path: entry for path, entry in tree.items() if os.fsdecode(path) not in changed}
    return {**kept, **normal({path: entry for path, entry in changed.items() if entry is not None})}


def statuses(result: Restored) -> dict[str, Status]:
    return {outcome.path: outcome.status for outcome in result.outcomes}


def test_of_turn_three_only_what_nobody_changed_since_goes_back(agent: Agent) -> None:
    before = read_back(agent.root)
    with unmoved(agent.root):
        result = agent.workspace.undo(turns(agent)[2].id)
    alone = {path for path, becomes in THIRD.items() if becomes in (Status.REMOVED, Status.RECREATED)}
    assert {path for path, status in statuses(result).items() if status.applied} == alone
    assert {path for path, status in statuses(result).items() if status is Status.REFUSED} == THIRD.keys() - alone
    changed = {"own3": None, "link-away": None, "moved-from": lines()}
    same(read_back(agent.root), become(before, changed))


def test_with_merge_what_was_changed_beside_it_stays_and_the_rest_is_listed(agent: Agent) -> None:
    before = read_back(agent.root)
    with unmoved(agent.root):
        result = agent.workspace.undo(turns(agent)[2].id, merge=True)
    refused = {one.path: one.reason.partition("; not merged: ")[2] for one in result.outcomes if one.reason}
    found = {path: status for path, status in statuses(result).items() if status is not Status.REFUSED}
    assert found | {path: refused[path] for path in THIRD.keys() - found.keys()} == THIRD
    assert result.failed and result.merged == 2
    changed: dict[str, str | File | None] = {
        "own3": None,
        "link-away": None,
        "moved-from": lines(),
        "shared": shared(1, 2, 4, 5, 6),
        "script": File(lines(l1="by the user").encode(), 0o644),
    }
    after = become(before, changed)
    same(read_back(agent.root), after)
    assert agent.workspace.redo().applied == result.applied
    same(read_back(agent.root), before)
    again = agent.workspace.undo(turns(agent)[2].id, merge=True)
    assert statuses(again) == statuses(result)
    same(read_back(agent.root), after)
    assert again.entry is not None
    agent.workspace.restore(again.entry.id)
    same(read_back(agent.root), before)


@pytest.mark.parametrize("number", TURNS)
def test_each_turn_goes_back_alone(agent: Agent, number: int) -> None:
    before = read_back(agent.root)
    mine = [f"own{number}", "shared"]
    entry = turns(agent)[number - 1]
    result = agent.workspace.restore(entry.id, paths=[agent.root / path for path in mine], merge=True)
    assert not result.failed and result.applied == 2
    others = [turn for turn in TURNS if turn != number]
    same(read_back(agent.root), become(before, {mine[0]: None, "shared": shared(*others)}))


def test_the_other_session_goes_back_alone(agent: Agent) -> None:
    before = read_back(agent.root)
    (entry,) = turns(agent, "s2")
    result = agent.workspace.undo(entry.id, merge=True)
    assert not result.failed and (result.applied, result.merged) == (2, 1)
    same(read_back(agent.root), become(before, {"of-the-other": None, "shared": shared(*TURNS, other=False)}))


def test_one_undo_after_the_other_leaves_what_is_nobodys_but_the_users(agent: Agent) -> None:
    """From the newest turn back, each in what later ones have left of it: nothing of any of them is in the way."""
    (agent.root / "script").write_text(lines())
    (agent.root / "moved-to").write_text(lines())
    before = read_back(agent.root)
    merged = [agent.workspace.undo(merge=True).merged for _ in (*TURNS, "the other")]
    assert merged == [0, 0, 0, 0, 1, 1, 1]
    expected = {**BEGINNING, "shared": shared(other=False), "by-the-user": "mine\n"}
    same(read_back(agent.root), normal(expected))
    with pytest.raises(NothingToUndo):
        agent.workspace.undo(merge=True)
    assert not any(agent.workspace.redo().failed for _ in merged)
    with pytest.raises(NothingToUndo):
        agent.workspace.redo()
    same(read_back(agent.root), before)


def test_after_a_merge_the_user_goes_on_and_redo_merges_too(agent: Agent) -> None:
    agent.workspace.undo(turns(agent)[2].id, merge=True)
    text = (agent.root / "shared").read_text()
    (agent.root / "shared").write_text(text.replace("line 55\n", "after the undo\n"))
    assert statuses(agent.workspace.redo(dry_run=True)) == {}
    plain = agent.workspace.redo(dry_run=True).plan
    assert [item.path for item in plain.refused] == ["shared"]
    result = agent.workspace.redo(merge=True)
    assert statuses(result)["shared"] is Status.MERGED and not result.failed
    expected = shared(*TURNS).replace("line 55\n", "after the undo\n")
    assert (agent.root / "shared").read_text() == expected


def putback(agent: Agent, *arguments: str) -> int:
    return run(["-C", str(agent.root), "--store", str(agent.store), "-c", "store.min_free_bytes=0", *arguments])


def test_the_command_line_says_what_was_merged(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    third, before = turns(agent)[2].id, read_back(agent.root)
    assert putback(agent, "undo", third, "--merge", "--dry-run") == 1
    said = capsys.readouterr().out
    assert "would merge     shared" in said and f"not merged: {merge.SAME_LINES}" in said
    same(read_back(agent.root), before)
    assert putback(agent, "--json", "undo", third, "--merge", "--yes") == 1
    result = json.loads(capsys.readouterr().out)
    assert {one["path"] for one in result["outcomes"] if one["status"] == "merged"} == {"shared", "script"}
    assert {step["path"] for step in result["plan"]["steps"] if step["action"] == "merge"} == {"shared", "script"}
    assert putback(agent, "redo", "--yes") == 0
    assert putback(agent, "restore", third, "shared", "--merge", "--yes") == 0
    assert "1 path put back, 1 of them merged; `putback undo`" in capsys.readouterr().out
    for arguments in (
        ("undo", "--merge", "--force"),
        ("redo", "--merge", "--force"),
        ("restore", "@1", "--merge", "--force"),
    ):
        assert putback(agent, *arguments) == 2
