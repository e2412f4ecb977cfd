"""Which packs and loose objects to write anew, as one pack, and which to leave alone.

Geometric: a pack stays as it is while it is at least twice as large as all smaller ones together, and little in it
is dead. So every object is copied a few times at most, however often this runs. An object belongs to the newest
pack that has it; in older ones it is as good as dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from putback.git import pack_file
from putback.git.pack_index import PackIndex
from putback.upkeep.roots import Needed

FACTOR = 2
# Of a pack's bytes; beyond it, the pack is written anew without them.
DEAD_SHARE = 0.25
# Larger packs are left alone until enough in them is dead; it also bounds what one round may write.
MOST_BYTES = 1 << 30


class Pack(msgspec.Struct):
    """A pack. `own` are the needed objects that no newer pack has, with their bytes in it; `spare` are those that
    one of `owners` has, too; `dead` are those that nothing needs."""

    path: Path
    size: int
    own: dict[bytes, int] = {}
    spare: set[bytes] = set()
    dead: set[bytes] = set()
    dead_bytes: int = 0
    owners: set[Path] = set()

    @property
    def own_bytes(self) -> int:
        return sum(self.own.values())

    @property
    def wasteful(self) -> bool:
        return self.dead_bytes >= DEAD_SHARE * self.size


class Plan(msgspec.Struct):
    """What a round does: `packs` and `loose` are to go once `copied` are in a new pack. `postponed` says that more
    would be to do, `relied_on` which packs have what is not copied."""

    packs: list[Pack] = []
    loose: dict[bytes, Path] = {}
    copied: set[bytes] = set()
    relied_on: set[Path] = set()
    postponed: bool = False


def packs(objects: Path, needed: Needed) -> list[Pack]:
    """Every pack of a directory of objects, smallest first. One whose index cannot be read is passed over, and so
    is one that somebody has marked to be kept. Raises OSError."""
    found: list[tuple[int, PackIndex]] = []
    for idx in sorted((objects / "pack").glob("pack-*.idx")):
        pack = idx.with_suffix(".pack")
        if not pack.with_suffix(".keep").exists():
            with suppress(ValueError, FileNotFoundError):
                found.append((pack.stat().st_mtime_ns, PackIndex(pack)))
    owner: dict[bytes, Path] = {}
    made = [_look(index, needed, owner) for _, index in sorted(found, key=lambda item: item[0], reverse=True)]
    return sorted(made, key=lambda pack: pack.size)


def _look(index: PackIndex, needed: Needed, owner: dict[bytes, Path]) -> Pack:
    pack = Pack(index.pack, index.size)
    for oid, size in index.sizes():
        if oid not in needed:
            pack.dead.add(oid)
        elif owner.setdefault(oid, pack.path) == pack.path:
            pack.own[oid] = size
            continue
        else:
            pack.spare.add(oid)
            pack.owners.add(owner[oid])
        pack.dead_bytes += size
    return pack


def choose(
    found: list[Pack], loose: dict[bytes, Path], needed: Needed, room: int, purge: frozenset[bytes]
) -> Plan:
    """What to do in one round, with `room` bytes to write; more only for what is to be purged."""
    plan = Plan(loose={oid: path for oid, path in loose.items() if oid not in needed})
    live = {oid: path for oid, path in loose.items() if oid in needed}
    must = [pack for pack in found if purge & pack.dead]
    rest = [pack for pack in found if pack not in must]
    # An older content of what is purged may be dead since long, and nobody knows its id any more.
    wasteful = [pack for pack in rest if pack.wasteful or (purge and pack.dead)]
    rest = [pack for pack in rest if pack not in wasteful and pack.size < MOST_BYTES]
    written = sum(pack.own_bytes for pack in must)
    loose_bytes = _size(live.values())
    if live and written + loose_bytes <= room:
        plan.loose |= live
        plan.copied |= live.keys()
        written += loose_bytes
    elif live:
        plan.postponed = True
    base = written + sum(pack.own_bytes for pack in wasteful if pack.own_bytes < MOST_BYTES)
    for pack in (*must, *sorted(wasteful, key=lambda pack: pack.own_bytes), *rolled_up(rest, base)):
        cost = 0 if pack in must else pack.own_bytes
        if cost and written + cost > min(room, max(MOST_BYTES, cost)):
            plan.postponed = True
            continue
        written += cost
        plan.packs.append(pack)
        plan.copied |= pack.own.keys()
    _settle(plan, found)
    return plan


def rolled_up(found: list[Pack], base: int) -> list[Pack]:
    """Of packs by size, those that are not twice as large as `base` and all smaller ones together."""
    sums = [base]
    for pack in found:
        sums.append(sums[-1] + pack.size)
    small = [at for at, pack in enumerate(found) if pack.size < FACTOR * sums[at]]
    return found[: small[-1] + 1] if small else []


def _settle(plan: Plan, found: list[Pack]) -> None:
    """Copy also what packs that stay may not be relied on to have."""
    going = {pack.path for pack in plan.packs}
    relied_on = {owner for pack in plan.packs for owner in pack.owners} - going
    whole = {path for path in relied_on if _is_whole(path)}
    plan.relied_on = whole
    sound = {oid for pack in found if pack.path in whole for oid in pack.own}
    for pack in plan.packs:
        plan.copied |= pack.spare - sound


def _is_whole(pack: Path) -> bool:
    """Whether a pack is what its own checksum says; reads all of it."""
    with suppress(OSError):
        return not pack_file.checksum_fault(pack)
    return False


def _size(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
