"""Exact-path turns for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from putback.cli.render import count, path, size, words
from putback.paths import printable
from putback.records.turn import (
    Binding,
    Claim,
    Effect,
    Selected,
    TurnCapture,
    TurnRollbackPlan,
    TurnRollbackResult,
    TurnRollbackStatus,
    TurnState,
    TurnStep,
)

if TYPE_CHECKING:
    from putback.turns.ownership import Bound, Released

_VERBS = {Effect.RESTORE: "restore", Effect.RECREATE: "recreate", Effect.REMOVE: "remove"}


def bound(item: Bound) -> Iterator[str]:
    """What `turn bind` prints."""
    binding = item.binding
    again = " again" if item.reattached else ""
    yield f"bound{again} {click.style(binding.id, bold=True)}  {printable(binding.root.raw)}"
    yield f"  owner     {words(binding.owner)}, by {binding.provider}, generation {binding.generation}"
    if binding.branch:
        yield f"  branch    {words(binding.branch)}"
    if item.filters:
        names = ", ".join(item.filters)
        yield f"  note      files as committed: no filter was run ({words(names)})"


def claims(items: Iterable[Claim]) -> Iterator[str]:
    """The claims of a store."""
    empty = True
    for item in items:
        empty = False
        binding = item.binding
        yield f"{binding.id}  {item.state}  {words(binding.owner)}  {printable(binding.root.raw)}"
    if empty:
        yield "no claims"


def turns(binding: Binding, items: Iterable[TurnRollbackStatus]) -> Iterator[str]:
    """The turns of a binding."""
    yield f"{binding.id}, generation {binding.generation}: {printable(binding.root.raw)}"
    for item in items:
        state = click.style(f"{item.state:<8}", fg="red" if item.state is TurnState.UNKNOWN else None)
        paths = count(len(item.paths), "path")
        line = f"  {item.turn.generation:>4}  {item.capture_id[:12]}  {state}  {paths:>9}"
        yield f"{line}  {words(item.turn.turn_id)}"


def begun(item: TurnCapture) -> Iterator[str]:
    """What `turn begin` prints."""
    yield f"begun {click.style(item.id[:12], bold=True)}  {words(item.turn.turn_id)}  {_measure(item)}"
    yield f"  `putback turn seal {item.id[:12]}` captures its end"


def sealed(item: TurnCapture) -> Iterator[str]:
    """What `turn seal` prints."""
    yield f"sealed {click.style(item.id[:12], bold=True)}  {words(item.turn.turn_id)}  {_measure(item)}"
    yield f"  `putback turn prepare {item.id[:12]}` shows what taking it back would do"


def _measure(item: TurnCapture) -> str:
    end = item.end or item.begin
    return f"{count(len(item.paths), 'path')}, {size(end.bytes)}"


def plan(item: TurnRollbackPlan) -> Iterator[str]:
    """A proposal, path by path and side by side."""
    yield f"proposal {click.style(item.digest[:12], bold=True)} to take back turn {words(item.turn.turn_id)}"
    for step in item.steps:
        yield from _step(step)
    changing = sum(_changes(step) for step in item.steps)
    yield f"{count(changing, 'path')} would change, {len(item.steps) - changing} stay"


def _changes(step: TurnStep) -> bool:
    return step.index is not Effect.KEEP or step.worktree is not Effect.KEEP


def _step(step: TurnStep) -> Iterator[str]:
    if not _changes(step):
        yield f"  keep      {path(step)}"
        return
    for side, effect, text in (("work tree", step.worktree, _worktree), ("index", step.index, _index)):
        if effect is not Effect.KEEP:
            change = f"{text(step.end)} -> {text(step.before)}"
            yield f"  {_VERBS[effect]:<8}  {path(step)}  in the {side}: {change}"


def _worktree(item: Selected) -> str:
    return str(item.worktree or "absent")


def _index(item: Selected) -> str:
    return "absent" if item.index is None else f"{item.index.mode:o} {item.index.blob[:12]}"


def applied(item: TurnRollbackResult) -> Iterator[str]:
    """What `turn apply` prints."""
    if item.already:
        yield f"already taken back: {item.capture_id[:12]}, and its beginning still stands"
        return
    changed = sum(_changes(step) for step in item.steps)
    yield f"took back {click.style(item.capture_id[:12], bold=True)}: {count(changed, 'path')}, verified"


def status(item: TurnRollbackStatus) -> Iterator[str]:
    """What `turn inspect` prints."""
    yield f"turn {click.style(item.capture_id, bold=True)}"
    yield f"  name      {words(item.turn.turn_id)}, generation {item.turn.generation}"
    yield f"  binding   {item.binding_id}, generation {item.binding_generation}"
    yield f"  state     {click.style(item.state, fg='red' if item.state is TurnState.UNKNOWN else None)}"
    if item.detail:
        yield f"  because   {item.detail}"
    if item.forgotten:
        yield "  note      some of its content was forgotten: it cannot be taken back"
    if not item.latest:
        yield "  note      a later turn came after it"
    yield f"  reserved  {size(item.reserved_bytes)}"
    yield from (f"  path      {path(part)}" for part in item.paths)


def unsettled(items: Iterable[TurnRollbackStatus]) -> Iterator[str]:
    """Turns that stand open or unknown, or have left something, as `status` tells them."""
    for item in items:
        name = f"{item.capture_id[:12]} {words(item.turn.turn_id)}"
        if item.state is TurnState.UNKNOWN:
            yield click.style(
                f"unknown state: turn {name}: {item.detail}; `putback turn resolve` closes it", fg="red"
            )
        elif item.state is not TurnState.BEGUN:
            yield click.style(f"turn {name} is {item.state}: {item.detail}", fg="red")
        else:
            yield f"turn {name} is open; `putback turn seal {item.capture_id[:12]}` captures its end"


def released(item: Released) -> Iterator[str]:
    """What `turn release` prints."""
    done = {"free": "released", "retain": "retained", "archive": "archived"}[item.disposition]
    yield f"{done} {click.style(item.binding.id, bold=True)}"
    if item.salvage:
        yield f"  what was unsaved is on branch {words(item.salvage)}"
    if item.snapshot:
        yield f"  the whole tree, what is ignored among it, is in snapshot {item.snapshot[:12]}"
    if item.removed:
        yield f"  removed   {printable(item.binding.root.raw)}; branch {words(item.binding.branch)} stays"
