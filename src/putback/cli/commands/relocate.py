"""`putback relocate`."""

from __future__ import annotations

import os

import click

from putback.cli import call, jsonout, render


@click.command(epilog="\b\nExample:\n  putback relocate ~/old/place/project")
@click.argument("old", type=click.Path())
@call.command
def command(here: call.Call, old: str) -> None:
    """This workspace was moved here from OLD: attach the history it had there.

    Nothing is guessed; `putback status` names where it may have been. Where there is a history here, OLD's goes
    before it. A copy is no move: while the workspace is still at OLD, this is refused.
    """
    there = os.path.join(os.path.abspath(here.directory), os.path.expanduser(old))
    done = here.workspace.upkeep.relocate(os.fsencode(there))
    if here.json:
        jsonout.write(
            {
                "old_root": jsonout.at_paths([done.old_root])[0],
                "root": jsonout.at_paths([done.root])[0],
                "entries": done.entries,
                "joined": done.joined,
            }
        )
        return
    entries = render.count(done.entries, "entry", "entries")
    more = f", before {done.joined:,} that were here" if done.joined else ""
    click.echo(f"attached {entries} of {render.path(done.old_root)}{more}; `putback list` shows them")
