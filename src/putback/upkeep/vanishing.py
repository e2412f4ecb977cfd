"""Workspaces whose root is gone: which they are, and dropping them.

Only ever on explicit request, for a drive that is not plugged in looks the same. One whose root was on another
file system than the one that is now found above it is not dropped without another word, nor is one of which
anything is not over.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from putback import seams
from putback.errors import IntegrityError, LockedError, PutbackError
from putback.fs.durable import sync_directory
from putback.git import refs
from putback.git.command import Git
from putback.opening import refusals
from putback.paths import quote
from putback.records.upkeep import Vanished
from putback.store import exchange
from putback.store.history import History
from putback.store.layout import Store, WorkspaceFile, WorkspacePaths, known_workspaces, workspaces
from putback.turns.claims import Claims

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

_STALE_SECONDS = 86_400
_UNMOUNTED = "its file system may only be not mounted; --unmounted drops it all the same"


def drop(upkeep: Upkeep, *, unmounted: bool, dry_run: bool) -> tuple[Vanished, ...]:
    """Drop every workspace of the store whose root is gone; returns them all, with why where one stays.

    With `unmounted`, also those whose root may only be on a file system that is not mounted now. Raises what
    `prune.locked` raises, but for LockedError.
    """
    found: list[Vanished] = []
    with refusals("prune"):
        for where, identity in _gone(upkeep.where.store):
            record = _describe(where, identity)
            if record.unmounted and not unmounted:
                record = _kept(record, _UNMOUNTED)
            found.append(record if record.kept else _drop(upkeep, where, record, dry_run=dry_run))
    return tuple(found)


def _gone(store: Store) -> list[tuple[WorkspacePaths, WorkspaceFile]]:
    """The workspaces whose root is not there. One whose record does not say which it is, is nobody's to drop."""
    found: list[tuple[WorkspacePaths, WorkspaceFile]] = []
    for where in workspaces(store):
        with suppress(PutbackError):
            identity = where.identity()
            if identity is not None and _is_its(where, identity) and _is_gone(identity.path):
                found.append((store.workspace(identity.path), identity))
    return found


def _is_its(where: WorkspacePaths, identity: WorkspaceFile) -> bool:
    return where.store.workspace(identity.path).folder == where.folder


def _is_gone(root: bytes) -> bool:
    try:
        os.lstat(root)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _describe(where: WorkspacePaths, identity: WorkspaceFile) -> Vanished:
    entries, damaged = History(where.history).readable()
    return Vanished.at(
        where.root,
        workspace=where.name,
        entries=len(entries) + len(damaged),
        bytes=next((entry.bytes for entry in entries if entry.bytes), 0),
        unmounted=_nearest_device(where.root) != identity.device,
    )


def _nearest_device(root: bytes) -> int:
    """The file system of the nearest directory above that there is: the root's own, unless that is not mounted."""
    while _is_gone(root):
        root = os.path.dirname(root)
    return os.lstat(root).st_dev


def _drop(upkeep: Upkeep, where: WorkspacePaths, record: Vanished, *, dry_run: bool) -> Vanished:
    from putback.upkeep.prune import locked

    try:
        with locked(upkeep, where, 0.0, strict=False) as git:
            reason = _in_use(where)
            if reason:
                return _kept(record, reason)
            if not dry_run:
                _remove(where, git)
    except LockedError as error:
        return _kept(record, error.message)
    return record


def _kept(record: Vanished, reason: str) -> Vanished:
    return msgspec.structs.replace(record, kept=reason)


def _in_use(where: WorkspacePaths) -> str:
    """What is not over there, empty where all is."""
    from putback.runs import unfinished

    way_out = "make a directory there and run `putback recover` in it"
    if not _is_gone(where.root):
        return "its root is there again"
    if where.journal.exists():
        return f"a restore was interrupted there; {way_out}"
    if where.exchange.exists():
        return "its history was being rewritten, and the plan of that is damaged"
    for other in known_workspaces(where.store):
        if exchange.moving(other) == where.name:
            return f"its history is on its way to {quote(other.root)}; any command there ends that"
    for run in unfinished.unfinished(where):
        return "a run is under way there" if run.alive else f"run {run.id[:12]} is not closed; {way_out}"
    if any(map(_is_fresh, where.open_turns())):
        return "a turn of a coding agent was begun there within the last day"
    try:
        claims = Claims(where.store).all()
    except IntegrityError as error:
        return error.message
    bound = [claim.binding for claim in claims if claim.binding.root.raw == where.root]
    return f"it is bound as {bound[0].id}; `putback turn release` gives it up" if bound else ""


def _is_fresh(path: Path) -> bool:
    """Whether an agent's turn may still go on: one that began long ago in a tree that is gone does not."""
    return time.time() - path.stat().st_mtime < _STALE_SECONDS


def _remove(where: WorkspacePaths, git: Git) -> None:
    """First the entries, in one step; then the refs; then all the rest, and last what makes it a workspace."""
    last = {where.marker.name, where.lock.name, where.scratch.name}
    doomed = where.scratch / f"vanished.{os.urandom(4).hex()}.part"
    doomed.mkdir(0o700)
    if where.history.exists():
        where.history.rename(doomed / where.history.name)
        sync_directory(where.folder)
    seams.reach("vanished.unlisted")
    captures = refs.anchored(git, where.name)
    if captures:
        refs.release(git, where.name, captures)
    seams.reach("vanished.released")
    for name in set(os.listdir(where.folder)) - last:
        (where.folder / name).rename(doomed / name)
    shutil.rmtree(where.scratch)
    seams.reach("vanished.emptied")
    where.marker.unlink()
    where.lock.unlink(missing_ok=True)
    where.folder.rmdir()
