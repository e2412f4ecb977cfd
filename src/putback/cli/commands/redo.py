"""`putback redo`."""

from __future__ import annotations

import click

from putback.cli import call, putting


@click.command(epilog="\b\nExample:\n  putback redo --dry-run")
@putting.changed_since
@putting.options
@call.command
def command(here: call.Call, merge: bool, force: bool, dry_run: bool, yes: bool) -> int:
    """Do again what undo took back last.

    A path that changed since is refused, and both states are named; --merge and --force are as for undo.
    """
    return putting.back(
        here,
        lambda confirm: here.workspace.redo(force=force, merge=merge, dry_run=dry_run, confirm=confirm),
        dry_run=dry_run,
        yes=yes,
    )
