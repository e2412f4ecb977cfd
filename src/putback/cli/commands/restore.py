"""`putback restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from putback.cli import call, putting

if TYPE_CHECKING:
    from putback.ops.restore import Restored
    from putback.workspace import Confirm


@click.command(
    epilog="\b\nExample:\n  putback restore @1 src/app.py\n  putback restore @2..@1 --dry-run\n"
    "  putback restore --from ./evidence --root ."
)
@click.argument("id", metavar="ID|A..B", required=False)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--exact", is_flag=True, help="Also remove files that no capture held before.")
@putting.changed_since
@click.option("--from", "source", metavar="DIR", help="Take back the run whose documents are in DIR.")
@click.option("--root", metavar="DIR", help="The tree that is meant, whatever a run's documents say.")
@putting.options
@call.command
def command(
    here: call.Call,
    id: str | None,
    paths: tuple[str, ...],
    exact: bool,
    merge: bool,
    force: bool,
    source: str | None,
    root: str | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Put the tree back as snapshot ID has it, or take back what a run, a turn, a restore or A..B did.

    Whatever is replaced or removed is captured first, so `putback undo` can take this back. A snapshot overwrites
    and reports; what happened in a span is taken back only where nothing changed since, or --merge can tell the
    two apart. PATHS bound it.
    """
    if id is None and source is None:
        raise click.UsageError("an ID, A..B, or --from DIR is needed")
    if source is not None and id is not None:
        paths = (id, *paths)
    if exact and (source is not None or root is not None):
        raise click.UsageError("--exact is for snapshots")

    def act(confirm: Confirm) -> Restored:
        if source is None and root is None:
            return here.workspace.restore(
                id or "", paths=paths, exact=exact, force=force, merge=merge, dry_run=dry_run, confirm=confirm
            )
        folder = here.workspace.runs.folder(id or "") if source is None else Path(here.directory, source)
        workspace = here.workspace if root is None else here.workspace_at(root)
        return workspace.restore_documents(
            folder,
            insist=root is not None,
            paths=paths,
            force=force,
            merge=merge,
            dry_run=dry_run,
            confirm=confirm,
        )

    return putting.back(here, act, dry_run=dry_run, yes=yes)
