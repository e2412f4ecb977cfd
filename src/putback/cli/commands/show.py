"""`putback show`."""

from __future__ import annotations

import click

from putback.cli import call, jsonout, render


@click.command(epilog="\b\nExample:\n  putback show @1")
@click.argument("id", default="@1")
@call.command
def command(here: call.Call, id: str) -> None:
    """One entry: what it was, what it changed, and what it does not cover."""
    shown = here.workspace.show(id)
    if here.json:
        result = {"capture": jsonout.capture(shown.capture), "entry": None, "changes": None}
        if shown.entry is not None:
            result["entry"] = jsonout.entry(shown.entry)
        if shown.comparison is not None:
            result["changes"] = jsonout.comparison(shown.comparison, patch=False)["changes"]
        jsonout.write(result)
        return
    for line in render.shown(shown):
        click.echo(line)
