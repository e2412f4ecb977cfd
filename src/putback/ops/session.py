"""What every operation works with while it holds the workspace's lock."""

from __future__ import annotations

from dataclasses import dataclass

from putback.fs.root import Root
from putback.git import refs
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.ops.capture import Capturer
from putback.progress import Progress
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
    progress: Progress

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

    def known_captures(self) -> list[str]:
        """The ids of every capture of this workspace, those of the newest entries first."""
        ordered: dict[str, None] = {}
        for name in self.history.names():
            if name.kind is EntryKind.SNAPSHOT:
                ordered[name.id] = None
        return [*ordered, *(oid for oid in refs.anchored(self.git, self.where.name) if oid not in ordered)]
