"""Exchange the history of a workspace and its refs for another one: all of it, or nothing.

    <workspace>/exchange/
        anchoring       ids of the captures that get a ref before the exchange is decided
        history/        entries that come, by the names they will have
        agents/         records of open turns that come
        purge           ids of contents that have to leave the disk afterwards
        plan.json       decides: from here on the exchange is certain
        moved/          the folder of a workspace whose records become this one's

What is killed before the plan is there has changed nothing: the next command takes the folder away, and the refs
of its captures. What is killed later, the next command brings to its end; each step may be done twice. An entry
that comes is there before the one that goes is taken away, so that whoever reads without a lock misses none.

Everything here is called under the workspace's lock.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from putback import seams
from putback.errors import IntegrityError, StorageError
from putback.fs import modes
from putback.fs.durable import read_file, side_by_side, sync_directory, sync_file, write_cache, write_file
from putback.git import refs
from putback.git.command import Git
from putback.records import document
from putback.records.exchange import Aliases, Exchange
from putback.store.history import History
from putback.store.layout import WorkspaceFile, WorkspacePaths

_ID = re.compile(r"\b[0-9a-f]{64}\b")
_PLAN, _ANCHORING, _PURGE = "plan.json", "anchoring", "purge"


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What comes: entries of the history and records of open turns by file name, captures that get a ref, and
    contents that have to leave the disk."""

    history: Mapping[str, bytes] = {}
    agents: Mapping[str, bytes] = {}
    captures: tuple[str, ...] = ()
    purge: frozenset[str] = frozenset()


def carry_out(where: WorkspacePaths, git: Git, plan: Exchange, staged: Staged) -> None:
    """Exchange. The objects of captures that come are in the store; nothing is left of an earlier exchange, for
    opening a session sees to that. Raises StorageError.

    What it raises before the plan is on disk leaves everything as it was; later on, `settle` goes on.
    """
    place = where.exchange
    try:
        modes.directory(place)
        for name, files in (("history", staged.history), ("agents", staged.agents)):
            _stage(place / name, files)
        if staged.purge:
            write_file(place / _PURGE, _lines({*staged.purge, *purging(where)}))
        write_file(place / _ANCHORING, _lines(staged.captures))
        sync_directory(where.folder)
        seams.reach("exchange.staged")
        refs.anchor_all(git, where.name, staged.captures)
        seams.reach("exchange.anchored")
        write_file(place / _PLAN, document.encode(plan) + b"\n")
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error
    seams.reach("exchange.decided")
    settle(where, git)


def settle(where: WorkspacePaths, git: Git) -> None:
    """Bring an exchange that was decided to its end, and take away what was left of one that was not.

    `git` is bound to the store's repository. Raises StorageError, and IntegrityError where the plan is damaged.
    """
    place = where.exchange
    try:
        if not place.exists():
            return
        try:
            plan = _plan(where)
        except FileNotFoundError:
            refs.release_present(git, where.name, _read_lines(place / _ANCHORING))
        else:
            _finish(where, git, plan)
        seams.reach("exchange.closed")
        shutil.rmtree(place)
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error


def fault(where: WorkspacePaths) -> str:
    """Why nobody can bring the exchange that is under way to its end; empty where there is none, or one can."""
    if not os.path.lexists(where.exchange):
        return ""
    try:
        _plan(where)
    except FileNotFoundError:
        return "" if where.exchange.is_dir() and not where.exchange.is_symlink() else "it is no directory"
    except IntegrityError as error:
        return error.message
    except OSError as error:
        return error.strerror or "it cannot be read"
    return ""


def moving(where: WorkspacePaths) -> str:
    """The name of the workspace whose records are on their way to this one; empty where there is none."""
    with suppress(OSError, IntegrityError):
        return _plan(where).moved
    return ""


def moved(where: WorkspacePaths) -> WorkspacePaths:
    """Where the folder of the workspace is, once it was taken, whose records are on their way to this one."""
    return WorkspacePaths(where.store, where.exchange / "moved", where.root)


def purging(where: WorkspacePaths) -> frozenset[str]:
    """The ids of contents that were forgotten and may still be on the disk. Raises StorageError."""
    try:
        return frozenset(_read_lines(where.purge))
    except OSError as error:
        raise StorageError(f"cannot read {str(where.purge)!r}: {error.strerror}") from error


def purged(where: WorkspacePaths, gone: frozenset[str]) -> None:
    """These are off the disk; what came to be forgotten meanwhile may not be. Raises StorageError."""
    try:
        left = purging(where) - gone
        if left:
            write_file(where.purge, _lines(left))
        else:
            where.purge.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error


