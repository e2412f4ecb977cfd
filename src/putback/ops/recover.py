"""Find out what an interrupted restore left behind, and leave that state when a person says how.

A restore that was killed before it began to publish changed nothing: its staged files are taken away without a
word. One that was killed later left each of its paths as before, as after, halfway, or as something else; that
is found out by digest, and nothing is written until somebody chooses.
"""

from __future__ import annotations

import enum

import msgspec

from putback.errors import FailedError, IntegrityError, PutbackError, UnknownStateError
from putback.ops import leftovers, restore
from putback.ops.apply import DONE, OWNER_ALL
from putback.ops.restore import Options, Restored, Target
from putback.ops.session import Session
from putback.ops.undo import span_target
from putback.paths import RelPath
from putback.records.change import Change, Kind, Node
from putback.records.history import Cause
from putback.records.journal import Started
from putback.records.plan import Outcome, Plan, Status, Step


class Standing(enum.StrEnum):
    """What a path of an interrupted restore turned out to be."""

    BEFORE = "before"
    AFTER = "after"
    HALFWAY = "halfway"
    OTHER = "other"


class Choice(enum.StrEnum):
    """How a person leaves an unknown state."""

    BACK = "back"
    FORWARD = "forward"
    KEEP = "keep"


class Interrupted(msgspec.Struct, frozen=True):
    """An interrupted restore: what it was about to do, where each path stands, and what is there."""

    started: Started
    paths: dict[RelPath, Standing]
    found: dict[RelPath, Node | None]


def inspect(session: Session) -> Interrupted | None:
    """The interrupted restore of this workspace, if there is one. Reads only."""
    journal = leftovers.read_journal(session.where)
    if journal is None or not journal[1]:
        return None
    result = Interrupted(journal[0], {}, {})
    for step in result.started.plan.steps:
        standing, found = _standing(session, step)
        result.paths[step.raw] = standing
        result.found[step.raw] = found
    return result


def check_known(session: Session) -> None:
    """Raise UnknownStateError where a restore was interrupted, for what would build on it."""
    interrupted = inspect(session)
    if interrupted is not None:
        raise UnknownStateError(
            f"an interrupted restore left {len(interrupted.paths)} paths undecided",
            hint="`putback recover` shows them and resolves the state",
        )


def resolve(session: Session, choice: Choice) -> Restored:
    """Carry out a choice and record it. Raises FailedError where there is nothing to resolve.

    The interrupted restore first becomes an entry of the history that says how far it came; going back is the
    undo of that entry, going forward a restore of what it had left. A path that is neither as before nor as
    after nor halfway is left as it is, and refused unless the choice is to keep everything.
    """
    try:
        interrupted = inspect(session)
    except IntegrityError:
        if choice is not Choice.KEEP:
            raise
        leftovers.set_aside(session.where)
        return Restored(Plan())
    if interrupted is None:
        raise FailedError("nothing to recover: no restore was interrupted")
    started, standings = interrupted.started, interrupted.paths
    session.capture(started.before)
    recorded = msgspec.structs.replace(started, cause=Cause.RECOVER, message=f"interrupted: {started.message}")
    outcomes = tuple(_outcome(step, standings[step.raw]) for step in started.plan.steps)
    touched = {path for path, standing in standings.items() if standing in (Standing.AFTER, Standing.HALFWAY)}
    session.progress.up = True
    kept = restore.finish(session, recorded, started.plan, outcomes, touched)
    if choice is Choice.KEEP or kept.entry is None:
        return kept
    message = f"recovered ({choice}): {started.message}"
    if choice is Choice.BACK:
        target = span_target(session, kept.entry, Cause.UNDO, message)
    else:
        target = _remainder(session, interrupted, message)
    done = restore.carry_out(session, restore.prepare(session, target, Options()))
    foreign = tuple(
        Outcome.at(path, status=Status.REFUSED, reason="neither as before nor as after; left as it is")
        for path, standing in standings.items()
        if standing is Standing.OTHER
    )
    return msgspec.structs.replace(done, outcomes=(*done.outcomes, *foreign))


def _remainder(session: Session, interrupted: Interrupted, message: str) -> Target:
    """What the interrupted restore had not done yet."""
    started = interrupted.started
    undone = (Standing.BEFORE, Standing.HALFWAY)
    return Target(
        goal=session.capture(started.before),
        recorded=None,
        of=started.of,
        cause=Cause.RECOVER,
        message=message,
        explicit=tuple(
            Change(step.raw, interrupted.found[step.raw], step.goal)
            for step in started.plan.steps
            if interrupted.paths[step.raw] in undone
        ),
    )


def _outcome(step: Step, standing: Standing) -> Outcome:
    status = DONE[step.action] if standing is Standing.AFTER else Status.SKIPPED
    return Outcome.at(step.raw, status=status, reason=f"interrupted; found {standing}")


def _standing(session: Session, step: Step) -> tuple[Standing, Node | None]:
    try:
        found = session.root.measure(step.raw)
    except (OSError, PutbackError):
        return Standing.OTHER, None
    if found == step.goal:
        return Standing.AFTER, found
    if found == step.now:
        return Standing.BEFORE, found
    return (Standing.HALFWAY if _is_halfway(step, found) else Standing.OTHER), found


def _is_halfway(step: Step, found: Node | None) -> bool:
    """Whether a path is in a state that only a restore under way makes.

    Where a directory and something else change places, the place is empty for a moment; and a directory is
    opened to its owner until everything in it is in place.
    """
    now, goal = step.now, step.goal
    if found is None:
        return now is not None and goal is not None and _is_directory(now) != _is_directory(goal)
    opened = [Node(Kind.DIRECTORY, node.mode | OWNER_ALL) for node in (now, goal) if node and _is_directory(node)]
    return found in opened


def _is_directory(node: Node) -> bool:
    return node.kind is Kind.DIRECTORY
