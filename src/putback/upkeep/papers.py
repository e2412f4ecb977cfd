"""Every record that the store keeps of a workspace: whether it can be read, and which captures it names.

Reads only. A record that is damaged is told of, with what is lost by it, and hides no other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from putback.errors import IntegrityError, NotOwned, PutbackError
from putback.fs.durable import read_file
from putback.fs.journal import read_lines
from putback.ops import leftovers
from putback.records import document
from putback.records.agent import OpenTurn
from putback.records.history import Entry, EntryKind
from putback.records.turn import TurnCapture, TurnSnapshot
from putback.records.upkeep import Damage, Part
from putback.runs import unfinished, verify
from putback.runs.evidence import Evidence
from putback.runs.verify import Result
from putback.store import exchange, layout
from putback.store.history import History, Name
from putback.store.layout import FORMAT, Store, StoreFile, WorkspaceFile, WorkspacePaths
from putback.turns import binding as bindings
from putback.turns.claims import Claims
from putback.turns.custody import turns_of

_MOST_TEXT = 40
_CAPTURE = re.compile(r"[0-9a-f]{64}")
_GENERATION = re.compile(r"[1-9]\d{0,9}")


class Need(msgspec.Struct, frozen=True):
    """A capture that a record names. `what` is what a person calls it, `entry` the entry it belongs to, if any."""

    capture: str
    what: str
    workspace: str
    entry: str = ""


class Papers(msgspec.Struct):
    """What was read of one workspace. `faulty` are the names of history records that are damaged.

    `ends` are those of exact-path turns, by the turn's id, but for captures of which a path was forgotten since:
    they are not as the evidence says, and `aliases` says where they are.
    """

    where: WorkspacePaths
    entries: list[Entry] = []
    needs: list[Need] = []
    damage: list[Damage] = []
    faulty: list[Name] = []
    ends: list[tuple[str, TurnSnapshot]] = []
    aliases: dict[str, str] = {}

    def need(self, capture: str, what: str, entry: str = "") -> None:
        """Note that a record names a capture; an empty id is none. Nothing else gets to git."""
        if capture and not is_capture_id(capture):
            self.fault(Part.TURN, f"what names {what} is damaged: {capture[:80]!r} is no id", entry)
        elif capture:
            self.needs.append(Need(self.aliases.get(capture, capture), what, self.where.name, entry))

    def fault(self, part: Part, problem: str, entry: str = "", *, whole: bool = False) -> None:
        """Note a fault."""
        self.damage.append(Damage(part=part, problem=problem, workspace=self.where.name, entry=entry, whole=whole))


def is_capture_id(text: str) -> bool:
    """Whether this can be the id of a capture, so that git may be asked for it."""
    return _CAPTURE.fullmatch(text) is not None


def read(where: WorkspacePaths) -> Papers:
    """All records of a workspace, whose locks are held. Raises StorageError where the folder cannot be read."""
    found = Papers(where)
    _identity(found)
    try:
        found.aliases = History(where.history).aliases()
    except IntegrityError as error:
        found.fault(Part.WORKSPACE, f"{error.message}; ids from before something was forgotten lead nowhere")
    broken = exchange.fault(where)
    if broken:
        problem = f"{where.name}: a forget or relocate was cut short, and nobody can tell what it was about to do"
        found.fault(Part.WORKSPACE, f"{problem}: {broken}; no command works here until it is set aside")
    _history(found)
    for part, look in ((Part.JOURNAL, _journal), (Part.RUN, _runs), (Part.TURN, _turns), (Part.TURN, _agents)):
        try:
            look(found)
        except PutbackError as error:
            found.fault(part, error.message)
        except OSError as error:
            found.fault(part, f"{where.name}: the system refused {error.filename!r}: {error.strerror}")
    return found


def claims(found: Papers) -> None:
    """Look at the claims registry of the store, which is believed as a whole or not at all."""
    try:
        Claims(found.where.store).all()
    except PutbackError as error:
        found.fault(Part.TURN, f"{error.message}; no exact-path turn is taken until it is put right or removed")


def _identity(found: Papers) -> None:
    try:
        known = found.where.identity()
    except PutbackError as error:
        found.fault(
            Part.WORKSPACE, f"{error.message}; nothing is lost, but no command works here until it is repaired"
        )
        return
    if known is None:
        found.fault(Part.WORKSPACE, f"the record of workspace {found.where.name} is missing; nothing is lost")
    elif not root_of(found.where):
        found.fault(
            Part.WORKSPACE, f"the record of workspace {found.where.name} is not as it was written; nothing is lost"
        )


def _history(found: Papers) -> None:
    history = History(found.where.history)
    for name in history.names():
        try:
            entry = _entry(history, name)
        except PutbackError as error:
            found.faulty.append(name)
            whole = name.kind is not EntryKind.SNAPSHOT
            found.fault(Part.ENTRY, f"{_unreadable(name)}: {error.message}", name.id, whole=whole)
            if name.kind is EntryKind.SNAPSHOT:
                found.need(name.id, f"snapshot {name.id[:12]}", name.id)
            continue
        found.entries.append(entry)
        short = f"{entry.kind} {entry.short_id}"
        if entry.kind is EntryKind.SNAPSHOT:
            text = entry.message if len(entry.message) <= _MOST_TEXT else entry.message[: _MOST_TEXT - 1] + "…"
            found.need(entry.after, f'{short} "{text}"', entry.id)
        else:
            found.need(entry.before, f"the tree before {short}", entry.id)
            found.need(entry.after, f"the tree after {short}", entry.id)


def _entry(history: History, name: Name) -> Entry:
    """An entry whose record is byte for byte what would be written now. Raises IntegrityError, StorageError."""
    entry = history.read(name)
    if (history.folder / name.file).read_bytes() != document.encode(entry) + b"\n":
        raise IntegrityError(f"history record {str(history.folder / name.file)!r} is not in canonical form")
    for item in entry.scope:
        _ = item.raw
    for capture in (entry.before, entry.after):
        if capture and not is_capture_id(capture):
            raise IntegrityError(f"history record {str(history.folder / name.file)!r} names what is no capture")
    for outcome in entry.declined:
        _ = outcome.name
    return entry


def _unreadable(name: Name) -> str:
    if name.kind is EntryKind.SNAPSHOT:
        return f"snapshot {name.id[:12]} cannot be restored while its record is damaged"
    return f"{name.kind} {name.id[:12]} cannot be shown or taken back any more; its record is damaged"


def _journal(found: Papers) -> None:
    if not read_lines(found.where.journal):
        return
    try:
        journal = leftovers.read_journal(found.where)
    except IntegrityError as error:
        found.fault(
            Part.JOURNAL,
            f"a restore was interrupted, and what it was doing is not known any more: {error.message}",
        )
        return
    if journal is not None:
        found.need(journal[0].before, "the tree before an interrupted restore")


def _runs(found: Papers) -> None:
    entries = {entry.id for entry in found.entries if entry.kind is EntryKind.RUN}
    folders = {folder.id: folder for folder in unfinished.folders(found.where)}
    for run in sorted(entries - folders.keys()):
        if not (found.where.runs / f"damaged-{run}").exists():
            found.fault(Part.RUN, f"the evidence of run {run[:12]} is gone; it cannot be verified or planned", run)
    for waiting in unfinished.unfinished(found.where):
        folders.pop(waiting.id, None)
        if waiting.fault and not waiting.alive:
            found.fault(
                Part.RUN,
                f"run {waiting.id[:12]} was interrupted, and cannot be closed: {waiting.fault}",
                waiting.id,
            )
    for run_id, folder in sorted(folders.items()):
        failed = [check for check in verify.verify(Evidence(folder.folder).load()) if check.result is Result.FAIL]
        missing = [path.name for path in (folder.manifest, folder.ledger) if not path.exists()]
        problems = [f"{check.name}: {check.detail}" for check in failed] + [
            f"{name} is missing" for name in missing
        ]
        if problems:
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            found.fault(
                Part.RUN,
                f"the evidence of run {run_id[:12]} does not hold, so it takes nothing back: {problems[0]}{more}",
                run_id if run_id in entries else "",
            )


def _turns(found: Papers) -> None:
    known: set[str] = set()
    for place, binding_id, generation in _bindings(found.where.turns):
        try:
            bound = bindings.load(found.where.store, found.where.root, binding_id, generation)
        except NotOwned:
            if (place / "turns").exists():
                found.fault(
                    Part.TURN, f"the record of the binding {binding_id!r} is gone; its turns cannot be taken back"
                )
            continue
        except PutbackError as error:
            found.fault(Part.TURN, f"{error.message}; the turns of {binding_id!r} cannot be taken back")
            continue
        folder = bindings.folder(found.where.store, found.where.root, binding_id, generation)
        _try(found, lambda folder=folder, bound=bound: bindings.events(folder, bound))  # type: ignore[misc]
        turns = turns_of(folder, bound)
        known |= {turn.capture_id for turn in turns.aside}
        for turn in turns.folders():
            known.add(turn.capture_id)
            try:
                evidence = turn.evidence
            except PutbackError as error:
                found.fault(
                    Part.TURN,
                    f"turn {turn.capture_id[:12]} cannot be taken back as a turn: {error.message}",
                    turn.capture_id,
                )
                continue
            if evidence.pending.binding != bound.digest:
                found.fault(Part.TURN, f"turn {turn.capture_id[:12]} is of another binding", turn.capture_id)
            for capture in (evidence.begun, evidence.sealed):
                _ends(found, turn.capture_id, capture)
    for entry in found.entries:
        if entry.kind is EntryKind.TURN and entry.agent is None and entry.id not in known:
            found.fault(Part.TURN, f"the evidence of turn {entry.short_id} is gone", entry.id)


def _ends(found: Papers, turn: str, capture: TurnCapture | None) -> None:
    ends = () if capture is None else (("before", capture.begin), ("after", capture.end))
    for when, end in ends:
        if end is not None:
            found.need(end.capture, f"the tree {when} turn {turn[:12]}")
            if end.capture not in found.aliases:
                found.ends.append((turn, end))


def _bindings(place: Path) -> Iterator[tuple[Path, str, int]]:
    """The folders of bindings: id and generation are in their names."""
    for above in sorted(place.iterdir()) if place.is_dir() else ():
        for folder in sorted(above.iterdir()) if above.is_dir() else ():
            if _GENERATION.fullmatch(folder.name) and folder.is_dir():
                yield folder, above.name, int(folder.name)


def open_turn(path: Path) -> OpenTurn:
    """The turn in a record. Raises IntegrityError, and FileNotFoundError where it is over meanwhile."""
    what = f"open turn {str(path)!r}"
    opened = document.decode(path.read_bytes(), OpenTurn, what)
    if not is_capture_id(opened.before):
        raise IntegrityError(f"damaged {what}: it names no capture")
    return opened


def _agents(found: Papers) -> None:
    for path in found.where.open_turns():
        try:
            opened = open_turn(path)
        except FileNotFoundError:
            continue
        except IntegrityError as error:
            found.fault(Part.TURN, f"a coding agent's turn will not enter the history: {error.message}")
            continue
        found.need(opened.before, f"the tree before the open turn of {opened.agent}")


def _try(found: Papers, look: Callable[[], object]) -> None:
    try:
        look()
    except PutbackError as error:
        found.fault(Part.TURN, error.message)


def marker_fault(store: Store) -> str:
    """Why the store's own record cannot be read; empty where it can. Raises IntegrityError for a newer store."""
    try:
        data = store.marker.read_bytes()
        found = document.decode(data, StoreFile, "store marker")
    except FileNotFoundError:
        return "the store's own record is missing"
    except IntegrityError as error:
        return error.message
    if found.format != FORMAT:
        return "the store's own record is of another program"
    store.exists()
    return "" if data == document.encode(found) + b"\n" else "the store's own record is not as it was written"


def root_of(where: WorkspacePaths) -> bytes:
    """The root that the record of a workspace names, if it is the one of its folder; else empty."""
    try:
        data = read_file(where.marker)
        known = document.decode(data, WorkspaceFile, "workspace record")
        root = known.path
    except (OSError, IntegrityError):
        return b""
    right = data == document.encode(known) + b"\n" and where.store.workspace(root).folder == where.folder
    return root if right else b""


def workspaces(store: Store) -> list[WorkspacePaths]:
    """Every workspace of the store; the root is empty where its record does not tell."""
    return [msgspec.structs.replace(where, root=root_of(where)) for where in layout.workspaces(store)]


def leftover_files(where: WorkspacePaths) -> int:
    """How many temporary files killed processes have left in the workspace's folder."""
    halves = [*where.folder.glob("*.part"), where.index.with_name("index.lock")]
    inside = os.listdir(where.scratch) if where.scratch.is_dir() else []
    return sum(path.exists() for path in halves) + len(inside)
