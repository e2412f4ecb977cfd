"""One entry of a workspace's history: a snapshot that somebody asked for, or a span that did something."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from putback.records.document import AtPath
from putback.records.plan import Outcome

# Nanoseconds since the epoch in 63 bits: the year 2262.
LAST_NS = (1 << 63) - 1


class EntryKind(enum.StrEnum):
    SNAPSHOT = "snapshot"
    RESTORE = "restore"


class Cause(enum.StrEnum):
    """Which command made a restore; undo and redo walk over these."""

    RESTORE = "restore"
    UNDO = "undo"
    REDO = "redo"
    RECOVER = "recover"


class Entry(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="format", tag="putback/history/v1"
):
    """`after` is the capture at the end; a span has `before` too. Ids are 64 lowercase hex digits.

    A snapshot's id is that of its capture. A restore's id is its own; `of` is the entry or the `A..B` that it
    put back, for undo and redo the entry that they took back or did again. `created_ns` is in nanoseconds since
    the epoch. `applied` counts paths that went back, `changed` those at which
    anything was changed; `declined` lists those that did not go back, with the reason.
    """

    seq: int
    id: str
    kind: EntryKind
    created_ns: Annotated[int, msgspec.Meta(ge=0, le=LAST_NS)]
    after: str
    before: str = ""
    message: str = ""
    cause: Cause = Cause.RESTORE
    of: str = ""
    scope: tuple[AtPath, ...] = ()
    files: int = 0
    bytes: int = 0
    not_covered: int = 0
    applied: int = 0
    changed: int = 0
    declined: tuple[Outcome, ...] = ()

    @property
    def short_id(self) -> str:
        """The first 12 digits; accepted wherever an id is."""
        return self.id[:12]

    @property
    def created_at(self) -> str:
        """When the entry was made: RFC 3339, UTC, to the microsecond."""
        moment = datetime.fromtimestamp(self.created_ns / 1e9, UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
