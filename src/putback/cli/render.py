"""Results for people: short lines, sizes and times in the forms that people read, paths that cannot do harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from putback.paths import printable
from putback.records.agent import AgentTurn
from putback.records.capture import Capture, NotCovered
from putback.records.change import Change, Kind
from putback.records.document import AtPath
from putback.records.history import Cause, Entry, EntryKind
from putback.records.plan import Outcome, Plan, Status

if TYPE_CHECKING:
    from putback.ops.compare import Comparison, Shown
    from putback.ops.recover import Interrupted
    from putback.ops.restore import Restored

EXAMPLES = 10
ON_SCREEN = 40
_LEAST = 10
_BAD = (Status.REFUSED, Status.FAILED)


def size(count: int) -> str:
    """A number of bytes: `8.3 MB`."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 file`, `1,204 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def when(created_ns: int) -> str:
    """A moment in local time."""
    return datetime.fromtimestamp(created_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float) -> str:
    """How long since: `12 s ago`, `3 h ago`. Of what is yet to come it says that the clock was set back."""
    if seconds < -1:
        return "in the future (the clock was set back)"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(max(0, seconds))} s ago"


def cut(text: str, room: int) -> str:
    """`text` in at most `room` columns, or ten where there are fewer."""
    room = max(_LEAST, room)
    return text if len(text) <= room else text[: room - 1] + "…"


def path(item: AtPath) -> str:
    """The path of a record."""
    return printable(item.name)


def words(text: str) -> str:
    """Text that names what others have named."""
    return printable(text.encode("utf-8", "backslashreplace"))


def snapshot(entry: Entry, capture: Capture) -> Iterator[str]:
    """What `putback snapshot` prints."""
    held = f"{count(entry.files, 'file')}, {size(entry.bytes)}"
    yield f"captured {click.style(entry.short_id, bold=True)}  {held}  {words(entry.message)}"
    yield from coverage(capture)


def warning(text: str) -> str:
    return click.style(f"warning: {words(text)}", fg="yellow")


def coverage(capture: Capture, *, everything: bool = False) -> Iterator[str]:
    """What a capture does not cover."""
    missing = capture.not_covered
    if missing:
        yield f"not covered: {count(len(missing), 'path')}"
        yield from (f"  {line}" for line in _examples(missing, everything))
    if capture.privileged:
        names = [path(item) for item in capture.privileged]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"not kept: setuid, setgid or sticky bits of {', '.join(names[:3])}{more}"
    for text in capture.warnings:
        yield warning(text)
    if capture.ignored:
        yield f"left out by ignore rules: {count(capture.ignored, 'path')}"


def _not_covered(item: NotCovered) -> str:
    detail = f" ({words(item.detail)})" if item.detail else ""
    return f"{item.reason:<13} {path(item)}{detail}"


