"""`putback status`."""

from __future__ import annotations

import time

import click

from putback.cli import call, jsonout, render
from putback.records.turn import TurnState


@click.command(epilog="\b\nExample:\n  putback status")
@call.command
def command(here: call.Call) -> int:
    """Protected or not, since when, what the store costs, and whether anything is undecided."""
    found = here.workspace.status()
    runs = here.workspace.runs.unfinished()
    turns = here.workspace.turns.open_here() if here.workspace.paths.store.claims.exists() else []
    if here.json:
        jsonout.write(jsonout.status(found, runs, turns))
    else:
        for line in render.status(found, time.time()):
            click.echo(line)
        if runs:
            from putback.cli import render_run

            for line in render_run.unfinished(runs):
                click.echo(line)
        if turns:
            from putback.cli import render_turn

            for line in render_turn.unsettled(turns):
                click.echo(line)
    if found.damaged or any(run.fault for run in runs):
        return 46
    unknown = found.interrupted is not None or any(turn.state is TurnState.UNKNOWN for turn in turns)
    return 44 if unknown or not all(run.alive for run in runs) else 0
