"""The audited way out of a turn that stands open or unknown: a person says that it is over.

No content is rewritten, in neither direction: what is right, the person has looked at and knows.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import structs

from putback import seams
from putback.errors import IntegrityError, OutOfOrder, UsageError
from putback.records.turn import Deed, TurnEvent, TurnResolution, TurnRollbackStatus
from putback.turns import leftovers, words
from putback.turns.custody import Custody, find
from putback.turns.evidence import TurnFolder


def resolve(custody: Custody, asked: str, *, actor: str, reason: str) -> TurnRollbackStatus:
    """Close a turn on a person's word, and take away what a killed application left beside its targets.

    Raises UsageError without `actor` and `reason`, and OutOfOrder for a turn that is neither open nor unknown.
    """
    _check_accountable(actor, reason)
    turns = custody.turns.folders()
    folder = find(turns, asked)
    evidence = folder.evidence
    if not evidence.open:
        raise OutOfOrder(
            f"turn {evidence.pending.turn.turn_id!r} is {evidence.state}: there is nothing to resolve",
            hint=f"`putback turn inspect {folder.capture_id[:12]}` shows what is on record",
        )
    event = _event(custody, folder, actor, reason)
    custody.log(structs.replace(event, turn=evidence.pending.turn, paths=evidence.pending.paths))
    seams.reach("turn.resolving")
    leftovers.clear(custody, folder.capture_id)
    resolution = TurnResolution(
        capture_id=folder.capture_id,
        actor=actor,
        reason=reason,
        was=str(evidence.state),
        created_ns=time.time_ns(),
    )
    folder.write("resolution", resolution, custody.session.where.scratch)
    return folder.evidence.status(latest=folder.path == turns[-1].path)


def set_aside(custody: Custody, asked: str, *, actor: str, reason: str) -> Path:
    """Leave a turn whose documents are damaged out of the account, on a person's word; returns where they lie.

    It goes on to count against the caps, by the most that it can have reserved. Raises UsageError without `actor`
    and `reason`, and OutOfOrder for a turn whose documents are whole.
    """
    _check_accountable(actor, reason)
    folder = find(custody.turns.folders(), asked)
    try:
        state = folder.evidence.state
    except IntegrityError:
        custody.log(_event(custody, folder, actor, reason))
        leftovers.clear(custody, folder.capture_id)
        return custody.turns.set_aside(folder)
    raise OutOfOrder(
        f"the documents of turn {folder.capture_id[:12]} are whole: it is {state}",
        hint=f"`putback turn resolve {folder.capture_id[:12]}` closes a turn that is open or unknown",
    )


def _check_accountable(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise UsageError(
            "closing a turn needs an actor and a reason; nothing was done",
            hint="say with --actor and --reason who closes it and why",
        )
    words.check(actor=actor, reason=reason)


def _event(custody: Custody, folder: TurnFolder, actor: str, reason: str) -> TurnEvent:
    return TurnEvent(
        deed=Deed.RESOLVED,
        actor=actor,
        reason=reason,
        binding=custody.binding.digest,
        capture_id=folder.capture_id,
        created_ns=time.time_ns(),
    )
