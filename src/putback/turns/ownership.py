"""Bind a tree to an owner, and release it.

Both hold the gate exclusively, so that no turn is captured or taken back meanwhile. The order of all locks is:
lease, gate, workspace. Bind writes the record and its event first and publishes the claim last; release removes
the claim last. A process killed in between leaves a tree that nobody owns, or one that is owned and consistent;
the same call again goes on from there.
"""

from __future__ import annotations

import enum
import hashlib
import os
import pwd
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from putback import seams
from putback.config import Settings
from putback.errors import NotOwned, OutOfOrder, OverlappingClaim, UsageError
from putback.fs import lock
from putback.git import command
from putback.git.command import Git
from putback.paths import quote
from putback.progress import Progress
from putback.records.turn import Binding, Claim, ClaimState, Deed
from putback.store.layout import Store, check_place
from putback.turns import binding as bindings
from putback.turns import providers, words
from putback.turns.claims import Claims, is_id
from putback.turns.providers import Provider, Removal, Removed, Request
from putback.turns.words import MOST_NAME, MOST_REASON

Lease = Callable[[Binding], AbstractContextManager[None]]


class Disposition(enum.StrEnum):
    """What becomes of a tree that is released.

    free: it is nobody's. retain: it stays its owner's, at rest, until they bind it again. archive: for good.
    """

    FREE = "free"
    RETAIN = "retain"
    ARCHIVE = "archive"


@dataclass(frozen=True)
class Bound:
    """A binding that holds now. `reattached` says that it did before, or was retained.

    `filters` names the filter drivers that would have run on the files of a tree made for it, and did not.
    """

    binding: Binding
    reattached: bool = False
    filters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Released:
    """What became of a binding and of its tree.

    `removed` says that a tree which was made for it is gone. `salvage` is the branch that holds what was unsaved,
    `snapshot` the id of what was ignored; empty where none.
    """

    binding: Binding
    disposition: Disposition
    removed: bool = False
    salvage: str = ""
    snapshot: str = ""


def default_owner() -> str:
    """The login name of this process's user, or their number where the system knows no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name[:MOST_NAME] or f"uid-{os.getuid()}"
    except KeyError:
        return f"uid-{os.getuid()}"


def default_id(root: bytes) -> str:
    """The id of a binding that got none: the directory's name, and what tells it from others of that name."""
    name = re.sub(rb"[^a-z0-9._-]+", b"-", os.path.basename(root).lower())[:50].decode().strip("-._")
    name = re.sub(r"\.{2,}", ".", name) or "root"
    return f"{name}-{hashlib.sha256(root).hexdigest()[:6]}"


def bind(
    store: Store,
    settings: Settings,
    progress: Progress,
    *,
    root: bytes,
    actor: str,
    reason: str,
    provider: str = "exclusive-checkout",
    owner: str = "",
    binding_id: str | None = None,
    place: bytes = b"",
    branch: str = "",
    start: str = "",
) -> Bound:
    """Make the tree that `provider` allocates from the work tree `root` its owner's.

    A binding of the same id, owner, provider and root that is active or retained is taken up again, if its tree is
    still the one. `place`, `branch` and `start` are for providers that make a tree. Raises UsageError,
    UnsuitableRoot, OverlappingClaim, NotOwned, IntegrityError where the claims are damaged, and LockedError.
    """
    real = os.path.realpath(root)
    chosen, by = default_id(real) if binding_id is None else binding_id, providers.find(provider)
    owner = owner or default_owner()
    _check_words(chosen, owner, actor, reason)
    check_place(store.root, Path(os.fsdecode(real)))
    git = command.find(cancelled=progress.cancelled)
    store.create(settings.store.permissions)
    claims = Claims(store)
    request = Request(git, chosen, real, store.root, settings.capture.anywhere, place, branch, start)
    wait = settings.store.lock_wait_seconds
    with claims.gate("turn bind", shared=False, wait_seconds=wait, progress=progress):
        claim = claims.get(chosen)
        if claim is not None:
            _check_rebinding(claim, owner, by, request)
            return _reattach(claims, git, claim, actor, reason)
        return _bind(claims, git, request, by, owner, actor, reason)


