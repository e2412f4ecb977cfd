"""The receipt of a run, `putback/receipt/v1`: what happened, in one document that is checked offline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

import msgspec

from putback.records.capture import NotCovered
from putback.records.document import AtPath
from putback.records.ledger import Changed, RollbackRefused, RolledBack
from putback.records.plan import Outcome
from putback.records.run import Breach, Discipline, Exit, Limits, RunStatus


class Session(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """What was run, where, when (RFC 3339, UTC) and how it ended."""

    id: str
    command: tuple[str, ...]
    root: AtPath
    cwd: str
    start: str
    end: str
    status: RunStatus
    exit: Exit
    discipline: Discipline
    tool: str = ""


class LedgerHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hash of the ledger's last event and the number of its events."""

    head: str
    events: int


class SnapshotPart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`ops.snapshot`: `taken` counts captures whose contents were kept (0 or 2), `bytes_stored` is what they
    added to the store before compression, and `not_covered` lists what cannot be put back."""

    taken: int
    files: int
    bytes_stored: int
    manifest: str
    not_covered: tuple[NotCovered, ...] = ()


class RollbackPart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`ops.rollback`: `applied` is the number of paths that went back, `trigger` the limit that called for it.

    `reason` says why nothing went back where nothing did.
    """

    applied: int
    trigger: str
    restored: int = 0
    recreated: int = 0
    removed: int = 0
    paths: tuple[AtPath, ...] = ()
    refusals: tuple[Outcome, ...] = ()
    reason: str = ""

    @classmethod
    def of(cls, event: RolledBack | RollbackRefused) -> Self:
        """What the receipt says of a rollback that the ledger tells of."""
        if isinstance(event, RollbackRefused):
            return cls(applied=0, trigger=event.trigger, refusals=event.refusals, reason=event.reason)
        return cls(
            applied=event.applied,
            trigger=event.trigger,
            restored=event.restored,
            recreated=event.recreated,
            removed=event.removed,
            paths=event.paths,
            refusals=event.refusals,
        )


class Operations(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """What putback itself did during the run; no `rollback` where none was tried."""

    snapshot: SnapshotPart
    rollback: RollbackPart | None = None


class ChangeCounts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """How many paths the run created, modified and deleted, directories included."""

    created: int = 0
    modified: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, changes: Iterable[Changed]) -> Self:
        """The changes of a ledger, counted."""
        found = Counter(change.status for change in changes)
        return cls(created=found["created"], modified=found["modified"], deleted=found["deleted"])

    @property
    def total(self) -> int:
        return self.created + self.modified + self.deleted


class Verification(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """The verification command and how it came out; of a long output the end is kept."""

    command: str
    exit: int
    output: str = ""
    cut_bytes: int = 0


class Receipt(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format",
    tag="putback/receipt/v1",
):
    """`receipt.json`. `limits_disclosure` states, in sentences, what this evidence cannot show."""

    session: Session
    ledger: LedgerHead
    ops: Operations
    changes: ChangeCounts = ChangeCounts()
    limits: Limits = Limits()
    breaches: tuple[Breach, ...] = ()
    verification: Verification | None = None
    limits_disclosure: tuple[str, ...]
