"""What the tools return: types that give the output schemas. Fields at their default are left out.

A node is told in words, `file 0644 0a1b2c3d4e5f`: kind, permission bits and the first digits of its digest.
"""

from __future__ import annotations

import msgspec

from putback.mcp_server.bounds import Page, Patch
from putback.records.document import AtPath


class Fault(msgspec.Struct, frozen=True):
    """Why a call failed. `code` is one of docs/json.md; `hint` names what would help."""

    code: str
    message: str
    hint: str | None


class Failure(msgspec.Struct, frozen=True):
    """The result of a call that failed; such a result is marked as an error."""

    error: Fault


class Missing(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """A path that a capture does not hold, and why."""

    reason: str
    detail: str = ""
    size: int = 0


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry of the history. `place` is its @n, which every new entry moves; a restore has none.

    `declined` counts the paths that a restore did not put back, `scoped` says that a snapshot is of some paths
    only, `of` is what a restore put back.
    """

    id: str
    kind: str
    message: str
    created_at: str
    place: str = ""
    files: int = 0
    bytes: int = 0
    not_covered: int = 0
    scoped: bool = False
    status: str = ""
    exit_code: int = 0
    changed: int = 0
    applied: int = 0
    declined: int = 0
    cause: str = ""
    of: str = ""


class Coverage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a capture covers. `ignored` counts the paths that ignore rules leave out, a directory as one."""

    files: int
    bytes: int
    ignored: int
    not_covered: Page[Missing]
    warnings: list[str] = []


class Change(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """A path that differs: created, modified or deleted. `before` or `after` is left out where there is none."""

    status: str
    before: str = ""
    after: str = ""


class Created(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A new snapshot."""

    entry: Entry
    coverage: Coverage


class Listed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The history, newest first."""

    entries: Page[Entry]


class Shown(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry. `coverage` is left out for a run that kept digests alone, `changes` for a snapshot."""

    entry: Entry | None
    coverage: Coverage | None = None
    changes: Page[Change] | None = None


class Differs(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The difference of two trees; `before` and `after` say which."""

    before: str
    after: str
    changes: Page[Change]
    patch: Patch | None = None


class Effect(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """What a plan does to one path.

    `restore` overwrites, `recreate` puts back what is gone, `remove` removes; `refuse` leaves what may not be
    touched, `leave` what was created since, `keep` what is as it should be.
    """

    action: str
    now: str = ""
    goal: str = ""
    reason: str = ""


class Planned(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A plan. `root` is the tree that it is for, which may be wider than the directory that the server was given.

    `digest` stands for the whole plan, also for what this page does not show; `would_change` counts the paths that
    carrying it out would touch.
    """

    root: str
    digest: str
    would_change: int
    counts: dict[str, int]
    effects: Page[Effect]


class Outcome(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """What became of one path: restored, recreated, removed, merged, refused, failed, absent or skipped."""

    status: str
    reason: str = ""


class Applied(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A plan that was carried out. `id` is its entry in the history; left out where there was nothing to do.

    `applied` counts the paths that went back, `not_applied` those that were refused or failed; these come first
    in `outcomes`.
    """

    applied: int
    not_applied: int
    outcomes: Page[Outcome]
    id: str = ""


class Store(msgspec.Struct, frozen=True):
    """Where captures are kept. Sizes in bytes, of all workspaces together."""

    path: str
    bytes: int
    limit: int
    permissions: str


class Unfinished(msgspec.Struct, frozen=True):
    """A run without an end: under way where `alive`, else interrupted."""

    id: str
    command: str
    alive: bool
    fault: str


class Status(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How the workspace stands.

    `interrupted` tells of a restore that was cut short, which only a person can resolve; `replaced` says that
    another directory stands at the root than the one that was captured last.
    """

    protected: bool
    root: str
    entries: int
    store: Store
    last: Entry | None = None
    damaged: list[str] = []
    replaced: bool = False
    interrupted: str = ""
    runs: list[Unfinished] = []
    open_turns: int = 0


Result = Created | Listed | Shown | Differs | Planned | Applied | Status
