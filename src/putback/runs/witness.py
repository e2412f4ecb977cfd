"""The store as a witness for the documents of a run: what it holds, it says; what it lacks, it does not guess."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from putback.errors import PutbackError
from putback.fs.place import blob_id
from putback.git import refs
from putback.ops import diff
from putback.ops.session import Session
from putback.paths import RelPath
from putback.records.change import Change
from putback.records.history import EntryKind
from putback.store.captures import StoredCapture


class StoreWitness(msgspec.Struct, frozen=True, dict=True):
    """The captures and contents of one workspace's store, through an open session. `run` is the one asked about.

    A capture of another workspace of the same store is none.
    """

    session: Session
    run: str = ""

    def files_tree(self, capture: str) -> str | None:
        """The id of the tree of files of a capture; None where there is no such capture."""
        found = self._capture(capture)
        return None if found is None else found.files_tree

    def forgotten(self, captures: Iterable[str]) -> frozenset[RelPath]:
        """The paths that were purged from any of these captures after they were taken."""
        views = (self._capture(capture) for capture in captures)
        return frozenset(path for view in views if view is not None for path in view.forgotten)

    def changes(self, before: str, after: str) -> Iterable[Change]:
        """How two captures differ, in path order, directories included."""
        session = self.session
        return diff.changes(session.git, session.capture(before), session.capture(after))

    def damaged(self, digests: Iterable[str]) -> Iterable[str]:
        """Those digests whose content is missing, or is not what the digest says."""
        for digest in digests:
            try:
                if blob_id([self.session.reader.read(digest, "blob")]) != digest:
                    yield digest
            except PutbackError:
                yield digest

    def told(self, run: str) -> str | None:
        """The hash in the history's entry of the run; None where the history does not have it."""
        entry = self.session.entry(run)
        return entry.ledger or None if entry is not None and entry.kind is EntryKind.RUN else None

    @cached_property
    def _anchored(self) -> frozenset[str]:
        return frozenset(refs.anchored(self.session.git, self.session.where.name))

    def _capture(self, capture: str) -> StoredCapture | None:
        if self.session.aliases.get(capture, capture) not in self._anchored:
            return None
        try:
            return self.session.capture(capture)
        except PutbackError:
            return None
