"""What every operation works with while it holds the workspace's lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec

from putback.config import Settings
from putback.errors import FailedError, IntegrityError, StorageError
from putback.fs.durable import write_cache
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

_NO_BOUND = 1 << 62


class Session(msgspec.Struct):
    """One workspace, open and locked. `git` is bound to the private repository, work tree and index."""

    where: WorkspacePaths
    git: Git
    root: Root
    reader: ObjectReader
    capturer: Capturer
    history: History
    progress: Shield
    aliases: dict[str, str] = {}

    def capture(self, capture_id: str) -> StoredCapture:
        """A capture of this workspace by its full id, also by the one it had before it was rewritten.

        Raises UnknownId or IntegrityError.
        """
        return StoredCapture(self.reader, self.aliases.get(capture_id, capture_id))

    def resolve(self, asked: str) -> str:
        """The full id behind what a user typed. Raises MalformedId, UnknownId or AmbiguousId."""
        names = self.history.names()
        # Only what begins like an id may mean a capture without an entry, and a whole id that has one means it.
        known = asked.startswith("@") or any(name.id == asked for name in names)
        captures = [] if known else refs.anchored(self.git, self.where.name)
        return resolve(asked, names, captures, self.aliases)

    def entry(self, full_id: str) -> Entry | None:
        """The history entry with this id; None where the id is that of a capture without an entry of its own."""
        return self.history.find(full_id)

    def run_entry(self, asked: str) -> Entry | None:
        """The run that `asked` names; None where it is something else. Raises what `resolve` raises."""
        if ".." in asked:
            return None
        entry = self.entry(self.resolve(asked))
        return entry if entry is not None and entry.kind is EntryKind.RUN else None

    def captures_of(self, asked: str) -> tuple[StoredCapture | None, StoredCapture]:
        """The captures before and after what `asked` names; a snapshot, or a bare capture, has no `before`."""
        full = self.resolve(asked)
        entry = self.entry(full)
        if entry is None:
            return None, self.capture(full)
        if entry.kind is EntryKind.SNAPSHOT:
            return None, self.capture(entry.after)
        check_contents(entry)
        return self.capture(entry.before), self.capture(entry.after)

    def snapshots(self) -> list[str]:
        """The ids of every capture of this workspace that somebody asked for, newest first.

        Those are the snapshots, and both ends of a turn and of a run that kept contents.
        """
        found: list[str] = []
        for name in self.history.names():
            if name.kind is EntryKind.SNAPSHOT:
                found.append(name.id)
            elif name.kind in (EntryKind.RUN, EntryKind.TURN):
                entry = self.history.read(name)
                found += [capture for capture in (entry.after, entry.before) if capture]
        return found


def check_contents(entry: Entry) -> None:
    """Raise FailedError for a run of which the store does not have both ends."""
    if entry.kind is not EntryKind.RUN or (entry.before and entry.after):
        return
    if entry.before:
        raise FailedError(
            f"what run {entry.short_id} left could not be held, so there is no capture after it",
            hint=f"`putback restore {entry.short_id}` takes it back by its documents",
        )
    raise FailedError(
        f"run {entry.short_id} kept digests alone, so it cannot be taken back: {entry.message}",
        hint=f"`putback show {entry.short_id}` tells what it changed; --snapshot keeps contents",
    )


def open_session(
    stack: ExitStack,
    where: WorkspacePaths,
    bound: Git,
    settings: Settings,
    progress: Shield,
    early: Pending | None,
    *,
    strict: bool = True,
    contents: bool = True,
) -> Session:
    """Open everything, and clear away what a killed process left. `stack` closes it all.

    The caller holds the locks. `bound` is bound to the private repository, the work tree and the private index;
    `early` is its answer to `git.command.MODIFIED`, where that is already on the way. Unless `strict`, a damaged
    journal is no obstacle. Without `contents`, captures keep digests alone. Raises StorageError or
    IntegrityError.
    """
    root = stack.enter_context(Root(where.root, store_inside(Path(os.fsdecode(where.root)), where.store.root)))
    reader = stack.enter_context(ObjectReader(bound))
    opened = user_repo.open_at(bound, where.root)
    repository, warnings = (None, (opened,)) if isinstance(opened, str) else (opened, ())
    place = where if contents else where.digests()
    intake = Intake(place, root, progress, contents)
    chosen = settings if contents else unbounded(settings)
    capturer = Capturer(place, bound, intake, repository, chosen, progress, early, warnings)
    history = History(where.history)
    with nullcontext() if strict else suppress(IntegrityError):
        leftovers.clear(where, root, history)
    return Session(where, bound, root, reader, capturer, history, progress, history.aliases())


@contextmanager
def without_contents(session: Session) -> Iterator[Session]:
    """The same session for captures of digests alone, where the store has no room for more. The lock is held."""
    seed(session.where)
    place = session.where.digests()
    bound = session.git.on(place.store.git_dir, work_tree=place.root, index=place.index)
    with ObjectReader(bound) as reader:
        intake = Intake(place, session.root, session.progress, contents=False)
        capturer = msgspec.structs.replace(
            session.capturer, where=place, git=bound, intake=intake, settings=unbounded(session.capturer.settings)
        )
        yield msgspec.structs.replace(session, git=bound, reader=reader, capturer=capturer)


def unbounded(settings: Settings) -> Settings:
    """The settings for a capture that stores no contents: what bounds the store does not bound it."""
    capture = msgspec.structs.replace(settings.capture, max_new_bytes=_NO_BOUND)
    store = msgspec.structs.replace(settings.store, max_bytes=_NO_BOUND, min_free_bytes=0)
    return msgspec.structs.replace(settings, capture=capture, store=store)


def seed(where: WorkspacePaths) -> None:
    """Make the place for captures of digests alone, beginning from what the captures with contents know."""
    aside = where.digests()
    aside.prepare()
    if aside.index.exists() or not where.index.exists():
        return
    try:
        for source, target in ((where.state, aside.state), (where.index, aside.index)):
            if source.exists():
                write_cache(target, source.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error
