"""Decide what a restore does to each path. Pure: no disk, no git, so that every refusal is a table.

A plan answers one question per path: given what the record says was there, what is there now and what should be
there, is it restored, recreated, removed, refused or left alone?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from putback.paths import RelPath, parents, text, within
from putback.records.change import Change, Kind, Node
from putback.records.plan import Action, Declined, Outcome, Plan, Policy, Status, Step

KEPT = "what was changed since is kept"


class Wanted(msgspec.Struct, frozen=True):
    """What a plan is made from.

    `changes` say, per path, what the record says is there (`before`) and what should be there (`after`). `now`
    is what the safety capture found, for paths where that is not what the record says. `unheld` maps paths where
    something stands that no capture can hold to the reason. `kept` maps paths that may not be removed to the
    reason why they are left. Of the directories that must give way to something else, `hidden` has those with
    something in them that no capture holds, and `inside` what the safety capture holds in each. `merged` has, for
    paths that changed since, what a merge makes of them, or why none can be made.
    """

    changes: Sequence[Change]
    now: Mapping[RelPath, Node | None]
    policy: Policy
    unheld: Mapping[RelPath, str]
    kept: Mapping[RelPath, Declined]
    hidden: Mapping[RelPath, RelPath]
    inside: Mapping[RelPath, Sequence[RelPath]]
    merged: Mapping[RelPath, Node | str] = {}


def make(wanted: Wanted) -> Plan:
    """The plan: steps in path order, refusals, and paths left alone."""
    steps: list[Step] = []
    refused: list[Declined] = []
    left: list[Declined] = []
    settled: list[Outcome] = []
    in_the_way = _in_the_way(wanted)
    for change in wanted.changes:
        path, goal = change.path, change.after
        now = wanted.now.get(path, change.before)
        reason = wanted.unheld.get(path)
        if reason is not None:
            refused.append(Declined.at(path, reason=reason, code="not_covered"))
        elif now == goal:
            status = Status.ABSENT if goal is None else Status.SKIPPED
            settled.append(Outcome.at(path, status=status, reason="already as it should be"))
        elif wanted.policy in (Policy.REFUSE, Policy.MERGE) and now != change.before:
            merged = wanted.merged.get(path)
            if not isinstance(merged, Node):
                why = "" if merged is None else f"; not merged: {merged}"
                refused.append(Declined.at(path, reason=drift(change.before, now) + why, code="drift"))
            elif merged == now:
                settled.append(Outcome.at(path, status=Status.SKIPPED, reason="what it would take back is gone"))
            else:
                steps.append(Step.at(path, action=Action.MERGE, now=now, goal=merged, note=KEPT))
        elif goal is None and path in wanted.kept and not within(path, in_the_way):
            left.append(wanted.kept[path])
        elif _blocked(now, goal) and path in wanted.hidden:
            inside = text(wanted.hidden[path])
            reason = f"a directory stands there with something in it that no capture holds: {inside}"
            refused.append(Declined.at(path, reason=reason, code="not_covered"))
        else:
            steps.append(Step.at(path, action=_action(now, goal), now=now, goal=goal))
    removed = {step.raw for step in steps if step.goal is None}
    for step in [step for step in steps if step.raw in wanted.inside and _blocked(step.now, step.goal)]:
        stays = next((path for path in wanted.inside[step.raw] if path not in removed), None)
        if stays is not None:
            steps.remove(step)
            reason = f"a directory stands there, and this does not take back what is in it: {text(stays)}"
            refused.append(Declined.at(step.raw, reason=reason, code="drift"))
    standing = {change.path for change in wanted.changes if _stands(change, wanted.now)}
    refused_paths = {item.raw: 0 for item in refused if item.raw not in standing}
    possible: list[Step] = []
    for step in steps:
        if step.goal is not None and any(above in refused_paths for above in parents(step.raw)):
            refused.append(Declined.at(step.raw, reason="its directory cannot be made", code="not_covered"))
        else:
            possible.append(step)
    return Plan(
        steps=tuple(possible),
        refused=tuple(sorted(refused, key=lambda item: item.raw)),
        left=tuple(left),
        settled=tuple(settled),
    )


def drift(recorded: Node | None, now: Node | None) -> str:
    """Why a path that changed since is refused: both states, digests included."""
    return f"changed since: the record says {describe(recorded)}, found {describe(now)}"


def describe(node: Node | None) -> str:
    return "absent" if node is None else str(node)


def _in_the_way(wanted: Wanted) -> dict[RelPath, int]:
    """Directories that must give way to a file or link, so that what they hold must go too."""
    return {
        change.path: 0
        for change in wanted.changes
        if _blocked(wanted.now.get(change.path, change.before), change.after) and change.path not in wanted.hidden
    }


def _stands(change: Change, now: Mapping[RelPath, Node | None]) -> bool:
    """Whether the path is a directory that stays one, so that what is in it can be put back whatever its mode."""
    found = now.get(change.path, change.before)
    return all(node is not None and node.kind is Kind.DIRECTORY for node in (found, change.after))


def _blocked(now: Node | None, goal: Node | None) -> bool:
    """Whether a directory stands where something else has to be."""
    return now is not None and now.kind is Kind.DIRECTORY and goal is not None and goal.kind is not Kind.DIRECTORY


def _action(now: Node | None, goal: Node | None) -> Action:
    if goal is None:
        return Action.REMOVE
    return Action.RECREATE if now is None else Action.RESTORE
