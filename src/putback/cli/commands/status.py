"""`putback status`."""

from __future__ import annotations

import time

import click

from putback.cli import call, jsonout, render


@click.command(epilog="\b\nExample:\n  putback status")
@call.command
def command(here: call.Call) -> int:
    """Protected or not, since when, what the store costs, and whether anything is undecided."""
    found = here.workspace.status()
    if here.json:
        jsonout.write(jsonout.status(found))
    else:
        for line in render.status(found, time.time()):
            click.echo(line)
    if found.damaged:
        return 46
    return 44 if found.interrupted is not None else 0
