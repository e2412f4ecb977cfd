"""The history of one workspace: one immutable file per entry, newest first.

A file's name holds the entry's number and id, so that ids are found without reading records. Numbers only grow;
they order the entries, not the clock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path

import msgspec

from putback.errors import AmbiguousId, IntegrityError, MalformedId, NothingToUndo, StorageError, UnknownId
from putback.fs.durable import read_file, write_new_file
from putback.records import document
from putback.records.history import Cause, Entry, EntryKind

_NAME = re.compile(r"(\d{10,})-(snapshot|restore|run|turn)-([0-9a-f]{64})\.json")
_ID = re.compile(r"[0-9a-f]{7,64}")
_KINDS = {str(kind): kind for kind in EntryKind}
# How many entries are read before undo first looks whether they are enough.
_FEW = 8
_NEWEST = re.compile(r"@([1-9]\d{0,8})")


class Name(msgspec.Struct, frozen=True):
    """What a file name says of its entry."""

    seq: int
    kind: EntryKind
    id: str

    @property
    def file(self) -> str:
        return f"{self.seq:010d}-{self.kind}-{self.id}.json"


class History(msgspec.Struct, frozen=True):
    """The entries below one `history/` folder, which need not exist."""

    folder: Path

    def names(self) -> list[Name]:
        """All entries by name, newest first. Foreign files are passed over."""
        try:
            listed = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"cannot read the history: {error.strerror}") from error
        found = map(_NAME.fullmatch, listed)
        names = [Name(int(match[1]), _KINDS[match[2]], match[3]) for match in found if match]
        names.sort(key=attrgetter("seq"), reverse=True)
        return names

    def read(self, name: Name) -> Entry:
        """One entry. Raises IntegrityError where its record is damaged."""
        path = self.folder / name.file
        try:
            data = read_file(path)
        except OSError as error:
            raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error
        entry = document.decode(data, Entry, f"history record {str(path)!r}")
        if (entry.seq, entry.id, entry.kind) != (name.seq, name.id, name.kind):
            raise IntegrityError(f"history record {str(path)!r} is not the one its name says")
        return entry

    def find(self, full_id: str) -> Entry | None:
        """The entry with this id, or None. Raises IntegrityError where its record is damaged."""
        return next((self.read(name) for name in self.names() if name.id == full_id), None)

    def entries(self) -> list[Entry]:
        """All entries, newest first. Raises IntegrityError where one is damaged."""
        return [entry for entry in map(self._look, self.names()) if entry is not None]

    def readable(self) -> tuple[list[Entry], list[str]]:
        """The entries that can be read, newest first, and what is wrong with the others."""
        damaged: list[str] = []
        return list(self.each(self.names(), damaged.append)), damaged

    def each(
        self, names: Iterable[Name], damaged: Callable[[str], None] = lambda problem: None
    ) -> Iterator[Entry]:
        """The entries of these names, read as they are asked for; `damaged` is told why one is passed over."""
        for name in names:
            try:
                entry = self._look(name)
            except (IntegrityError, StorageError) as error:
                damaged(error.message)
            else:
                if entry is not None:
                    yield entry

    def _look(self, name: Name) -> Entry | None:
        """One entry; None where it was dropped since its name was read: most readers hold no lock."""
        try:
            return self.read(name)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def next_seq(self) -> int:
        """The number of the entry that comes next."""
        names = self.names()
        return names[0].seq + 1 if names else 1

    def aliases(self) -> dict[str, str]:
        """The ids of captures and entries that were rewritten, and under which id each is kept now.

        Raises IntegrityError where the table is damaged.
        """
        path = self.folder.with_name("aliases")
        try:
            data = read_file(path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error
        from putback.records.exchange import Aliases  # hardly a workspace has any

        return document.decode(data, Aliases, f"aliases {str(path)!r}").ids

    def resolve(self, asked: str, captures: Iterable[str] = ()) -> str:
        """The full id that `asked` means here; see the function `resolve`."""
        return resolve(asked, self.names(), captures, self.aliases())

    def add(self, entry: Entry, scratch: Path) -> None:
        """Publish an entry, written first in `scratch`: on disk before the call returns, never over another."""
        name = Name(entry.seq, entry.kind, entry.id)
        try:
            write_new_file(self.folder / name.file, document.encode(entry) + b"\n", scratch)
        except OSError as error:
            raise StorageError(f"cannot write the history: {error.strerror}") from error


class Listed(msgspec.Struct, frozen=True):
    """An entry, and the n of the `@n` that means it; 0 for a restore, which none means. `of` counts them all."""

    number: int
    entry: Entry
    of: int


def listing(history: History, kinds: frozenset[EntryKind], session: str) -> Iterator[Listed]:
    """The entries, newest first, read as they are asked for: of `kinds` only and of a session, where given.

    `session` is how the name of an agent's session begins. Records that are damaged are passed over.
    """
    number = 0
    if session:
        kinds = kinds & {EntryKind.TURN} if kinds else frozenset({EntryKind.TURN})
        if not kinds:
            return
    names = history.names()
    for name in names:
        counted = name.kind is not EntryKind.RESTORE
        number += counted
        if kinds and name.kind not in kinds:
            continue
        for entry in history.each([name]):
            if not session or (entry.agent is not None and entry.agent.session.startswith(session)):
                yield Listed(number if counted else 0, entry, len(names))


def resolve(
    asked: str, names: list[Name], captures: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str:
    """The full id that `asked` means: `@n`, a whole id, or a prefix of 7 or more digits.

    `@n` counts what was captured or done, newest first, without the restores: putting something back must not
    change what `@1` means, or saying it twice would take the first time back. `names` are the history's entries,
    newest first; `captures` are further ids that have no entry of their own. An id that `aliases` has stands for
    the one that is kept in its place. Raises MalformedId, UnknownId or AmbiguousId, each quoting what was asked.
    """
    newest = _NEWEST.fullmatch(asked)
    if newest:
        number = int(newest[1])
        counted = [name for name in names if name.kind is not EntryKind.RESTORE]
        if number > len(counted):
            raise UnknownId(
                f"unknown id {asked!r}: only {len(counted)} to choose from", hint="`putback list` shows them"
            )
        return counted[number - 1].id
    if not _ID.fullmatch(asked):
        raise MalformedId(
            f"malformed id {asked!r}: 7 to 64 lowercase hex digits, or @1 for the newest snapshot",
            hint="`putback list` shows the ids of this workspace",
        )
    kept = aliases or {}
    known = {*(name.id for name in names), *captures}
    found = {oid for oid in known if oid.startswith(asked)}
    found |= {new for old, new in kept.items() if old.startswith(asked) and new in known}
    if not found:
        raise UnknownId(f"unknown id {asked!r}", hint="`putback list` shows the ids of this workspace")
    if len(found) > 1:
        some = ", ".join(oid[: max(12, len(asked) + 4)] for oid in sorted(found)[:4])
        raise AmbiguousId(f"ambiguous id {asked!r}: {some}", hint="give more digits")
    return found.pop()


class UndoState(msgspec.Struct, frozen=True):
    """Entries that undo would take next (last first), and entries that redo would do again (last first)."""

    undo: tuple[Entry, ...]
    redo: tuple[Entry, ...]


def undo_state(entries: list[Entry]) -> UndoState:
    """Walk the history, oldest first: what is still done, and what has been undone since the last new change.

    Entries that changed nothing are no part of it.
    """
    done: list[Entry] = []
    undone: list[Entry] = []
    for entry in reversed(entries):
        if entry.kind is EntryKind.SNAPSHOT or entry.changed == 0:
            continue
        if entry.cause in (Cause.UNDO, Cause.TURN):
            undone += _take(done, entry.of)
        elif entry.cause is Cause.REDO:
            done += _take(undone, entry.of)
        else:
            done.append(entry)
            undone.clear()
    return UndoState(tuple(done), tuple(undone))


def recent_undo_state(history: History, enough: Callable[[list[Entry], UndoState], bool]) -> UndoState:
    """As much of the undo state as `enough` asks for, of the newest entries: what is older is not read.

    What is there is as the whole history has it. An entry says of another, if anything, that it was undone or
    done again; so a part of the history that has every entry which it speaks of stands by itself, and whatever it
    leaves done was done after all that is older. Raises IntegrityError where a record that is read is damaged.
    """
    names = history.names()
    places = {name.id: place for place, name in enumerate(names)}
    read: list[Entry] = []
    needed, look = 0, _FEW
    for name in names:
        entry = history.read(name)
        read.append(entry)
        if entry.cause in (Cause.UNDO, Cause.REDO, Cause.TURN):
            needed = max(needed, places.get(entry.of, 0))
        if len(read) > needed and len(read) >= look:
            state = undo_state(read)
            if enough(read, state):
                return state
            look *= 2
    return undo_state(read)


def undoable(history: History, asked: str | None) -> Entry:
    """The entry that undo takes back: the newest that is still done, or the one that `asked` means.

    Raises NothingToUndo where there is none, or it is undone or changed nothing; and what `resolve` raises.
    """
    if asked is None:
        pending = recent_undo_state(history, lambda read, state: bool(state.undo)).undo
        if not pending:
            raise NothingToUndo("nothing to undo", hint="`putback list` shows the history")
        return pending[-1]
    full = history.resolve(asked)
    pending = recent_undo_state(history, lambda read, state: any(entry.id == full for entry in read)).undo
    for entry in pending:
        if entry.id == full:
            return entry
    raise NothingToUndo(
        f"{full[:12]} is nothing that undo could take back: it changed nothing, or is undone",
        hint=f"`putback restore {full[:12]}` puts a snapshot back",
    )


def redoable(history: History) -> Entry | None:
    """The entry that redo would do again; None where there is none. Raises IntegrityError."""
    # Whatever was undone before the newest thing that was done anew cannot be done again.
    pending = recent_undo_state(history, lambda read, state: bool(state.redo) or any(map(_is_new, read))).redo
    return pending[-1] if pending else None


def _is_new(entry: Entry) -> bool:
    """Whether an entry did something that no other had done or undone."""
    by_undo = entry.cause in (Cause.UNDO, Cause.REDO, Cause.TURN)
    return entry.kind is not EntryKind.SNAPSHOT and entry.changed != 0 and not by_undo


def _take(entries: list[Entry], wanted: str) -> list[Entry]:
    found = [entry for entry in entries if entry.id == wanted]
    entries[:] = [entry for entry in entries if entry.id != wanted]
    return found
