"""The audited way out of a turn that stands open or unknown: a person says that it is over.

No content is rewritten, in neither direction: what is right, the person has looked at and knows.
"""

from __future__ import annotations

import time

from putback import seams
from putback.errors import OutOfOrder, UsageError
from putback.records.turn import Deed, TurnEvent, TurnResolution, TurnRollbackStatus
from putback.turns import leftovers
from putback.turns.custody import Custody, find


def resolve(custody: Custody, asked: str, *, actor: str, reason: str) -> TurnRollbackStatus:
    """Close a turn on a person's word, and take away what a killed application left beside its targets.

    Raises UsageError without `actor` and `reason`, and OutOfOrder for a turn that is neither open nor unknown.
    """
    if not actor.strip() or not reason.strip():
        raise UsageError(
            "closing a turn needs an actor and a reason; nothing was done",
            hint="say with --actor and --reason who closes it and why",
        )
    turns = custody.turns.all()
    folder = find(turns, asked)
    evidence = folder.evidence
    if not evidence.open:
        raise OutOfOrder(
            f"turn {evidence.pending.turn.turn_id!r} is {evidence.state}: there is nothing to resolve",
            hint=f"`putback turn inspect {folder.capture_id[:12]}` shows what is on record",
        )
    event = TurnEvent(
        deed=Deed.RESOLVED,
        actor=actor,
        reason=reason,
        binding=custody.binding.digest,
        turn=evidence.pending.turn,
        capture_id=folder.capture_id,
        paths=evidence.pending.paths,
        created_ns=time.time_ns(),
    )
    custody.log(event)
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