def release(
    store: Store,
    settings: Settings,
    progress: Progress,
    *,
    binding_id: str,
    actor: str,
    reason: str,
    disposition: Disposition = Disposition.FREE,
    salvage: bool = False,
    keep_ignored: Callable[[Path], str] | None = None,
    unsettled: Callable[[Binding], str | None] = lambda binding: None,
    lease: Lease | None = None,
) -> Released:
    """Give a binding up, or lay it to rest.

    `unsettled` says why a turn of the binding still stands open, or None. Freed, a tree that was made for the
    binding is removed: what is unsaved in it refuses that, unless `salvage` is to commit it to a branch first, and
    ignored files, unless `keep_ignored` takes a snapshot of them and returns its id. It is called under the gate
    and before the workspace's lock is taken. `lease` takes the lease of the binding, for a caller that may hold it
    already. Raises NotOwned, OutOfOrder, RefusedError, LockedError.
    """
    _check_words(binding_id, "owner", actor, reason)
    git = command.find(cancelled=progress.cancelled)
    claims = Claims(store)
    held = claims.find(binding_id).binding
    wait = settings.store.lock_wait_seconds
    leased = lease or (lambda binding: _lease(store, binding, wait, progress))
    with leased(held), claims.gate("turn release", shared=False, wait_seconds=wait, progress=progress):
        claim = claims.find(binding_id)
        if claim.binding != held:
            raise NotOwned(f"{binding_id!r} was bound anew meanwhile", hint="nothing was released")
        if claim.state is ClaimState.ARCHIVED and disposition is not Disposition.FREE:
            raise OutOfOrder(
                f"{binding_id!r} is archived", hint=f"`putback turn release -b {binding_id}` frees its tree"
            )
        why = unsettled(held) if disposition is Disposition.FREE else None
        if why is not None:
            raise OutOfOrder(
                f"{binding_id!r} is not free to go: {why}",
                hint=f"settle it first, or `putback turn release -b {binding_id} --retain`",
            )

        def record() -> None:
            _tell(store, held, Deed.RELEASED, actor, f"{disposition}: {reason}")
            seams.reach("turn.releasing")

        if disposition is not Disposition.FREE:
            record()
            archived = disposition is Disposition.ARCHIVE
            claims.set_state(binding_id, ClaimState.ARCHIVED if archived else ClaimState.RETAINED)
            return Released(held, disposition)
        removal = Removal(
            git=git,
            scratch=bindings.folder_of(store, held).scratch,
            salvage=salvage,
            keep_ignored=keep_ignored,
            locks=lambda: _lock(store, held, wait, progress),
            record=record,
        )
        removed = _release(held, removal)
        claims.remove(binding_id)
        return Released(held, disposition, removed.removed, removed.salvage, removed.snapshot)


def _bind(
    claims: Claims, git: Git, request: Request, provider: Provider, owner: str, actor: str, reason: str
) -> Bound:
    claims.check_free(provider.place(request), None, but=None)
    allocation = provider.allocate(request)
    seams.reach("turn.allocated")
    generation = bindings.next_generation(claims.store, allocation.root, request.binding_id, None)
    made = bindings.describe(git, allocation, request.binding_id, owner, provider, generation)
    claims.check_free(made.root, made.git_dir, but=None)
    bindings.create(claims.store, made)
    seams.reach("turn.bound")
    _tell(claims.store, made, Deed.BOUND, actor, reason)
    seams.reach("turn.recorded")
    claims.publish(made)
    seams.reach("turn.claimed")
    return Bound(made, filters=allocation.filters)


def _check_rebinding(claim: Claim, owner: str, provider: Provider, request: Request) -> None:
    """Raise where the claim of this id is not the one that the request would make."""
    held = claim.binding
    if held.owner != owner:
        raise OverlappingClaim(
            f"{held.id!r} belongs to {quote(held.owner.encode())} ({claim.state}), on {quote(held.root.raw)}",
            hint="choose another id with --id",
        )
    root = held.root if held.source is None else held.source
    wanted = (provider.id, provider.version, request.root)
    if (held.provider, held.provider_version, root.raw) != wanted:
        raise OverlappingClaim(
            f"{held.id!r} is bound already, by {held.provider}, to {quote(root.raw)}",
            hint="choose another id with --id",
        )
    for what, asked, known in (("place", request.place, held.root.raw), ("branch", request.branch, held.branch)):
        if asked and (os.path.realpath(asked) if isinstance(asked, bytes) else asked) != known:
            raise OverlappingClaim(
                f"{held.id!r} is bound already, with another {what}", hint="choose another id with --id"
            )
    if claim.state is ClaimState.ARCHIVED:
        raise NotOwned(
            f"{held.id!r} is archived: nobody binds it again",
            hint=f"`putback turn release -b {held.id}` frees its tree",
        )


def _reattach(claims: Claims, git: Git, claim: Claim, actor: str, reason: str) -> Bound:
    bindings.attest_tree(claims, claim.binding, git)
    if claim.state is ClaimState.RETAINED:
        _tell(claims.store, claim.binding, Deed.BOUND, actor, reason)
        seams.reach("turn.recorded")
        claims.set_state(claim.binding.id, ClaimState.ACTIVE)
    return Bound(claim.binding, reattached=True)


def _release(held: Binding, removal: Removal) -> Removed:
    if held.source is not None and os.path.lexists(held.root.raw):
        # What stands there now would be removed.
        bindings.check_root(held)
        bindings.check_git(removal.git, held)
    removed = providers.find(held.provider).release(held, removal)
    seams.reach("turn.released")
    return removed


def _lease(store: Store, held: Binding, wait: float, progress: Progress) -> AbstractContextManager[None]:
    return bindings.lease(bindings.folder_of(store, held), "turn release", wait_seconds=wait, progress=progress)


def _lock(store: Store, held: Binding, wait: float, progress: Progress) -> AbstractContextManager[None]:
    return lock.hold(store.workspace(held.root.raw).lock, "turn release", False, wait, progress)


def _tell(store: Store, held: Binding, deed: Deed, actor: str, reason: str) -> None:
    bindings.append_event(bindings.folder_of(store, held), held, bindings.event(held, deed, actor, reason))


def _check_words(binding_id: str, owner: str, actor: str, reason: str) -> None:
    """Raise UsageError for names that the records do not take."""
    if not is_id(binding_id):
        raise UsageError(
            f"not an id for a binding: {binding_id!r}",
            hint="lowercase letters, digits, '.', '_' and '-', at most 64, a letter or digit first",
        )
    for what, text in (("owner", owner), ("actor", actor)):
        if not text.strip():
            raise UsageError(f"{what} must be 1 to {MOST_NAME} characters", hint=None)
    if not reason.strip():
        raise UsageError(f"a reason must be given, of at most {MOST_REASON} characters")
    words.check(owner=owner, actor=actor, reason=reason)
