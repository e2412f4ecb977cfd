"""`putback snapshot`."""

from __future__ import annotations

import click

from putback.cli import call


@click.command(epilog="\b\nExample:\n  putback snapshot -m 'before the agent'")
@click.option("-m", "--message", default="", help="What to remember it by; the default is the time.")
@click.argument("paths", nargs=-1, type=click.Path())
@call.command
def command(here: call.Call, message: str, paths: tuple[str, ...]) -> None:
    """Capture the workspace as it is now, or only PATHS.

    Everything is held except `.git`, what your ignore rules leave out, and what is named as not covered.
    """
    here.strict = True
    here.workspace.upkeep.make_room()
    taken = here.workspace.snapshot(message, paths=paths)
    here.watch.close()
    from putback.cli import jsonout, render

    if here.json:
        held = jsonout.capture(taken.capture)
        held["warnings"] += [taken.warning] if taken.warning else []
        jsonout.write(jsonout.entry(taken.entry) | held)
    else:
        for line in render.snapshot(taken.entry, taken.capture):
            click.echo(line)
        if taken.warning:
            click.echo(render.warning(taken.warning))
    here.retain()
