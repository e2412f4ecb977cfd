"""One restore of a workspace, from what is asked to what was done; undo and redo are two of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from putback.errors import NothingToUndo
from putback.ops import recover, restore, undo
from putback.ops.restore import Options, Restored, Target
from putback.ops.session import Session
from putback.records.history import Entry, EntryKind
from putback.records.plan import Plan
from putback.runs import unfinished
from putback.store.history import History, undoable
from putback.store.layout import WorkspacePaths

Find = Callable[[Session], Target]


def put_back(
    session: Session, find: Find, options: Options, *, dry_run: bool, confirm: Callable[[Plan], bool] | None
) -> Restored:
    """Restore what `find` finds. An interrupted restore is given up for it, once it is certain to be carried out.

    With `dry_run`, or where `confirm` answers no, nothing is touched. Raises what a restore raises.
    """
    interrupted = recover.inspect(session) is not None
    prepared = restore.prepare(session, find(session), options)
    if dry_run or (confirm is not None and prepared.plan.steps and not confirm(prepared.plan)):
        return Restored(prepared.plan)
    if interrupted:
        recover.resolve(session, recover.Choice.KEEP)
    return msgspec.structs.replace(restore.carry_out(session, prepared), superseded=interrupted)


def undo_of(asked: str | None) -> Find:
    """What undo takes back: the newest entry that is still done, or the one that `asked` means."""
    return lambda session: undo.undo_target(_decided(session), asked)


def redo_of(session: Session) -> Target:
    """What redo does again."""
    return undo.redo_target(_decided(session))


def exact_turn_to_undo(where: WorkspacePaths, asked: str | None) -> Entry | None:
    """The exact-path turn that undo would take back; None where it would take back something else, or nothing."""
    try:
        entry = undoable(History(where.history), asked)
    except NothingToUndo:
        return None
    return entry if entry.kind is EntryKind.TURN and entry.agent is None else None


def _decided(session: Session) -> Session:
    """Refuse to build on what is not known: an interrupted restore, a run that is not closed.

    A restore names its goal and captures everything as it is first. Undo and redo would walk on from there; and
    the newest thing that was done is that run, of which the history may not know yet.
    """
    recover.check_known(session)
    unfinished.check_closed(session.where)
    return session
