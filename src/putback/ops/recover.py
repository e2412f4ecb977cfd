"""Find out what an interrupted restore left behind, and leave that state when a person says how.

A restore that was killed before it began to publish changed nothing: its staged files are taken away without a
word. One that was killed later left each of its paths as before, as after, or as something else; that is found
out by digest, and nothing is written until somebody chooses.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from putback.errors import FailedError, IntegrityError, PutbackError, StorageError
from putback.fs.journal import read_lines
from putback.ops import restore
from putback.ops.apply import DONE, STAGED_PREFIX
from putback.ops.restore import Options, Restored, Target
from putback.ops.session import Session
from putback.ops.undo import span_target
from putback.paths import RelPath
from putback.records.change import Change
from putback.records.history import Cause
from putback.records.journal import Line, Published, Started
from putback.records.plan import Outcome, Policy, Status, Step


class Standing(enum.StrEnum):
    """What a path of an interrupted restore turned out to be."""

    BEFORE = "before"
    AFTER = "after"
    OTHER = "other"


class Choice(enum.StrEnum):
    """How a person leaves an unknown state."""

    BACK = "back"
    FORWARD = "forward"
    KEEP = "keep"


@dataclass(frozen=True)
class Interrupted:
    """An interrupted restore: what it was about to do, and where each of its paths stands."""

    started: Started
    paths: dict[RelPath, Standing]


def inspect(session: Session) -> Interrupted | None:
    """The interrupted restore of this workspace, if there is one. Reads only."""
    found = _read(session)
    if found is None or not found[1]:
        return None
    started = found[0]
    return Interrupted(started, {step.raw: _standing(session, step) for step in started.plan.steps})


def clean(session: Session) -> None:
    """Take away what a killed restore staged; drop the journal of one that had changed nothing yet."""
    found = _read(session)
    if found is None:
        return
    started, publishing = found
    if started is not None:
        for item in started.staged:
            if item.raw.rpartition(b"/")[2].startswith(STAGED_PREFIX):
                with suppress(OSError):
                    session.root.remove(item.raw)
    if not publishing:
        session.where.journal.unlink(missing_ok=True)


def resolve(session: Session, choice: Choice) -> Restored:
    """Carry out a choice and record it. Raises FailedError where there is nothing to resolve.

    The interrupted restore first becomes an entry of the history that says how far it came; going back is the
    undo of that entry, going forward a restore of what it had left.
    """
    interrupted = inspect(session)
    if interrupted is None:
        raise FailedError("nothing to recover: no restore was interrupted")
    started = interrupted.started
    message = f"recovered ({choice}): {started.message}"
    recorded = msgspec.structs.replace(started, cause=Cause.RECOVER, message=f"interrupted: {started.message}")
    outcomes = tuple(_kept(step, interrupted.paths[step.raw]) for step in started.plan.steps)
    kept = restore.finish(session, recorded, started.plan, outcomes)
    if choice is Choice.KEEP or kept.entry is None:
        return kept
    if choice is Choice.BACK:
        target = span_target(session, kept.entry, Cause.UNDO, message)
    else:
        target = _remainder(session, interrupted, message)
    return restore.carry_out(session, restore.prepare(session, target, Options(policy=Policy.REFUSE)))


def _remainder(session: Session, interrupted: Interrupted, message: str) -> Target:
    """What the interrupted restore had not done yet."""
    started = interrupted.started
    return Target(
        goal=session.capture(started.before),
        recorded=None,
        of=started.of,
        cause=Cause.RECOVER,
        message=message,
        explicit=tuple(Change(step.raw, step.now, step.goal) for step in started.plan.steps),
    )


def _kept(step: Step, standing: Standing) -> Outcome:
    status = {Standing.AFTER: DONE[step.action]}.get(standing, Status.SKIPPED)
    return Outcome.at(step.raw, status=status, reason=f"kept as it was found: {standing}")


def _read(session: Session) -> tuple[Started, bool] | None:
    """The first line of the journal, and whether publishing had begun; None where there is no whole line."""
    try:
        lines = read_lines(session.where.journal)
    except OSError as error:
        raise StorageError(f"cannot read the journal: {error.strerror}") from error
    if not lines:
        session.where.journal.unlink(missing_ok=True)
        return None
    try:
        decoded = [msgspec.json.decode(line, type=Line) for line in lines]
    except msgspec.DecodeError as error:
        raise IntegrityError(f"damaged journal {str(session.where.journal)!r}: {error}") from error
    first = decoded[0]
    if not isinstance(first, Started):
        raise IntegrityError(f"damaged journal {str(session.where.journal)!r}: it does not begin at the start")
    return first, any(isinstance(line, Published) for line in decoded)


def _standing(session: Session, step: Step) -> Standing:
    try:
        found = session.root.measure(step.raw)
    except (OSError, PutbackError):
        return Standing.OTHER
    if found == step.goal:
        return Standing.AFTER
    return Standing.BEFORE if found == step.now else Standing.OTHER
