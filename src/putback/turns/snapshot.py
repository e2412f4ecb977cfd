"""One end of a turn: what the index and the work tree hold at its paths, read, bounded, stored and checked.

Nothing is written before everything was read: a selection that is refused leaves no trace. The content of a file
and the same bytes in the index count twice, as somebody would have to keep both.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from putback import paths
from putback.errors import IntegrityError, OutOfOrder, OverBudget, StorageError
from putback.fs.place import blob_id
from putback.git.index import Entries
from putback.git.loose import LooseWriter
from putback.git.objectid import object_id
from putback.git.trees import build_trees
from putback.git.user_index import Item, UserIndex
from putback.ops import ignore
from putback.ops.ignore import IgnoreRules
from putback.ops.session import Session
from putback.paths import RelPath
from putback.records.capture import Capture, Purpose, Repository
from putback.records.document import AtPath
from putback.records.turn import MOST_SNAPSHOT_BYTES, IndexEntry, Selected, TurnSnapshot
from putback.store import captures
from putback.store.captures import EMPTY_TREE, StagedState, TreeState
from putback.turns import selection
from putback.turns.custody import Custody
from putback.turns.selection import Faults, Sight
from putback.turns.staged import Blob
from putback.turns.staged import faults as staged_faults
from putback.version import __version__

_REGULAR, _EXECUTABLE = 0o644, 0o755


class Purport(enum.Enum):
    """What a reading is for; the value says what to do where it is refused.

    At the beginning every path is judged as it was named. What is captured at the end is judged, too: an ignored
    file that stands there is not taken. Later on both ends are captured, and no rule makes them less so.
    """

    BEGIN = "nothing was captured; name regular files, one by one"
    SEAL = "nothing was captured; put that right, or close the turn with `putback turn resolve`"
    APPLY = "nothing was touched; put that right first"


@dataclass(frozen=True)
class Reading:
    """What stands at the paths now, and the index in which it was found.

    `contents` has the bytes behind every content id that `selected` names.
    """

    selected: tuple[Selected, ...]
    contents: Mapping[str, bytes]
    head: Repository
    index: UserIndex

    @property
    def bytes(self) -> int:
        """The logical bytes of all copies."""
        return sum(item.bytes for item in self.selected)


def read(custody: Custody, chosen: Sequence[RelPath], purport: Purport) -> Reading:
    """Look at the paths, refuse what cannot be put back, and read the rest. Writes nothing.

    Raises UnsupportedPath with all that is wrong, OverBudget before any content is read, and StorageError where
    something changes meanwhile.
    """
    root, staged = custody.session.root, custody.staged
    head = staged.repository.standing().result()
    index = staged.read()
    sight, faults = selection.look(root, chosen, custody.administrative)
    known = {RelPath(path): items[0] for path, items in index.entries_at(chosen).items() if items}
    untracked = [path for path in chosen if path not in known and path not in faults]
    selection.check(
        faults, _index_faults(index, chosen), _name_faults(custody, sight, untracked, purport), hint=purport.value
    )
    sizes = staged.sizes({path: item.oid for path, item in known.items()})
    check_size(sight.bytes + sum(sizes.values()))
    blobs = staged.contents({path: Blob(item.oid, sizes[path]) for path, item in known.items()})
    files = selection.read(root, sight)
    if staged.read(index).entries_at(chosen) != index.entries_at(chosen):
        raise StorageError("the index changed while it was captured", hint="nothing was captured; run it again")
    selected = [
        Selected.at(
            path,
            index=None if path not in known else _entry(known[path], blobs[path]),
            worktree=None if path not in files else files[path].node,
            size=0 if path not in files else len(files[path].data),
        )
        for path in chosen
    ]
    contents = {blob_id([data]): data for data in blobs.values()}
    contents |= {file.node.digest: file.data for file in files.values()}
    return Reading(tuple(selected), contents, head, index)


def _index_faults(index: UserIndex, chosen: Sequence[RelPath]) -> Faults:
    found = {path: staged_faults(index, path) for path in chosen}
    return {path: f"is in the index as {', '.join(faults)}" for path, faults in found.items() if faults}


def _name_faults(custody: Custody, sight: Sight, untracked: Sequence[RelPath], purport: Purport) -> Faults:
    """What speaks against the names of files that the index does not know."""
    if purport is Purport.APPLY:
        return {}
    if purport is Purport.SEAL:
        return selection.ignored(_rules(custody), [path for path in untracked if sight.looks[path] is not None])
    return {**selection.ignored(_rules(custody), untracked), **selection.unexpanded(sight, untracked)}


def _rules(custody: Custody) -> IgnoreRules:
    """The ignore rules of the user's repository, and no others: a turn knows no `exclude` of ours."""
    session = custody.session
    return ignore.gather(session.git, session.where.turn_excludes, custody.staged.repository, (), ())


def _entry(item: Item, content: bytes) -> IndexEntry:
    return IndexEntry(mode=item.mode, blob=item.oid, content=blob_id([content]), size=len(content))


