"""Captures in the private repository: one parentless commit and one ref each.

The commit's tree holds `files/`, `capture.json`, and three lists that captures share while they stay the same:
`directories` and `modes` (lines of octal mode, space, path, NUL) and `ignored` (paths, NUL after each). Where the
user's index was captured, too, `index/` holds what it has staged, and `untracked` lists the files it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from putback import paths, seams
from putback.errors import IntegrityError, StorageError, UnsafePath
from putback.git import refs
from putback.git.loose import LooseWriter
from putback.git.objectid import object_id
from putback.git.objects import ObjectReader, tree_of
from putback.git.trees import items_of
from putback.paths import RelPath
from putback.records import document
from putback.records.capture import Capture, Reason
from putback.records.plan import Outcome, Outcomes
from putback.store.layout import WorkspacePaths

EMPTY_TREE = object_id("tree", b"").hex()
_TREE, _BLOB = 0o040000, 0o100644
_PARTS = frozenset({"files", "capture.json", "directories", "modes", "ignored"})


def commit_of(tree: str, record: Capture) -> bytes:
    """The content of the commit of a capture: its tree and its record say everything that is in it."""
    who = f"putback <putback@localhost> {max(0, record.created_ns // 10**9)} +0000"
    title = (record.message or str(record.purpose)).replace("\0", " ")
    return f"tree {tree}\nauthor {who}\ncommitter {who}\n\n{title}\n".encode()


class View:
    """What a capture says of a tree, stored or about to be."""

    record: Capture
    files_tree: str
    directories: Mapping[RelPath, int]
    modes: Mapping[RelPath, int]
    ignored: frozenset[RelPath]

    @cached_property
    def not_covered(self) -> frozenset[RelPath]:
        return frozenset(item.raw for item in self.record.not_covered)

    @cached_property
    def forgotten(self) -> frozenset[RelPath]:
        """The paths that were purged from the capture after it was taken."""
        return frozenset(item.raw for item in self.record.not_covered if item.reason is Reason.FORGOTTEN)

    @cached_property
    def scope(self) -> frozenset[RelPath]:
        """The selection that bounds the capture; empty for the whole workspace."""
        return frozenset(item.raw for item in self.record.scope)

    @cached_property
    def examined(self) -> frozenset[RelPath]:
        """Paths that were looked at although rules or ceilings would leave them out."""
        return frozenset(item.raw for item in self.record.examined)

    @cached_property
    def nested_repositories(self) -> frozenset[RelPath]:
        return frozenset(item.raw for item in self.record.nested_repositories)

    def in_scope(self, path: RelPath) -> bool:
        return not self.scope or paths.within(path, self.scope)

    def could_hold(self, path: RelPath) -> bool:
        """Whether the capture would hold `path` if it had been there: in scope, covered and not ignored.

        Where this is false, absence says nothing.
        """
        return path in self.examined or (
            self.in_scope(path)
            and not paths.within(path, self.not_covered)
            and not paths.within(path, self.ignored)
        )


class TreeState(View, msgspec.Struct, frozen=True):
    """What the workspace holds at an instant, stored but not yet named by a capture.

    `directories` maps every directory in scope to its permission bits; `modes` maps the files whose permission
    bits are neither 0644 nor 0755 (as git would have them) to theirs; `ignored` names what ignore rules leave
    out, a directory standing for all that is in it.
    """

    record: Capture
    files_tree: str
    directories: Mapping[RelPath, int]
    modes: Mapping[RelPath, int]
    ignored: frozenset[RelPath]


class StagedState(msgspec.Struct, frozen=True):
    """What the user's index holds, beside a tree state: the tree of it, and the files that are in none of it."""

    index_tree: str
    untracked: frozenset[RelPath]


def write(
    where: WorkspacePaths, state: TreeState, outcomes: Outcomes | None = None, staged: StagedState | None = None
) -> str:
    """Store `state` as a capture, anchor it with a ref and return its id. Raises StorageError.

    `outcomes` say what a restore did on the way to this state; undo is bounded by them.
    """
    parts: list[tuple[bytes, bytes]] = [
        (b"capture.json", document.encode(state.record)),
        (b"directories", encode_modes(state.directories)),
        (b"modes", encode_modes(state.modes)),
        (b"ignored", encode_paths(state.ignored)),
    ]
    if outcomes is not None:
        parts.append((b"outcomes.json", document.encode(outcomes)))
    try:
        with LooseWriter(where.scratch, where.store.objects) as writer:
            entries = [(_BLOB, name, writer.add_whole("blob", data)) for name, data in parts]
            trees = [(_TREE, b"files", state.files_tree)]
            if staged is not None:
                entries.append((_BLOB, b"untracked", writer.add_whole("blob", encode_paths(staged.untracked))))
                trees.append((_TREE, b"index", staged.index_tree))
            if any(oid == EMPTY_TREE for _, _, oid in trees):
                writer.add_whole("tree", b"")
            tree = writer.add_whole("tree", tree_of([*trees, *entries]))
            capture_id = writer.add_whole("commit", commit_of(tree, state.record))
            writer.finish()
        seams.reach("capture.before_ref")
        refs.anchor(where.store.git_dir, where.name, capture_id, where.scratch)
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error
    seams.reach("capture.after_ref")
    return capture_id


