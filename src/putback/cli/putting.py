"""What the commands that change a workspace share: asking first, and telling what was done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from putback.cli.call import Call

if TYPE_CHECKING:
    from putback.ops.restore import Restored
    from putback.records.plan import Plan
    from putback.workspace import Confirm

F = TypeVar("F", bound=Callable[..., Any])
DONE, SOME_FAILED, NEEDS_YES = 0, 1, 43


def options(function: F) -> F:
    """The options `--dry-run` and `--yes`."""
    with_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)
    return click.option("--dry-run", "-n", is_flag=True, help="Show the plan and change nothing.")(with_yes)


def changed_since(function: F) -> F:
    """The options `--merge` and `--force`."""
    with_force = click.option("--force", is_flag=True, help="Overwrite paths that changed since, too.")(function)
    words = "Merge paths that changed since, and keep what changed."
    return click.option("--merge", is_flag=True, help=words)(with_force)


def back(here: Call, act: Callable[[Confirm], Restored], *, dry_run: bool, yes: bool) -> int:
    """Run a restore of some kind and return the exit code."""
    answer = _Answer(here, yes)
    if not dry_run:
        here.workspace.upkeep.make_room()
    result = act(answer)
    here.watch.close()
    if here.json:
        from putback.cli import jsonout

        jsonout.write(jsonout.restored(result, applied=not dry_run and not answer.declined))
    elif dry_run:
        _print_plan(here, result.plan)
    elif not answer.declined:
        _print_result(here, result)
    if answer.declined:
        return declined(here, silent=answer.silent)
    if not dry_run:
        here.retain()
    refused = dry_run and bool(result.plan.refused)
    return SOME_FAILED if result.failed or refused else DONE


def declined(here: Call, *, silent: bool) -> int:
    """Say that nothing was done, because a person said no, or (`silent`) nobody could be asked; the exit code."""
    here.note("nothing was changed: without a terminal this needs --yes" if silent else "nothing was changed")
    return NEEDS_YES if silent else SOME_FAILED


class _Answer:
    """Shows the plan and asks a person; without one it declines unless `--yes` was given."""

    def __init__(self, here: Call, yes: bool) -> None:
        self._here = here
        self._yes = yes
        self.declined = False
        self.silent = False

    def __call__(self, plan: Plan) -> bool:
        if self._yes:
            return True
        self._here.watch.close()
        if not self._here.json:
            _print_plan(self._here, plan)
        self.silent = not self._here.interactive
        self.declined = self.silent or not self._here.ask("Put these back?")
        return not self.declined


def _print_plan(here: Call, plan: Plan) -> None:
    from putback.cli import render

    for line in render.plan(plan, everything=everything(here)):
        click.echo(line)


def _print_result(here: Call, result: Restored) -> None:
    from putback.cli import render

    for line in render.restored(result, everything=everything(here)):
        click.echo(line)


def everything(here: Call) -> bool:
    """A pipe gets every line; a terminal gets them all only when asked."""
    return here.verbosity > 0 or not sys.stdout.isatty()
