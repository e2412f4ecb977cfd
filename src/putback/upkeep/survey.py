"""One look at the store: its files, the records of some workspaces, and everything that those name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from putback.git.command import Git
from putback.git.index import DamagedIndex, read_index, record_oid
from putback.git.objects import ObjectReader
from putback.ops import state
from putback.progress import Progress
from putback.records.capture import Purpose
from putback.records.history import EntryKind
from putback.records.upkeep import Checked, Damage, Part
from putback.store.history import Name
from putback.store.layout import Store, WorkspacePaths
from putback.upkeep import damage, papers, shelves
from putback.upkeep.papers import Papers
from putback.upkeep.shelves import Refs, Shelves
from putback.upkeep.walk import Walk

_HEALS = "it heals itself at the next capture, nothing is lost"


class Survey(msgspec.Struct):
    """What was found. `stale` are the workspaces whose private index names contents that the store has lost."""

    store: Store
    papers: list[Papers]
    shelves: Shelves
    refs: Refs
    bad: dict[str, str] = {}
    captures: set[str] = set()
    damage: list[Damage] = []
    stale: list[WorkspacePaths] = []
    unanchored: dict[str, list[str]] = {}
    unlisted: list[str] = []
    objects: int = 0
    bytes_read: int = 0

    def answer(self) -> Checked:
        """The result for whoever asked."""
        return Checked(
            entries=sum(len(each.entries) + len(each.faulty) for each in self.papers),
            objects=self.objects,
            bytes_read=self.bytes_read,
            damage=tuple(self.damage),
            unlisted=tuple(self.unlisted),
            leftovers=self.shelves.leftovers + sum(papers.leftover_files(each.where) for each in self.papers),
        )


def survey(
    store: Store,
    git: Git,
    places: Sequence[WorkspacePaths],
    chosen: Callable[[bytes], bool],
    *,
    whole: bool,
    progress: Progress,
) -> Survey:
    """Look at everything; of contents, hash those that are `chosen` by raw id, of packs all with `whole`.

    The caller holds the locks of the workspaces, and that of the store. Raises OSError, StorageError, Cancelled.
    """
    found = Survey(
        store,
        [papers.read(where) for where in places],
        shelves.look(store, git, chosen, whole, progress),
        shelves.read_refs(store),
    )
    if found.papers:
        papers.claims(found.papers[0])
    with ObjectReader(git) as reader:
        walk = Walk(store, git, reader, progress)
        _walk(found, walk, chosen)
    progress.finish()
    _tell(found, walk)
    return found


def _walk(found: Survey, walk: Walk, chosen: Callable[[bytes], bool]) -> None:
    named = {need.capture: None for each in found.papers for need in each.needs}
    for each in found.papers:
        named |= dict.fromkeys(sorted(found.refs.captures.get(each.where.name, ())))
    walk.captures(list(named))
    indexed: dict[str, set[bytes]] = {}
    for each in found.papers:
        indexed[each.where.name] = _index(each)
    suspect = found.shelves.suspect
    extra = set[bytes]().union(*indexed.values())
    walk.contents(lambda oid: chosen(oid) or oid in suspect, extra)
    found.bad = walk.found.bad
    found.captures = set(walk.found.captured)
    found.objects = len(walk.found.captured) + len(walk.found.trees) + len(walk.found.blobs)
    found.bytes_read = walk.found.bytes_read
    lost = {bytes.fromhex(oid) for oid in found.bad}
    found.stale = [each.where for each in found.papers if not indexed[each.where.name].isdisjoint(lost)]
    if lost:
        known = {each.where.name for each in found.papers}
        found.stale += [
            where for where in papers.workspaces(found.store) if where.name not in known and _names(where, lost)
        ]


def _index(each: Papers) -> set[bytes]:
    """The contents that the private index of a workspace promises."""
    where = each.where
    try:
        promised = {record_oid(record) for record in read_index(where.index).values()}
    except (DamagedIndex, OSError) as error:
        each.fault(Part.INDEX, f"the private index of {where.name} is damaged ({error}); {_HEALS}")
        return set()
    if state.is_damaged(where.state):
        each.fault(Part.INDEX, f"what the last scan of {where.name} learned is damaged; {_HEALS}")
    return promised


def _names(where: WorkspacePaths, oids: set[bytes]) -> bool:
    try:
        return any(record_oid(record) in oids for record in read_index(where.index).values())
    except (DamagedIndex, OSError):
        return False


def _tell(found: Survey, walk: Walk) -> None:
    """Everything that is wrong, worst first: what cannot come back, then what may be put right."""
    needs = [need for each in found.papers for need in each.needs]
    named = {need.capture for need in needs}
    for each in found.papers:
        anchored = found.refs.captures.get(each.where.name, set())
        for capture_id in sorted(anchored - named):
            record = walk.found.captured[capture_id].record
            if record is not None and record.purpose is not Purpose.SNAPSHOT:
                continue  # it was made on the way to something that came to nothing; nobody asked for it
            needs.append(papers.Need(capture_id, f"capture {capture_id[:12]} (in no entry)", each.where.name))
            if record is not None:
                found.unlisted.append(capture_id)
    found.damage += damage.losses(walk, needs)
    for each in found.papers:
        _compare(each, walk)
        _compare_turns(each, walk)
    for each in found.papers:
        found.damage += each.damage
        _anchors(found, each, walk)
    for where in found.stale:
        text = f"the private index of {where.name} names contents that are lost, so captures would name them, too"
        found.damage.append(Damage(part=Part.INDEX, problem=text, workspace=where.name))
    _files(found)


def _compare(each: Papers, walk: Walk) -> None:
    """A snapshot's entry and its capture say the same of it."""
    for entry in list(each.entries):
        captured = walk.found.captured.get(entry.after)
        record = None if captured is None else captured.record
        if entry.kind is not EntryKind.SNAPSHOT or record is None:
            continue
        if (entry.message, entry.created_ns) != (record.message, record.created_ns):
            each.entries.remove(entry)
            each.faulty.append(Name(entry.seq, entry.kind, entry.id))
            each.fault(Part.ENTRY, f"the record of snapshot {entry.short_id} contradicts its capture", entry.id)


