"""`putback run`."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from putback.cli import call, jsonout, render_run
from putback.cli.call import Call
from putback.errors import PutbackError, UsageError

if TYPE_CHECKING:
    from putback.runs.close import RunResult

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "ms": 0.001}
_SIZES = {"": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}


class _Amount(click.ParamType[float]):
    """A number with a unit: `90`, `1.5h`, `10MB`."""

    def __init__(self, name: str, units: dict[str, float] | dict[str, int]) -> None:
        self.name = name
        self._units = units

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", str(value))
        if found is None or found[2].lower() not in self._units:
            names = ", ".join(unit for unit in self._units if unit)
            self.fail(f"{value!r} is not a {self.name}; units are {names}", param, ctx)
        return float(found[1]) * self._units[found[2].lower()]


@click.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    epilog="\b\nExample:\n  putback run -- your-agent --with its-options\n"
    "  putback run --rollback-on-breach --protect '*.sql' --verify 'make test' -- your-agent",
)
@click.option("--snapshot", is_flag=True, help="Keep contents, so that the run can be taken back.")
@click.option("--rollback-on-breach", is_flag=True, help="Take it back where a limit is broken (keeps contents).")
@click.option("--timeout", type=_Amount("time", _UNITS), metavar="TIME", help="Wall-clock limit: 90s, 10m, 1.5h.")
@click.option("--max-files", type=click.IntRange(0), metavar="N", help="How many paths may change.")
@click.option("--max-bytes", type=_Amount("size", _SIZES), metavar="SIZE", help="Bytes in what it writes: 10MB.")
@click.option("--protect", multiple=True, metavar="GLOB", help="A path that must not change; as in .gitignore.")
@click.option("--fail-on-error", is_flag=True, help="A failure of the command breaks a limit, too.")
@click.option("--verify", metavar="CMD", help="A shell command that must succeed afterwards.")
@click.option(
    "--leftovers",
    type=click.Choice(["wait", "end", "leave"]),
    help="What to do with processes that outlive the command (default: wait).",
)
@click.option("--turn", metavar="NAME", help="Make the run an exact-path turn; the work tree has to be bound.")
@click.option("--paths-from", metavar="FILE", help="The paths of the turn: one a line, or NUL after each.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
@call.command
def command(
    here: Call,
    snapshot: bool,
    rollback_on_breach: bool,
    timeout: float | None,
    max_files: int | None,
    max_bytes: float | None,
    protect: tuple[str, ...],
    fail_on_error: bool,
    verify: str | None,
    leftovers: str | None,
    turn: str | None,
    paths_from: str | None,
    command: tuple[str, ...],
) -> int:
    """Run a command, record what it does to the workspace, and take it back where that was asked for.

    Without --snapshot digests alone are kept: `show` tells what the run did, and nothing can be put back. With
    --turn, the paths in FILE are captured before and after, so that `turn prepare` can take back exactly these.
    Exits with the command's own code, with 42 where a limit was broken.
    """
    here.strict = True
    if (turn is None) != (paths_from is None):
        raise UsageError("--turn and --paths-from go together", hint="the paths of a turn are never guessed")
    given: dict[str, object] = {
        "max_ms": None if timeout is None else int(timeout * 1000),
        "max_files": max_files,
        "max_bytes": None if max_bytes is None else int(max_bytes),
        "protected": protect or None,
        "fail_on_error": int(fail_on_error) or None,
        "verify": verify,
    }
    chosen = {name: value for name, value in given.items() if value is not None}

    def act() -> RunResult:
        return here.workspace.run(
            command,
            snapshot=snapshot or None,
            rollback_on_breach=rollback_on_breach or None,
            limits=msgspec.structs.replace(here.workspace.limits, **chosen),
            leftovers=leftovers,
            output=2 if here.json else None,
        )

    here.workspace.upkeep.make_room()
    result = act() if turn is None or paths_from is None else in_turn(here, turn, paths_from, act)
    here.watch.close()
    if here.json:
        jsonout.write(jsonout.run(result))
    else:
        if result.receipt.session.exit.signal == signal.SIGINT and sys.stderr.isatty():
            click.echo(err=True)  # below the ^C that the terminal has printed
        for line in render_run.broken(result.receipt):
            click.echo(f"putback: {line}", err=True)
        for line in render_run.run(result):
            here.note(f"putback: {line}")
    here.retain()
    return result.exit_code


def in_turn(here: Call, name: str, file: str, act: Callable[[], RunResult]) -> RunResult:
    """A run between the two ends of an exact-path turn, which is sealed whatever becomes of the run."""
    from putback.cli import selected

    turns = here.workspace.turns
    bound = turns.binding()
    chosen = selected.paths(here, bound, (), file)
    result: RunResult | None = None
    try:
        with turns.around(bound, turns.next_turn(bound, name), chosen) as begun:
            result = act()
    except PutbackError as error:
        if result is not None:
            # The turn could not be sealed; what became of the run is not to be lost with that.
            ended = f"run {result.entry.short_id} ended with {result.exit_code}"
            error.hint = f"{ended}; {error.hint}" if error.hint else ended
        raise
    here.note(f"putback: turn {begun.id[:12]} is sealed; `putback turn prepare {begun.id[:12]}` takes it back")
    return result
