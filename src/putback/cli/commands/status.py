"""`putback status`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from putback.cli import call, jsonout, putting, render, standing
from putback.errors import UsageError
from putback.records.turn import TurnState

if TYPE_CHECKING:
    from putback.agents.protection import Protector


@click.command(
    epilog="\b\nExample:\n  putback status\n  putback status --line   (in a status bar)\n  putback status --sizes"
)
@click.option("--line", "one_line", is_flag=True, help="One line for a status bar, at once, whatever is wrong.")
@click.option("--sizes", is_flag=True, help="What each workspace and entry costs; it takes a while.")
@call.command
def command(here: call.Call, one_line: bool, sizes: bool) -> int:
    """Protected or not, by what, since when, what the store costs, and whether anything is undecided.

    --line tells the store's size as it was measured last. --sizes looks at everything that the store holds: some
    seconds for some thousand entries. The logical size of an entry is that of the files in it, the physical size
    what it takes on disk and shares with no other entry: what dropping it would free.
    """
    if one_line and sizes:
        raise UsageError("--line and --sizes do not go together")
    if one_line:
        return standing.show_line(here)
    from putback.cli import render_list, render_status

    if sizes:
        found = here.workspace.upkeep.sizes()
        here.watch.close()
        if here.json:
            jsonout.write(msgspec.to_builtins(found))
        else:
            for line in render_status.sizes(
                found,
                here.workspace.list(),
                here.workspace.paths.name,
                render_list.screen()[0],
                everything=putting.everything(here),
            ):
                click.echo(line)
        return 0
    return _whole(here)


def _whole(here: call.Call) -> int:
    from putback.cli import render_status

    found = here.workspace.status()
    runs = here.workspace.runs.unfinished()
    turns, fault = standing.open_turns(here)
    failure = standing.last_failure(here)
    by = _protectors(here)
    if here.json:
        more = {"damaged": [*found.damaged, *fault], "hook": msgspec.to_builtins(failure)}
        agents = [{"agent": item.agent, "scope": str(item.scope)} for item in by]
        more |= {"over_cap": here.workspace.upkeep.over_cap(), "agents": agents}
        jsonout.write(jsonout.status(found, runs, turns) | more)
    else:
        for line in render_status.status(found, by, time.time()):
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
            for line in render_status.failure(failure, time.time()):
                click.echo(line)
        over = here.workspace.upkeep.over_cap()
        if over:
            click.echo(f"  note      {over}")
        for problem in fault:
            click.echo(click.style(f"  damaged   {render.words(problem)}", fg="red"))
    if found.damaged or fault or any(run.fault for run in runs):
        return 46
    unknown = found.interrupted is not None or any(turn.state is TurnState.UNKNOWN for turn in turns)
    return 44 if unknown or not all(run.alive for run in runs) else 0


def _protectors(here: call.Call) -> list[Protector]:
    from putback.agents.draft import Site
    from putback.agents.protection import protectors

    with suppress(RuntimeError):
        return protectors(Site(here.workspace.root, Path.home(), (), dict(os.environ)))
    return []  # nobody knows where the home directory is
