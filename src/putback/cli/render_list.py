"""The history for people: a line an entry, and the turns of one session of an agent below its name."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from putback.cli.render import count, cut, when, words
from putback.records.agent import AgentTurn, Ended
from putback.records.history import Entry, EntryKind
from putback.records.run import RunStatus

if TYPE_CHECKING:
    from putback.store.history import Listed

UNBOUNDED = 10_000
# Below this many columns a line has no room for a whole time beside the message.
NARROW = 100
_SESSION = 8


def screen() -> tuple[int, int]:
    """How long a line may be, and how many there is room for; what is no terminal takes any."""
    if not sys.stdout.isatty():
        return UNBOUNDED, UNBOUNDED
    import shutil  # slow to load, and only a terminal needs it

    found = shutil.get_terminal_size()
    return found.columns, found.lines


def history(entries: Iterable[Listed], width: int) -> Iterator[str]:
    """The lines of `entries`, as they come; a heading where a turn is of another session than the turn above."""
    now = time.time()
    group: tuple[str, str] | None = None
    for item in entries:
        turn = item.entry.agent
        if turn is not None and (turn.agent, turn.session) != group:
            group = (turn.agent, turn.session)
            yield click.style(heading(turn)[:width], dim=True)
        yield line(item, width, now)


def heading(turn: AgentTurn) -> str:
    """What stands above the turns of a session; its name is cut to what tells it from others."""
    session = words(turn.session)
    return f"{turn.agent}, session {session[:_SESSION]}" if session else turn.agent


def line(item: Listed, width: int, now: float) -> str:
    """One entry in at most `width` columns, but with no less than the beginning of its message."""
    entry = item.entry
    place = f"@{item.number}" if item.number else ""
    narrow = width < NARROW
    made = f"{_since(now - entry.created_ns / 1e9):>6}" if narrow else when(entry.created_ns)
    amount = f"{_amount(entry):>{11 if narrow else 13}}"
    head = f"{place:<{len(str(item.of)) + 1}}  {entry.short_id}  {entry.kind:<8}  {made}  {amount}"
    plain, shown = _lines(entry)
    message = _how(entry) + words(entry.message)
    return f"{head}{shown}  {cut(message, width - len(head) - len(plain) - 2)}"


def _amount(entry: Entry) -> str:
    if entry.kind is EntryKind.SNAPSHOT:
        return count(entry.files, "file")
    return count(entry.applied if entry.kind is EntryKind.RESTORE else entry.changed, "path")


def _lines(entry: Entry) -> tuple[str, str]:
    """How many lines came and went, where that was counted: as it is measured, and as it is shown."""
    turn = entry.agent
    if turn is None or turn.added is None or turn.removed is None or not entry.changed:
        return "", ""
    added, removed = f"+{turn.added}", f"-{turn.removed}"
    return f"  {added} {removed}", f"  {click.style(added, fg='green')} {click.style(removed, fg='red')}"


def _since(seconds: float) -> str:
    """How long ago, in six columns; what the clock says is yet to come is no time at all."""
    if seconds < -1:
        return "later"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(max(0, seconds))} s"


def _how(entry: Entry) -> str:
    """How a run or a turn came out, where that is worth a word."""
    if entry.agent is not None:
        return "" if entry.agent.ended is Ended.STOPPED else f"[{entry.agent.ended}] "
    if entry.status in (None, RunStatus.FINISHED):
        return f"[exit {entry.exit_code}] " if entry.exit_code else ""
    return f"[{entry.status}] "
