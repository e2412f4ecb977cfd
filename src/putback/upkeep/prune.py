"""Drop the entries that a policy does not keep, and what nothing needs then.

In this order, so that a kill at any point leaves no entry that cannot be restored: what is to go is put on record;
the entries go; the evidence of their runs goes; all refs go in one transaction, each with the value that it must
have; then the objects are reclaimed. The next prune ends what this one was killed at.

A record of the history that is damaged is never dropped, nor is any capture that it may name.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from putback import opening, seams
from putback.errors import IntegrityError, PutbackError, StorageError
from putback.fs.durable import read_file, sync_directory, write_file
from putback.git import command, refs
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.records import document
from putback.records.history import Entry, EntryKind
from putback.records.retention import Judged, Keep, Why
from putback.records.upkeep import Pruned, Pruning, Reclaimed, Vanished
from putback.store.history import History, Name
from putback.store.layout import WorkspacePaths
from putback.upkeep import retention, vanishing
from putback.upkeep.needed import ids_in, is_over, needed

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

Result = TypeVar("Result")


class Draft(msgspec.Struct, frozen=True):
    """What a policy would do, and what carrying that out takes: files, ids of runs, and ids of captures."""

    judged: tuple[Judged, ...]
    names: tuple[Name, ...]
    runs: tuple[str, ...]
    captures: tuple[str, ...]
    bare: int


def prune(upkeep: Upkeep, keep: Keep, *, vanished: bool, unmounted: bool, dry_run: bool) -> Pruned:
    """See `Upkeep.prune`."""
    draft = drop(upkeep, keep, dry_run=dry_run) if keep.rules else None
    gone: tuple[Vanished, ...] = ()
    if vanished:
        gone = _mended(upkeep, lambda: vanishing.drop(upkeep, unmounted=unmounted, dry_run=dry_run))
    reclaimed: Reclaimed | None = None
    if not dry_run and upkeep.where.store.exists():
        reclaimed = upkeep.reclaim()
    return Pruned(
        judged=() if draft is None else draft.judged,
        bare=0 if draft is None else draft.bare,
        vanished=gone,
        done=not dry_run,
        reclaimed=reclaimed,
    )


def drop(upkeep: Upkeep, keep: Keep, *, dry_run: bool = False) -> Draft | None:
    """Drop what `keep` does not keep in this workspace, and reclaim nothing; None where there is none."""
    return _mended(upkeep, lambda: _drop(upkeep, keep, dry_run=dry_run))


def _mended(upkeep: Upkeep, act: Callable[[], Result]) -> Result:
    """Do it; once more where git refuses, for the lock files of a killed git may be why. They go first."""
    try:
        return act()
    except IntegrityError:
        upkeep.reclaim()
        return act()


def _drop(upkeep: Upkeep, keep: Keep, *, dry_run: bool) -> Draft | None:
    where = upkeep.where
    if not where.exists():
        return None
    with locked(upkeep, where, upkeep.settings.store.lock_wait_seconds) as git:
        draft = _draft(where, git, keep)
        if not dry_run:
            _carry_out(where, git, draft)
    return draft


@contextmanager
def locked(upkeep: Upkeep, where: WorkspacePaths, wait_seconds: float, *, strict: bool = True) -> Iterator[Git]:
    """Hold the locks as `opening.locked` does; gives git bound to the private repository.

    Raises LockedError, Cancelled, GitUnavailable, StorageError and IntegrityError.
    """
    git = command.find(cancelled=upkeep.progress.cancelled).writing(where.store.modes).on(where.store.git_dir)
    where.prepare()
    with (
        opening.refusals("prune"),
        opening.locked(where.store, [where], git, "prune", wait_seconds, upkeep.progress, strict=strict),
    ):
        yield git


def _draft(where: WorkspacePaths, git: Git, keep: Keep) -> Draft:
    history = History(where.history)
    entries, damaged = _read(history)
    anchored = frozenset(refs.anchored(git, where.name))
    bound = needed(where, anchored | {oid for entry in entries for oid in (entry.id, entry.before, entry.after)})
    judged = retention.judge(entries, keep, bound, time.time_ns())
    kept = {item.id for item in judged if item.kept}
    staying = [entry for entry in entries if entry.id in kept]
    going = [entry for entry in entries if entry.id not in kept]
    earlier = _earlier(where)

    named = _captures(staying) | bound.keys()
    for name in damaged:
        named |= {name.id} | ids_in(history.folder / name.file)
    free = anchored - named
    doomed = free & (_captures(going) | frozenset(earlier.captures))
    bare = frozenset[str]() if damaged else _forgotten(git, free - doomed, staying)
    runs = {entry.id for entry in going if entry.kind is EntryKind.RUN} | set(earlier.runs)
    return Draft(
        judged=_in_order([*judged, *map(_damaged, damaged)], history),
        names=tuple(_name(entry) for entry in going),
        runs=tuple(sorted(runs - {entry.id for entry in staying} - {name.id for name in damaged})),
        captures=tuple(sorted(doomed | bare)),
        bare=len(bare),
    )


def _read(history: History) -> tuple[list[Entry], list[Name]]:
    entries: list[Entry] = []
    damaged: list[Name] = []
    for name in history.names():
        try:
            entries.append(history.read(name))
        except (IntegrityError, StorageError):
            damaged.append(name)
    return entries, damaged


def _in_order(judged: list[Judged], history: History) -> tuple[Judged, ...]:
    verdicts = {item.id: item for item in judged}
    return tuple(verdicts[name.id] for name in history.names())


def _damaged(name: Name) -> Judged:
    problem = "the record of this entry is damaged"
    return Judged(id=name.id, kind=name.kind, created_ns=0, message=problem, kept=(Why.DAMAGED,))


def _name(entry: Entry) -> Name:
    return Name(entry.seq, entry.kind, entry.id)


def _captures(entries: list[Entry]) -> set[str]:
    return {oid for entry in entries for oid in (entry.id, entry.before, entry.after) if oid}


def _earlier(where: WorkspacePaths) -> Pruning:
    """What an earlier prune was killed at. A record that is damaged costs disk, nothing else."""
    try:
        return document.decode(read_file(where.pruning), Pruning, "record of a prune")
    except (OSError, IntegrityError):
        return Pruning()


def _forgotten(git: Git, captures: Set[str], staying: list[Entry]) -> frozenset[str]:
    """Those of the captures without an entry that are older than every entry that stays.

    Somebody may hold the id of a younger one. One that cannot be read tells no age, and stays.
    """
    if not captures or not staying:
        return frozenset(captures)
    oldest = min(entry.created_ns for entry in staying) // 10**9
    found: set[str] = set()
    with ObjectReader(git) as reader:
        for oid in captures:
            with suppress(PutbackError, ValueError, IndexError):
                header = reader.read(oid, "commit").partition(b"\n\n")[0]
                if int(header.rsplit(b" ", 2)[1]) < oldest:
                    found.add(oid)
    return frozenset(found)


def _carry_out(where: WorkspacePaths, git: Git, draft: Draft) -> None:
    if draft.names or draft.runs or draft.captures:
        write_file(where.pruning, document.encode(Pruning(captures=draft.captures, runs=draft.runs)) + b"\n")
        seams.reach("prune.recorded")
        for name in draft.names:
            (where.history / name.file).unlink()
            seams.reach("prune.unlisted")
        sync_directory(where.history)
        _drop_runs(where, draft.runs)
        seams.reach("prune.runs_dropped")
        if draft.captures:
            refs.release(git, where.name, list(draft.captures))
        seams.reach("prune.released")
    where.pruning.unlink(missing_ok=True)


def _drop_runs(where: WorkspacePaths, runs: tuple[str, ...]) -> None:
    """Take the folders away, each in one step: a half of one would pass for a run that has no end."""
    doomed = []
    for run in runs:
        folder = where.runs / run
        if folder.is_dir() and is_over(folder):
            folder.rename(where.scratch / run)
            doomed.append(where.scratch / run)
    if doomed:
        sync_directory(where.scratch)
        sync_directory(where.runs)
    for folder in doomed:
        seams.reach("prune.evidence")
        shutil.rmtree(folder, ignore_errors=True)
