"""What a policy keeps: against a second implementation on random histories, and what binds it, by example."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import hypothesis
import pytest
from hypothesis import strategies as st

from putback.config import RetentionSettings
from putback.errors import UsageError
from putback.records.history import Cause, Entry, EntryKind
from putback.records.retention import Keep, Why
from putback.store.history import undo_state
from putback.upkeep.retention import configured, judge

HOUR, DAY = 3600, 86_400
START = 1_700_000_000
NOW_NS = (START + 40 * DAY) * 10**9
RULES = frozenset({Why.LAST, Why.HOURLY, Why.DAILY, Why.WEEKLY, Why.WITHIN, Why.MESSAGE})


def entry(seq: int, at: int = START, kind: EntryKind = EntryKind.SNAPSHOT, **fields: object) -> Entry:
    return Entry(seq=seq, id=f"{seq:064x}", kind=kind, created_ns=at * 10**9, **fields)  # type: ignore[arg-type]


def kept(entries: list[Entry], keep: Keep, now_ns: int = NOW_NS, **bound: Why) -> dict[int, tuple[Why, ...]]:
    """By number, for entries given oldest first."""
    named = {f"{int(seq[1:]):064x}": why for seq, why in bound.items()}
    verdicts = judge(entries[::-1], keep, named, now_ns, UTC)
    assert [int(item.id, 16) for item in verdicts] == [item.seq for item in entries[::-1]]
    return {int(item.id, 16): item.kept for item in verdicts}


@st.composite
def histories(draw: st.DrawFn, *, sane: bool = True) -> list[Entry]:
    """Oldest first; clocks go back and stand still. Unless `sane`, what undo did need not have been possible."""
    at, made = START, list[Entry]()
    steps = (0, 0, 60, HOUR, 5 * HOUR, DAY, 3 * DAY, -2 * HOUR, -9 * DAY, 4000 * DAY)
    for seq in range(1, draw(st.integers(0, 24)) + 1):
        at = max(0, at + draw(st.sampled_from(steps)))
        state = undo_state(made[::-1])
        kinds = ["snapshot", "snapshot", "run", "turn", "restore", "restore", "nothing"]
        undoable, redoable = list(state.undo[-3:]), list(state.redo[-1:])
        if not sane:
            undoable = redoable = made
        kinds += ["undo", "undo"] * bool(undoable) + ["redo"] * bool(redoable)
        what = draw(st.sampled_from(kinds))
        message = draw(st.sampled_from(["", "release 1", "work"]))
        if what in ("undo", "redo"):
            of = draw(st.sampled_from(undoable if what == "undo" else redoable))
            chosen = {"kind": EntryKind.RESTORE, "cause": Cause(what), "of": of.id, "changed": 1}
        else:
            kind = EntryKind.RESTORE if what == "nothing" else EntryKind(what)
            chosen = {"kind": kind, "changed": int(what in ("run", "turn", "restore"))}
        made.append(entry(seq, at, message=message, **chosen))  # type: ignore[arg-type]
    return made


def policies() -> st.SearchStrategy[Keep]:
    count = st.sampled_from([0, 0, 0, 1, 2, 3, 7])
    within = st.sampled_from([0.0, 0.0, 1.0, 36.0 * HOUR, 14.0 * DAY])
    messages = st.sampled_from([(), (), ("release*",)])
    return st.builds(
        Keep, last=count, hourly=count, daily=count, weekly=count, within_seconds=within, messages=messages
    )


def oracle(entries: list[Entry], keep: Keep, now_ns: int) -> dict[Why, set[int]]:
    """What each rule keeps, found the other way round: entries are sorted into drawers, and drawers are opened."""
    counted = {item.seq: item for item in entries if item.kind.value in {"snapshot", "run", "turn"}}
    found: dict[Why, set[int]] = defaultdict(set)
    found[Why.LAST] = {seq for seq in counted if sum(other >= seq for other in counted) <= keep.last}
    for why, form, most in (
        (Why.HOURLY, "%Y-%m-%dT%H", keep.hourly),
        (Why.DAILY, "%Y-%m-%d", keep.daily),
        (Why.WEEKLY, "%G-W%V", keep.weekly),
    ):
        drawers: dict[str, list[int]] = defaultdict(list)
        for seq, item in counted.items():
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=item.created_ns // 1000)
            drawers[moment.strftime(form)].append(seq)
        found[why] = set(sorted(max(drawer) for drawer in drawers.values())[::-1][:most])
    if keep.within_seconds and counted:
        anchor = counted[max(counted)].created_ns
        anchor = now_ns if anchor > now_ns else anchor
        found[Why.WITHIN] = {e.seq for e in entries if (anchor - e.created_ns) / 1e9 <= keep.within_seconds}
    glob = "|".join(pattern.replace("*", ".*") for pattern in keep.messages)
    found[Why.MESSAGE] = {seq for seq, item in counted.items() if glob and re.fullmatch(glob, item.message)}
    return found


@hypothesis.settings(max_examples=150 if hypothesis.settings.default.max_examples < 100 else 20_000)
@hypothesis.given(histories(), policies())
def test_the_rules_keep_what_a_second_implementation_keeps(entries: list[Entry], keep: Keep) -> None:
    by_rule = oracle(entries, keep, NOW_NS)
    for seq, reasons in kept(entries, keep).items():
        assert set(reasons) & RULES == {why for why in RULES if seq in by_rule[why]}


@hypothesis.settings(max_examples=200 if hypothesis.settings.default.max_examples < 100 else 20_000)
@hypothesis.given(st.booleans().flatmap(lambda sane: histories(sane=sane)), policies(), st.booleans())
def test_what_is_dropped_changes_nothing_else_for_undo_and_redo(
    entries: list[Entry], keep: Keep, thin: bool
) -> None:
    found = kept(entries, Keep(last=1) if thin else keep)
    before, after = undo_state(entries[::-1]), undo_state([e for e in entries if found[e.seq]][::-1])
    assert after.undo == tuple(e for e in before.undo if found[e.seq])
    assert after.redo == before.redo
    assert after.undo[-1:] == before.undo[-1:]
    assert {e for e in before.undo if e.kind is EntryKind.RESTORE} <= set(after.undo)


def test_no_rule_at_all_keeps_only_what_is_needed() -> None:
    entries = [entry(1), entry(2, kind=EntryKind.RUN, changed=1), entry(3)]
    assert kept(entries, Keep()) == {3: (), 2: (Why.UNDO,), 1: ()}


def test_equal_times_and_a_clock_that_went_back_cost_no_entry_its_place() -> None:
    entries = [entry(1, START + DAY), entry(2, START), entry(3, START), entry(4, START - DAY)]
    found = kept(entries, Keep(last=2, daily=2))
    assert found == {4: (Why.LAST, Why.DAILY), 3: (Why.LAST, Why.DAILY), 2: (), 1: ()}


def test_a_clock_in_the_future_costs_nothing_what_is_young() -> None:
    """The newest entry was made in 2050, by a clock that has been set since: the others are as young as ever."""
    now = START + DAY
    entries = [entry(1, START - 30 * DAY), entry(2, START), entry(3, START + 9000 * DAY)]
    assert kept(entries, Keep(within_seconds=2 * DAY), now * 10**9) == {3: (Why.WITHIN,), 2: (Why.WITHIN,), 1: ()}


def test_an_old_workspace_keeps_what_was_young_when_it_was_left() -> None:
    entries = [entry(1, START - 9 * DAY), entry(2, START - DAY), entry(3, START)]
    found = kept(entries, Keep(within_seconds=2 * DAY), (START + 365 * DAY) * 10**9)
    assert found == {3: (Why.WITHIN,), 2: (Why.WITHIN,), 1: ()}


def test_restores_are_not_counted_and_go_when_they_are_undone_for_good() -> None:
    restore = {"kind": EntryKind.RESTORE, "changed": 1}
    entries = [
        entry(1),
        entry(2, **restore),  # type: ignore[arg-type]
        entry(3, cause=Cause.UNDO, of=f"{2:064x}", **restore),  # type: ignore[arg-type]
        entry(4, kind=EntryKind.RUN, changed=1),
        entry(5, **restore),  # type: ignore[arg-type]
        entry(6),
    ]
    found = kept(entries, Keep(last=2))
    assert found == {6: (Why.LAST,), 5: (Why.UNDO,), 4: (Why.LAST,), 3: (), 2: (), 1: ()}


def test_what_took_an_entry_back_stays_with_it() -> None:
    entries = [
        entry(1, kind=EntryKind.RUN, changed=1, message="release"),
        entry(2, kind=EntryKind.RESTORE, cause=Cause.UNDO, of=f"{1:064x}", changed=1),
        entry(3, kind=EntryKind.RUN, changed=1),
    ]
    found = kept(entries, Keep(messages=("rel*",)))
    assert found == {3: (Why.UNDO,), 2: (Why.UNDONE,), 1: (Why.MESSAGE,)}


def back(seq: int, of: int, cause: Cause = Cause.UNDO) -> Entry:
    return entry(seq, kind=EntryKind.RESTORE, cause=cause, of=f"{of:064x}", changed=1)


def test_the_change_that_ended_redo_stays_or_what_it_ended_would_be_back() -> None:
    run = {"kind": EntryKind.RUN, "changed": 1}
    entries = [
        entry(1, **run),  # type: ignore[arg-type]
        entry(2, **run),  # type: ignore[arg-type]
        entry(3, message="release", **run),  # type: ignore[arg-type]
        back(4, 3),
        entry(5, **run),  # type: ignore[arg-type]
        back(6, 2),
        back(7, 2, Cause.REDO),
    ]
    found = kept(entries, Keep(messages=("rel*",)))
    assert found[5] == (Why.UNDO,)
    assert not found[1]


def test_a_history_that_no_commands_make_is_left_as_undo_sees_it() -> None:
    """The redo was none, for another change came before it; without that change it would be one."""
    run = {"kind": EntryKind.RUN, "changed": 1}
    entries = [
        entry(1, message="release", **run),  # type: ignore[arg-type]
        back(2, 1),
        entry(3, **run),  # type: ignore[arg-type]
        back(4, 1, Cause.REDO),
        entry(5, **run),  # type: ignore[arg-type]
    ]
    assert kept(entries, Keep(messages=("rel*",)))[3] == (Why.UNDO,)


def test_what_something_else_needs_stays_and_says_why() -> None:
    found = kept([entry(1), entry(2), entry(3)], Keep(last=1), n1=Why.UNFINISHED)
    assert found == {3: (Why.LAST,), 2: (), 1: (Why.UNFINISHED,)}


def test_days_and_hours_are_those_of_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """23:30 and 00:30 of UTC are one day in New York, and two in UTC."""
    midnight = 1_700_006_400
    entries = [entry(2, midnight + 1800), entry(1, midnight - 1800)]
    in_utc = judge(entries, Keep(daily=2), {}, NOW_NS, UTC)
    from zoneinfo import ZoneInfo

    there = judge(entries, Keep(daily=2), {}, NOW_NS, ZoneInfo("America/New_York"))
    assert [bool(item.kept) for item in in_utc] == [True, True]
    assert [bool(item.kept) for item in there] == [True, False]


def test_settings_become_rules() -> None:
    chosen = RetentionSettings(keep_last=3, keep_weekly=0, keep_within="1w12h", keep_message=("a*",))
    assert configured(chosen) == Keep(last=3, within_seconds=7.5 * DAY, messages=("a*",))
    assert not configured(RetentionSettings()).rules and not RetentionSettings(keep_last=0).is_set


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("retention.keep_within=14", "retention.keep_within: expected a text"),
        ("retention.keep_within=14x", "retention.keep_within: '14x' is not a length of time"),
        ("retention.keep_within=0d", "retention.keep_within: '0d' is no time"),
        ("retention.keep_last=-1", "retention.keep_last: -1 is not a size"),
        ("retention.keep_last=many", "retention.keep_last: expected a whole number"),
        ("retention.keep_message=a*", "retention.keep_message: expected a list"),
        ("retention.keep_latest=1", "nearest valid name is 'retention.keep_last'"),
    ],
)
def test_a_faulty_setting_is_named(tmp_path_factory: pytest.TempPathFactory, pair: str, said: str) -> None:
    from putback import config

    with pytest.raises(UsageError, match=re.escape(said)):
        config.load(tmp_path_factory.mktemp("tree"), None, [pair])


def test_the_workspace_has_no_say_in_what_is_kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    from putback import config

    tree = tmp_path_factory.mktemp("tree")
    (tree / ".putback.toml").write_text("[retention]\nkeep_last = 1\n")
    with pytest.raises(UsageError, match="your own configuration only"):
        config.load(tree, None)
