"""Attach the history of a workspace that was moved to where it is now. Nothing is guessed.

Refs, entries, runs, turns and caches become those of the workspace here as one exchange (`store.exchange`). Where
there is a history already, the old one goes before it: entries keep their ids and get new numbers. Captures stay
as they are; they say where the workspace was when they were taken, and nothing that reads them minds.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import msgspec

from putback.errors import OutOfOrder, UnknownStateError, UsageError
from putback.fs import lock
from putback.git import refs
from putback.opening import session
from putback.ops import leftovers, recover
from putback.ops.session import Session
from putback.paths import quote
from putback.records import document
from putback.records.document import AtPath
from putback.records.exchange import Exchange
from putback.records.upkeep import Relocated
from putback.runs import unfinished
from putback.store import exchange, former
from putback.store.exchange import Staged
from putback.store.history import History, Name
from putback.store.layout import WorkspacePaths
from putback.turns.claims import Claims
from putback.turns.evidence import turn_folders
from putback.upkeep.catalog import Upkeep


def relocate(upkeep: Upkeep, old: bytes) -> Relocated:
    """What `Upkeep.relocate` does."""
    here = upkeep.where
    there = _find(here, old)
    _check_gone(there)
    _check_unclaimed(there)
    wait = upkeep.settings.store.lock_wait_seconds
    with (
        session(here, upkeep.settings, upkeep.progress, "relocate", create=True) as opened,
        lock.hold(there.lock, "relocate", False, wait, upkeep.progress),
    ):
        # Whoever drops what has vanished may have been faster, and takes the lock's file away, too.
        there = _find(here, old)
        recover.check_known(opened)
        for run in unfinished.unfinished(here):
            raise run.not_over()
        _check_quiet(opened, there)
        return _exchange(opened, there)


def _find(here: WorkspacePaths, old: bytes) -> WorkspacePaths:
    """The workspace that was at `old`. Raises UsageError with the likely ones where nothing is known of it."""
    for root in (os.path.normpath(old), os.path.realpath(old)):
        there = here.store.workspace(root)
        if there.name == here.name:
            raise UsageError(f"the workspace is at {quote(root)} already; nothing was changed")
        if there.exists():
            return there
    likely = former.candidates(here)
    named = ", ".join(quote(root) for root in likely[:3])
    raise UsageError(
        f"the store has no history of {quote(os.path.normpath(old))}; nothing was changed",
        hint=f"this may have been {named}"
        if likely
        else "give the path where the workspace was when it was captured",
    )


def _check_gone(there: WorkspacePaths) -> None:
    """Raise UsageError where the workspace is where it was: what is here is a copy then, which is another one."""
    record = there.identity()
    if record is not None and former.is_there(record):
        raise UsageError(
            f"the workspace is still at {quote(there.root)}, so this is another one; nothing was changed",
            hint="a copy has a history of its own; `putback snapshot` begins it",
        )


def _check_unclaimed(there: WorkspacePaths) -> None:
    for claim in Claims(there.store).all():
        if claim.binding.root.raw == there.root:
            raise OutOfOrder(
                f"{quote(there.root)} is bound as {claim.binding.id!r}; nothing was changed",
                hint=f"`putback turn release -b {claim.binding.id}` gives it up",
            )


def _check_quiet(opened: Session, there: WorkspacePaths) -> None:
    """Raise where something was under way at the old place, or was cut short there."""
    if there.exchange.exists():
        exchange.settle(there, opened.git)
    leftovers.clear(there, opened.root, History(there.history))
    back = f"move it back to {quote(there.root)} and run `putback recover` there first"
    if there.journal.exists():
        raise UnknownStateError("a restore was cut short before the workspace was moved", hint=back)
    for run in unfinished.unfinished(there):
        error = run.not_over()
        error.hint = back
        raise error
    for folder in turn_folders(there.turns):
        for turn in folder:
            if turn.evidence.open:
                identity = turn.evidence.pending.turn.turn_id
                raise OutOfOrder(f"turn {identity!r} of the workspace is {turn.evidence.state}", hint=back)


def _exchange(opened: Session, there: WorkspacePaths) -> Relocated:
    here = opened.where
    before, joined = History(there.history).names(), opened.history.names()
    offset = before[0].seq if before else 0
    shifted = dict(_shifted(opened, joined, offset)) if offset else {}
    plan = Exchange(
        removed=tuple(name.file for name in joined) if shifted else (),
        moved=there.name,
        moved_root_b64=base64.b64encode(there.root).decode(),
        moved_captures=tuple(sorted(refs.anchored(opened.git, there.name))),
    )
    exchange.carry_out(here, opened.git, plan, Staged(history=shifted))
    old_root, root = AtPath.at(there.root), AtPath.at(here.root)
    return Relocated(old_root=old_root, root=root, entries=len(before), joined=len(joined))


def _shifted(opened: Session, names: list[Name], offset: int) -> Iterator[tuple[str, bytes]]:
    """The entries that are here, with numbers above those that come; by file name."""
    for name in names:
        entry = opened.history.read(name)
        entry = msgspec.structs.replace(entry, seq=entry.seq + offset)
        yield Name(entry.seq, entry.kind, entry.id).file, document.encode(entry) + b"\n"
