"""`putback recover`."""

from __future__ import annotations

import click

from putback.cli import call, jsonout, render
from putback.cli.putting import DONE, NEEDS_YES, SOME_FAILED
from putback.ops.recover import Choice


@click.command(epilog="\b\nExample:\n  putback recover            (look)\n  putback recover --back --yes")
@click.option("--back", "choice", flag_value="back", help="Put every path back as it was before that restore.")
@click.option("--forward", "choice", flag_value="forward", help="Finish that restore.")
@click.option("--keep", "choice", flag_value="keep", help="Accept the tree as it is.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@call.command
def command(here: call.Call, choice: str | None, yes: bool) -> int:
    """Show an interrupted restore path by path, and leave that state the way you choose.

    A path that is neither as before nor as after is never touched.
    """
    found = here.workspace.interrupted()
    if found is None:
        if here.json:
            jsonout.write({"interrupted": None, "done": False})
        else:
            click.echo("nothing to recover: no restore was interrupted")
        return DONE
    if not here.json:
        for line in render.interrupted(found):
            click.echo(line)
    if choice is None:
        if here.json:
            jsonout.write({"interrupted": jsonout.interrupted(found), "done": False})
        else:
            here.note("choose with --back, --forward or --keep; nothing was changed")
        return 44
    if not yes and not (here.interactive and here.ask(f"Go {choice}?")):
        if here.json:
            jsonout.write({"interrupted": jsonout.interrupted(found), "done": False})
        here.note("nothing was changed; without a terminal this needs --yes")
        return NEEDS_YES
    result = here.workspace.recover(Choice(choice))
    here.watch.close()
    if here.json:
        jsonout.write(jsonout.restored(result, applied=True))
    else:
        for line in render.restored(result, everything=True):
            click.echo(line)
    return SOME_FAILED if result.failed else DONE
