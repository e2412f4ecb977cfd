"""`putback restore`."""

from __future__ import annotations

import click

from putback.cli import call, putting


@click.command(epilog="\b\nExample:\n  putback restore @1 src/app.py\n  putback restore @2..@1 --dry-run")
@click.argument("id", metavar="ID|A..B")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--exact", is_flag=True, help="Also remove files that no capture held before.")
@click.option("--force", is_flag=True, help="Overwrite paths that changed since, too.")
@putting.options
@call.command
def command(
    here: call.Call, id: str, paths: tuple[str, ...], exact: bool, force: bool, dry_run: bool, yes: bool
) -> int:
    """Put the tree back as snapshot ID has it, or take back what a restore or A..B did.

    Whatever is replaced or removed is captured first, so `putback undo` can take this back. A snapshot overwrites
    and reports; what happened in a span is taken back only where nothing changed since. PATHS bound it.
    """

    return putting.back(
        here,
        lambda confirm: here.workspace.restore(
            id, paths=paths, exact=exact, force=force, dry_run=dry_run, confirm=confirm
        ),
        dry_run=dry_run,
        yes=yes,
    )
