"""`putback undo`."""

from __future__ import annotations

import click

from putback.cli import call, putting


@click.command(epilog="\b\nExample:\n  putback undo --dry-run\n  putback undo @3 --merge")
@click.argument("id", required=False)
@putting.changed_since
@putting.options
@call.command
def command(here: call.Call, id: str | None, merge: bool, force: bool, dry_run: bool, yes: bool) -> int:
    """Take back the newest run, turn or restore; again goes further back. With ID, an earlier one, by itself.

    A path that changed since is refused, and both states are named. With --merge a text is merged, so that what
    was changed since is kept; where both changed the same lines it is refused, and left as it is. A turn that was
    bound with `putback turn` goes back whole, in the index too, or not at all.
    """
    return putting.back(
        here,
        lambda confirm: here.workspace.undo(id, force=force, merge=merge, dry_run=dry_run, confirm=confirm),
        dry_run=dry_run,
        yes=yes,
    )
