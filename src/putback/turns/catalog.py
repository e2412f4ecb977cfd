"""The exact-path turns of a store: bindings, and everything that is done under one. `Workspace.turns`.

Each method is one operation: it takes custody of the binding, does its one thing and lets go. A turn that failed
is never taken back by itself.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from putback.config import Settings
from putback.errors import NotOwned, StorageError
from putback.ops import recover, snapshot
from putback.ops.session import Session
from putback.progress import Progress
from putback.records.turn import (
    Binding,
    Claim,
    TurnCapture,
    TurnIdentity,
    TurnRollbackPlan,
    TurnRollbackResult,
    TurnRollbackStatus,
    TurnState,
)
from putback.store.history import History
from putback.store.layout import WorkspacePaths
from putback.turns import apply, index_lock, ownership, providers, resolve, staged, turn
from putback.turns import binding as bindings
from putback.turns.binding import BindingFolder
from putback.turns.claims import Claims
from putback.turns.custody import Custody, find, turns_of
from putback.turns.evidence import TurnFolder
from putback.turns.ownership import Bound, Disposition, Released
from putback.turns.turn import Observer

# Opens a session on a work tree, under its lock, for a command and with these settings.
Opener = Callable[[WorkspacePaths, str, Settings], AbstractContextManager[Session]]


@dataclass
class Turns:
    """The turns of the store that the workspace at `where` is kept in."""

    where: WorkspacePaths
    settings: Settings
    progress: Progress
    open_session: Opener
    _leased: set[str] = field(default_factory=set)

    def claims(self) -> builtins.list[Claim]:
        """Every claim of the store. Raises IntegrityError where one is malformed."""
        return self._claims.all()

    def binding(self, asked: str | None = None) -> Binding:
        """The binding with this id; without one, that of the workspace. Raises NotOwned where there is none."""
        if asked is not None:
            return self._claims.find(asked).binding
        return self._claims.at(self.where.root).binding

    def bind(
        self,
        *,
        provider: str = "exclusive-checkout",
        binding_id: str | None = None,
        owner: str = "",
        place: bytes = b"",
        branch: str = "",
        actor: str = "",
        reason: str = "bound",
    ) -> Bound:
        """Claim the workspace, or a new work tree of its repository, for one owner.

        The same call again takes the binding up where it is. `place` and `branch` are where `git-worktree` puts
        the new one, and on which branch. `owner` and `actor` are the login name where they are empty. Raises
        OverlappingClaim where another claim touches the tree, NotOwned, UnsuitableRoot and UsageError.
        """
        return ownership.bind(
            self.where.store,
            self.settings,
            self.progress,
            root=self.where.root,
            actor=actor or ownership.default_owner(),
            reason=reason,
            provider=provider,
            owner=owner,
            binding_id=binding_id,
            place=place,
            branch=branch,
        )

    def release(
        self,
        bound: Binding,
        *,
        disposition: Disposition = Disposition.FREE,
        salvage: bool = False,
        actor: str = "",
        reason: str = "released",
    ) -> Released:
        """Give a binding up; its captures stay, and the work tree of an `exclusive-checkout` does, too.

        A work tree that was made for it is removed, its branch stays; what is unsaved in it refuses that, unless
        `salvage` is to keep it: on a branch, and what is ignored in a snapshot. Raises OutOfOrder while a turn is
        open, and NotOwned.
        """
        if self._left_locked(bound):
            with self._custody(bound, "turn release"):
                """Taking custody takes away what a killed application left."""
        return ownership.release(
            self.where.store,
            self.settings,
            self.progress,
            binding_id=bound.id,
            actor=actor or ownership.default_owner(),
            reason=reason,
            disposition=disposition,
            salvage=salvage,
            keep_ignored=self._keep_ignored if salvage else None,
            unsettled=self._unsettled,
            lease=self.lease,
        )

    def next_turn(self, bound: Binding, turn_id: str) -> TurnIdentity:
        """The identity for one more turn of a binding."""
        latest = turns_of(self._folder(bound), bound).latest_generation
        return TurnIdentity(turn_id=turn_id, generation=latest + 1)

    def begin(
        self,
        bound: Binding,
        identity: TurnIdentity,
        paths: Iterable[bytes],
        on_snapshot_step: Observer | None = None,
    ) -> TurnCapture:
        """Capture the beginning of a turn at 1 to 100 literal paths, relative to the bound root.

        Raises NotOwned and OverlappingClaim where the binding cannot be attested, OutOfOrder while an earlier turn
        is open, UnsupportedPath with all that is wrong with the paths, OverBudget, and LockedError.
        """
        with self._custody(bound, "turn begin") as custody:
            return turn.begin(custody, identity, paths, on_snapshot_step)

    def seal(self, bound: Binding, capture_id: str, on_snapshot_step: Observer | None = None) -> TurnCapture:
        """Capture the end of the latest turn. Raises what `begin` raises, and Stale where HEAD has moved."""
        with self._custody(bound, "turn seal") as custody:
            return turn.seal(custody, capture_id, on_snapshot_step)

    def prepare(self, bound: Binding, capture_id: str) -> TurnRollbackPlan:
        """The proposal to take the latest sealed turn back. Changes nothing. Raises what `begin` raises."""
        with self._custody(bound, "turn prepare") as custody:
            return turn.prepare(custody, capture_id)

    def apply(
        self,
        bound: Binding,
        plan: TurnRollbackPlan,
        *,
        yes: bool = False,
        actor: str,
        reason: str,
        on_step: Observer | None = None,
    ) -> TurnRollbackResult:
        """Carry out a proposal that was reviewed: every path goes back, or nothing is touched.

        Raises Stale where anything is not as the end of the turn has it. Once the application has started, it
        raises UnknownStateError; `inspect` then says unknown until `resolve`. StorageError says where the turn was
        taken back and only the record of that is incomplete.
        """
        with self._custody(bound, "turn apply") as custody:
            return apply.apply(custody, plan, yes=yes, actor=actor, reason=reason, on_step=on_step)

    def inspect(self, bound: Binding, capture_id: str) -> TurnRollbackStatus:
        """What is on record of a turn. Takes no lock, and attests neither the content nor the ownership.

        Raises IntegrityError where a document is malformed.
        """
        folders = self._turns(bound)
        found = find(folders, capture_id)
        return _status(bound, found, self._rewritten(bound), latest=found.path == folders[-1].path)

    def list(self, bound: Binding) -> list[TurnRollbackStatus]:
        """What is on record of every turn of a binding, newest first."""
        folders = self._turns(bound)
        rewritten = self._rewritten(bound)
        return [_status(bound, item, rewritten, latest=item is folders[-1]) for item in reversed(folders)]

    def open_here(self) -> builtins.list[TurnRollbackStatus]:
        """The turns of this work tree that stand open or unknown, or have left something, newest first.

        None where nobody claims it.
        """
        try:
            bound = self.binding()
        except NotOwned:
            return []
        return [item for item in self.list(bound) if item.detail or item.state is TurnState.BEGUN]

    def resolve(self, bound: Binding, capture_id: str, *, actor: str, reason: str) -> TurnRollbackStatus:
        """Close a turn that is open or unknown, by a person's word. Never rewrites content.

        What a killed application left beside its targets, and its index lock, are taken away. Raises OutOfOrder
        for a turn that is neither.
        """
        with self._custody(bound, "turn resolve", attested=False) as custody:
            return resolve.resolve(custody, capture_id, actor=actor, reason=reason)

    def set_aside(self, bound: Binding, capture_id: str, *, actor: str, reason: str) -> Path:
        """Leave a turn whose documents are damaged out of the account; returns where they are kept.

        Raises OutOfOrder for a turn whose documents are whole.
        """
        with self._custody(bound, "turn resolve", attested=False) as custody:
            return resolve.set_aside(custody, capture_id, actor=actor, reason=reason)

    @contextmanager
    def lease(self, bound: Binding) -> Iterator[None]:
        """Keep everybody else from working on the binding; it ends with the block, or with the process."""
        if bound.digest in self._leased:
            yield
            return
        wait, folder = self.settings.store.lock_wait_seconds, self._folder(bound)
        with bindings.lease(folder, "turn", wait_seconds=wait, progress=self.progress):
            self._leased.add(bound.digest)
            try:
                yield
            finally:
                self._leased.discard(bound.digest)

    @contextmanager
    def around(self, bound: Binding, identity: TurnIdentity, paths: Iterable[bytes]) -> Iterator[TurnCapture]:
        """A turn around the block: begun before it and sealed after it, also where it fails."""
        with self.lease(bound):
            begun = self.begin(bound, identity, paths)
            try:
                yield begun
            finally:
                self.seal(bound, begun.id)

    @contextmanager
    def _custody(self, bound: Binding, command: str, *, attested: bool = True) -> Iterator[Custody]:
        """Everything that an operation holds. What is not `attested` may not touch the tree."""
        wait = self.settings.store.lock_wait_seconds
        with (
            self.lease(bound),
            self._claims.gate(command, shared=True, wait_seconds=wait, progress=self.progress),
            self.open_session(self._where(bound), command, self.settings) as session,
        ):
            recover.check_known(session)
            if attested:
                repository = bindings.attest(self._claims, bound, session.git)
            else:
                repository = providers.checkout(session.git, bound.root.raw)
            custody = Custody(session, bound, self._folder(bound), staged.open_at(repository))
            if attested:
                apply.settle(custody)
            yield custody

    def _unsettled(self, bound: Binding) -> str | None:
        """Which turn of a binding stands open, in words."""
        for item in self._turns(bound):
            if item.evidence.open:
                return f"turn {item.evidence.pending.turn.turn_id!r} is {item.evidence.state}"
        return None

    def _left_locked(self, bound: Binding) -> bool:
        """Whether the latest turn was killed with git's index lock in its hand, and is not unknown for that."""
        latest = turns_of(self._folder(bound), bound).folders()[-1:]
        return any(_has_left(bound, item) and not item.evidence.open for item in latest)

    def _keep_ignored(self, root: Path) -> str:
        """A snapshot of everything in a tree that is about to go, what is ignored among it; its id."""
        capture = msgspec.structs.replace(self.settings.capture, include=("*",), exclude=())
        settings = msgspec.structs.replace(self.settings, capture=capture)
        where = self.where.store.workspace(os.fsencode(root))
        with self.open_session(where, "turn release", settings) as session:
            return snapshot.take(session, "before the work tree was removed", frozenset()).id

    @property
    def _claims(self) -> Claims:
        return Claims(self.where.store)

    def _where(self, bound: Binding) -> WorkspacePaths:
        return self.where.store.workspace(bound.root.raw)

    def _folder(self, bound: Binding) -> BindingFolder:
        return bindings.folder_of(self.where.store, bound)

    def _rewritten(self, bound: Binding) -> Mapping[str, str]:
        """The captures of the tree that were told to forget something."""
        return History(self._where(bound).history).aliases()

    def _turns(self, bound: Binding) -> builtins.list[TurnFolder]:
        return turns_of(self._folder(bound), bound).all()


def _status(
    bound: Binding, folder: TurnFolder, rewritten: Mapping[str, str], *, latest: bool
) -> TurnRollbackStatus:
    """What is on record of a turn; and where its process died with git's index lock in its hand, that, too."""
    found = folder.evidence.status(latest=latest)
    if folder.evidence.ends & rewritten.keys():
        found = msgspec.structs.replace(found, forgotten=True)
    if not latest or not _has_left(bound, folder):
        return found
    if found.state is TurnState.UNKNOWN:
        return msgspec.structs.replace(found, detail=f"{found.detail}; it left git's index locked")
    return msgspec.structs.replace(found, detail="it left git's index locked; `putback turn prepare` unlocks it")


def _has_left(bound: Binding, folder: TurnFolder) -> bool:
    """Whether the index is locked by a process that worked on this turn and has died."""
    try:
        holder = index_lock.holder(bound.git_dir.raw)
    except StorageError:
        return False
    return holder is not None and holder.capture_id == folder.capture_id and not holder.alive
