"""`putback show`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from putback.cli import call, jsonout, putting, render


@click.command(epilog="\b\nExample:\n  putback show @1")
@click.argument("id", default="@1")
@call.command
def command(here: call.Call, id: str) -> None:
    """One entry: what it was, what it changed, and what it does not cover."""
    shown = here.workspace.show(id)
    if here.json:
        result: dict[str, Any] = {"capture": None, "entry": None, "changes": None, "receipt": None}
        if shown.capture is not None:
            result["capture"] = jsonout.capture(shown.capture)
        if shown.receipt is not None:
            result["receipt"] = msgspec.to_builtins(shown.receipt)
        if shown.entry is not None:
            result["entry"] = jsonout.entry(shown.entry)
        if shown.comparison is not None:
            result["changes"] = jsonout.comparison(shown.comparison, patch=False)["changes"]
        jsonout.write(result)
        return
    for line in render.shown(shown, everything=putting.everything(here)):
        click.echo(line)
