"""`putback status`."""

from __future__ import annotations

import time

import click
import msgspec

from putback.cli import call, jsonout, render
from putback.errors import IntegrityError
from putback.records.agent import Failure
from putback.records.turn import TurnRollbackStatus, TurnState


@click.command(epilog="\b\nExample:\n  putback status")
@call.command
def command(here: call.Call) -> int:
    """Protected or not, since when, what the store costs, and whether anything is undecided."""
    found = here.workspace.status()
    runs = here.workspace.runs.unfinished()
    turns, fault = _turns(here)
    failure = _failure(here)
    if here.json:
        more = {"damaged": [*found.damaged, *fault], "hook": msgspec.to_builtins(failure)}
        more["over_cap"] = here.workspace.over_cap()
        jsonout.write(jsonout.status(found, runs, turns) | more)
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
        if failure is not None:
            for line in render.failure(failure, time.time()):
                click.echo(line)
        over = here.workspace.over_cap()
        if over:
            click.echo(f"  note      {over}")
        for problem in fault:
            click.echo(click.style(f"  damaged   {render.words(problem)}", fg="red"))
    if found.damaged or fault or any(run.fault for run in runs):
        return 46
    unknown = found.interrupted is not None or any(turn.state is TurnState.UNKNOWN for turn in turns)
    return 44 if unknown or not all(run.alive for run in runs) else 0


def _failure(here: call.Call) -> Failure | None:
    """What went wrong in a hook since the newest entry of the history."""
    from putback.agents.hook import last_failure

    return last_failure(here.workspace.paths.store)


def _turns(here: call.Call) -> tuple[list[TurnRollbackStatus], list[str]]:
    """The turns of this work tree that stand open or unknown, and what is wrong with the records of turns."""
    if not here.workspace.paths.store.claims.exists():
        return [], []
    try:
        return here.workspace.turns.open_here(), []
    except IntegrityError as error:
        return [], [error.message]
