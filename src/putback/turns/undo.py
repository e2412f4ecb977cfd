"""`undo` of a turn: prepared, shown and applied as any turn is, and told in the terms of a restore."""

from __future__ import annotations

from collections.abc import Callable

from putback.errors import NotOwned, OutOfOrder, UnknownId, UsageError
from putback.ops.apply import DONE
from putback.ops.restore import Restored
from putback.records.history import Entry
from putback.records.plan import Action, Outcome, Plan, Step
from putback.records.turn import Effect, TurnRollbackPlan, TurnStep
from putback.store.history import History
from putback.turns import ownership
from putback.turns.catalog import Turns


def undo(
    turns: Turns,
    entry: Entry,
    *,
    force: bool,
    merge: bool,
    dry_run: bool,
    confirm: Callable[[Plan], bool] | None,
) -> Restored:
    """Take back the turn that `entry` records.

    Raises what `Turns.apply` raises, and UsageError with `force` or `merge`.
    """
    if force or merge:
        what, how = ("forced", "--force") if force else ("merged", "--merge")
        raise UsageError(
            f"turn {entry.short_id} goes back exactly or not at all, so it cannot be {what}",
            hint=f"`putback restore {entry.short_id} {how}` puts its files back, and leaves the index alone",
        )
    try:
        bound = turns.binding(entry.of)
        proposal = turns.prepare(bound, entry.id)
    except (NotOwned, OutOfOrder, UnknownId) as error:
        error.hint = f"{error.hint}; `putback restore {entry.short_id}` puts back its files, and not the index"
        raise
    plan = shown(proposal)
    if dry_run or (confirm is not None and plan.steps and not confirm(plan)):
        return Restored(plan)
    result = turns.apply(bound, proposal, yes=True, actor=ownership.default_owner(), reason="putback undo")
    outcomes = tuple(
        Outcome(path=step.path, path_b64=step.path_b64, status=DONE[step.action], reason=step.note)
        for step in plan.steps
    )
    return Restored(plan, outcomes, History(turns.where.history).find(result.entry))


def shown(proposal: TurnRollbackPlan) -> Plan:
    """A proposal as a plan for people: one step for each path that changes on either side."""
    return Plan(steps=tuple(step for step in map(_step, proposal.steps) if step is not None))


def _step(item: TurnStep) -> Step | None:
    if item.worktree is Effect.KEEP and item.index is Effect.KEEP:
        return None
    if item.worktree is Effect.KEEP:
        note = "in the index alone"
    else:
        note = "" if item.index is Effect.KEEP else "in the index, too"
    return Step(
        path=item.path,
        path_b64=item.path_b64,
        action=Action(item.index if item.worktree is Effect.KEEP else item.worktree),
        now=item.end.worktree,
        goal=item.before.worktree,
        note=note,
    )
