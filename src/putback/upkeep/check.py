"""Is everything that the history names there, and sound? And, where asked: put right what can be put right.

A check alone changes nothing but what any command does: it ends an exchange of the history that was killed. A
repair sets aside and never deletes; what it says it has repaired it has looked at once more.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

import msgspec

from putback import opening
from putback.errors import PutbackError, UnknownId
from putback.fs.durable import read_file, write_cache
from putback.git import command
from putback.paths import quote
from putback.progress import Shield
from putback.records.upkeep import Checked, Damage, Part
from putback.store.layout import Store, WorkspacePaths
from putback.upkeep import papers, refill, repair, survey
from putback.upkeep.repair import Repair
from putback.upkeep.survey import Survey

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

Chosen = Callable[[bytes], bool]
_CIRCLE = 1 << 32
_PLACE = struct.Struct(">I")


def check(upkeep: Upkeep, *, read_share: float, repair: bool, everything: bool = False) -> Checked:
    """See `Upkeep.check`. Raises UnknownId where nothing was ever captured, LockedError, StorageError."""
    with opening.refusals("check"):
        return _Checker(upkeep, read_share, everything).run(repair=repair)


class _Checker:
    """One check, of one workspace or of all."""

    def __init__(self, upkeep: Upkeep, read_share: float, everything: bool) -> None:
        self._upkeep = upkeep
        self._store = upkeep.where.store
        self._share = read_share
        self._progress = Shield(upkeep.progress)
        self._git = command.find(cancelled=self._progress.cancelled)
        self._places = self._choose(everything)
        self._first = next_place(self._store)
        self._chosen = window(self._first, read_share)

    def run(self, *, repair: bool) -> Checked:
        if not self._places:
            return Checked(entries=0, objects=0, bytes_read=0)
        with self._locked(shared=True):
            before = self._survey()
        if 0 < self._share < 1:
            keep_place(self._store, self._first + int(self._share * _CIRCLE))
        return self._repaired(before) if repair and before.damage else before.answer()

    def _repaired(self, before: Survey) -> Checked:
        """Put right what can be, look again, and say of each fault what became of it."""
        done = Repair(self._upkeep.where, before, self._git)
        done.marker()
        with self._locked(shared=False):
            sources = refill.sources(before)
            done.carry_out()
        if before.bad:
            refill.capture_anew(self._upkeep, before.bad)
        with self._locked(shared=True):
            refill.refill(self._upkeep.where, self._git, before, sources, self._progress)
            done.records()
            after = self._survey()
        left = {_key(item): item for item in after.damage}
        told = [_shrunk(left[_key(item)], item) for item in before.damage if _key(item) in left]
        told += [item for key, item in left.items() if key not in {_key(old) for old in before.damage}]
        told += done.gone
        gone = {item.entry for item in done.gone}
        for item in before.damage:
            if _key(item) not in left and not (item.part is Part.ENTRY and item.entry in gone):
                told.append(msgspec.structs.replace(item, whole=False, lost=(), repaired=repair.told(item)))
        return msgspec.structs.replace(after.answer(), damage=tuple(told))

    def _survey(self) -> Survey:
        git = self._git.on(self._store.git_dir)
        return survey.survey(
            self._store, git, self._places, self._chosen, whole=self._share >= 1, progress=self._progress
        )

    def _choose(self, everything: bool) -> list[WorkspacePaths]:
        ours = self._upkeep.where
        if not ours.folder.is_dir() and not everything:
            raise UnknownId(
                f"nothing was ever captured of {quote(ours.root)}",
                hint="`putback snapshot` takes the first capture",
            )
        if not everything:
            return [ours]
        found = {where.name: where for where in papers.workspaces(self._store)}
        if ours.name in found:
            # Its own record may be the one that is damaged.
            found[ours.name] = ours
        return list(found.values())

    def _locked(self, *, shared: bool) -> AbstractContextManager[None]:
        """The locks of the workspaces and of the store; where that is ours alone, nobody is at work."""
        wait = self._upkeep.settings.store.lock_wait_seconds
        return opening.locked(
            self._store, self._places, self._git, "check", wait, self._progress, shared=shared, strict=False
        )


def _key(item: Damage) -> tuple[str, ...]:
    if item.part is Part.OBJECT and item.capture:
        # How much of it is lost may change, so the words may, too.
        return (item.part, item.workspace, item.entry, item.capture)
    return (item.part, item.workspace, item.entry, item.problem)


def _shrunk(now: Damage, before: Damage) -> Damage:
    """What is left of a fault, with how much of it came back."""
    back = len(before.lost) - len(now.lost)
    if back <= 0 or now.whole:
        return now
    return msgspec.structs.replace(now, problem=f"{now.problem}; {back:,} more were found and are stored again")


def window(first: int, share: float) -> Chosen:
    """Which contents a check hashes, by raw id: a share of the circle of ids, which are as good as random."""
    if share >= 1:
        return lambda oid: True
    width = int(share * _CIRCLE)
    return lambda oid: (int.from_bytes(oid[:4], "big") - first) % _CIRCLE < width


def next_place(store: Store) -> int:
    """Where on the circle the last check of a share ended, so that twenty of 5 % read everything."""
    try:
        (place,) = _PLACE.unpack(read_file(store.root / "checked"))
        return int(place)
    except (OSError, struct.error):
        return random.randrange(_CIRCLE)


def keep_place(store: Store, place: int) -> None:
    """Where the next check of a share begins. Where that cannot be kept, chance decides."""
    with suppress(OSError, PutbackError):
        write_cache(store.root / "checked", _PLACE.pack(place % _CIRCLE), store.modes)
