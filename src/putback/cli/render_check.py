"""What a check found, for people."""

from __future__ import annotations

from collections.abc import Iterator

import click

from putback.cli import render
from putback.records.upkeep import Checked, Damage, Lost

EXAMPLES = 10


def checked(found: Checked, share: float, *, repair: bool, everything: bool) -> Iterator[str]:
    """Each fault with what cannot come back by it, then what was looked at."""
    for item in found.damage:
        yield from _damage(item, everything)
    looked = (
        f"{render.count(found.entries, 'entry', 'entries')}, {render.count(found.objects, 'object')} looked at"
    )
    read = f"{render.size(found.bytes_read)} of contents read" if share else "contents not read"
    yield f"{looked}, {read}" if found.damage else f"sound: {looked}, {read}"
    if found.unlisted:
        names = ", ".join(capture[:12] for capture in found.unlisted[:3])
        more = f" and {len(found.unlisted) - 3} more" if len(found.unlisted) > 3 else ""
        yield f"not in the history, but can be restored by id: {names}{more}"
    if found.leftovers:
        yield f"left by processes that were killed: {render.count(found.leftovers, 'temporary file')}; no damage"
    if found.damage:
        yield _summary(found, repair)


def _damage(item: Damage, everything: bool) -> Iterator[str]:
    text = render.words(item.problem)
    if item.repaired and not item.whole:
        yield click.style("repaired", fg="green") + f"  {text}: {render.words(item.repaired)}"
        return
    yield click.style(f"{'lost' if item.whole or item.lost else 'damaged'}", fg="red") + f"  {text}"
    if item.repaired:
        yield f"    {render.words(item.repaired)}"
    shown = item.lost if everything or len(item.lost) <= EXAMPLES else item.lost[: EXAMPLES // 2]
    yield from (f"    {_lost(one)}" for one in shown)
    if len(item.lost) > len(shown):
        yield f"    … and {len(item.lost) - len(shown):,} more; -v lists them all"


def _lost(item: Lost) -> str:
    staged = "  (as it was staged)" if item.staged else ""
    return f"{render.path(item)}{'/  and all that is in it' if item.below else ''}{staged}"


def _summary(found: Checked, repair: bool) -> str:
    left = [item for item in found.damage if not item.repaired or item.whole or item.lost]
    mended = len(found.damage) - len(left)
    lost = {item.entry or item.problem for item in left if item.whole or item.lost}
    if not left:
        return f"{render.count(mended, 'fault')} repaired, nothing is lost"
    words = [render.count(len(left), "fault")]
    if mended:
        words.append(f"{mended:,} repaired")
    what = render.count(len(lost), "entry is", "entries are")
    words.append(f"{what} not whole; everything else can be restored" if lost else "nothing is lost")
    if not repair:
        return f"{', '.join(words)}\n  `putback check --repair` puts right what can be put right"
    return ", ".join(words)
