"""Captures without some of their paths: what would be written, and how much of it goes.

A capture that holds one of the paths, in its tree of files or in that of the index, or names it in a list beside
them, gets a new commit, tree and record; all others stay as they are. Trees and lists that captures share are
read and rewritten once. Nothing here names a capture by a ref: what is written is garbage until somebody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from putback import paths
from putback.git.command import Git
from putback.git.objectid import Kind
from putback.git.objects import ObjectReader, tree_of
from putback.git.trees import DIRECTORY, items_of
from putback.paths import RelPath
from putback.records import document
from putback.records.capture import Capture, NotCovered, Reason
from putback.records.document import AtPath
from putback.records.plan import Outcomes
from putback.store.captures import commit_of, decode_paths, parts_of

# Stores an object, and returns its id.
Keep = Callable[[Kind, bytes], str]

_LISTS = ("directories", "modes", "ignored", "untracked")
_Item = TypeVar("_Item", bound=AtPath)


class Rewritten(msgspec.Struct, frozen=True):
    """A capture without the paths: its id now, and its record."""

    id: str
    record: Capture


class Result(msgspec.Struct, frozen=True):
    """The captures that are rewritten, by the ids they had; `purged` are the contents that the paths held in them.

    `known` are those of the paths that any capture held, or that were forgotten before.
    """

    captures: dict[str, Rewritten]
    purged: frozenset[str]
    known: frozenset[RelPath]


class _Cut(msgspec.Struct, frozen=True):
    """A tree without the paths: its id, empty where nothing is left of it; and what went, by chosen path."""

    tree: str
    removed: tuple[tuple[RelPath, tuple[str, ...]], ...] = ()

    @property
    def contents(self) -> Iterator[str]:
        """The contents that went; one that was there twice, twice."""
        return (oid for _, contents in self.removed for oid in contents)


class _Found(msgspec.Struct, frozen=True):
    """What there is to do about one capture."""

    parts: dict[str, str]
    record: Capture
    files: _Cut
    index: _Cut | None
    lists: dict[str, str]
    outcomes: str
    hit: frozenset[RelPath]


class Rewriter:
    """Rewrites captures without `chosen`, none of which lies below another. `detail` says when, in words."""

    def __init__(self, reader: ObjectReader, chosen: frozenset[RelPath], detail: str, keep: Keep) -> None:
        self._reader = reader
        self._chosen = chosen
        self._detail = detail
        self._keep = keep
        self._cuts: dict[tuple[str, bytes], _Cut] = {}
        self._contents: dict[str, tuple[str, ...]] = {}
        self._lists: dict[tuple[str, str], tuple[str, frozenset[RelPath]]] = {}

    def rewrite(self, git: Git, capture_ids: Iterable[str]) -> Result:
        """All that these captures come to. Raises IntegrityError where one cannot be read."""
        known: set[RelPath] = set()
        found: dict[str, _Found] = {}
        for capture_id in capture_ids:
            one = self._look(capture_id)
            gone = (item.raw for item in one.record.not_covered if item.reason is Reason.FORGOTTEN)
            known |= one.hit | {path for path in gone if path in self._chosen}
            if one.hit:
                found[capture_id] = one
        cuts = [cut for one in found.values() for cut in (one.files, one.index) if cut is not None]
        purged = frozenset(oid for cut in cuts for oid in cut.contents)
        sizes = _sizes(git, purged)
        captures = {capture_id: self._write(one, sizes) for capture_id, one in found.items()}
        return Result(captures, purged, frozenset(known))

    def _look(self, capture_id: str) -> _Found:
        parts = parts_of(self._reader, capture_id)
        what = f"capture {capture_id[:12]}"
        record = document.decode(self._reader.read(parts["capture.json"], "blob"), Capture, what)
        files = self._without(parts["files"])
        index = self._without(parts["index"]) if "index" in parts else None
        hit = {path for cut in (files, index) if cut is not None for path, _ in cut.removed}
        lists: dict[str, str] = {}
        for name in _LISTS:
            if name in parts:
                lists[name], named = self._shorten(name, parts[name])
                # What was ignored was not held.
                hit |= named if name != "ignored" else set()
        outcomes = parts.get("outcomes.json", "")
        if outcomes:
            outcomes, named = self._shorten_outcomes(outcomes)
            hit |= named
        return _Found(parts, record, files, index, lists, outcomes, frozenset(hit))

    def _write(self, one: _Found, sizes: dict[str, int]) -> Rewritten:
        record = self._describe(one, sizes)
        changed = {**one.parts, **one.lists, "files": one.files.tree or self._keep("tree", b"")}
        if one.index is not None:
            changed["index"] = one.index.tree or self._keep("tree", b"")
        if one.outcomes:
            changed["outcomes.json"] = one.outcomes
        changed["capture.json"] = self._keep("blob", document.encode(record))
        tree = self._keep(
            "tree",
            tree_of(
                [
                    (0o040000 if name in ("files", "index") else 0o100644, name.encode(), oid)
                    for name, oid in changed.items()
                ]
            ),
        )
        return Rewritten(self._keep("commit", commit_of(tree, record)), record)

    def _describe(self, one: _Found, sizes: dict[str, int]) -> Capture:
        old = one.record
        stay = [item for item in old.not_covered if not self._names(item.name)]
        gone = [NotCovered.at(path, reason=Reason.FORGOTTEN, detail=self._detail) for path in one.hit]
        ignored = old.ignored
        if one.lists["ignored"] != one.parts["ignored"]:
            ignored = self._reader_count(one)
        return msgspec.structs.replace(
            old,
            examined=self._left(old.examined),
            files=max(0, old.files - sum(1 for _ in one.files.contents)),
            bytes=max(0, old.bytes - sum(sizes.get(oid, 0) for oid in one.files.contents)),
            ignored=ignored,
            not_covered=tuple(sorted((*stay, *gone), key=lambda item: item.name)),
            nested_repositories=self._left(old.nested_repositories),
            privileged=self._left(old.privileged),
        )

    def _reader_count(self, one: _Found) -> int:
        """How many paths are ignored once those that are forgotten are not among them."""
        data = self._reader.read(one.parts["ignored"], "blob")
        return sum(not self._names(path) for path in decode_paths(data, "ignored"))

    def _left(self, items: tuple[_Item, ...]) -> tuple[_Item, ...]:
        return tuple(item for item in items if not self._names(item.name))

    def _names(self, path: bytes) -> bool:
        return paths.within(path, self._chosen)

    def _which(self, path: bytes) -> RelPath | None:
        """The chosen path that `path` is, or lies below."""
        return next((above for above in (RelPath(path), *paths.parents(path)) if above in self._chosen), None)

    def _without(self, tree: str, prefix: bytes = b"") -> _Cut:
        """A tree without the chosen paths; `prefix` is where it lies, empty or with a slash at its end."""
        cut = self._cuts.get((tree, prefix))
        if cut is None:
            cut = self._cuts[(tree, prefix)] = self._cut(tree, prefix)
        return cut

    def _cut(self, tree: str, prefix: bytes) -> _Cut:
        below = [path[len(prefix) :] for path in self._chosen if path.startswith(prefix)]
        names = {path.partition(b"/")[0] for path in below}
        data = self._reader.read(tree, "tree")
        if not any(b" %b\0" % name in data for name in names):
            return _Cut(tree)
        kept: list[bytes] = []
        removed: list[tuple[RelPath, tuple[str, ...]]] = []
        for mode, name, oid in items_of(data):
            path = RelPath(prefix + name)
            if path in self._chosen:
                removed.append((path, self._all(mode, oid.hex())))
            elif name in names and mode == DIRECTORY:
                inner = self._without(oid.hex(), path + b"/")
                removed += inner.removed
                if inner.tree:
                    kept.append(b"%b %b\0%b" % (mode, name, bytes.fromhex(inner.tree)))
            else:
                kept.append(b"%b %b\0%b" % (mode, name, oid))
        if not removed:
            return _Cut(tree)
        return _Cut(self._keep("tree", b"".join(kept)) if kept else "", tuple(removed))

    def _all(self, mode: bytes, oid: str) -> tuple[str, ...]:
        """The contents of everything in a tree, or that of a file; one that is there twice is named twice."""
        if mode != DIRECTORY:
            return (oid,)
        if oid not in self._contents:
            data = self._reader.read(oid, "tree")
            self._contents[oid] = tuple(
                found for mode, _, below in items_of(data) for found in self._all(mode, below.hex())
            )
        return self._contents[oid]

    def _shorten(self, name: str, oid: str) -> tuple[str, frozenset[RelPath]]:
        """A list without the chosen paths, and which of them it names."""
        if (name, oid) not in self._lists:
            data = self._reader.read(oid, "blob")
            answer: tuple[str, frozenset[RelPath]] = (oid, frozenset())
            if any(data.find(path) >= 0 for path in self._chosen):
                lines = data.split(b"\0")[:-1]
                whose = [self._which(_path_in(name, line)) for line in lines]
                hit = frozenset(path for path in whose if path is not None)
                if hit:
                    left = (line + b"\0" for line, path in zip(lines, whose, strict=True) if path is None)
                    answer = (self._keep("blob", b"".join(left)), hit)
            self._lists[(name, oid)] = answer
        return self._lists[(name, oid)]

    def _shorten_outcomes(self, oid: str) -> tuple[str, frozenset[RelPath]]:
        """What a restore did, without the chosen paths, and which of them it did something about."""
        told = document.decode(self._reader.read(oid, "blob"), Outcomes, f"outcomes {oid[:12]}")
        whose = (self._which(item.name) for item in (*told.outcomes, *told.touched))
        hit = frozenset(path for path in whose if path is not None)
        if not hit:
            return oid, hit
        left = Outcomes(outcomes=self._left(told.outcomes), touched=self._left(told.touched))
        return self._keep("blob", document.encode(left)), hit


def _path_in(name: str, line: bytes) -> bytes:
    """The path in one line of a list: after the mode, in those that have modes."""
    return line.partition(b" ")[2] if name in ("directories", "modes") else line


def _sizes(git: Git, contents: frozenset[str]) -> dict[str, int]:
    """The sizes of these contents in bytes; one that is missing has none."""
    if not contents:
        return {}
    given = "".join(f"{oid}\n" for oid in sorted(contents)).encode()
    lines = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", given=given).out.splitlines()
    found = (line.split() for line in lines)
    return {oid.decode(): int(size) for oid, size in found if size.isdigit()}


def minimal(chosen: Iterable[RelPath]) -> frozenset[RelPath]:
    """The paths without those that lie below another of them."""
    every: frozenset[RelPath] = frozenset(chosen)
    return frozenset(path for path in every if not any(above in every for above in paths.parents(path)))
