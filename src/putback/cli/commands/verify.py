"""`putback verify`."""

from __future__ import annotations

import click

from putback.cli import call, evidence, jsonout, render_run
from putback.runs import verify
from putback.runs.evidence import Evidence
from putback.runs.verify import Check, Result

OK, FAULTY = 0, 46


@click.command(epilog="\b\nExample:\n  putback verify @1\n  putback verify ./evidence-from-elsewhere")
@click.argument("run", metavar="RUN|DIR", default="@1")
@call.command
def command(here: call.Call, run: str) -> int:
    """Check the evidence of a run: against itself, and against the store where that is at hand.

    DIR is a folder with the documents of a run; it is checked without the store. Passing every check shows that
    the documents agree, not who wrote them. Exits with 46 where a check fails.
    """
    checks = check(here, run)
    if here.json:
        found = [{"name": item.name, "result": str(item.result), "detail": item.detail} for item in checks]
        jsonout.write({"checks": found, "failed": any(item.result is Result.FAIL for item in checks)})
    else:
        for line in render_run.checks(checks):
            click.echo(line)
    return FAULTY if any(item.result is Result.FAIL for item in checks) else OK


def check(here: call.Call, run: str) -> list[Check]:
    """The checks of a run by id, or of the documents in a folder."""
    if evidence.names_run(here, run):
        return here.workspace.runs.verify(run)
    return verify.verify(Evidence(evidence.folder(here, run)).load(), None)
