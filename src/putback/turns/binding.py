"""Bindings: kept where nothing changes them, attested before every use, leased while in use.

    <store>/workspaces/<name>/turns/<binding id>/<generation>/
        binding.json    written once
        lease           flock: one operation at a time
        events          who did what, and why, one line each

A claim says that a binding holds; the record says what was bound; the tree and git say what is there now. `attest`
believes none of them alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from putback.errors import IntegrityError, LockedError, NotOwned, StorageError
from putback.fs import lock
from putback.fs.durable import write_new_file
from putback.fs.journal import Journal, read_lines
from putback.git import user_repo
from putback.git.command import Git
from putback.git.user_repo import UserRepository
from putback.paths import quote
from putback.progress import Progress
from putback.records import document
from putback.records.turn import Binding, Claim, ClaimState, Deed, Directory, TurnEvent
from putback.store.layout import Store, durable_directory
from putback.turns import providers
from putback.turns.claims import BIND, Claims, check_paths, is_id
from putback.turns.providers import Allocation


@dataclass(frozen=True)
class BindingFolder:
    """The paths of one binding in the store. Making this object touches no disk."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / "binding.json"

    @property
    def lease(self) -> Path:
        return self.path / "lease"

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def scratch(self) -> Path:
        """Temporary files of whoever holds the gate exclusively; whatever lies here otherwise is garbage."""
        return self.path / "scratch"


def folder(store: Store, root: bytes, binding_id: str, generation: int) -> BindingFolder:
    """Where the binding of a tree is kept. Raises IntegrityError for an id that cannot be a name."""
    if not is_id(binding_id):
        raise IntegrityError(f"not the id of a binding: {binding_id!r}")
    return BindingFolder(store.workspace(root).turns / binding_id / str(generation))


def folder_of(store: Store, binding: Binding) -> BindingFolder:
    """Where this binding is kept."""
    return folder(store, binding.root.raw, binding.id, binding.generation)


