"""What a retention policy keeps, and what came of it for each entry of a history."""

from __future__ import annotations

import enum

from putback.records.document import Strict
from putback.records.history import EntryKind, moment


class Keep(Strict, frozen=True, kw_only=True):
    """A policy. An entry stays that any of its rules keeps; a rule that is 0 or empty is not set.

    `last`, `hourly`, `daily` and `weekly` are counts: the newest entries, and the newest entry of each of the
    newest hours, days and weeks (of local time, weeks as ISO 8601 has them) in which there is one. What is newest
    the history's numbers say, not the clock. Restores are not counted by these.
    `within_seconds` reaches back from the newest entry that counts, not from now: a workspace that nobody touched
    for a month loses nothing by it. `messages` are shell patterns of messages that stay.
    """

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    within_seconds: float = 0.0
    messages: tuple[str, ...] = ()

    @property
    def rules(self) -> bool:
        """Whether any rule is set."""
        return self != Keep()


class Why(enum.StrEnum):
    """Why an entry stays: a rule of the policy, or something that needs it whatever the policy says.

    `undo`: undo or redo would take it, or its going would change what they take. `undone`: without it, something
    that was taken back, or done again, would not be so any more. `unfinished`: a restore or a run that has no end.
    `damaged`: its record cannot be read, so nobody knows what it is.
    """

    LAST = "last"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    WITHIN = "within"
    MESSAGE = "message"
    UNDO = "undo"
    UNFINISHED = "unfinished"
    BOUND_TURN = "bound_turn"
    OPEN_TURN = "open_turn"
    UNDONE = "undone"
    DAMAGED = "damaged"


class Judged(Strict, frozen=True, kw_only=True):
    """One entry under a policy: dropped where nothing keeps it. `created_ns` is in nanoseconds since the epoch.

    Of a damaged entry neither the time nor the message is known; the message then says what is wrong.
    """

    id: str
    kind: EntryKind
    created_ns: int
    message: str = ""
    kept: tuple[Why, ...] = ()

    @property
    def created_at(self) -> str:
        """When the entry was made, as `Entry.created_at` has it; empty where nobody knows."""
        return moment(self.created_ns) if self.created_ns else ""
