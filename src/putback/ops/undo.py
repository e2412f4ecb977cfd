"""Undo and redo: restores whose target is found by walking the history."""

from __future__ import annotations

import msgspec

from putback.errors import FailedError, NothingToUndo
from putback.ops.restore import Target
from putback.ops.session import Session, check_contents
from putback.records.history import Cause, Entry, EntryKind
from putback.store.history import redoable, undoable


def undo_target(session: Session, asked: str | None = None) -> Target:
    """Take back the newest entry that did something and is not yet undone, or the one that `asked` means.

    Raises NothingToUndo, and what resolving an id raises.
    """
    entry = undoable(session.history, asked)
    try:
        check_contents(entry)
    except FailedError as error:
        if asked is None:
            error.hint = f"{error.hint}; `putback undo ID` takes back an earlier entry by itself"
        raise
    return span_target(session, entry, Cause.UNDO, f"undo of {entry.short_id}: {entry.message}")


def redo_target(session: Session) -> Target:
    """Do again what was undone last. Raises NothingToUndo."""
    entry = redoable(session.history)
    if entry is None:
        raise NothingToUndo("nothing to redo", hint="`putback list` shows the history")
    if entry.kind is EntryKind.TURN and entry.agent is None:
        raise NothingToUndo(
            f"turn {entry.short_id} was taken back in the index, too, which redo does not write",
            hint=f"`putback restore {entry.after[:12]}` puts the files back as the turn left them",
        )
    message = f"redo of {entry.short_id}: {entry.message}"
    target = span_target(session, _undo_of(session, entry), Cause.REDO, message)
    return msgspec.structs.replace(target, of=entry.id)


def _undo_of(session: Session, entry: Entry) -> Entry:
    """The restore that took an entry back last.

    Redo takes back what that did, which is not always what the entry had done: paths may have been refused,
    merged, or overwritten by force.
    """
    restores = (name for name in session.history.names() if name.kind is EntryKind.RESTORE)
    found = (session.history.read(name) for name in restores)
    return next(one for one in found if one.cause is Cause.UNDO and one.of == entry.id and one.changed)


def span_target(session: Session, entry: Entry, cause: Cause, message: str) -> Target:
    """Take back what one entry of the history did, and nothing that happened around it."""
    before, after = session.capture(entry.before), session.capture(entry.after)
    return Target(goal=before, recorded=after, of=entry.id, cause=cause, message=message, only=after.touched)
