"""From objects that are bad to what cannot come back, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable

from putback.records.upkeep import Damage, Lost, Part
from putback.upkeep.papers import Need
from putback.upkeep.walk import Captured, Walk, entries, is_tree


def losses(walk: Walk, needs: Iterable[Need]) -> list[Damage]:
    """What is lost of each capture that is needed; those of which nothing is lost are not mentioned."""
    found = walk.found
    if not found.bad:
        return []
    tainted = _Tainted(walk)
    told: dict[tuple[str, str], Damage] = {}
    for need in needs:
        captured = found.captured.get(need.capture)
        if captured is None or (need.capture, need.entry) in told:
            continue
        damage = _of(need, captured, tainted)
        if damage is not None:
            told[need.capture, need.entry] = damage
    entered = {capture for capture, entry in told if entry}
    return [damage for (capture, entry), damage in told.items() if entry or capture not in entered]


def _of(need: Need, captured: Captured, tainted: _Tainted) -> Damage | None:
    fault = captured.fault
    lost: list[Lost] = []
    if not fault and captured.files in tainted.bad:
        fault = f"its top directory: {tainted.bad[captured.files]}"
    if not fault:
        lost = tainted.below(captured.files, staged=False)
        if captured.staged:
            lost += tainted.below(captured.staged, staged=True)
        if not lost:
            return None
    if fault:
        problem = f"nothing of {need.what} can come back: {fault}"
    else:
        problem = f"{_count(lost, captured)} of {need.what} cannot come back"
    return Damage(
        part=Part.OBJECT,
        problem=problem,
        workspace=need.workspace,
        entry=need.entry,
        capture=need.capture,
        whole=bool(fault),
        lost=tuple(lost),
    )


def _count(lost: list[Lost], captured: Captured) -> str:
    files = sum(not item.below for item in lost)
    directories = len(lost) - files
    total = captured.record.files if captured.record is not None else 0
    parts = []
    if files:
        parts.append(f"{files:,} of {total:,} files" if total > 1 else "the file")
    if directories:
        parts.append("1 whole directory" if directories == 1 else f"{directories:,} whole directories")
    return " and ".join(parts)


class _Tainted:
    """The trees that hold anything bad, at any depth, so that only those are looked into."""

    def __init__(self, walk: Walk) -> None:
        self.bad = walk.found.bad
        self._walk = walk
        self._content: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        parents: dict[str, list[str]] = {}
        waiting: list[str] = []
        sound = [oid for oid in walk.found.trees if oid not in self.bad]
        for oid, data in walk.trees(sound):
            children = list(entries(data))
            for mode, _, child in children:
                if is_tree(mode):
                    parents.setdefault(child.hex(), []).append(oid)
            if any(child.hex() in self.bad for _, _, child in children):
                waiting.append(oid)
        self._dirty: set[str] = set()
        while waiting:
            oid = waiting.pop()
            if oid not in self._dirty:
                self._dirty.add(oid)
                waiting += parents.get(oid, [])

    def below(self, top: str, *, staged: bool) -> list[Lost]:
        """What is lost of a tree, in path order; a directory stands for all that is in it."""
        if top in self.bad:
            return [Lost(path=".", object=top, below=True, staged=staged)]
        found: list[Lost] = []
        waiting = [(top, b"")] if top in self._dirty else []
        while waiting:
            oid, prefix = waiting.pop()
            for mode, name, child in self._entries(oid):
                hexed, path = child.hex(), prefix + name
                if hexed in self.bad:
                    found.append(Lost.at(path, object=hexed, below=is_tree(mode), staged=staged))
                elif hexed in self._dirty:
                    waiting.append((hexed, path + b"/"))
        return sorted(found, key=lambda item: item.name)

    def _entries(self, oid: str) -> list[tuple[bytes, bytes, bytes]]:
        if oid not in self._content:
            self._content[oid] = [item for _, data in self._walk.trees([oid]) for item in entries(data)]
        return self._content[oid]
