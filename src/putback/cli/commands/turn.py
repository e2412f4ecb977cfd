"""`putback turn …`: exact-path turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from putback.cli import call, jsonout, render_turn, selected
from putback.cli.call import Call
from putback.cli.putting import NEEDS_YES, SOME_FAILED
from putback.errors import Stale, UnknownId, UsageError
from putback.records.turn import Binding, TurnRollbackPlan, TurnState
from putback.turns.ownership import Disposition

if TYPE_CHECKING:
    from putback.turns.catalog import Turns

F = TypeVar("F", bound=Callable[..., Any])

UNKNOWN = 44


@click.group(
    epilog="\b\nExample:\n  putback turn bind\n  putback turn begin --turn fix-parser src/parser.py\n"
    "  putback turn seal\n  putback turn prepare"
)
def command() -> None:
    """Take back exactly the paths that one turn named, staged and unstaged apart, or touch nothing.

    A work tree is bound to one owner; a turn is captured at its beginning and at its end, at literal paths; a
    proposal is reviewed and then applied.
    """


def _bound(function: F) -> F:
    text = "The binding (default: the one of this work tree)."
    return click.option("-b", "--binding", "asked", metavar="ID", help=text)(function)


def _accountable(function: F) -> F:
    with_reason = click.option("--reason", default="", metavar="WHY", help="Why; it is kept on record.")(function)
    return click.option("--actor", default="", metavar="WHO", help="Who; it is kept on record.")(with_reason)


_CAPTURE = click.argument("capture", metavar="[TURN]", required=False)


@command.command(epilog="\b\nExample:\n  putback turn bind --owner agent-7\n  putback turn bind -p git-worktree")
@click.option(
    "-p",
    "--provider",
    default="exclusive-checkout",
    type=click.Choice(["exclusive-checkout", "git-worktree"]),
    help="This checkout (the default), or a new work tree of its repository.",
)
@click.option("--id", "asked", metavar="ID", help="A name for the binding.")
@click.option("--owner", default="", metavar="NAME", help="Who owns it (default: your login name).")
@click.option("--at", "place", metavar="DIR", help="Where a new work tree goes.")
@click.option("--branch", default="", metavar="NAME", help="The branch of a new work tree.")
@click.option("--reason", default="bound at the command line", metavar="WHY", help="Why; it is kept on record.")
@call.command
def bind(
    here: Call,
    provider: str,
    asked: str | None,
    owner: str,
    place: str | None,
    branch: str,
    reason: str,
) -> None:
    """Claim a work tree for one owner: nobody else works in it. Refused where another claim touches it."""
    here.strict = True
    result = here.workspace.turns.bind(
        provider=provider,
        binding_id=asked,
        owner=owner,
        place=b"" if place is None else os.fsencode(os.path.abspath(os.path.join(here.directory, place))),
        branch=branch,
        reason=reason,
    )
    plain = {"reattached": result.reattached, "filters": list(result.filters)}
    _print(here, {"binding": _plain(result.binding), **plain}, render_turn.bound(result))


@command.command("list", epilog="\b\nExample:\n  putback turn list")
@_bound
@click.option("--all", "everywhere", is_flag=True, help="The claims of the whole store, in place of turns.")
@call.command
def list_(here: Call, asked: str | None, everywhere: bool) -> None:
    """The turns of a binding, newest first."""
    turns = here.workspace.turns
    if everywhere:
        claims = turns.claims()
        _print(here, {"claims": [_plain(claim) for claim in claims]}, render_turn.claims(claims))
        return
    bound = turns.binding(asked)
    found = turns.list(bound)
    result = {"binding": _plain(bound), "turns": [_plain(status) for status in found]}
    _print(here, result, render_turn.turns(bound, found))


@command.command(epilog="\b\nExample:\n  putback turn begin --turn fix-parser src/parser.py tests/new_test.py")
@_bound
@click.option("--turn", "name", required=True, metavar="NAME", help="Your name for the turn.")
@click.option("--generation", type=click.IntRange(1), metavar="N", help="Its place in the order (default: next).")
@click.option("--paths-from", metavar="FILE", help="Read more paths from a file: one a line, or NUL after each.")
@click.argument("given", nargs=-1, metavar="PATH…", type=click.UNPROCESSED)
@call.command
def begin(
    here: Call,
    asked: str | None,
    name: str,
    generation: int | None,
    paths_from: str | None,
    given: tuple[str, ...],
) -> None:
    """Capture the beginning of a turn at 1 to 100 literal paths.

    A file that the turn will create is named, too; it must not be there yet.
    """
    turns = here.workspace.turns
    bound = turns.binding(asked)
    identity = turns.next_turn(bound, name)
    if generation is not None:
        identity = msgspec.structs.replace(identity, generation=generation)
    capture = turns.begin(bound, identity, selected.paths(here, bound, given, paths_from))
    _print(here, {"turn": _plain(capture)}, render_turn.begun(capture))


@command.command(epilog="\b\nExample:\n  putback turn seal")
@_bound
@_CAPTURE
@call.command
def seal(here: Call, asked: str | None, capture: str | None) -> None:
    """Capture the end of the latest turn. From then on it can be taken back.

    TURN is the id that `turn begin` printed; the latest where it is left out.
    """
    turns, bound, chosen = _chosen(here, asked, capture)
    sealed = turns.seal(bound, chosen)
    _print(here, {"turn": _plain(sealed)}, render_turn.sealed(sealed))


@command.command(epilog="\b\nExample:\n  putback turn prepare")
@_bound
@_CAPTURE
@call.command
def prepare(here: Call, asked: str | None, capture: str | None) -> None:
    """The proposal to take the latest sealed turn back, for review. Changes nothing."""
    turns, bound, chosen = _chosen(here, asked, capture)
    plan = turns.prepare(bound, chosen)
    _print(here, {"proposal": plan.digest, "plan": _plain(plan)}, render_turn.plan(plan))


@command.command(
    short_help="Take the latest sealed turn back, as a whole.",
    epilog="\b\nExample:\n  putback turn apply --proposal 9f8e7d6 --actor ann --reason 'wrong file' --yes",
)
@_bound
@_CAPTURE
@click.option("--proposal", metavar="DIGEST", help="The proposal that was reviewed; without it you are asked.")
@_accountable
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@call.command
def apply(
    here: Call, asked: str | None, capture: str | None, proposal: str | None, actor: str, reason: str, yes: bool
) -> int:
    """Take the latest sealed turn back: every path in the index and in the work tree, or nothing at all."""
    turns, bound, chosen = _chosen(here, asked, capture)
    plan = turns.prepare(bound, chosen)
    if proposal is not None:
        _check_reviewed(plan, proposal)
    elif not here.interactive:
        here.watch.close()
        _print(here, {"done": False, "proposal": plan.digest, "plan": _plain(plan)}, render_turn.plan(plan))
        here.note(f"nothing was changed: without a terminal this needs --proposal {plan.digest[:12]} and --yes")
        return NEEDS_YES
    if not yes and here.interactive:
        here.watch.close()
        for line in render_turn.plan(plan):
            click.echo(line)
        if not here.ask("Take the turn back?"):
            here.note("nothing was changed")
            return SOME_FAILED
        yes = True
    result = turns.apply(bound, plan, yes=yes, actor=actor, reason=reason)
    _print(here, {"done": True, "result": _plain(result)}, render_turn.applied(result))
    return 0


def _check_reviewed(plan: TurnRollbackPlan, proposal: str) -> None:
    if len(proposal) < 7 or not plan.digest.startswith(proposal):
        raise Stale(
            f"the proposal {proposal!r} is not the present one, {plan.digest[:12]}",
            hint="nothing was touched; `putback turn prepare` shows the present one",
        )


@command.command(epilog="\b\nExample:\n  putback turn inspect")
@_bound
@_CAPTURE
@call.command
def inspect(here: Call, asked: str | None, capture: str | None) -> int:
    """What is on record of a turn. It attests neither the present content nor the ownership."""
    turns, bound, chosen = _chosen(here, asked, capture)
    status = turns.inspect(bound, chosen)
    _print(here, {"status": _plain(status)}, render_turn.status(status))
    return UNKNOWN if status.state is TurnState.UNKNOWN else 0


@command.command(
    epilog="\b\nExample:\n  putback turn resolve --actor ann --reason 'looked at it; the tree is right'"
)
@_bound
@_CAPTURE
@_accountable
@click.option("--set-aside", is_flag=True, help="For a turn whose documents are damaged: leave it out.")
@call.command
def resolve(here: Call, asked: str | None, capture: str | None, actor: str, reason: str, set_aside: bool) -> None:
    """Close a turn that is open or unknown, on your word. No content is rewritten."""
    if set_aside:
        turns = here.workspace.turns
        if capture is None:
            raise UsageError("name the turn that is to be set aside", hint="the error names it")
        kept = turns.set_aside(turns.binding(asked), capture, actor=actor, reason=reason)
        _print(here, {"set_aside": str(kept)}, [f"set aside: {kept}"])
        return
    turns, bound, chosen = _chosen(here, asked, capture)
    status = turns.resolve(bound, chosen, actor=actor, reason=reason)
    _print(here, {"status": _plain(status)}, render_turn.status(status))


@command.command(epilog="\b\nExample:\n  putback turn release\n  putback turn release -b agent-7 --salvage")
@_bound
@click.option("--retain", "disposition", flag_value="retain", help="Keep the claim; binding again takes it up.")
@click.option("--archive", "disposition", flag_value="archive", help="Keep the claim for good.")
@click.option("--salvage", is_flag=True, help="Put unsaved work of a git-worktree on a branch before it goes.")
@click.option("--actor", default="", metavar="WHO", help="Who (default: your login name).")
@click.option("--reason", default="released at the command line", metavar="WHY", help="Why; it is kept on record.")
@call.command
def release(
    here: Call, asked: str | None, disposition: str | None, salvage: bool, actor: str, reason: str
) -> None:
    """Give a binding up. Captures stay.

    A git-worktree is removed, unless it holds unsaved work; its branch stays.
    """
    turns = here.workspace.turns
    result = turns.release(
        turns.binding(asked),
        disposition=Disposition(disposition or "free"),
        salvage=salvage,
        actor=actor,
        reason=reason,
    )
    plain = {"removed": result.removed, "salvage": result.salvage, "snapshot": result.snapshot}
    released = {"binding_id": result.binding.id, "disposition": str(result.disposition), **plain}
    _print(here, {"released": released}, render_turn.released(result))


def _chosen(here: Call, asked: str | None, capture: str | None) -> tuple[Turns, Binding, str]:
    """The binding, and the turn of it that is meant: the latest where none is named. Raises UnknownId."""
    turns = here.workspace.turns
    bound = turns.binding(asked)
    if capture is None:
        known = turns.list(bound)
        if not known:
            raise UnknownId(f"{bound.id!r} has no turns", hint="`putback turn begin` begins one")
        capture = known[0].capture_id
    return turns, bound, capture


def _plain(record: Any) -> Any:
    return msgspec.to_builtins(record)


def _print(here: Call, result: dict[str, Any], lines: Iterable[str]) -> None:
    here.watch.close()
    if here.json:
        jsonout.write(result)
        return
    for line in lines:
        click.echo(line)
