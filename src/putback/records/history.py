"""One entry of a workspace's history: a snapshot that somebody asked for, or a span that did something."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from putback.records.agent import AgentTurn
from putback.records.document import AtPath
from putback.records.plan import Outcome
from putback.records.run import RunStatus

# Nanoseconds since the epoch in 63 bits: the year 2262.
LAST_NS = (1 << 63) - 1


class EntryKind(enum.StrEnum):
    SNAPSHOT = "snapshot"
    RESTORE = "restore"
    RUN = "run"
    TURN = "turn"


class Cause(enum.StrEnum):
    """What made a restore; undo and redo walk over these. `turn` is a turn that was taken back."""

    RESTORE = "restore"
    UNDO = "undo"
    REDO = "redo"
    RECOVER = "recover"
    ROLLBACK = "rollback"
    TURN = "turn"


class Entry(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="format", tag="putback/history/v1"
):
    """`after` is the capture at the end; a span has `before` too. Ids are 64 lowercase hex digits.

    A snapshot's id is that of its capture; that of a restore, a run or a turn is its own. `of` is the entry or the
    `A..B` that a restore put back, for undo and redo the entry that they took back or did again, for a turn its
    binding. `created_ns` is in nanoseconds since the epoch. `changed` counts the paths at which anything was
    changed, `applied` those that a restore put back; `declined` lists those that did not go back, with the reason.
    `status` and `exit_code` say how a run came out; it has no captures where it kept digests alone. `ledger` is
    the hash of the event in its ledger up to which everything had been told when the entry was made: all but the
    rollback and the end. `agent` is there for a turn of a coding agent, and not for an exact-path turn.
    """

    seq: int
    id: str
    kind: EntryKind
    created_ns: Annotated[int, msgspec.Meta(ge=0, le=LAST_NS)]
    after: str = ""
    before: str = ""
    message: str = ""
    cause: Cause = Cause.RESTORE
    of: str = ""
    scope: tuple[AtPath, ...] = ()
    files: int = 0
    bytes: int = 0
    not_covered: int = 0
    status: RunStatus | None = None
    exit_code: int = 0
    ledger: str = ""
    applied: int = 0
    changed: int = 0
    declined: tuple[Outcome, ...] = ()
    agent: AgentTurn | None = None

    @property
    def short_id(self) -> str:
        """The first 12 digits; accepted wherever an id is."""
        return self.id[:12]

    @property
    def created_at(self) -> str:
        """When the entry was made: RFC 3339, UTC, to the microsecond."""
        return moment(self.created_ns)


def moment(created_ns: int) -> str:
    """A time in nanoseconds since the epoch: RFC 3339, UTC, to the microsecond."""
    found = datetime.fromtimestamp(created_ns / 1e9, UTC)
    return found.isoformat(timespec="microseconds").replace("+00:00", "Z")
