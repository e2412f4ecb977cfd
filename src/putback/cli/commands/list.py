"""`putback list`."""

from __future__ import annotations

import click

from putback.cli import call, jsonout, render


@click.command(epilog="\b\nExample:\n  putback list   (the first column is an id, too: putback restore @2)")
@call.command
def command(here: call.Call) -> None:
    """The history, newest first."""
    entries = here.workspace.list()
    if here.json:
        jsonout.write({"entries": [jsonout.entry(entry) for entry in entries]})
        return
    for line in render.history(entries):
        click.echo(line)
    if not entries:
        here.note("nothing was ever captured here; `putback snapshot` takes the first capture")