def directory(path: bytes) -> Directory:
    """The record of the directory at `path`, by its real path. Raises StorageError where there is none."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError as error:
        raise StorageError(f"cannot look at {quote(path)}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"no directory: {quote(path)}")
    return Directory.at(real, found.st_dev, found.st_ino)


def describe(
    git: Git, allocation: Allocation, binding_id: str, owner: str, provider: providers.Provider, generation: int
) -> Binding:
    """The binding of an allocated tree, with the identities that it and its repository have now."""
    repository = providers.checkout(git, allocation.root)
    return Binding(
        id=binding_id,
        generation=generation,
        owner=owner,
        provider=provider.id,
        provider_version=provider.version,
        root=directory(allocation.root),
        git_dir=directory(repository.git_dir),
        common_dir=directory(repository.common_dir),
        source=None if allocation.source is None else directory(allocation.source),
        branch=allocation.branch,
        created_ns=time.time_ns(),
    )


def next_generation(store: Store, root: bytes, binding_id: str, claim: Claim | None) -> int:
    """One more than the latest that was ever begun for this id and this tree, or is claimed under this id.

    Raises IntegrityError where something else lies among the generations.
    """
    place = folder(store, root, binding_id, 1).path.parent
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise StorageError(f"cannot read the bindings {str(place)!r}: {error.strerror}") from error
    for name in names:
        if not name.isdecimal() or str(int(name)) != name:
            raise IntegrityError(f"not a generation of a binding: {str(place / name)!r}")
    latest = max(map(int, names), default=0)
    return 1 + max(latest, 0 if claim is None else claim.binding.generation)


def create(store: Store, binding: Binding) -> BindingFolder:
    """Keep a new binding, durably, before anything points to it. Raises StorageError; never writes over one."""
    where = store.workspace(binding.root.raw)
    where.create(binding.created_ns)
    place = folder_of(store, binding)
    try:
        durable_directory(place.path)
        write_new_file(place.record, document.encode(binding) + b"\n", place.path)
    except OSError as error:
        raise StorageError(f"cannot write the binding {str(place.record)!r}: {error.strerror}") from error
    return place


def load(store: Store, root: bytes, binding_id: str, generation: int) -> Binding:
    """The binding as it was kept. Raises NotOwned where there is none, IntegrityError where it is damaged."""
    place = folder(store, root, binding_id, generation)
    what = f"binding {str(place.record)!r}"
    try:
        data = place.record.read_bytes()
    except FileNotFoundError as error:
        raise NotOwned(f"no binding {binding_id!r} of generation {generation} is on record", hint=BIND) from error
    except OSError as error:
        raise StorageError(f"cannot read the {what}: {error.strerror}") from error
    if not data.endswith(b"\n"):
        raise IntegrityError(f"damaged {what}: not whole")
    binding = document.decode_canonical(data[:-1], Binding, what)
    check_paths(binding)
    if (binding.id, binding.generation, binding.root.raw) != (binding_id, generation, root):
        raise IntegrityError(f"damaged {what}: it is another binding's")
    return binding


def attest(claims: Claims, binding: Binding, git: Git) -> UserRepository:
    """Make sure that `binding` holds its tree, now and alone, and return the repository of that tree.

    To be called under the gate: what it says is true only as long as that is held. Raises NotOwned where the claim
    is missing, not active or another binding's, or where the tree is not the one that was bound; OverlappingClaim
    where a claim of somebody else touches it; IntegrityError where the records disagree or are damaged.
    """
    claim = claims.find(binding.id)
    if claim.binding.digest != binding.digest:
        raise NotOwned(
            f"{binding.id!r} has been bound anew since, as generation {claim.binding.generation}",
            hint="begin a new turn with the binding as it is now",
        )
    if claim.state is not ClaimState.ACTIVE:
        raise NotOwned(f"{binding.id!r} is {claim.state}, not active", hint=BIND)
    return attest_tree(claims, binding, git)


def attest_tree(claims: Claims, binding: Binding, git: Git) -> UserRepository:
    """The part of `attest` that looks at everything but the claim of the binding itself."""
    _check_record(claims.store, binding)
    check_root(binding)
    repository = check_git(git, binding)
    provider = providers.find(binding.provider)
    if binding.provider_version != provider.version:
        raise NotOwned(f"{binding.id!r} was bound by another version of {provider.id}", hint=BIND)
    provider.attest(git, binding)
    claims.check_free(binding.root, binding.git_dir, but=binding.id)
    return repository


def _check_record(store: Store, binding: Binding) -> None:
    try:
        kept = load(store, binding.root.raw, binding.id, binding.generation)
    except NotOwned as error:
        raise IntegrityError(f"the record of the binding {binding.id!r} is gone") from error
    if kept.digest != binding.digest:
        raise IntegrityError(f"the claim of {binding.id!r} and the record of the binding differ")


def check_root(binding: Binding) -> None:
    """Raise NotOwned where the tree is not at its path, or another directory is."""
    path = binding.root.raw
    again = f"put it back, or release {binding.id!r} and bind the tree as it is now"
    try:
        found = os.lstat(path)
    except OSError as error:
        raise NotOwned(f"the bound tree {quote(path)} is gone: {error.strerror}", hint=again) from error
    if stat.S_ISLNK(found.st_mode) or os.path.realpath(path) != path:
        raise NotOwned(f"a symbolic link was put in the place of the bound tree {quote(path)}", hint=again)
    if not stat.S_ISDIR(found.st_mode):
        raise NotOwned(f"the bound tree {quote(path)} is no directory any more", hint=again)
    if (found.st_dev, found.st_ino) != binding.root.identity:
        raise NotOwned(f"another directory was put in the place of the bound tree {quote(path)}", hint=again)


def check_git(git: Git, binding: Binding) -> UserRepository:
    """The repository of a bound tree. Raises NotOwned where it is another one now, or none."""
    path = binding.root.raw
    again = f"put it back, or release {binding.id!r} and bind the tree as it is now"
    found = user_repo.open_at(git, path)
    if not isinstance(found, UserRepository):
        raise NotOwned(f"the bound tree {quote(path)} is no git work tree any more", hint=again)
    for name, now, bound in (
        ("git directory", found.git_dir, binding.git_dir),
        ("repository", found.common_dir, binding.common_dir),
    ):
        if directory(now).identity != bound.identity:
            raise NotOwned(f"the {name} of the bound tree {quote(path)} is another one now", hint=again)
    return found


def lease(
    place: BindingFolder, command: str, *, wait_seconds: float, progress: Progress
) -> AbstractContextManager[None]:
    """Hold the binding for one operation; the first of all locks to be taken.

    Raises LockedError where a living process holds it; one that died does not.
    """
    return lock.hold(place.lease, command, False, wait_seconds, progress)


def append_event(place: BindingFolder, binding: Binding, event: TurnEvent) -> None:
    """Add a line to the log of a binding, on disk before the call returns.

    A torn last line is cut off first. Raises IntegrityError where a line before it is malformed, and then writes
    nothing; LockedError where another process is writing; StorageError.
    """
    if event.binding != binding.digest:
        raise IntegrityError(f"an event of another binding than {binding.id!r}")

    def check(file: BinaryIO) -> None:
        _decode(file.read().split(b"\n")[:-1], place, binding)

    try:
        with _open_events(place.events, check) as journal:
            journal.append(document.encode(event))
    except BlockingIOError as error:
        raise LockedError(f"another process is writing the events of {binding.id!r}") from error
    except OSError as error:
        raise StorageError(f"cannot write the events of {binding.id!r}: {error.strerror}") from error


def events(place: BindingFolder, binding: Binding) -> list[TurnEvent]:
    """The log of a binding, oldest first, without a torn last line. Raises IntegrityError, StorageError."""
    try:
        lines = read_lines(place.events)
    except OSError as error:
        raise StorageError(f"cannot read the events of {binding.id!r}: {error.strerror}") from error
    return _decode(lines, place, binding)


def event(binding: Binding, deed: Deed, actor: str, reason: str) -> TurnEvent:
    """What is told of a deed that is about no turn."""
    return TurnEvent(deed=deed, actor=actor, reason=reason, binding=binding.digest, created_ns=time.time_ns())


def _open_events(path: Path, check: Callable[[BinaryIO], None]) -> Journal:
    try:
        return Journal(path)
    except FileExistsError:
        return Journal.reopen(path, check)


def _decode(lines: list[bytes], place: BindingFolder, binding: Binding) -> list[TurnEvent]:
    found = []
    for number, line in enumerate(lines, 1):
        what = f"event {number} in {str(place.events)!r}"
        told = document.decode_canonical(line, TurnEvent, what)
        if told.binding != binding.digest:
            raise IntegrityError(f"damaged {what}: it is of another binding")
        found.append(told)
    return found
