"""What every operation works with while it holds the workspace's lock."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from putback.config import Settings
from putback.errors import IntegrityError
from putback.fs.root import Root, store_inside
from putback.git import refs, user_repo
from putback.git.command import Git, Pending
from putback.git.objects import ObjectReader
from putback.ops import leftovers
from putback.ops.capture import Capturer
from putback.ops.intake import Intake
from putback.progress import Shield
from putback.records.history import Entry, EntryKind
from putback.store.captures import StoredCapture
from putback.store.history import History, resolve
from putback.store.layout import WorkspacePaths


@dataclass
class Session:
    """One workspace, open and locked. `git` is bound to the private repository, work tree and index."""

    where: WorkspacePaths
    git: Git
    root: Root
    reader: ObjectReader
    capturer: Capturer
    history: History
    progress: Shield

    def capture(self, capture_id: str) -> StoredCapture:
        """A capture of this workspace by its full id. Raises UnknownId or IntegrityError."""
        return StoredCapture(self.reader, capture_id)

    def resolve(self, asked: str) -> str:
        """The full id behind what a user typed. Raises MalformedId, UnknownId or AmbiguousId."""
        names = self.history.names()
        return resolve(asked, names, refs.anchored(self.git, self.where.name))

    def entry(self, full_id: str) -> Entry | None:
        """The history entry with this id; None where the id is that of a capture without an entry of its own."""
        for name in self.history.names():
            if name.id == full_id:
                return self.history.read(name)
        return None

    def captures_of(self, asked: str) -> tuple[StoredCapture | None, StoredCapture]:
        """The captures before and after what `asked` names; a snapshot, or a bare capture, has no `before`."""
        full = self.resolve(asked)
        entry = self.entry(full)
        if entry is None:
            return None, self.capture(full)
        if entry.kind is EntryKind.SNAPSHOT:
            return None, self.capture(entry.after)
        return self.capture(entry.before), self.capture(entry.after)

    def snapshots(self) -> list[str]:
        """The ids of every snapshot of this workspace, newest first: captures that somebody asked for."""
        return [name.id for name in self.history.names() if name.kind is EntryKind.SNAPSHOT]


def open_session(
    stack: ExitStack,
    where: WorkspacePaths,
    bound: Git,
    settings: Settings,
    progress: Shield,
    early: Pending | None,
    *,
    strict: bool = True,
) -> Session:
    """Open everything, and clear away what a killed process left. `stack` closes it all.

    The caller holds the locks. `bound` is bound to the private repository, the work tree and the private index;
    `early` is its answer to `git.command.MODIFIED`, where that is already on the way. Unless `strict`, a damaged
    journal is no obstacle. Raises StorageError or IntegrityError.
    """
    root = stack.enter_context(Root(where.root, store_inside(Path(os.fsdecode(where.root)), where.store.root)))
    reader = stack.enter_context(ObjectReader(bound))
    opened = user_repo.open_at(bound, where.root)
    repository, warnings = (None, (opened,)) if isinstance(opened, str) else (opened, ())
    intake = Intake(where, root, progress)
    capturer = Capturer(where, bound, intake, repository, settings, progress, early, warnings)
    history = History(where.history)
    with nullcontext() if strict else suppress(IntegrityError):
        leftovers.clear(where, root, history)
    return Session(where, bound, root, reader, capturer, history, progress)
