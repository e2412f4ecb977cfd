"""Exact-path turns: who owns a tree, what a turn was captured as, and what became of taking it back.

A binding says which tree somebody owns; a claim publishes it. A turn is captured twice at the same literal paths,
at its beginning and at its end, each time as the index has them and as the work tree has them. A plan compares the
two ends. Events, `started` and the receipt are the evidence of an application.
"""

from __future__ import annotations

import enum
from typing import Annotated, Self

import msgspec

from putback import paths
from putback.errors import IntegrityError
from putback.paths import RelPath
from putback.records import document
from putback.records.capture import Repository
from putback.records.change import Node
from putback.records.document import AtPath, Strict

MOST_PATHS = 100
MOST_SNAPSHOT_BYTES = 8 << 20
MOST_CAPTURES = 64
MOST_BINDING_BYTES = 64 << 20

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$(?!\\n)")]
BindingId = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9._-]{0,63}$(?!\\n)")]
Generation = Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Directory(Strict, frozen=True, kw_only=True):
    """A directory by its real path and by its identity; `path_b64` is there where the path is not UTF-8."""

    path: str
    path_b64: str = ""
    device: int
    inode: int

    @classmethod
    def at(cls, raw: bytes, device: int, inode: int) -> Self:
        """The record of the directory whose real path is `raw`."""
        encoded = "" if paths.is_text(raw) else paths.encode_b64(raw)
        return cls(path=paths.text(raw), path_b64=encoded, device=device, inode=inode)

    @property
    def raw(self) -> bytes:
        """The path as bytes. Raises IntegrityError where the document holds none that is absolute."""
        found = document.raw_name(self.path, self.path_b64)
        if not found.startswith(b"/") or b"\0" in found:
            raise IntegrityError(f"not an absolute path in a record: {self.path!r}")
        return found

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: the same under every name of the directory."""
        return (self.device, self.inode)


class Binding(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/binding/v1"):
    """One owner's immutable hold on one work tree.

    Binding an id again gives the next `generation`. `git_dir` holds the index of this work tree, `common_dir` the
    objects and refs. `source` is the work tree that a provider allocated this one from, `branch` the branch it
    made; both are absent where the tree was there before.
    """

    id: BindingId
    generation: Generation
    owner: Name
    provider: BindingId
    provider_version: int
    root: Directory
    git_dir: Directory
    common_dir: Directory
    source: Directory | None = None
    branch: str = ""
    created_ns: int

    @property
    def digest(self) -> str:
        """sha256 over the canonical JSON, in lowercase hex."""
        return document.digest(self)


class ClaimState(enum.StrEnum):
    """A claim counts in every state: what was retained or archived still belongs to somebody."""

    ACTIVE = "active"
    RETAINED = "retained"
    ARCHIVED = "archived"


class Claim(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/claim/v1"):
    """What the registry publishes of a binding."""

    binding: Binding
    state: ClaimState = ClaimState.ACTIVE
    published_ns: int


class TurnIdentity(Strict, frozen=True, kw_only=True):
    """The caller's name for a turn, and its place in the order of the turns of one binding."""

    turn_id: Name
    generation: Generation


class IndexEntry(Strict, frozen=True, kw_only=True):
    """What the user's index holds at a path, at stage zero.

    `mode` is git's, `blob` the id in the user's repository (40 or 64 hex digits), `content` the id of the same
    bytes in the store, `size` their number.
    """

    mode: Annotated[int, msgspec.Meta(ge=0o100644, le=0o100755)]
    blob: Annotated[str, msgspec.Meta(pattern="^(?:[0-9a-f]{40}|[0-9a-f]{64})$(?!\\n)")]
    content: Digest
    size: int


