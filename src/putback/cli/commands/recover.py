"""`putback recover`."""

from __future__ import annotations

from typing import Any

import click

from putback.cli import call, jsonout, render, render_run
from putback.cli.putting import DONE, NEEDS_YES, SOME_FAILED
from putback.ops.recover import Choice
from putback.ops.restore import Restored
from putback.runs.close import RunResult
from putback.runs.resume import check_gone
from putback.runs.unfinished import Unfinished

UNDECIDED = 44


@click.command(epilog="\b\nExample:\n  putback recover            (look)\n  putback recover --back --yes")
@click.option("--back", "choice", flag_value="back", help="Put every path back as it was before.")
@click.option("--forward", "choice", flag_value="forward", help="Finish the restore; keep what the run did.")
@click.option("--keep", "choice", flag_value="keep", help="Accept the tree as it is.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@call.command
def command(here: call.Call, choice: str | None, yes: bool) -> int:
    """Show an interrupted restore, or runs whose supervisor was killed, and leave that state the way you choose.

    A path of a restore that is neither as before nor as after is never touched. A run is closed: what it did is
    put on record; with --back it is then taken back, unless there was a restore to go back from: that comes first.
    """
    restore = here.workspace.interrupted()
    runs = here.workspace.runs.killed()
    state: dict[str, Any] = {"interrupted": jsonout.interrupted(restore), "runs": jsonout.unfinished(runs)}
    if restore is None and not runs:
        if here.json:
            jsonout.write(state | {"done": False})
        else:
            click.echo("nothing to recover: no restore and no run was interrupted")
        return DONE
    if not here.json:
        for line in (*(render.interrupted(restore) if restore else ()), *render_run.unfinished(runs)):
            click.echo(line)
    if choice is None or not (yes or (here.interactive and here.ask(f"Go {choice}?"))):
        if here.json:
            jsonout.write(state | {"done": False})
        elif choice is None:
            here.note("choose with --back, --forward or --keep; nothing was changed")
        else:
            here.note("nothing was changed; without a terminal this needs --yes")
        return UNDECIDED if choice is None else NEEDS_YES
    for run in runs:
        if run.processes:
            check_gone(run.evidence)
    results = [] if restore is None else [here.workspace.recover(Choice(choice))]
    closed = _close(here, runs, Choice(choice))
    untaken = [run for run in closed if not run.contents]
    if choice == Choice.BACK and restore is None:
        # The last to be begun is the first to go.
        results += [here.workspace.restore(run.entry.id) for run in reversed(closed) if run.contents]
    here.watch.close()
    _tell(here, state, closed, results)
    for done in closed:
        if not done.contents:
            here.note(f"run {done.entry.short_id} kept digests alone: closed, and nothing is put back")
        elif (choice != Choice.BACK or restore is not None) and done.receipt.ops.rollback is None:
            here.note(f"`putback restore {done.entry.short_id}` takes it back")
    failed = choice == Choice.BACK and untaken
    return SOME_FAILED if failed or any(result.failed for result in results) else DONE


def _close(here: call.Call, runs: list[Unfinished], choice: Choice) -> list[RunResult]:
    """Close every run, oldest first. One whose evidence is damaged is given up where that is the choice."""
    closed = []
    for run in runs:
        if run.fault and choice is Choice.KEEP:
            here.note(f"set aside: {here.workspace.runs.set_aside(run)}")
        else:
            closed.append(here.workspace.runs.close(run))
    return closed


def _tell(here: call.Call, state: dict[str, Any], closed: list[RunResult], results: list[Restored]) -> None:
    if here.json:
        jsonout.write(
            state
            | {
                "done": True,
                "closed": [jsonout.run(run) for run in closed],
                "results": [jsonout.restored(result, applied=True) for result in results],
            }
        )
        return
    for run in closed:
        click.echo(f"closed {render_run.summary(run)}")
    for result in results:
        for line in render.restored(result, everything=True):
            click.echo(line)
