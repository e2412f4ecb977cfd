"""How the workspace stands in one line, for a status bar that asks every few seconds: `putback status --line`.

It takes no lock, starts no git but for exact-path turns, and prints its line whatever is wrong; the exit code is
that of `putback status`.
"""

from __future__ import annotations

import time

import click

from putback.cli import jsonout, render
from putback.cli.call import Call
from putback.errors import IntegrityError, PutbackError
from putback.records.agent import Failure
from putback.records.turn import TurnRollbackStatus, TurnState

OK, UNKNOWN, DAMAGED = 0, 44, 46


def show_line(here: Call) -> int:
    """Print the line; the exit code says what `status` would. Raises nothing that speaks against it."""
    try:
        code, protected, problem, facts = _look(here)
    except PutbackError as error:
        code, protected, problem, facts = error.exit_code, False, error.message, ""
    state = f"! {problem}" if problem else "ok" if protected else "UNPROTECTED"
    line = render.words("  ".join(filter(None, (f"putback {state}", facts))))
    if here.json:
        jsonout.write({"line": line, "protected": protected, "problem": problem or None})
        return code
    colour = "red" if code else "yellow" if problem or not protected else "green"
    click.echo(click.style(line, fg=colour))
    return code


def _look(here: Call) -> tuple[int, bool, str, str]:
    """The exit code, whether there is a capture, the worst problem if there is one, and the age and size."""
    found = here.workspace.glance()
    if found.last is None and not found.damaged:
        return OK, False, "", ""
    runs = here.workspace.runs.unfinished()
    turns, faults = open_turns(here)
    failure = last_failure(here)
    code, problem = OK, ""
    if found.damaged or faults or any(run.fault for run in runs):
        code, problem = DAMAGED, "damaged, see `putback status`"
    elif found.cut_short:
        code, problem = UNKNOWN, "a restore was interrupted, see `putback recover`"
    elif not all(run.alive for run in runs):
        code, problem = UNKNOWN, "a run was interrupted, see `putback recover`"
    elif any(turn.state is TurnState.UNKNOWN for turn in turns):
        code, problem = UNKNOWN, "a turn is in an unknown state, see `putback status`"
    elif failure is not None:
        problem = f"the hook of {failure.agent} failed: {failure.message}"
    elif found.replaced:
        problem = "the directory was replaced"
    elif found.warning:
        problem = f"the store is {100 * found.store_bytes // max(1, found.store_limit)} % full"
    size = render.size(found.store_bytes)
    since = render.ago(time.time() - found.last.created_ns / 1e9) if found.last is not None else ""
    return code, found.last is not None, problem, "  ".join(filter(None, (since, size)))


def last_failure(here: Call) -> Failure | None:
    """What went wrong in a hook since the newest entry of the history."""
    from putback.agents import hook

    return hook.last_failure(here.workspace.paths.store)


def open_turns(here: Call) -> tuple[list[TurnRollbackStatus], list[str]]:
    """The turns of this work tree that stand open or unknown, and what is wrong with the records of turns."""
    if not here.workspace.paths.store.claims.exists():
        return [], []
    try:
        return here.workspace.turns.open_here(), []
    except IntegrityError as error:
        return [], [error.message]
