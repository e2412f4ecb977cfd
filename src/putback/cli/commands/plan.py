"""`putback plan`."""

from __future__ import annotations

import click

from putback.cli import call, evidence, jsonout, render
from putback.errors import FailedError
from putback.runs.evidence import Evidence
from putback.runs.portable import plan_restore


@click.command(epilog="\b\nExample:\n  putback plan @1\n  putback plan ./evidence-from-elsewhere")
@click.argument("run", metavar="RUN|DIR", default="@1")
@call.command
def command(here: call.Call, run: str) -> int:
    """What taking a run back would do, made from its documents alone: one action per changed path.

    It looks at no tree and no store, so it works on a machine that has seen neither; `putback restore` does the
    same and then looks. Exits with 1 where a path cannot be put back.
    """
    documents = Evidence(evidence.folder(here, run)).load()
    if documents.manifest is None or documents.ledger is None:
        faults = [f"{name}: {found[0]}" for name, found in sorted(documents.faults.items()) if found]
        raise FailedError(
            "; ".join(faults) or "no manifest or no ledger there", hint="`putback verify` tells more"
        )
    documents.check()
    if documents.ledger.started is None:
        raise FailedError("the ledger tells of no run", hint="`putback verify` tells more")
    plan = plan_restore(documents.manifest, documents.ledger.changes)
    if here.json:
        jsonout.write(jsonout.plan(plan))
    else:
        for line in render.plan(plan, everything=True):
            click.echo(line)
    return 1 if plan.refused else 0