def check_size(measured: int) -> None:
    """Raise OverBudget for more than one snapshot may hold."""
    if measured > MOST_SNAPSHOT_BYTES:
        raise OverBudget(
            f"{measured} bytes at the paths of the turn, in the index and in the work tree;"
            f" at most {MOST_SNAPSHOT_BYTES}",
            key="turn.snapshot_bytes",
            limit=MOST_SNAPSHOT_BYTES,
            measured=measured,
            hint="nothing was captured; name fewer or smaller files",
        )


def store(session: Session, reading: Reading, message: str, purpose: Purpose) -> TurnSnapshot:
    """Keep what was read as a capture of its own. Raises StorageError."""
    trees = [build_trees(_files(reading.selected)), build_trees(_staged(reading.selected))]
    try:
        with LooseWriter(session.where.scratch, session.where.store.objects) as writer:
            for data in reading.contents.values():
                writer.add_whole("blob", data)
            for _, data in (item for tree in trees for item in tree.objects):
                writer.add_whole("tree", data)
            writer.finish()
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error
    files_tree, index_tree = (tree.root.hex() for tree in trees)
    untracked = _untracked(reading.selected)
    state = _state(session, reading, files_tree, message, purpose)
    capture = captures.write(session.where, state, staged=StagedState(index_tree, untracked))
    return TurnSnapshot(
        capture=capture,
        files_tree=files_tree,
        index_tree=index_tree,
        untracked=_list_id(untracked),
        head=reading.head,
        selected=reading.selected,
        bytes=reading.bytes,
        created_ns=state.record.created_ns,
    )


def check(custody: Custody, snapshot: TurnSnapshot) -> None:
    """Raise IntegrityError where the store does not hold what the record of an end says, part by part.

    Raises OutOfOrder where it was told to forget some of it.
    """
    session = custody.session
    stored = session.capture(snapshot.capture)
    if stored.forgotten:
        raise OutOfOrder(
            f"the turn cannot be taken back: the content of {paths.quote(min(stored.forgotten))} was forgotten",
            hint="nothing was touched",
        )
    staged = stored.staged
    said: dict[str, tuple[object, ...]] = {
        "work tree": (snapshot.files_tree, build_trees(_files(snapshot.selected)).root.hex(), stored.files_tree),
        "index": (
            snapshot.index_tree,
            build_trees(_staged(snapshot.selected)).root.hex(),
            "" if staged is None else staged.index_tree,
        ),
        "untracked list": (
            snapshot.untracked,
            _list_id(_untracked(snapshot.selected)),
            "" if staged is None else _list_id(staged.untracked),
        ),
        "list of modes": (_modes(snapshot.selected), stored.modes),
        "HEAD": (snapshot.head, stored.record.repository),
    }
    for what, (first, *others) in said.items():
        if any(other != first for other in others):
            raise IntegrityError(f"the {what} of capture {snapshot.capture[:12]} is not the one on record")
    wanted = sorted({content for item in snapshot.selected for content in _contents(item)})
    session.reader.announce(wanted)
    contents = {content: session.reader.read(content, "blob") for content in wanted}
    for item in snapshot.selected:
        if item.index is not None:
            custody.staged.check_id(item.index.blob, contents[item.index.content])


def _contents(item: Selected) -> list[str]:
    found = [] if item.worktree is None else [item.worktree.digest]
    return found if item.index is None else [*found, item.index.content]


def _files(selected: Sequence[Selected]) -> Entries:
    return {
        item.raw: _record(0o100755 if item.worktree.mode & 0o100 else 0o100644, item.worktree.digest)
        for item in selected
        if item.worktree is not None
    }


def _staged(selected: Sequence[Selected]) -> Entries:
    return {item.raw: _record(item.index.mode, item.index.content) for item in selected if item.index is not None}


def _record(mode: int, content: str) -> bytes:
    """An entry as `git.trees` reads it: mode and id count, there are no stat data."""
    return bytes(24) + mode.to_bytes(4, "big") + bytes(12) + bytes.fromhex(content)


def _modes(selected: Sequence[Selected]) -> dict[RelPath, int]:
    """The modes of files that git's two would not give back."""
    found = {item.raw: item.worktree.mode for item in selected if item.worktree is not None}
    return {path: mode for path, mode in found.items() if mode not in (_REGULAR, _EXECUTABLE)}


def _untracked(selected: Sequence[Selected]) -> frozenset[RelPath]:
    return frozenset(item.raw for item in selected if item.untracked)


def _list_id(names: frozenset[RelPath]) -> str:
    return object_id("blob", captures.encode_paths(names)).hex()


def _state(session: Session, reading: Reading, files_tree: str, message: str, purpose: Purpose) -> TreeState:
    names = tuple(AtPath.at(item.raw) for item in reading.selected)
    record = Capture(
        workspace=session.where.name,
        root=paths.text(session.where.root),
        created_ns=time.time_ns(),
        message=message,
        purpose=purpose,
        scope=names,
        examined=names,
        files=sum(item.worktree is not None for item in reading.selected),
        bytes=sum(item.size for item in reading.selected),
        repository=reading.head,
        tool=__version__,
    )
    return TreeState(record, files_tree or EMPTY_TREE, {}, _modes(reading.selected), frozenset())
