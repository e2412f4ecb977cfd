"""`putback list`."""

from __future__ import annotations

import click

from putback.cli import call, jsonout, render


@click.command(epilog="\b\nExample:\n  putback list   (the first column is an id, too: putback restore @2)")
@call.command
def command(here: call.Call) -> None:
    """The history, newest first."""
    entries = here.workspace.list()
    runs = here.workspace.runs.unfinished()
    if here.json:
        waiting = {"runs": jsonout.unfinished(runs)} if runs else {}
        jsonout.write({"entries": [jsonout.entry(entry) for entry in entries]} | waiting)
        return
    for line in render.history(entries):
        click.echo(line)
    if runs:
        from putback.cli import render_run

        for line in render_run.unfinished(runs):
            here.note(line)
    elif not entries:
        here.note("nothing was ever captured here; `putback snapshot` takes the first capture")
