"""`putback diff`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from putback.cli import call

if TYPE_CHECKING:
    from putback.ops.compare import Comparison


@click.command(epilog="\b\nExample:\n  putback diff @1 --stat\n  putback diff @2..@1 src")
@click.argument("id", default="@1", metavar="[ID|A..B]")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--stat", "form", flag_value="stat", help="One line a path, with the number of lines.")
@click.option("--name-status", "form", flag_value="name_status", help="A, M, D or T, and the path.")
@click.option("--name-only", "form", flag_value="name_only", help="Only the paths, as they are.")
@click.option("-z", "nul", is_flag=True, help="With --name-…: end each path with NUL.")
@click.option("--no-pager", is_flag=True, help="Never through a pager.")
@call.command
def command(here: call.Call, id: str, paths: tuple[str, ...], form: str | None, nul: bool, no_pager: bool) -> None:
    """What restoring a snapshot would change on disk, or what a run, a turn, a restore or A..B changed.

    It changes nothing. Binary files are named, not shown. Files that were made since a snapshot count as deleted
    by its restore, which leaves those that no capture holds, unless with --exact.
    """
    if nul and form not in ("name_only", "name_status"):
        raise click.UsageError("-z goes with --name-only or --name-status")
    found = here.workspace.diff(id, paths=paths, patch=form in (None, "stat"))
    from putback.cli import jsonout, render

    if here.json:
        jsonout.write(jsonout.comparison(found, patch=form is None))
    elif form in ("name_only", "name_status"):
        _names(found, with_status=form == "name_status", end=b"\0" if nul else b"\n")
    elif not found.changes:
        click.echo(f"no difference: {found.before} and {found.after}")
    elif form == "stat":
        _show(here, (line + "\n" for line in render.stat(found)), no_pager)
    else:
        _patch(here, found, no_pager)


def _names(found: Comparison, *, with_status: bool, end: bytes) -> None:
    from putback.cli import render

    out = sys.stdout.buffer
    for letter, path in render.name_status(found.changes):
        out.write((letter + b"\t" if with_status else b"") + path + end)
    out.flush()


def _patch(here: call.Call, found: Comparison, no_pager: bool) -> None:
    if sys.stdout.isatty():
        from putback.cli import render

        _show(here, render.patch(found.patch.decode("utf-8", "backslashreplace")), no_pager)
    else:
        sys.stdout.buffer.write(found.patch)
        sys.stdout.buffer.flush()


def _show(here: call.Call, lines: Iterable[str], no_pager: bool) -> None:
    here.watch.close()
    if sys.stdout.isatty() and not no_pager:
        click.echo_via_pager(lines)
    else:
        for line in lines:
            click.echo(line, nl=False)
