"""What a policy keeps of a history. Pure: entries, rules, and what binds some of them, to a verdict for each.

The order of the history is that of its numbers; the clock only says into which hour, day or week an entry falls,
and how long ago it was. So a clock that went backwards, or was wrong for a while, costs no rule its entries.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime, tzinfo

from putback.config import RetentionSettings, duration_seconds
from putback.records.history import Cause, Entry, EntryKind
from putback.records.retention import Judged, Keep, Why
from putback.store.history import UndoState, undo_state

_BACK_AND_FORTH = frozenset({Cause.UNDO, Cause.REDO, Cause.TURN})
Verdicts = dict[str, list[Why]]


def configured(settings: RetentionSettings) -> Keep:
    """The policy that settings ask for; one without rules where they ask for none."""
    return Keep(
        last=settings.keep_last or 0,
        hourly=settings.keep_hourly or 0,
        daily=settings.keep_daily or 0,
        weekly=settings.keep_weekly or 0,
        within_seconds=duration_seconds(settings.keep_within) if settings.keep_within else 0.0,
        messages=settings.keep_message,
    )


def judge(
    entries: list[Entry],
    keep: Keep,
    bound: Mapping[str, Why],
    now_ns: int,
    zone: tzinfo | None = None,
) -> tuple[Judged, ...]:
    """A verdict for each of `entries`, which come newest first; where no rule is set, none keeps anything.

    `bound` says why something other than the history needs an entry or a capture, by id. `now_ns` bounds what an
    entry's time may be: none is younger than now. `zone` is for hours, days and weeks; None: local time.
    Dropping what is not kept leaves undo and redo with just what they had, without what was dropped.
    """
    verdicts: Verdicts = {entry.id: [] for entry in entries}
    _by_rules(verdicts, entries, keep, now_ns, zone)
    for entry in entries:
        verdicts[entry.id] += dict.fromkeys(bound[oid] for oid in _ids(entry) if oid in bound)
    _for_undo(verdicts, entries)
    return tuple(
        Judged(
            id=entry.id,
            kind=entry.kind,
            created_ns=entry.created_ns,
            message=entry.message,
            kept=tuple(verdicts[entry.id]),
        )
        for entry in entries
    )


def _ids(entry: Entry) -> tuple[str, ...]:
    return (entry.id, entry.before, entry.after)


def _by_rules(verdicts: Verdicts, entries: list[Entry], keep: Keep, now_ns: int, zone: tzinfo | None) -> None:
    counted = [entry for entry in entries if entry.kind is not EntryKind.RESTORE]
    for entry in counted[: keep.last]:
        verdicts[entry.id].append(Why.LAST)
    rules: tuple[tuple[Why, int, Callable[[datetime], Hashable]], ...] = (
        (Why.HOURLY, keep.hourly, lambda time: (time.date(), time.hour, time.utcoffset())),
        (Why.DAILY, keep.daily, lambda time: time.date()),
        (Why.WEEKLY, keep.weekly, lambda time: time.isocalendar()[:2]),
    )
    for why, most, bucket in rules:
        for entry in _newest_of_each(counted, most, bucket, zone):
            verdicts[entry.id].append(why)
    if keep.within_seconds and counted:
        # Restores are not counted, but what was just put back is as young as what stands beside it.
        since = min(counted[0].created_ns, now_ns) - int(keep.within_seconds * 1e9)
        for entry in entries:
            if entry.created_ns >= since:
                verdicts[entry.id].append(Why.WITHIN)
    for entry in counted:
        if any(fnmatch.fnmatchcase(entry.message, pattern) for pattern in keep.messages):
            verdicts[entry.id].append(Why.MESSAGE)


def _newest_of_each(
    counted: list[Entry], most: int, bucket: Callable[[datetime], Hashable], zone: tzinfo | None
) -> Iterable[Entry]:
    seen: set[Hashable] = set()
    for entry in counted:
        if len(seen) == most:
            return
        local = datetime.fromtimestamp(entry.created_ns // 10**9, zone)
        found = bucket(local if zone else local.astimezone())
        if found not in seen:
            seen.add(found)
            yield entry


def _for_undo(verdicts: Verdicts, entries: list[Entry]) -> None:
    """Keep what undo and redo need.

    Those are: what redo would do again; restores that undo would take back, for they hold the only copy of what
    they replaced; what undo would take next; the newest change, because it ended what redo could do before it. And
    what took an entry back, or did it again, stays as long as that entry.
    """
    before = undo_state(entries)
    needed = {entry.id for entry in (*before.redo, *before.undo[-1:])}
    needed |= {entry.id for entry in before.undo if entry.kind is EntryKind.RESTORE}
    newest = next((entry.id for entry in entries if _is_change(entry)), None)
    for oid in (*needed, *([newest] if newest and newest not in needed else [])):
        verdicts[oid].append(Why.UNDO)
    for entry in entries:
        if entry.cause in _BACK_AND_FORTH and verdicts.get(entry.of):
            verdicts[entry.id].append(Why.UNDONE)
    if _without(before, verdicts) != undo_state([entry for entry in entries if verdicts[entry.id]]):
        # A history that no sequence of commands makes. All that undo and redo look at stays, then.
        for entry in entries:
            if entry.kind is not EntryKind.SNAPSHOT and entry.changed and not verdicts[entry.id]:
                verdicts[entry.id].append(Why.UNDO)


def _is_change(entry: Entry) -> bool:
    return entry.kind is not EntryKind.SNAPSHOT and entry.changed > 0 and entry.cause not in _BACK_AND_FORTH


def _without(state: UndoState, verdicts: Verdicts) -> UndoState:
    undo, redo = (tuple(entry for entry in part if verdicts[entry.id]) for part in (state.undo, state.redo))
    return UndoState(undo, redo)
