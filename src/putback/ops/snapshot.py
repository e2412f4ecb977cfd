"""Take a snapshot: a capture that somebody asked for, with an entry in the history."""

from __future__ import annotations

import time

import msgspec

from putback.ops.session import Session
from putback.paths import RelPath
from putback.records.capture import Capture, Purpose
from putback.records.document import AtPath
from putback.records.history import Entry, EntryKind
from putback.store import captures, usage


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot just taken: its history entry, and the record of what it covers and what not.

    `warning` is what to tell people of the store's size; empty where there is nothing to tell.
    """

    entry: Entry
    capture: Capture
    warning: str = ""

    @property
    def id(self) -> str:
        """The full id, 64 hex digits."""
        return self.entry.id


def take(session: Session, message: str, scope: frozenset[RelPath]) -> Snapshot:
    """Capture the workspace, within `scope` where one is given; an empty message becomes the time."""
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    text = message.encode("utf-8", "backslashreplace").decode()
    state = session.capturer.take(message=text or created, purpose=Purpose.SNAPSHOT, scope=scope)
    capture_id = captures.write(session.where, state)
    entry = Entry(
        seq=session.history.next_seq(),
        id=capture_id,
        kind=EntryKind.SNAPSHOT,
        created_ns=state.record.created_ns,
        after=capture_id,
        message=state.record.message,
        scope=tuple(AtPath.at(path) for path in sorted(scope)),
        files=state.record.files,
        bytes=state.record.bytes,
        not_covered=len(state.record.not_covered),
    )
    session.history.add(entry, session.where.scratch)
    return Snapshot(entry, state.record, _warning(session))


def _warning(session: Session) -> str:
    store, limit = session.where.store, session.capturer.settings.store.max_bytes
    # What is remembered counts new bytes in full, of which packing has taken less: look again before saying so.
    return usage.warning(usage.measure(store), limit) if usage.warning(usage.recent(store), limit) else ""
