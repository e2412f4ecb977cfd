"""Who provides the tree of a binding: what every provider does, and which there are.

A provider allocates a tree that is nobody else's, attests later that it still is the one, and releases it. It does
not decide about ownership: the claims do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from putback import config
from putback.errors import FailedError, UnsuitableRoot, UsageError
from putback.git import user_repo
from putback.git.command import Git
from putback.git.user_repo import UserRepository
from putback.paths import quote
from putback.records.turn import Binding


@dataclass(frozen=True)
class Request:
    """What somebody wants to be bound. `root` is the real path of the work tree that they named.

    `place`, `branch` and `start` are where a provider that makes a tree puts it, on which branch, and from which
    commit; empty leaves it to the provider.
    """

    git: Git
    binding_id: str
    root: bytes
    store: Path
    anywhere: bool = False
    place: bytes = b""
    branch: str = ""
    start: str = ""


@dataclass(frozen=True)
class Allocation:
    """The tree that a provider hands over.

    `source` and `branch` are set where it was made for this. `filters` names the filter drivers that would have
    run on its files and did not: those files hold what is committed (a pointer of LFS, say).
    """

    root: bytes
    source: bytes | None = None
    branch: str = ""
    filters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removal:
    """What a release may do, and what it has to call.

    `keep_ignored` keeps the ignored files of the tree at a path and returns the id of the snapshot that holds
    them. `locks` are held from the last look at the tree to its end; `record` is called, under them, before the
    first effect.
    """

    git: Git
    scratch: Path
    salvage: bool
    keep_ignored: Callable[[Path], str] | None
    locks: Callable[[], AbstractContextManager[object]]
    record: Callable[[], None]


@dataclass(frozen=True)
class Removed:
    """What became of a tree: whether it is gone, and what holds what no branch held."""

    removed: bool = False
    salvage: str = ""
    snapshot: str = ""


class Provider(Protocol):
    """What the registry asks of a provider. Every method raises RefusedError where it will not."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...

    def place(self, request: Request) -> bytes:
        """The real path at which the tree is, or will be. Changes nothing."""

    def allocate(self, request: Request) -> Allocation:
        """Make the tree, or take it over as an earlier call left it."""

    def attest(self, git: Git, binding: Binding) -> None:
        """Raise NotOwned where the tree is not any more what was allocated."""

    def release(self, binding: Binding, removal: Removal) -> Removed:
        """Do away with what `allocate` made, unless something would be lost."""


def find(provider_id: str) -> Provider:
    """The built-in provider of that name. Raises UsageError where there is none."""
    from putback.turns.checkout import ExclusiveCheckout
    from putback.turns.worktree import GitWorktree

    known: tuple[Provider, ...] = (ExclusiveCheckout(), GitWorktree())
    for provider in known:
        if provider.id == provider_id:
            return provider
    names = " and ".join(provider.id for provider in known)
    raise UsageError(f"no such provider: {provider_id!r}", hint=f"there are {names}")


def checkout(git: Git, root: bytes) -> UserRepository:
    """The repository whose work tree is `root`. Raises UnsuitableRoot where it is none, or cannot be read."""
    found = user_repo.open_at(git, root)
    if found is None:
        above = user_repo.toplevel(root)
        hint = f"its work tree is {quote(above)}" if above else "`git init` makes one"
        raise UnsuitableRoot(f"{quote(root)} is not the top of a git work tree", hint=hint)
    if isinstance(found, str):
        raise FailedError(f"the repository of {quote(root)} cannot be read: {found}")
    return found


def check_suitable(request: Request) -> None:
    """Raise UnsuitableRoot for a directory that is plainly no project."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    reason = config.is_unsuitable(Path(os.fsdecode(request.root)), home)
    if reason is not None and not request.anywhere:
        raise UnsuitableRoot(
            f"{quote(request.root)} is {reason}, which is no project; nothing was bound",
            hint="go into a project, or insist with -c capture.anywhere=true",
        )