def _examples(items: Sequence[NotCovered], everything: bool) -> Iterator[str]:
    """All of a few, or some of many with the number of the others."""
    shown = items if everything or len(items) <= EXAMPLES else items[: EXAMPLES // 2]
    yield from (_not_covered(item) for item in shown)
    if len(items) > len(shown):
        yield f"… and {len(items) - len(shown):,} more; `putback show` lists them all"


def plan(item: Plan, *, everything: bool) -> Iterator[str]:
    """A plan that has not been carried out."""
    lines = [f"would {step.action:<9} {path(step)}" for step in item.steps]
    yield from _some(lines, everything)
    for refused in item.refused:
        yield click.style(f"refused         {path(refused)}: {words(refused.reason)}", fg="red")
    yield from _left(item, everything)
    changing = count(len(item.steps), "path")
    yield f"{changing} would change, {len(item.refused)} refused, {len(item.left)} left alone"


def restored(item: Restored, *, everything: bool) -> Iterator[str]:
    """What was done, one line a path; refusals and failures are never left out."""
    good = [one for one in item.outcomes if one.status not in _BAD]
    yield from _some([outcome(one) for one in good], everything)
    for one in item.outcomes:
        if one.status in _BAD:
            yield click.style(outcome(one), fg="red")
    yield from _left(item.plan, everything)
    if item.superseded:
        yield "an earlier restore that was interrupted is given up for this one; `putback list` has it"
    bad = sum(one.status in _BAD for one in item.outcomes)
    summary = f"{count(item.applied, 'path')} put back"
    if item.merged:
        summary += f", {item.merged} of them merged"
    if bad:
        summary += f", {bad} not"
    if item.entry is not None:
        summary += f"; {_way_back(item.entry)} ({item.entry.short_id})"
    yield summary


def _way_back(entry: Entry) -> str:
    if entry.cause is Cause.TURN:
        return f"`putback restore {entry.before[:12]}` puts the files back as the turn left them"
    return f"`putback {'redo' if entry.cause is Cause.UNDO else 'undo'}` takes this back"


def outcome(item: Outcome) -> str:
    """What became of one path."""
    reason = f"  ({words(item.reason)})" if item.reason else ""
    return f"{item.status:<10} {path(item)}{reason}"


def _left(item: Plan, everything: bool) -> Iterator[str]:
    if item.left:
        yield from _some([f"left       {path(left)}  ({words(left.reason)})" for left in item.left], everything)


def _some(lines: Sequence[str], everything: bool) -> Iterator[str]:
    shown = lines if everything or len(lines) <= ON_SCREEN else lines[: ON_SCREEN // 2]
    yield from shown
    if len(lines) > len(shown):
        yield f"… and {len(lines) - len(shown):,} more; -v lists them all"


def name_status(changes: Iterable[Change]) -> Iterator[tuple[bytes, bytes]]:
    """git's letters: A, M, D, and T where the kind changed."""
    for change in changes:
        letter = {"created": b"A", "deleted": b"D"}.get(change.status, b"M")
        if change.before and change.after and change.before.kind is not change.after.kind:
            letter = b"T"
        yield letter, change.path


def stat(item: Comparison) -> Iterator[str]:
    """A line per path with the number of lines that come and go, and a total."""
    lines = {path: (added, removed) for path, added, removed in item.stat}
    letters = {name: letter.decode() for letter, name in name_status(item.changes)}
    for change in item.changes:
        added, removed = lines.get(change.path, (0, 0))
        if change.path not in lines:
            amount = "directory" if _is_directory(change) else "mode"
        else:
            amount = "binary" if added is None else f"+{added} -{removed}"
        yield f"{letters[change.path]} {amount:>12}  {printable(change.path)}"
    yield f"{count(len(item.changes), 'path')}: {item.before} -> {item.after}"


def _is_directory(change: Change) -> bool:
    return any(node is not None and node.kind is Kind.DIRECTORY for node in (change.before, change.after))


def patch(text: str) -> Iterator[str]:
    """A unified diff with the usual colours."""
    for line in text.splitlines(keepends=True):
        if line.startswith(("+++", "---", "diff ")):
            yield click.style(line, bold=True)
        elif line.startswith("@@"):
            yield click.style(line, fg="cyan")
        elif line.startswith("+"):
            yield click.style(line, fg="green")
        elif line.startswith("-"):
            yield click.style(line, fg="red")
        else:
            yield line


def shown(item: Shown, *, everything: bool) -> Iterator[str]:
    """What `putback show` prints."""
    entry, record = item.entry, item.capture
    if entry is not None:
        yield f"{entry.kind} {click.style(entry.id, bold=True)}"
        yield f"  made      {when(entry.created_ns)}"
        if entry.agent is not None:
            yield from _turn(entry.agent)
        elif entry.kind is EntryKind.TURN:
            yield f"  binding   {entry.of}"
        if entry.kind is not EntryKind.RUN:
            yield f"  message   {words(entry.message)}"
        if entry.before:
            yield f"  before    {entry.before[:12]}   after {entry.after[:12]}"
    if item.receipt is not None:
        from putback.cli import render_run

        yield from render_run.receipt(item.receipt)
    elif record is not None:
        yield from _capture(record)
    if item.comparison is not None:
        lines = [f"{letter.decode()}  {printable(name)}" for letter, name in name_status(item.comparison.changes)]
        yield from _some(lines, everything)
    for declined in entry.declined if entry is not None else ():
        yield click.style(outcome(declined), fg="red")


def _turn(turn: AgentTurn) -> Iterator[str]:
    """What only a turn of a coding agent has."""
    calls = count(turn.calls, "tool call")
    if turn.added is not None:
        calls += f", +{turn.added} -{turn.removed} lines"
    yield f"  agent     {turn.agent}, session {words(turn.session)}, {calls}, {turn.ended}"
    if turn.late:
        yield click.style("  note      it began late: what was changed until then is not in it", fg="yellow")
    if turn.moved_head or turn.moved_index:
        what = " and ".join(
            name for name, moved in (("HEAD", turn.moved_head), ("the index", turn.moved_index)) if moved
        )
        yield f"  note      {what} moved during the turn; undo leaves that as it is"
    if turn.others:
        yield f"  note      other sessions were at work meanwhile: {words(', '.join(turn.others))}"
    for item in turn.written:
        yield f"  written   {path(item)} by {words(', '.join(item.by))}"


def _capture(record: Capture) -> Iterator[str]:
    yield f"  tree      {count(record.files, 'file')}, {size(record.bytes)}, of {words(record.root)}"
    if record.scope:
        yield f"  only      {', '.join(path(part) for part in record.scope)}"
    if record.repository is not None:
        branch = words(record.repository.branch) or "detached"
        yield f"  git       {record.repository.head[:12] or 'no commit'} ({branch})"
    yield from coverage(record, everything=True)


def interrupted(item: Interrupted) -> Iterator[str]:
    """Where the paths of an interrupted restore stand."""
    yield f"interrupted: {words(item.started.message)}, begun {when(item.started.created_ns)}"
    standings = {"before": "as before", "after": "put back", "halfway": "halfway", "other": "something else"}
    for name, standing in item.paths.items():
        yield f"{standings[standing]:<14}  {printable(name)}"
