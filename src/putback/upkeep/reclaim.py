"""Pack what is needed and drop what is not, beside other processes.

A round looks, under the store's lock, shared, what is needed, and writes ONE new pack in the place of some packs
and all loose objects. Then, under the lock held exclusively, for a moment, it looks again: whatever came to be
needed meanwhile and is not in the new pack keeps its old place until the next time. Only then old files go. A kill
at any point leaves an object twice, or a temporary file, and nothing less.

The caller holds no lock of the store or of a workspace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from putback import seams
from putback.errors import IntegrityError, LockedError, StorageError
from putback.fs import lock, modes
from putback.fs.durable import sync_directory
from putback.fs.filesystem import free_bytes, used_bytes
from putback.git import command, pack_file, repack
from putback.git.command import Git
from putback.git.present import Present
from putback.opening import refusals
from putback.records.upkeep import Reclaimed
from putback.upkeep import packing, sweep
from putback.upkeep.packing import Plan
from putback.upkeep.roots import Needed

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

NAME = "reclaim"
MOST_ROUNDS = 8
# How long others' captures may keep us from dropping what is dead; it is only put off.
PATIENCE_SECONDS = 5.0


def reclaim(upkeep: Upkeep, *, purge: frozenset[str] = frozenset()) -> Reclaimed:
    """See `Upkeep.reclaim`. Raises LockedError where something is to be purged; StorageError; GitUnavailable."""
    store = upkeep.where.store
    if not store.exists():
        return Reclaimed(bytes_before=0, bytes_after=0)
    before = used_bytes(store.root)
    try:
        with refusals(NAME), _alone(upkeep, wait=bool(purge)):
            work = _Reclaiming(upkeep, frozenset(map(bytes.fromhex, purge)))
            work.run()
    except LockedError:
        if purge:
            raise
        return Reclaimed(bytes_before=before, bytes_after=used_bytes(store.root), waiting=True)
    return Reclaimed(
        bytes_before=before,
        bytes_after=used_bytes(store.root),
        objects_dropped=work.dropped,
        leftovers_removed=work.swept,
        waiting=work.waiting,
        unreadable=len(work.needed.unreadable) + work.damaged,
        still_needed=tuple(sorted(oid.hex() for oid in work.still_needed)),
    )


@contextmanager
def _alone(upkeep: Upkeep, *, wait: bool) -> Iterator[None]:
    """Keep other reclaimers away: each counts on that nothing but itself drops objects."""
    store = upkeep.where.store
    if store.upkeep.is_symlink():
        # Whatever lies there is about to be swept away.
        raise StorageError(f"{str(store.upkeep)!r} is a symbolic link; nothing was reclaimed", hint="remove it")
    modes.directory(store.upkeep, store.modes)
    patience = upkeep.settings.store.lock_wait_seconds if wait else 0.0
    with lock.hold(store.upkeep / "lock", NAME, False, patience, upkeep.progress):
        yield


class _Reclaiming:
    """One call, alone at it. After `run`, the public attributes say what came of it."""

    def __init__(self, upkeep: Upkeep, purge: frozenset[bytes]) -> None:
        self.store = upkeep.where.store
        self.dropped = 0
        self.swept = 0
        self.waiting = False
        self.damaged = 0
        self.still_needed: set[bytes] = set()
        git = command.find(cancelled=upkeep.progress.cancelled).writing(self.store.modes)
        self.needed = Needed(self.store, git)
        self._git: Git = git.on(self.store.git_dir)
        self._upkeep = upkeep
        self._purge = purge

    def run(self) -> None:
        """Sweep, then go round until nothing is left that can be done now. Raises as `reclaim` does."""
        folder = self.store.upkeep
        self.swept += sweep.remove([path for path in folder.iterdir() if path.name != "lock"])
        self.swept += repack.sweep(self.store.objects / "pack")
        self.swept += sweep.workspace_leftovers(self.store)
        for number in range(MOST_ROUNDS):
            # Where others get in between again and again, the store has to be ours alone for what must be gone.
            more = self._round(held=bool(self._purge) and number >= 2)
            if not more and not self._unpurged():
                break
        if self._unpurged():
            raise LockedError("purge: other processes would not let go of it", hint="run the command again")

    def _round(self, *, held: bool) -> bool:
        """One round; whether another one could do more. `held`: with the exclusive lock for all of it."""
        if held:
            with self._lock(shared=False):
                plan, copied = self._write()
                return self._drop(plan, copied)
        with self._lock(shared=True):
            plan, copied = self._write()
        seams.reach("reclaim.packed")
        try:
            with self._lock(shared=False):
                return self._drop(plan, copied)
        except LockedError:
            if self._purge:
                raise
            self.waiting = True
            return False

    @contextmanager
    def _lock(self, *, shared: bool) -> Iterator[None]:
        wait = self._upkeep.settings.store.lock_wait_seconds
        if not self._purge and not shared:
            wait = min(wait, PATIENCE_SECONDS)
        with lock.hold(self.store.lock, NAME, shared, wait, self._upkeep.progress):
            yield

    def _write(self) -> tuple[Plan, set[bytes]]:
        """Choose what to write anew, and write it; the plan, and what is in the new pack."""
        self.needed.look()
        objects = self.store.objects
        loose = {bytes.fromhex(oid): path for oid, path in pack_file.loose(objects)}
        found = packing.packs(objects, self.needed)
        if self.needed.unreadable:
            plan = self._only_purge(loose, found)
        else:
            room = free_bytes(self.store.root) - self._upkeep.settings.store.min_free_bytes
            plan = packing.choose(found, loose, self.needed, room, self._purge)
        seams.reach("reclaim.chosen")
        names = {oid: self.needed.name(oid) for oid in plan.copied}
        folder = self.store.upkeep / os.urandom(8).hex()
        modes.directory(folder)
        try:
            new = repack.write(self._git, names, folder, objects / "pack")
        except IntegrityError:
            # Something that is needed is damaged. `check` says what; nothing can be moved without it.
            if self._purge:
                raise
            self.damaged = 1
            return Plan(), set()
        finally:
            sweep.remove([folder])
        # Packed again, the same objects may be the same pack.
        plan.packs = [pack for pack in plan.packs if pack.path != new]
        return plan, plan.copied

    def _only_purge(self, loose: dict[bytes, Path], found: list[packing.Pack]) -> Plan:
        """What else is dead nobody knows while something that is needed cannot be read."""
        plan = packing.choose([pack for pack in found if self._purge & pack.dead], {}, self.needed, 0, self._purge)
        for pack in plan.packs:
            plan.copied |= pack.dead - self._purge
        plan.loose = {oid: path for oid, path in loose.items() if oid in self._purge and oid not in self.needed}
        return plan

    def _drop(self, plan: Plan, copied: set[bytes]) -> bool:
        """Remove what the new pack stands for, and leftovers; the store's lock is held exclusively."""
        unreadable = len(self.needed.unreadable)
        kept = self.needed.look() - copied
        self.swept += sweep.store_leftovers(self.store)
        halves = sweep.without_index(self.store.git_dir)
        if halves and self.needed.all_there():
            self.swept += sweep.remove(halves)
        if len(self.needed.unreadable) > unreadable:
            # What hangs on it may be among what was taken for dead.
            self.waiting = True
            return False
        relied_on = all(path.exists() and path.with_suffix(".idx").exists() for path in plan.relied_on)
        done = False
        for pack in plan.packs:
            if kept & pack.dead or not (relied_on or not pack.spare - copied):
                self.waiting = True
                continue
            seams.reach("reclaim.drop")
            # Without its index a pack is nothing to git; the other way round it is damage.
            for suffix in (".idx", ".pack", ".rev", ".bitmap"):
                pack.path.with_suffix(suffix).unlink(missing_ok=True)
                seams.reach("reclaim.dropped")
            self.dropped += len(pack.dead - copied)
            done = True
        for oid, path in plan.loose.items():
            if oid in copied or oid not in self.needed:
                path.unlink(missing_ok=True)
                self.dropped += oid not in copied
                done = True
        for folder in {path.parent for path in plan.loose.values()}:
            with suppress(OSError):
                folder.rmdir()
        sync_directory(self.store.objects / "pack")
        self.waiting |= plan.postponed and not done
        return plan.postponed and done

    def _unpurged(self) -> set[bytes]:
        """What is to be purged, is still there, and is needed by nothing; what is needed is noted."""
        left = Present(self.store.objects)(list(self._purge)) if self._purge else set()
        self.still_needed = {oid for oid in left if oid in self.needed}
        return left - self.still_needed
