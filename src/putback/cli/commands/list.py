"""`putback list`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from putback.cli import call, jsonout, render_list
from putback.records.history import EntryKind

if TYPE_CHECKING:
    from putback.store.history import Listed

_KINDS = click.Choice([str(kind) for kind in EntryKind])


@click.command(epilog="\b\nExample:\n  putback list -n 20\n  putback list --kind turn   (then: putback undo @2)")
@click.option("-n", "--limit", metavar="N", type=click.IntRange(min=1), help="Only the newest N.")
@click.option("--session", metavar="NAME", default="", help="Only turns of the session whose name begins so.")
@click.option("--kind", "kinds", type=_KINDS, multiple=True, help="Only these; may be given again.")
@click.option("--no-pager", is_flag=True, help="Never through a pager.")
@call.command
def command(here: call.Call, limit: int | None, session: str, kinds: tuple[str, ...], no_pager: bool) -> None:
    """The history, newest first. Turns of a coding agent stand below its name and the session.

    The first column is what an entry is called until there is a newer one, the second for good: both are ids.
    """
    entries = islice(here.workspace.listing(kinds=map(EntryKind, kinds), session=session), limit)
    runs = here.workspace.runs.unfinished()
    if here.json:
        waiting = {"runs": jsonout.unfinished(runs)} if runs else {}
        jsonout.write({"entries": [jsonout.listed(item) for item in entries]} | waiting)
        return
    first = next(entries, None)
    if first is not None:
        _show(here, chain([first], entries), no_pager)
    if runs:
        from putback.cli import render_run

        for line in render_run.unfinished(runs):
            here.note(line)
    elif first is None and (session or kinds):
        here.note("no such entry; `putback list` shows all")
    elif first is None:
        here.note("nothing was ever captured here; `putback snapshot` takes the first capture")


def _show(here: call.Call, entries: Iterable[Listed], no_pager: bool) -> None:
    width, height = render_list.screen()
    lines = (line + "\n" for line in render_list.history(entries, width))
    if sys.stdout.isatty() and not no_pager:
        # What fits on the screen needs no key to leave it.
        first = list(islice(lines, height))
        if len(first) == height:
            click.echo_via_pager(chain(first, lines))
            return
        lines = (line for line in first)
    for line in lines:
        click.echo(line, nl=False)
