"""`putback ls`."""

from __future__ import annotations

import sys

import click

from putback.cli import call, jsonout
from putback.paths import RelPath, printable
from putback.records.change import Kind, Node


@click.command(epilog="\b\nExample:\n  putback ls @1 src -l")
@click.argument("id", default="@1")
@click.argument("path", required=False, type=click.Path())
@click.option("-l", "long", is_flag=True, help="Kind, mode and digest before each path.")
@click.option("-z", "nul", is_flag=True, help="End each path with NUL instead of a newline.")
@call.command
def command(here: call.Call, id: str, path: str | None, long: bool, nul: bool) -> None:
    """The paths that a capture holds, one a line; a directory only where it holds nothing.

    Names are printed as they are, except on a terminal, where what could move the cursor is escaped.
    """
    held = here.workspace.files(id, path)
    if here.json:
        jsonout.write(jsonout.holdings(held))
        return
    safe = sys.stdout.isatty() and not nul
    out = sys.stdout.buffer
    for name, node in held.items():
        shown = name + (b"/" if node.kind is Kind.DIRECTORY else b"")
        if safe:
            shown = printable(RelPath(shown)).encode(errors="backslashreplace")
        out.write((_long(node) if long else b"") + shown + (b"\0" if nul else b"\n"))
    out.flush()


def _long(node: Node) -> bytes:
    return f"{node.kind:<9} {node.mode:04o} {node.digest or '-':<64}  ".encode()
