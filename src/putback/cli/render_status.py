"""How a workspace stands, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from putback.cli.render import ON_SCREEN, ago, count, cut, size, warning, words
from putback.paths import printable
from putback.records.agent import Failure
from putback.records.history import Entry

if TYPE_CHECKING:
    from putback.agents.protection import Protector
    from putback.ops.status import WorkspaceStatus
    from putback.records.upkeep import Size, Sizes


def status(item: WorkspaceStatus, by: Sequence[Protector], now: float) -> Iterator[str]:
    """What `putback status` prints; `by` are the agents that capture their turns here."""
    root = printable(str(item.root).encode("utf-8", "surrogateescape"))
    if item.last is None:
        yield f"not protected: {root} was never captured; `putback snapshot` takes the first capture"
        for old in item.moved_from:
            yield f"  moved?    if this was at {printable(old)}, `putback relocate OLD` attaches its history"
    else:
        since = ago(now - item.last.created_ns / 1e9)
        yield f"protected: {root}"
        yield f"  last      {item.last.short_id} {since}  {words(item.last.message)}"
        yield f"  history   {count(item.entries, 'entry', 'entries')}"
    if by:
        yield f"  agents    {', '.join(f'{agent} ({scope})' for agent, scope in by)}"
    else:
        yield "  agents    none captures its turns here; `putback agent install` has one do so"
    place = printable(str(item.store).encode("utf-8", "surrogateescape"))
    yield f"  store     {size(item.store_bytes)} of {size(item.store_limit)} in {place}"
    if item.permissions != "private":
        yield f"  shared    permissions of the store are {item.permissions}"
    for fault in item.damaged:
        yield click.style(f"  damaged   {words(fault)}", fg="red")
    if item.replaced:
        yield "  note      the directory is not the one that was captured: it was replaced at this path"
    if item.purging:
        note = "what was forgotten may still be on the disk: `putback forget` was cut short"
        yield click.style(f"  note      {note}; the next command goes on with it", fg="yellow")
    if item.interrupted is not None:
        yield click.style(
            "unknown state: a restore was interrupted; `putback recover` shows and resolves it", fg="red"
        )
    if item.warning:
        yield warning(item.warning)


def failure(item: Failure, now: float) -> Iterator[str]:
    """What went wrong in a hook last."""
    where = f"{item.agent}, {item.event or 'an event'}, {ago(now - item.at_ns / 1e9)}"
    yield click.style(f"  hook      {where}: {words(item.message)}", fg="yellow")


def sizes(item: Sizes, entries: Iterable[Entry], here: str, width: int, *, everything: bool) -> Iterator[str]:
    """What `putback status --sizes` prints, the dearest first; `here` is how the store calls this workspace.

    Messages are cut where a line would be longer than `width`.
    """
    yield f"store: {size(item.total)} of {size(item.limit)}"
    yield ""
    yield f"{'logical':>12}  {'physical':>12}  workspace"
    for workspace in sorted(item.workspaces, key=_physical, reverse=True):
        mark = "  (this one)" if workspace.name == here else ""
        yield f"{size(workspace.logical):>12}  {size(workspace.physical):>12}  {words(workspace.name)}{mark}"
    if not item.entries:
        return
    known = {entry.id: entry for entry in entries}
    yield ""
    yield f"{'logical':>12}  {'physical':>12}  entry"
    dearest = sorted(item.entries, key=_physical, reverse=True)
    shown = dearest if everything or len(dearest) <= ON_SCREEN else dearest[: ON_SCREEN // 2]
    for one in shown:
        entry = known.get(one.name)
        line = f"{size(one.logical):>12}  {size(one.physical):>12}  {one.name[:12]}"
        if entry is not None:
            line += f"  {entry.kind:<8}  "
            line += cut(words(entry.message), width - len(line))
        yield line
    if len(shown) < len(dearest):
        rest = sum(one.physical for one in dearest[len(shown) :])
        yield f"{'':>12}  {size(rest):>12}  {len(dearest) - len(shown):,} more; -v lists them all"
    shared = next((one.physical for one in item.workspaces if one.name == here), 0)
    shared -= sum(one.physical for one in item.entries)
    yield f"{'':>12}  {size(max(0, shared)):>12}  shared by entries, and kept beside them"


def _physical(item: Size) -> int:
    return item.physical
