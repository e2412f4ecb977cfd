"""`putback prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from putback.cli import call, putting, render_list, render_upkeep
from putback.cli.call import Call
from putback.cli.putting import DONE
from putback.config import duration_seconds

if TYPE_CHECKING:
    from putback.records.retention import Keep
    from putback.records.upkeep import Pruned

_COUNT = click.IntRange(1)


class _Duration(click.ParamType[float]):
    """A length of time: `14d`, `36h`, `2w`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return duration_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(
    epilog="\b\nExample:\n  putback prune --keep-last 20 --keep-daily 14 --dry-run\n"
    "  putback prune --keep-within 2w --keep-message 'release*'\n  putback prune --vanished",
)
@click.option("--keep-last", "last", type=_COUNT, metavar="N", help="Keep the N newest entries.")
@click.option("--keep-hourly", "hourly", type=_COUNT, metavar="N", help="Keep the newest of each of N hours.")
@click.option("--keep-daily", "daily", type=_COUNT, metavar="N", help="Keep the newest of each of N days.")
@click.option("--keep-weekly", "weekly", type=_COUNT, metavar="N", help="Keep the newest of each of N weeks.")
@click.option("--keep-within", "within", type=_Duration(), metavar="TIME", help="Keep what is no older: 36h, 14d.")
@click.option("--keep-message", "messages", multiple=True, metavar="GLOB", help="Keep what has such a message.")
@click.option("--vanished", is_flag=True, help="Drop workspaces whose directory is gone, all of them.")
@click.option("--unmounted", is_flag=True, help="With --vanished: even where a drive may only be unplugged.")
@click.option("--dry-run", "-n", is_flag=True, help="Show what would go and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@call.command
def command(
    here: Call,
    last: int | None,
    hourly: int | None,
    daily: int | None,
    weekly: int | None,
    within: float | None,
    messages: tuple[str, ...],
    vanished: bool,
    unmounted: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Drop the entries of this workspace that no rule keeps, and free what only they needed.

    An entry stays that any rule keeps; rules given here replace those of the configuration (retention.*).
    Snapshots, runs and turns are counted. Restores are not: they stay while undo or redo needs them. Whatever an
    interrupted restore or run, a turn or the undo list needs stays, too, and the list says so.

    --vanished is about the other workspaces of the store. A drive that is not plugged in looks the same as one
    whose directories were removed: look at the list before you say yes.
    """
    from putback.records.retention import Keep
    from putback.upkeep import retention

    here.strict = True
    keep = Keep(
        last=last or 0,
        hourly=hourly or 0,
        daily=daily or 0,
        weekly=weekly or 0,
        within_seconds=within or 0.0,
        messages=messages,
    )
    if unmounted and not vanished:
        raise click.UsageError("--unmounted goes with --vanished")
    if not keep.rules and not vanished:
        keep = retention.configured(here.workspace.settings.retention)
        if not keep.rules:
            raise click.UsageError(
                "nothing says what to keep: --keep-last, --keep-hourly, --keep-daily, --keep-weekly,"
                " --keep-within, --keep-message, or --vanished; or retention.* in your configuration"
            )
    return _prune(here, keep, vanished=vanished, unmounted=unmounted, dry_run=dry_run, yes=yes)


def _prune(here: Call, keep: Keep, *, vanished: bool, unmounted: bool, dry_run: bool, yes: bool) -> int:
    def act(*, dry_run: bool) -> Pruned:
        upkeep = here.workspace.upkeep
        return upkeep.prune(keep, vanished=vanished, unmounted=unmounted, dry_run=dry_run)

    silent = declined = False
    result = act(dry_run=True) if dry_run or not yes else None
    if result is not None and not dry_run and _drops(result):
        silent = not here.interactive
        if not silent:
            _tell(here, result)
        declined = silent or not here.ask("Drop these?")
    if not dry_run and not declined:
        result = act(dry_run=False)
    assert result is not None
    here.watch.close()
    if here.json:
        from putback.cli import jsonout

        jsonout.write(_for_programs(result))
    elif silent or not declined:
        _tell(here, result)
    return putting.declined(here, silent=silent) if declined else DONE


def _drops(result: Pruned) -> bool:
    return bool(result.dropped or result.bare or any(not item.kept for item in result.vanished))


def _tell(here: Call, result: Pruned) -> None:
    here.watch.close()
    for line in render_upkeep.pruned(result, render_list.screen()[0]):
        click.echo(line)


def _for_programs(result: Pruned) -> dict[str, object]:
    from putback.cli import jsonout

    return {
        "done": result.done,
        "entries": [
            {
                "id": item.id,
                "short_id": item.id[:12],
                "kind": str(item.kind),
                "message": item.message,
                "created_at": item.created_at,
                "kept": [str(why) for why in item.kept],
            }
            for item in result.judged
        ],
        "dropped": len(result.dropped),
        "bare": result.bare,
        "vanished": [
            jsonout.path_fields(item.name)
            | {
                "workspace": item.workspace,
                "entries": item.entries,
                "bytes": item.bytes,
                "unmounted": item.unmounted,
                "kept": item.kept,
            }
            for item in result.vanished
        ],
        "reclaimed": msgspec.to_builtins(result.reclaimed),
    }