def _finish(where: WorkspacePaths, git: Git, plan: Exchange) -> None:
    place = where.exchange
    taken = _take_over(where, git, plan) if plan.moved else None
    _write_aliases(where, plan, taken)
    seams.reach("exchange.aliased")
    _move_files(place / "history", where.history)
    seams.reach("exchange.entered")
    for name in plan.removed:
        (where.history / name).unlink(missing_ok=True)
    if taken is not None:
        _move_files(taken.history, where.history)
    if where.history.exists():
        sync_directory(where.history)
    seams.reach("exchange.recorded")
    _move_files(place / "agents", where.agents)
    if taken is not None:
        _move_records(taken, where)
        _remember(where, plan)
    if plan.forgets:
        _drop_caches(where)
    with suppress(FileNotFoundError):
        (place / _PURGE).replace(where.purge)
    sync_directory(where.folder)
    seams.reach("exchange.releasing")
    refs.release_present(git, where.name, plan.released)
    seams.reach("exchange.released")
    # Without the plan the folder would be taken for that of an exchange which was never decided.
    (place / _ANCHORING).unlink(missing_ok=True)
    sync_directory(place)
    (place / _PLAN).unlink()


def _plan(where: WorkspacePaths) -> Exchange:
    path = where.exchange / _PLAN
    return document.decode(read_file(path), Exchange, f"plan {str(path)!r}")


def _stage(folder: Path, files: Mapping[str, bytes]) -> None:
    if not files:
        return
    modes.directory(folder)
    for name, data in files.items():
        write_cache(folder / name, data)
    side_by_side(sync_file, [folder / name for name in files])
    sync_directory(folder)


def _take_over(where: WorkspacePaths, git: Git, plan: Exchange) -> WorkspacePaths:
    """Take the other workspace's folder out of everybody's sight, and its refs over."""
    old, taken = where.folder.with_name(plan.moved), moved(where)
    if not taken.folder.exists():
        old.rename(taken.folder)
        for folder in (taken.folder.parent, old.parent):
            sync_directory(folder)
    seams.reach("exchange.taken")
    refs.transfer(git, plan.moved, where.name, plan.moved_captures)
    seams.reach("exchange.transferred")
    return taken


def _write_aliases(where: WorkspacePaths, plan: Exchange, taken: WorkspacePaths | None) -> None:
    """Add to the table; what stood for an id that is itself replaced now stands for the newest one."""
    known = History(where.history).aliases()
    if taken is not None:
        known |= History(taken.history).aliases()
    ids = {old: plan.aliases.get(new, new) for old, new in known.items()} | plan.aliases
    if ids:
        write_file(where.aliases, document.encode(Aliases(ids=ids)) + b"\n")


def _move_files(source: Path, target: Path) -> None:
    """Give every file of one folder its name in the other, in the place of whatever has it there."""
    if not source.exists():
        return
    modes.directory(target)
    for path in _below(source):
        path.replace(target / path.name)
    sync_directory(target)


def _move_records(taken: WorkspacePaths, where: WorkspacePaths) -> None:
    """Runs, turns and open turns of the other workspace; caches, where there are none here."""
    for source, target in ((taken.runs, where.runs), (taken.agents, where.agents)):
        _merge(source, target)
    for binding in _below(taken.turns):
        for generation in _below(binding):
            _place(generation, where.turns / binding.name)
    if not where.index.exists():
        for cache in (taken.state, taken.index):
            with suppress(FileNotFoundError):
                cache.rename(where.folder / cache.name)


def _merge(source: Path, target: Path) -> None:
    for path in _below(source):
        modes.directory(target)
        if not (target / path.name).exists():
            path.rename(target / path.name)
    if target.exists():
        sync_directory(target)


def _place(generation: Path, binding: Path) -> None:
    """Keep the evidence of a binding that was released; one of the same number here has the number to itself."""
    modes.directory(binding)
    name = generation.name
    if name.isdecimal() and (binding / name).exists():
        name = str(max(int(path.name) for path in _below(binding) if path.name.isdecimal()) + 1)
    if not (binding / name).exists():
        generation.rename(binding / name)
    sync_directory(binding)


def _remember(where: WorkspacePaths, plan: Exchange) -> None:
    """Note in the workspace's record where it was before, after whatever the other one's has of that."""
    here = where.identity()
    if here is None:
        raise IntegrityError(f"the workspace record {str(where.marker)!r} is gone")
    marker = moved(where).marker
    there = document.decode(read_file(marker), WorkspaceFile, f"workspace record {str(marker)!r}")
    former = dict.fromkeys((*there.former_b64, *here.former_b64, plan.moved_root_b64))
    record = msgspec.structs.replace(
        here, former_b64=tuple(former), created_ns=min(here.created_ns, there.created_ns)
    )
    write_file(where.marker, document.encode(record) + b"\n")


def _drop_caches(where: WorkspacePaths) -> None:
    """Whatever promises a content that is about to be purged, or was being written while it was there."""
    for path in (where.state, where.index):
        path.unlink(missing_ok=True)
    for folder in (where.digests().folder, where.scratch):
        shutil.rmtree(folder, ignore_errors=True)
    modes.directory(where.scratch)


def _below(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from sorted(Path(entry.path) for entry in list(os.scandir(folder)))


def _lines(ids: Iterable[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in sorted(ids)).encode()


def _read_lines(path: Path) -> list[str]:
    """The ids in a list; what is none is passed over."""
    try:
        return _ID.findall(read_file(path).decode("ascii", "replace"))
    except FileNotFoundError:
        return []
