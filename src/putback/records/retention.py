"""What a retention policy keeps, and what came of it for each entry of a history."""

from __future__ import annotations

import enum

from putback.records.document import Strict
from putback.records.history import EntryKind


class Keep(Strict, frozen=True, kw_only=True):
    """A policy. An entry stays that any of its rules keeps; where no rule is set, everything stays.

    `last`, `hourly`, `daily` and `weekly` are counts: the newest entries, and the newest entry of each of the
    newest hours, days and weeks (of local time, weeks as ISO 8601 has them) in which there is one.
    `within_seconds` reaches back from the newest entry that counts, not from now: a workspace that nobody touched
    for a month loses nothing by it. `messages` are shell patterns of messages that stay.
    """

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    within_seconds: float = 0.0
    messages: tuple[str, ...] = ()


class Why(enum.StrEnum):
    """Why an entry stays: a rule of the policy, or something that needs it whatever the policy says."""

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


class Judged(Strict, frozen=True, kw_only=True):
    """One entry under a policy: dropped where nothing keeps it. `created_ns` is in nanoseconds since the epoch."""

    id: str
    kind: EntryKind
    created_ns: int
    message: str = ""
    kept: tuple[Why, ...] = ()