def _compare_turns(each: Papers, walk: Walk) -> None:
    """An end of an exact-path turn and its capture say the same of it."""
    for turn, end in each.ends:
        captured = walk.found.captured[end.capture]
        if not captured.fault and (captured.files, captured.staged) != (end.files_tree, end.index_tree):
            text = f"the evidence of turn {turn[:12]} contradicts its capture; it cannot be taken back as a turn"
            each.fault(Part.TURN, text, turn)


def _anchors(found: Survey, each: Papers, walk: Walk) -> None:
    """Captures that a record names and no ref holds: nothing is lost yet."""
    anchored = found.refs.captures.get(each.where.name, set())
    missing = {need.capture: need for need in each.needs if need.capture not in anchored}
    for capture_id, need in missing.items():
        if not walk.found.captured[capture_id].fault:
            found.unanchored.setdefault(each.where.name, []).append(capture_id)
            text = f"{need.what} has no ref; nothing is lost yet, but reclaiming could drop it"
            found.damage.append(Damage(part=Part.REF, problem=text, workspace=each.where.name, entry=need.entry))


def _files(found: Survey) -> None:
    files = found.shelves
    marker = papers.marker_fault(found.store)
    if marker:
        text = f"{marker}; nothing is lost, but no command works until it is repaired"
        found.damage.append(Damage(part=Part.STORE, problem=text))
    if files.repository:
        found.damage.append(Damage(part=Part.STORE, problem=f"objects.git: {files.repository}"))
    for path, fault in found.refs.faulty.items():
        if path.name not in found.unanchored.get(path.parent.name, ()):
            name = path.name if path.name == "packed-refs" else f"ref of capture {path.name[:12]!r}"
            found.damage.append(Damage(part=Part.REF, problem=f"damaged {name}: {fault}; nothing is lost by that"))
    for pack, fault in {**files.packs, **files.indexes}.items():
        both = files.packs.get(pack, fault)
        found.damage.append(Damage(part=Part.PACK, problem=f"damaged pack {pack.name}: {both}"))
    for path, fault in files.side.items():
        text = f"damaged {path.name}: {fault}; git can do without it, nothing is lost"
        found.damage.append(Damage(part=Part.PACK, problem=text))
    for oid, fault in files.loose.items():
        if oid not in found.bad:
            text = f"damaged object {oid[:12]}: {fault}; no capture that was looked at needs this copy"
            found.damage.append(Damage(part=Part.OBJECT, problem=text))
