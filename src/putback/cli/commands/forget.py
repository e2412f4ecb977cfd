"""`putback forget`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from putback.cli import call, jsonout, putting, render
from putback.cli.putting import DONE
from putback.paths import printable
from putback.records.upkeep import Forgotten


@click.command(epilog="\b\nExample:\n  putback forget --dry-run .env\n  putback forget --yes -- .env keys/")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--dry-run", "-n", is_flag=True, help="Say what would be rewritten and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@call.command
def command(here: call.Call, paths: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    """Purge PATHS, files or directories, from every capture of the workspace, and their content from the disk.

    This cannot be undone. Ids go on working, without the paths; what stands in the workspace is not touched. Names
    stay on record, and so do digests in the evidence of runs and turns: change a secret that has leaked.
    """
    chosen = here.workspace.paths_below(paths)
    upkeep = here.workspace.upkeep
    if dry_run or not yes:
        found = upkeep.forget(chosen, dry_run=True)
        if not here.json:
            here.watch.close()
            for line in _would(found):
                click.echo(line)
        if dry_run or not found.captures or not (here.interactive and here.ask("Purge this for good?")):
            if here.json:
                jsonout.write(_result(found))
            if dry_run or not found.captures:
                return DONE
            return putting.declined(here, silent=not here.interactive)
    done = upkeep.forget(chosen)
    here.watch.close()
    if here.json:
        jsonout.write(_result(done))
        return DONE
    for line in (*_did(done), *_still_there(here.workspace.root, done)):
        click.echo(line)
    return DONE


def _result(item: Forgotten) -> dict[str, object]:
    reclaimed = msgspec.to_builtins(item.reclaimed)
    return {
        "done": item.done,
        "paths": jsonout.at_paths(item.paths),
        "captures": item.captures,
        "entries": item.entries,
        "turns": list(item.turns),
        "elsewhere": list(item.elsewhere),
        "reclaimed": reclaimed,
    }


def _counts(item: Forgotten) -> str:
    captures, entries = render.count(item.captures, "capture"), render.count(item.entries, "entry", "entries")
    return f"{captures}, named by {entries} of the history"


def _would(item: Forgotten) -> Iterator[str]:
    if not item.captures:
        yield "no capture holds that any more"
        return
    for at in item.paths:
        yield f"would purge {render.path(at)}"
    yield f"from {_counts(item)}"
    yield from _lost(item)


def _did(item: Forgotten) -> Iterator[str]:
    if not item.captures:
        yield "no capture holds that any more"
    else:
        yield f"purged {', '.join(render.path(at) for at in item.paths)} from {_counts(item)}"
    yield from _lost(item)
    for place in item.elsewhere:
        yield click.style(f"the same content is still held: {render.words(place)}", fg="yellow")


def _lost(item: Forgotten) -> Iterator[str]:
    for turn in item.turns:
        yield f"turn {render.words(turn)} can no longer be taken back"


def _still_there(root: Path, item: Forgotten) -> Iterator[str]:
    for at in item.paths:
        if os.path.lexists(os.path.join(os.fsencode(root), at.raw)):
            yield f"still in the workspace: {printable(at.raw)}; the next capture holds it, unless it is ignored"
