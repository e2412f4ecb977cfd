"""`putback check`."""

from __future__ import annotations

import re

import click

from putback.cli import call, jsonout, render, render_check

SOUND, DAMAGED = 0, 46
_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)%?")


class Share(click.ParamType[float]):
    """A percentage, as a number from 0 to 1."""

    name = "PERCENT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _SHARE.fullmatch(str(value))
        if match is None or not 0 < float(match[1]) <= 100:
            self.fail(f"not a share between 0% and 100%: {render.words(str(value))!r}", param, ctx)
        return float(match[1]) / 100


@click.command(
    epilog="\b\nExample:\n  putback check\n  putback check --read-data-subset 5%   (twenty of these read all)\n"
    "  putback check --read-data --repair"
)
@click.option("--read-data", is_flag=True, help="Hash all contents, too, not only look whether they are there.")
@click.option("--read-data-subset", type=Share(), metavar="PERCENT", help="Hash this share of contents, e.g. 5%.")
@click.option("--repair", is_flag=True, help="Set aside what is damaged; add again what the workspace still has.")
@click.option("--all", "everything", is_flag=True, help="Check every workspace of the store, not only this one.")
@call.command
def command(
    here: call.Call, read_data: bool, read_data_subset: float | None, repair: bool, everything: bool
) -> int:
    """Look whether what the store lists can be restored, and say per entry what cannot.

    Commits, trees, lists and records are always read; contents are read as far as is asked for. Nothing is
    changed without --repair, and nothing is deleted by it. Exits with 46 where damage is found that is not
    repaired.
    """
    share = 1.0 if read_data else read_data_subset or 0.0
    found = here.workspace.upkeep.check(read_share=share, repair=repair, everything=everything)
    if here.json:
        jsonout.write(jsonout.checked(found))
    else:
        for line in render_check.checked(found, share, repair=repair, everything=here.verbosity > 0):
            click.echo(line)
    return SOUND if found.sound else DAMAGED