class StoredCapture(View):
    """A capture read back. Reading raises IntegrityError."""

    def __init__(self, reader: ObjectReader, capture_id: str) -> None:
        self.id = capture_id
        self._reader = reader
        self._parts = parts_of(reader, capture_id)
        self.record = document.decode(self._blob("capture.json"), Capture, f"capture {capture_id[:12]}")

        self.files_tree = self._parts["files"]
        self.directories = decode_modes(self._blob("directories"), capture_id)
        self.modes = decode_modes(self._blob("modes"), capture_id)
        self.ignored = decode_paths(self._blob("ignored"), capture_id)

    @property
    def staged(self) -> StagedState | None:
        """What the user's index held; None where that was not captured."""
        if "index" not in self._parts or "untracked" not in self._parts:
            return None
        return StagedState(self._parts["index"], decode_paths(self._blob("untracked"), self.id))

    @cached_property
    def touched(self) -> frozenset[RelPath] | None:
        """The paths at which the restore before this capture changed anything; None where no restore did."""
        return None if self._outcomes is None else frozenset(item.raw for item in self._outcomes.touched)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of every path of the restore before this capture; empty where there was none."""
        return () if self._outcomes is None else self._outcomes.outcomes

    @cached_property
    def _outcomes(self) -> Outcomes | None:
        if "outcomes.json" not in self._parts:
            return None
        return document.decode(self._blob("outcomes.json"), Outcomes, f"outcomes of {self.id[:12]}")

    def _blob(self, name: str) -> bytes:
        return self._reader.read(self._parts[name], "blob")


def parts_of(reader: ObjectReader, capture_id: str) -> dict[str, str]:
    """The ids of the trees and lists of a capture, by name. Raises IntegrityError."""
    commit = reader.read(capture_id, "commit")
    tree_line = commit.partition(b"\n")[0]
    if not tree_line.startswith(b"tree ") or len(tree_line) != 69:
        raise IntegrityError(f"capture {capture_id[:12]} is no commit of ours")
    parts = entries_of(reader.read(tree_line[5:].decode("ascii", "replace"), "tree"))
    missing = _PARTS - parts.keys()
    if missing:
        raise IntegrityError(f"capture {capture_id[:12]} lacks {', '.join(sorted(missing))}")
    return parts


def entries_of(tree: bytes) -> dict[str, str]:
    """The ids in the top tree of a capture, by name. Raises IntegrityError where it is malformed."""
    return {name.decode("ascii", "replace"): oid.hex() for _, name, oid in items_of(tree)}


def is_whole(parts: Mapping[str, str]) -> bool:
    """Whether these are all the parts that a capture must have."""
    return parts.keys() >= _PARTS


def encode_modes(modes: Mapping[RelPath, int]) -> bytes:
    """The list form of a map from path to permission bits, in path order."""
    return b"".join(b"%o %s\0" % (modes[path], path) for path in sorted(modes))


def decode_modes(data: bytes, capture_id: str) -> dict[RelPath, int]:
    """The map in a list. Raises IntegrityError on an unsafe path or a mode beyond permission bits."""
    modes: dict[RelPath, int] = {}
    for line in data.split(b"\0"):
        if line:
            mode, _, name = line.partition(b" ")
            try:
                modes[_checked(name, capture_id)] = int(mode, 8) & 0o777
            except ValueError as error:
                raise IntegrityError(f"capture {capture_id[:12]}: not a mode: {mode!r}") from error
    return modes


def encode_paths(names: Iterable[RelPath]) -> bytes:
    return b"".join(name + b"\0" for name in sorted(names))


def decode_paths(data: bytes, capture_id: str) -> frozenset[RelPath]:
    """The set in a list. Raises IntegrityError on an unsafe path."""
    return frozenset(_checked(name, capture_id) for name in data.split(b"\0") if name)


def _checked(name: bytes, capture_id: str) -> RelPath:
    try:
        return paths.parse(name)
    except UnsafePath as error:
        raise IntegrityError(f"capture {capture_id[:12]}: {error.message}") from error
