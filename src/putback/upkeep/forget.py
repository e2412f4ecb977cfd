"""Purge paths from every capture of a workspace, and their contents from the disk.

Captures and refs are exchanged as one (`store.exchange`); ids that were known before go on meaning what they
meant, without the paths. A capture says of each path that it was forgotten and when: a restore of it neither
brings the path back nor removes what stands there. Contents that something else holds, here or in another
workspace, stay, and that is said.

Not purged: the names of the paths, and the digests of contents in the evidence of runs and turns, which are what
makes it checkable. The digest of a secret that can be guessed confirms the guess.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from putback import paths, seams
from putback.errors import FailedError, IntegrityError, LockedError, OutOfOrder, UsageError
from putback.fs import lock
from putback.fs.durable import read_file
from putback.git import refs
from putback.git.objectid import Kind, deflate, object_id
from putback.git.packs import PackWriter
from putback.opening import session
from putback.ops import recover
from putback.ops.session import Session
from putback.paths import RelPath, quote
from putback.records import document
from putback.records.agent import OpenTurn
from putback.records.capture import Reason
from putback.records.document import AtPath
from putback.records.exchange import Exchange
from putback.records.history import Entry, EntryKind
from putback.records.upkeep import Forgotten, Reclaimed
from putback.runs import unfinished
from putback.store import exchange
from putback.store.exchange import Staged
from putback.store.history import Name
from putback.store.layout import WorkspacePaths
from putback.turns.evidence import TurnFolder, turn_folders
from putback.upkeep import elsewhere
from putback.upkeep.catalog import Upkeep
from putback.upkeep.rewrite import Result, Rewriter, Rewritten, minimal


def forget(upkeep: Upkeep, chosen: frozenset[RelPath], *, dry_run: bool) -> Forgotten:
    """What `Upkeep.forget` does."""
    if not chosen:
        raise UsageError("no path to forget; nothing was changed", hint="name files or directories below the root")
    with session(upkeep.where, upkeep.settings, upkeep.progress, "forget") as opened:
        _check_quiet(opened)
        done = _exchange(opened, minimal(chosen), dry_run=dry_run)
    if dry_run:
        return done
    reclaimed = purge(upkeep)
    if reclaimed is None:
        return done
    held = elsewhere.set_aside(upkeep.where.store)
    if reclaimed.still_needed:
        with session(upkeep.where, upkeep.settings, upkeep.progress, "forget") as opened:
            held = (*elsewhere.places(opened, frozenset(reclaimed.still_needed)), *held)
    return msgspec.structs.replace(done, elsewhere=held, reclaimed=reclaimed)


def purge(upkeep: Upkeep) -> Reclaimed | None:
    """Take what was forgotten off the disk, unless that is done already; also after a process that was killed.

    The caller holds no lock. Raises LockedError where others do not let go of it.
    """
    waiting = exchange.purging(upkeep.where)
    if not waiting:
        return None
    try:
        reclaimed = upkeep.reclaim(purge=waiting)
    except LockedError as error:
        error.message = f"forgotten, but the bytes are still on the disk: {error.message}"
        error.hint = "the next command tries again; or run `putback forget` again when nobody else is at work"
        raise
    seams.reach("forget.purged")
    # Who forgets something else at this moment has lengthened the list.
    with (
        suppress(LockedError),
        lock.hold(upkeep.where.lock, "forget", False, upkeep.settings.store.lock_wait_seconds, upkeep.progress),
    ):
        exchange.purged(upkeep.where, waiting)
    return reclaimed


def _check_quiet(opened: Session) -> None:
    """Raise what says how to end it, where a restore, a run or a turn is under way or was cut short."""
    recover.check_known(opened)
    for run in unfinished.unfinished(opened.where):
        raise run.not_over()


def _exchange(opened: Session, chosen: frozenset[RelPath], *, dry_run: bool) -> Forgotten:
    where = opened.where
    turns = _turns(where)
    for turn in turns:
        if turn.evidence.open and any(_touch(item.raw, chosen) for item in turn.evidence.pending.paths):
            raise _is_open(turn)
    detail = f"forgotten {time.strftime('%Y-%m-%d', time.gmtime())}"
    with PackWriter(where.scratch) as writer:

        def keep(kind: Kind, data: bytes) -> str:
            oid = object_id(kind, data)
            if not dry_run:
                writer.add(kind, oid, len(data), deflate(data))
            return oid.hex()

        captures = refs.anchored(opened.git, where.name)
        result = Rewriter(opened.reader, chosen, detail, keep).rewrite(opened.git, captures)
        _check_known(chosen, result)
        entries = list(_entries(opened, result.captures))
        done = Forgotten(
            paths=tuple(AtPath.at(path) for path in sorted(chosen)),
            captures=len(result.captures),
            entries=len(entries),
            turns=tuple(_lost(turns, result.captures)),
            done=not dry_run,
        )
        if not dry_run and result.captures:
            writer.finish(where.store.objects / "pack")
            _carry_out(opened, result, entries)
    return done


def _carry_out(opened: Session, result: Result, entries: list[tuple[Name, Entry]]) -> None:
    ids = {old: new.id for old, new in result.captures.items()}
    names = {old.file: Name(entry.seq, entry.kind, entry.id).file for old, entry in entries}
    plan = Exchange(
        removed=tuple(old for old, new in names.items() if new != old),
        released=tuple(sorted(ids)),
        aliases=ids,
        forgets=True,
    )
    staged = Staged(
        history={names[old.file]: document.encode(entry) + b"\n" for old, entry in entries},
        agents=dict(_open_turns(opened.where, ids)),
        captures=tuple(sorted(ids.values())),
        purge=result.purged,
    )
    exchange.carry_out(opened.where, opened.git, plan, staged)


def _check_known(chosen: frozenset[RelPath], result: Result) -> None:
    """A mistyped path must not pass for one that was purged."""
    for path in sorted(chosen - result.known):
        raise FailedError(
            f"no capture holds {quote(path)}; nothing was changed", hint="`putback ls ID` shows what one holds"
        )


def _entries(opened: Session, captures: dict[str, Rewritten]) -> Iterator[tuple[Name, Entry]]:
    """The entries that name a rewritten capture, as they will be."""
    ids = {old: new.id for old, new in captures.items()}
    for name in opened.history.names():
        entry = opened.history.read(name)
        if not {entry.before, entry.after} & captures.keys():
            continue
        after = captures.get(entry.after)
        entry = msgspec.structs.replace(
            entry,
            id=ids.get(entry.id, entry.id) if entry.kind is EntryKind.SNAPSHOT else entry.id,
            before=ids.get(entry.before, entry.before),
            after=ids.get(entry.after, entry.after),
        )
        if after is not None:
            gone = frozenset(item.raw for item in after.record.not_covered if item.reason is Reason.FORGOTTEN)
            entry = msgspec.structs.replace(
                entry,
                files=after.record.files,
                bytes=after.record.bytes,
                not_covered=len(after.record.not_covered),
                # Why a path did not go back is told by digests of what stood there.
                declined=tuple(item for item in entry.declined if not paths.within(item.name, gone)),
            )
        yield name, entry


def _open_turns(where: WorkspacePaths, ids: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """The records of turns of coding agents that are open and began with a rewritten capture."""
    for path in where.open_turns():
        try:
            record = document.decode(read_file(path), OpenTurn, f"open turn {str(path)!r}")
        except (IntegrityError, OSError):
            continue  # nobody can end it, or it has just been ended
        if record.before in ids:
            yield path.name, document.encode(msgspec.structs.replace(record, before=ids[record.before])) + b"\n"


def _turns(where: WorkspacePaths) -> list[TurnFolder]:
    """Every exact-path turn on record of the workspace."""
    return [turn for folder in turn_folders(where.turns) for turn in folder]


def _touch(path: RelPath, chosen: frozenset[RelPath]) -> bool:
    """Whether one of the chosen paths is this one, or lies above or below it."""
    return paths.within(path, chosen) or any(path in set(paths.parents(other)) for other in chosen)


def _is_open(turn: TurnFolder) -> OutOfOrder:
    identity, short = turn.evidence.pending.turn, turn.capture_id[:12]
    return OutOfOrder(
        f"turn {identity.turn_id!r} holds the path and is {turn.evidence.state}; nothing was changed",
        hint=f"`putback turn seal {short}` or `putback turn resolve {short}` ends it",
    )


def _lost(turns: list[TurnFolder], captures: dict[str, Rewritten]) -> Iterator[str]:
    """The turns that cannot be taken back any more: an end of theirs is rewritten."""
    for turn in turns:
        if turn.evidence.ends & captures.keys():
            yield turn.evidence.pending.turn.turn_id
