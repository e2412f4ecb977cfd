"""`putback undo`."""

from __future__ import annotations

import click

from putback.cli import call, putting


@click.command(epilog="\b\nExample:\n  putback undo --dry-run\n  putback undo @3")
@click.argument("id", required=False)
@click.option("--force", is_flag=True, help="Overwrite paths that changed since, too.")
@putting.options
@call.command
def command(here: call.Call, id: str | None, force: bool, dry_run: bool, yes: bool) -> int:
    """Take back the newest run, turn or restore; again goes further back. With ID, an earlier one, by itself.

    A path that changed since is refused, and both states are named. A turn goes back whole, in the index too, or
    not at all.
    """
    return putting.back(
        here,
        lambda confirm: here.workspace.undo(id, force=force, dry_run=dry_run, confirm=confirm),
        dry_run=dry_run,
        yes=yes,
    )
