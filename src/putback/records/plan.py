"""A plan: one step per path that would put a tree back, and what became of each step."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from putback.paths import RelPath
from putback.records import document
from putback.records.change import Node
from putback.records.document import AtPath


class Action(enum.StrEnum):
    """What a step does to its path."""

    RESTORE = "restore"
    RECREATE = "recreate"
    REMOVE = "remove"
    MERGE = "merge"


class Policy(enum.StrEnum):
    """What happens to a path that is no longer what the record says it was."""

    REFUSE = "refuse"
    MERGE = "merge"
    OVERWRITE = "overwrite"
    FORCE = "force"


class Step(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """`now` is what is at the path, `goal` what the step makes of it; None means absent.

    What is there, the safety capture says or, in a plan made from a run's documents alone, these do. The applier
    refuses the step where it finds anything but `now`. What a merge makes is in the store before the plan is made.
    """

    action: Action
    now: Node | None = None
    goal: Node | None = None
    note: str = ""


class Declined(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """A path that the plan refuses to touch, or leaves alone, and why.

    The last five codes are for paths of which a run's documents say what cannot be or must not be done.
    """

    reason: str
    code: Literal[
        "drift",
        "not_covered",
        "nested_repository",
        "never_captured",
        "out_of_scope",
        "unsafe_path",
        "malformed",
        "contradiction",
        "duplicate",
        "blocked",
    ]

    @property
    def raw(self) -> RelPath:
        """The path, which here may be one that nothing may touch: for telling, not for acting on."""
        return RelPath(self.name)


class Status(enum.StrEnum):
    """What became of one path."""

    RESTORED = "restored"
    RECREATED = "recreated"
    REMOVED = "removed"
    MERGED = "merged"
    REFUSED = "refused"
    FAILED = "failed"
    ABSENT = "absent"
    SKIPPED = "skipped"

    @property
    def applied(self) -> bool:
        """Whether the path went back."""
        return self in (Status.RESTORED, Status.RECREATED, Status.REMOVED, Status.MERGED)


class Outcome(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """The status of one path after a plan was applied; `reason` says why where it is not obvious."""

    status: Status
    reason: str = ""


class Plan(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="format", tag="putback/plan/v1"
):
    """Steps in path order. `refused` makes the result a failure; `left` and `settled` are only reported."""

    steps: tuple[Step, ...] = ()
    refused: tuple[Declined, ...] = ()
    left: tuple[Declined, ...] = ()
    settled: tuple[Outcome, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 over the plan's canonical JSON, in lowercase hex."""
        return document.digest(self)


class Outcomes(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="format", tag="putback/outcomes/v1"
):
    """What became of every path of one restore; kept beside the capture that was taken after it.

    `touched` names the paths at which anything was changed, which a path that failed can be, too.
    """

    outcomes: tuple[Outcome, ...] = ()
    touched: tuple[AtPath, ...] = ()
