"""The events of a run's ledger: `{seq, ts, type, data, prev, hash}` (docs/formats.md).

Scalars are strings and integers only. Each class below is the `data` of one type of event.
"""

from __future__ import annotations

import enum

import msgspec

from putback.records.change import Node, Size, State
from putback.records.document import AtPath
from putback.records.plan import Outcome
from putback.records.run import Breach, Discipline, Exit, Limits, RunStatus


class Instant(enum.StrEnum):
    """Which end of the run a capture is."""

    BEFORE = "before"
    AFTER = "after"


class RunStarted(AtPath, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`run.start`: `path` is the root of the workspace, `cwd` the directory the command was started in."""

    run: str
    command: tuple[str, ...]
    cwd: str
    discipline: Discipline
    rollback_on_breach: int = 0
    limits: Limits = Limits()
    tool: str = ""


class Snapshotted(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`fs.snapshot`: the tree at one end of the run.

    `tree` is the git id of the tree of all files: it commits to every path, content and executable bit. `files`
    counts files and symbolic links, `bytes` their content. `manifest` is sha256 over `manifest.json`, which
    commits to exact modes, directories and what is not covered, too; only the capture before has one. `capture` is
    its id in the store; empty where only digests are kept.
    """

    when: Instant
    tree: str
    files: Size
    bytes: Size
    not_covered: Size
    capture: str = ""
    manifest: str = ""
    stored_bytes: Size = 0


class Changed(AtPath, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`fs.change`: one path that differs between the two captures; absent at an end means not there."""

    before: State | None = None
    after: State | None = None

    @property
    def nodes(self) -> tuple[Node | None, Node | None]:
        """What is there before and after, as captures have it."""
        before, after = self.before, self.after
        return None if before is None else before.node, None if after is None else after.node

    @property
    def status(self) -> str:
        """`created`, `modified` or `deleted`."""
        if self.before is None:
            return "created"
        return "deleted" if self.after is None else "modified"


class RolledBack(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`x-putback.rollback-applied`: `applied` counts the paths that went back and is never 0."""

    trigger: str
    applied: int
    entry: str
    restored: int = 0
    recreated: int = 0
    removed: int = 0
    paths: tuple[AtPath, ...] = ()
    refusals: tuple[Outcome, ...] = ()


class RollbackRefused(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`x-putback.rollback-refused`: nothing went back, and why."""

    trigger: str
    reason: str
    refusals: tuple[Outcome, ...] = ()


class RunEnded(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """`run.end`, always the last: `receipt` is sha256 over the canonical receipt without its `ledger` field.

    The counts are of `fs.change` events, directories included.
    """

    status: RunStatus
    created: int = 0
    modified: int = 0
    deleted: int = 0
    receipt: str = ""


EventData = RunStarted | Snapshotted | Exit | Changed | Breach | RolledBack | RollbackRefused | RunEnded

TYPES: dict[type[EventData], str] = {
    RunStarted: "run.start",
    Snapshotted: "fs.snapshot",
    Exit: "run.exit",
    Changed: "fs.change",
    Breach: "limit.breach",
    RolledBack: "x-putback.rollback-applied",
    RollbackRefused: "x-putback.rollback-refused",
    RunEnded: "run.end",
}