class Selected(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """One path of a turn at one of its ends: in the index and in the work tree; None means absent.

    `size` is that of the file in the work tree, in bytes.
    """

    index: IndexEntry | None = None
    worktree: Node | None = None
    size: int = 0

    @property
    def untracked(self) -> bool:
        """Whether the file stands in the work tree alone."""
        return self.index is None and self.worktree is not None

    @property
    def bytes(self) -> int:
        """The logical bytes of both copies, also where they are equal."""
        return self.size + (0 if self.index is None else self.index.size)


class TurnSnapshot(Strict, frozen=True, kw_only=True):
    """One end of a turn. `capture` is the id of the capture that holds it.

    `files_tree` and `index_tree` are the ids of the two trees in it, `untracked` that of the list of paths which
    the index does not hold. `bytes` counts logical bytes. `created_ns` is in nanoseconds since the epoch.
    """

    capture: Digest
    files_tree: Digest
    index_tree: Digest
    untracked: Digest
    head: Repository
    selected: tuple[Selected, ...]
    bytes: int
    created_ns: int


class TurnPending(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn-pending/v1"):
    """Written before any content of one end is stored. `reserved_bytes` counts against the caps for good.

    `capture_id` is the turn's, at the seal; at the beginning the digest of this record becomes it.
    """

    binding: Digest
    binding_id: BindingId
    binding_generation: Generation
    turn: TurnIdentity
    paths: tuple[AtPath, ...]
    reserved_bytes: int
    capture_id: str = ""
    created_ns: int


class TurnCapture(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn/v1"):
    """A turn: its beginning and, once it is sealed, its end. `binding` is the binding's digest."""

    id: Digest
    binding: Digest
    binding_id: BindingId
    binding_generation: Generation
    turn: TurnIdentity
    paths: tuple[AtPath, ...]
    begin: TurnSnapshot
    end: TurnSnapshot | None = None

    @property
    def sealed(self) -> bool:
        return self.end is not None

    @property
    def raw_paths(self) -> tuple[RelPath, ...]:
        return tuple(item.raw for item in self.paths)


class Effect(enum.StrEnum):
    """What taking a turn back does to one side of one path."""

    KEEP = "keep"
    RESTORE = "restore"
    RECREATE = "recreate"
    REMOVE = "remove"

    @classmethod
    def between(cls, before: object | None, end: object | None) -> Self:
        """The effect that makes `end` into `before`."""
        if before == end:
            return cls("keep")
        if before is None:
            return cls("remove")
        return cls("recreate") if end is None else cls("restore")


class TurnStep(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """One path of a proposal: both ends on both sides, and what is done to each side."""

    before: Selected
    end: Selected
    index: Effect
    worktree: Effect


class TurnRollbackPlan(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn-plan/v1"):
    """The proposal: every path of the turn with its effects, in path order."""

    capture_id: Digest
    binding: Digest
    binding_id: BindingId
    binding_generation: Generation
    turn: TurnIdentity
    head: Repository
    steps: tuple[TurnStep, ...]

    @property
    def digest(self) -> str:
        """sha256 over the canonical JSON, in lowercase hex; apply is asked for exactly this."""
        return document.digest(self)

    @property
    def empty(self) -> bool:
        """Whether the turn changed nothing at its paths."""
        return all(step.index is Effect.KEEP and step.worktree is Effect.KEEP for step in self.steps)


class Deed(enum.StrEnum):
    """What an event of a binding tells."""

    BOUND = "bound"
    APPLY = "apply"
    RESOLVED = "resolved"
    RELEASED = "released"


class TurnEvent(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn-event/v1"):
    """Who did what, and why: one line of a binding's log, on disk before the deed.

    `staged` names the files that an application writes beside its targets, `proposal` the plan's digest.
    """

    deed: Deed
    actor: Name
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    binding: Digest
    turn: TurnIdentity | None = None
    capture_id: str = ""
    proposal: str = ""
    paths: tuple[AtPath, ...] = ()
    staged: tuple[AtPath, ...] = ()
    created_ns: int


class TurnStarted(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn-started/v1"):
    """Written before the first content effect. `lock_device` and `lock_inode` are those of our `index.lock`."""

    capture_id: Digest
    proposal: Digest
    lock_device: int
    lock_inode: int
    created_ns: int


class TurnReceipt(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn-receipt/v1"):
    """Written after both trees were read back and are the turn's beginning. `started` is that record's digest."""

    capture_id: Digest
    proposal: Digest
    started: Digest
    actor: Name
    reason: str
    capture: Digest
    created_ns: int


class TurnResolution(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/turn-resolution/v1"):
    """A person's word that a turn is over, whatever its evidence says. It rewrites no content."""

    capture_id: Digest
    actor: Name
    reason: str
    was: str
    created_ns: int


class TurnState(enum.StrEnum):
    """What the durable evidence of a turn says.

    begun: captured and not sealed. sealed: both ends are there; it can be taken back. applied: it was taken back.
    unknown: a record says that something was begun, and none that it ended. resolved: a person closed it.
    """

    BEGUN = "begun"
    SEALED = "sealed"
    APPLIED = "applied"
    UNKNOWN = "unknown"
    RESOLVED = "resolved"


class TurnRollbackStatus(Strict, frozen=True, kw_only=True):
    """What is on record of a turn. It attests neither the present content nor the ownership.

    `detail` says what is missing where the state is unknown, and whether git's index lock was left behind.
    `reserved_bytes` is what the turn counts against the caps of its binding. A turn is `forgotten` where some of
    what it held was purged from the store since, so that it cannot be taken back.
    """

    capture_id: Digest
    binding_id: BindingId
    binding_generation: Generation
    turn: TurnIdentity
    state: TurnState
    paths: tuple[AtPath, ...]
    latest: bool
    detail: str = ""
    reserved_bytes: int = 0
    proposal: str = ""
    forgotten: bool = False


class TurnRollbackResult(Strict, frozen=True, kw_only=True):
    """How an application came out. `already` says that it was done before, and that it still stands.

    `entry` is the id of the restore in the history.
    """

    capture_id: Digest
    proposal: Digest
    steps: tuple[TurnStep, ...]
    already: bool = False
    entry: str = ""
