"""The history as people see it: long, in any order of the clock, and read no further than somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from putback.cli import render, render_list
from putback.errors import IntegrityError, NothingToUndo
from putback.records import document
from putback.records.agent import AgentTurn
from putback.records.history import Cause, Entry, EntryKind
from putback.store.history import History, Listed, recent_undo_state, redoable, undo_state, undoable
from support.agents import Agent
from support.hermetic import OpenWorkspace
from support.trees import create

MANY = 10_000


def entry(seq: int, kind: EntryKind = EntryKind.RUN, **fields: object) -> Entry:
    made = Entry(**{"seq": seq, "id": "", "kind": kind, "created_ns": seq, "changed": 1, **fields})  # type: ignore[arg-type]
    return msgspec.structs.replace(made, id=document.digest(made))


def written(folder: Path, entries: Sequence[Entry]) -> History:
    folder.mkdir()
    for item in entries:
        (folder / f"{item.seq:010d}-{item.kind}-{item.id}.json").write_bytes(document.encode(item))
    return History(folder)


class Counting(History, frozen=True):
    """Counts what it reads."""

    reads: list[int]

    def read(self, name: object) -> Entry:
        self.reads.append(1)
        return super().read(name)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> History:
    """10,000 entries: of ten one is a restore and one a snapshot, the rest are turns; a hundred to a session."""

    def one(seq: int) -> Entry:
        if seq % 10 == 0:
            return entry(seq, EntryKind.RESTORE, message="restored")
        if seq % 10 == 5:
            return entry(seq, EntryKind.SNAPSHOT, message="by hand")
        turn = AgentTurn(agent="codex", session=f"{seq // 100:03}-session", added=seq, removed=1)
        return entry(seq, EntryKind.TURN, message=f"prompt {seq}", agent=turn)

    return written(tmp_path_factory.mktemp("long") / "history", [one(seq) for seq in range(1, MANY + 1)])


def test_a_long_history_is_whole_and_in_order(long: History, tree: Path, open_workspace: OpenWorkspace) -> None:
    workspace = open_workspace(tree)
    workspace.snapshot("first")
    for path in workspace.paths.history.iterdir():
        path.unlink()
    workspace.paths.history.rmdir()
    workspace.paths.history.symlink_to(long.folder)
    assert [item.seq for item in workspace.list()] == list(range(MANY, 0, -1))
    listed = list(workspace.listing())
    numbers = [item.number for item in listed if item.entry.kind is not EntryKind.RESTORE]
    assert numbers == list(range(1, MANY * 9 // 10 + 1)) and {item.of for item in listed} == {MANY}
    assert all(item.number == 0 for item in listed if item.entry.kind is EntryKind.RESTORE)
    status, glance = workspace.status(), workspace.glance()
    assert (status.entries, status.damaged, status.last) == (MANY, (), glance.last) == (MANY, (), listed[0].entry)
    lines = list(render_list.history(listed, 140))
    assert len(lines) == MANY + 100, "a heading for each session, and none for what stands between its turns"
    assert [item.entry.seq for item in workspace.listing(session="042")] == [
        seq for seq in range(4299, 4199, -1) if seq % 5
    ]
    assert workspace.list(limit=2, kinds=[EntryKind.SNAPSHOT]) == [
        item.entry for item in listed if item.entry.seq in (9995, 9985)
    ]
    assert workspace.list(kinds=[EntryKind.SNAPSHOT], session="042") == []


def test_what_is_asked_of_the_newest_reads_only_them(long: History) -> None:
    counting = Counting(long.folder, [])
    assert undoable(counting, None).seq == MANY
    assert redoable(counting) is None
    assert len(counting.reads) < 100
    asked = long.names()[500]
    assert undoable(counting, asked.id).seq == asked.seq
    assert len(counting.reads) < 2000


# What happens next: something new, something without effect, or one of the earlier undone or done again.
STEP = st.tuples(st.sampled_from(["new", "nothing", "snapshot", "undo", "redo", "turn"]), st.integers(0, 30))


@example([("new", 0), ("new", 0), ("undo", 0), ("undo", 1), ("redo", 1)])
@example([("new", 0), ("undo", 0), ("new", 0), ("redo", 2)])
@example([("new", 0)] * 20 + [("undo", 19)] + [("nothing", 0)] * 20)
@given(st.lists(STEP, max_size=60))
def test_part_of_the_history_says_what_all_of_it_says(steps: list[tuple[str, int]]) -> None:
    entries: list[Entry] = []
    for seq, (what, back) in enumerate(steps, 1):
        of = entries[-1 - back].id if back < len(entries) else "0" * 64
        if what in ("undo", "redo", "turn"):
            entries.append(entry(seq, EntryKind.RESTORE, cause=Cause(what), of=of))
        elif what == "snapshot":
            entries.append(entry(seq, EntryKind.SNAPSHOT))
        else:
            entries.append(entry(seq, changed=int(what == "new")))
    entries.reverse()
    history = Remembered(Path(), entries)
    whole = undo_state(entries)
    assert redoable(history) == (whole.redo[-1] if whole.redo else None)
    try:
        assert undoable(history, None) == whole.undo[-1]
    except NothingToUndo:
        assert not whole.undo
    for item in entries:
        part = recent_undo_state(history, lambda read, state, item=item: item in read).undo
        assert (item in part) == (item in whole.undo)


class Remembered(History, frozen=True):
    """A history that is not on disk."""

    held: list[Entry]

    def names(self) -> list:  # type: ignore[type-arg]
        return self.held

    def read(self, name: object) -> Entry:
        assert isinstance(name, Entry)
        return name


def test_a_damaged_record_is_in_the_way_only_where_it_is_needed(tmp_path: Path) -> None:
    history = written(tmp_path / "history", [entry(seq) for seq in range(1, 31)])
    oldest, newest = history.names()[-1], history.names()[0]
    (history.folder / oldest.file).write_bytes(b"{")
    assert undoable(history, None).seq == 30
    (history.folder / newest.file).write_bytes(b"{")
    with pytest.raises(IntegrityError):
        undoable(history, None)


def test_the_order_is_that_of_the_numbers_whatever_the_clock_said(tmp_path: Path) -> None:
    history = written(tmp_path / "history", [entry(1, created_ns=3 * 10**9), entry(2, created_ns=0)])
    assert [item.seq for item in history.entries()] == [2, 1]
    assert undoable(history, None).seq == 2


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s ago"), (-0.5, "0 s ago"), (59, "59 s ago"), (-5, "in the future (the clock was set back)")],
)
def test_what_is_yet_to_come_was_not_some_time_ago(seconds: float, words: str) -> None:
    assert render.ago(seconds) == words
    item = Listed(1, entry(1, created_ns=100 * 10**9), 1)
    assert ("later" in render_list.line(item, 80, 100 + seconds)) == (seconds < -1)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_line_is_no_longer_than_the_screen(width: int) -> None:
    turn = AgentTurn(agent="codex", session="\x1b[31mlong" * 9, added=12345, removed=678)
    item = Listed(12, entry(1, EntryKind.TURN, message="a prompt\t" * 30, agent=turn), 9999)
    heading, line = render_list.history([item], width)
    plain = [part for part in (heading, line) if "\x1b[31mlong" in part]
    assert not plain, "a session's name moves no cursor"
    bare = line.replace("\x1b[32m", "").replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert len(bare) <= max(width, 80) and "+12345 -678" in bare and bare.endswith("…")


def test_a_turn_counts_the_lines_of_what_is_its_own(tree: Path, store: Path) -> None:
    create(tree, {"a": "1\n2\n3\n", "moved": "x\n"})
    agent, other = Agent(tree, store), Agent(tree, store, "s2")
    agent.prompt("count")
    other.prompt("beside")
    agent.write("a", "1\nzwei\n3\nvier\n")
    (tree / "binary").write_bytes(b"\0\1" * 100)
    (tree / "large").write_bytes(b"line\n" * 300_000)
    (tree / "a\tb").write_bytes(b"tab\n")
    (tree / "moved").chmod(0o755)
    other.write("theirs", "1\n2\n3\n4\n")
    agent.stop()
    other.stop()
    theirs, mine = agent.workspace.list()
    assert mine.agent is not None and (mine.agent.added, mine.agent.removed) == (3, 1)
    assert mine.changed == 5
    assert theirs.agent is not None
    assert (theirs.agent.added, theirs.agent.removed) == (4 + 1, 0), "no tool names what has the tab"


def test_lines_that_cannot_be_counted_do_not_cost_the_turn(tree: Path, store: Path) -> None:
    create(tree, {"a": "1\n"})
    agent = Agent(tree, store)
    agent.prompt("first")
    for path in (store / "objects.git" / "objects").glob("[0-9a-f][0-9a-f]/*"):
        if b"blob 2\0" in __import__("zlib").decompress(path.read_bytes())[:10]:
            path.unlink()
    agent.write("a", "2\n")
    agent.stop()
    (entry,) = agent.workspace.list()
    assert entry.changed == 1 and entry.agent is not None and entry.agent.added is None
    assert "+" not in render_list.line(Listed(1, entry, 1), 140, 0.0)
