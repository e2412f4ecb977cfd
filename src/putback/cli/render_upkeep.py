"""What looking after the store found and did, for people: lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from putback.cli.render import count, cut, path, size, when, words
from putback.records.retention import Judged, Why
from putback.records.upkeep import Pruned, Vanished

_WHY = {
    Why.UNDO: "undo or redo needs it",
    Why.UNFINISHED: "a restore or a run that has no end needs it",
    Why.BOUND_TURN: "an exact-path turn needs it",
    Why.OPEN_TURN: "a turn under way needs it",
    Why.UNDONE: "it took back, or did again, an entry that stays",
    Why.DAMAGED: "nobody knows what it is",
}


def pruned(item: Pruned, width: int) -> Iterator[str]:
    """What `putback prune` prints: each entry with what keeps it, and what was freed.

    Messages are cut where a line would be longer than `width`.
    """
    for entry in item.judged:
        yield _judged(entry, width)
    for workspace in item.vanished:
        yield _vanished(workspace)
    would = "" if item.done else "would be "
    if item.judged:
        yield f"{count(len(item.dropped), 'entry', 'entries')} {would}dropped, {len(item.judged)} before"
    if item.bare:
        yield f"{count(item.bare, 'capture')} without an entry {would}dropped"
    gone = sum(not workspace.kept for workspace in item.vanished)
    if gone:
        yield f"{count(gone, 'workspace')} that vanished {would}dropped"
    elif not item.judged and not item.vanished:
        yield "nothing to drop"
    if item.reclaimed is not None:
        freed = max(0, item.reclaimed.bytes_before - item.reclaimed.bytes_after)
        later = "; more when other processes are done" if item.reclaimed.waiting else ""
        yield f"{size(freed)} freed; the store takes {size(item.reclaimed.bytes_after)}{later}"


def _judged(item: Judged, width: int) -> str:
    when_made = when(item.created_ns) if item.created_ns else f"{'':<19}"
    start = f"{'keep' if item.kept else 'drop'}  {item.id[:12]}  {item.kind:<8}  {when_made}"
    reasons = ", ".join(_WHY.get(why, str(why)) for why in item.kept)
    why = f"  ({reasons})" if reasons else ""
    return f"{start}  {cut(words(item.message), width - len(start) - len(why) - 2)}{why}"


def _vanished(item: Vanished) -> str:
    start = f"{'keep' if item.kept else 'drop'}  {path(item)}"
    holds = f"{count(item.entries, 'entry', 'entries')}, the newest of {size(item.bytes)}"
    return f"{start}  {holds}" + (f"  ({words(item.kept)})" if item.kept else "")
