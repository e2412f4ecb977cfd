"""From captures to every object that they need: which are there, and which are not what they should be.

Commits, trees and our own lists are always read and hashed; contents by share. Each object is looked at once,
however many captures share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec

from putback import paths
from putback.errors import IntegrityError
from putback.git.command import Git
from putback.git.objectid import OID_BYTES
from putback.git.objects import ObjectReader
from putback.git.present import Present
from putback.git.trees import DIRECTORY, items_of
from putback.progress import Progress
from putback.records import document
from putback.records.capture import Capture
from putback.records.plan import Outcomes
from putback.store.captures import decode_modes, decode_paths, parts_of
from putback.store.layout import Store

_MODES = frozenset({DIRECTORY, b"100644", b"100755", b"120000"})
_MISSING = re.compile(r"object ([0-9a-f]{12}) is missing from the store")
_NAMES: dict[str, str] = {
    "capture.json": "its own record",
    "directories": "its list of directories",
    "modes": "its list of modes",
    "ignored": "its list of what is ignored",
    "untracked": "its list of untracked files",
    "outcomes.json": "its list of outcomes",
}


class Captured(msgspec.Struct):
    """One capture: `fault` says why nothing of it can be restored; empty where its files tell."""

    id: str
    fault: str = ""
    files: str = ""
    staged: str = ""
    record: Capture | None = None


class Found(msgspec.Struct):
    """What a walk came to. `bad` maps the ids of objects that are missing or damaged to what is wrong."""

    captured: dict[str, Captured] = {}
    trees: list[str] = []
    blobs: set[bytes] = set()
    bad: dict[str, str] = {}
    bytes_read: int = 0


class Walk:
    """A walk over captures of one store."""

    def __init__(self, store: Store, git: Git, reader: ObjectReader, progress: Progress) -> None:
        self._store = store
        self._git = git
        self._reader = reader
        self._progress = progress
        self._lists: dict[tuple[str, str], str] = {}
        self.found = Found()

    def captures(self, ids: Sequence[str]) -> None:
        """Read the captures with these ids, and every tree below them."""
        self._progress.start("reading captures", len(ids))
        for capture_id in ids:
            self.found.captured[capture_id] = self._capture(capture_id)
            self._progress.advance()
        tops = [
            top
            for item in self.found.captured.values()
            if not item.fault
            for top in (item.files, item.staged)
            if top
        ]
        self._descend(tops)

    def contents(self, chosen: Callable[[bytes], bool], extra: set[bytes]) -> None:
        """Make sure that all contents are there, and `extra`, and hash those that are `chosen`."""
        wanted = sorted(self.found.blobs | extra)
        self._progress.start("looking for contents", len(wanted))
        held = Present(self._store.objects)(wanted)
        gone = self._really_gone([oid.hex() for oid in wanted if oid not in held])
        self.found.bad.update(dict.fromkeys(gone, "missing"))
        to_read = [oid.hex() for oid in wanted if chosen(oid) and oid.hex() not in self.found.bad]
        self._progress.start("reading contents", len(to_read))
        for size in self._sizes(to_read):
            self.found.bytes_read += size
            self._progress.advance()

    def _capture(self, capture_id: str) -> Captured:
        try:
            parts = parts_of(self._reader, capture_id)
        except IntegrityError as error:
            self.found.bad.setdefault(capture_id, error.message)
            return Captured(capture_id, self._said(error))
        made = Captured(capture_id, files=parts["files"], staged=parts.get("index", ""))
        for name in sorted(parts.keys() & _NAMES.keys()):
            fault = self._list(name, parts[name])
            if fault:
                made.fault = f"{_NAMES[name]} is damaged: {fault}"
                self.found.bad.setdefault(parts[name], fault)
        if not made.fault:
            made.record = document.decode(self._reader.read(parts["capture.json"], "blob"), Capture, "capture")
        return made

    def _said(self, error: IntegrityError) -> str:
        """git calls an object missing of which it cannot read the beginning."""
        match = _MISSING.fullmatch(error.message)
        if match is None or not any((self._store.objects / match[1][:2]).glob(f"{match[1][2:]}*")):
            return error.message
        return f"object {match[1]} is damaged in the store"

    def _list(self, name: str, oid: str) -> str:
        """What is wrong with a list; empty where nothing is. Captures share lists."""
        key = (name, oid)
        if key not in self._lists:
            try:
                _decode(name, self._reader.read(oid, "blob"))
                self._lists[key] = ""
            except IntegrityError as error:
                self._lists[key] = self._said(error)
        return self._lists[key]

    def _descend(self, tops: Sequence[str]) -> None:
        seen: set[str] = set()
        level = list(dict.fromkeys(tops))
        self._progress.start("reading trees", None)
        while level:
            seen.update(level)
            below: dict[str, None] = {}
            for oid, data in self.trees(level):
                self._progress.advance()
                try:
                    for mode, _, child in entries(data):
                        if mode == DIRECTORY:
                            below[child.hex()] = None
                        else:
                            self.found.blobs.add(child)
                except IntegrityError as error:
                    self.found.bad[oid] = error.message
            self.found.trees += level
            level = [oid for oid in below if oid not in seen]

    def trees(self, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of those trees that are sound; the others become bad."""
        for at, oid in enumerate(self._announced(oids)):
            try:
                yield oid, self._reader.read(oid, "tree")
            except IntegrityError as error:
                self._failed(oids, at, error)

    def _sizes(self, oids: Sequence[str]) -> Iterator[int]:
        """The sizes of those contents that are sound, each hashed; the others become bad."""
        for at, oid in enumerate(self._announced(oids)):
            try:
                yield sum(map(len, self._reader.stream(oid, "blob")))
            except IntegrityError as error:
                self._failed(oids, at, error)

    def _announced(self, oids: Sequence[str]) -> Sequence[str]:
        self._reader.close()
        self._reader.announce(oids)
        return oids

    def _failed(self, oids: Sequence[str], at: int, error: IntegrityError) -> None:
        """git has died, or its answers are out of step; what comes next is announced once more."""
        self.found.bad[oids[at]] = error.message
        self._reader.close()
        self._reader.announce(islice(oids, at + 1, None))

    def _really_gone(self, oids: list[str]) -> list[str]:
        """Those that git does not find either."""
        if not oids:
            return []
        asked = "".join(f"{oid}\n" for oid in oids).encode()
        lines = self._git.run("cat-file", "--batch-check", given=asked, accept={*range(-64, 256)}).out.splitlines()
        there = {line[: 2 * OID_BYTES].decode() for line in lines if not line.endswith(b" missing")}
        return [oid for oid in oids if oid not in there]


def entries(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, name and raw id of each entry of a tree. Raises IntegrityError for what no capture has in it."""
    for mode, name, oid in items_of(data):
        if mode not in _MODES or b"/" in name or paths.fault(name):
            raise IntegrityError("a tree holds what no capture has")
        yield mode, name, oid


def is_tree(mode: bytes) -> bool:
    """Whether an entry of a tree is a tree itself."""
    return mode == DIRECTORY


def _decode(name: str, data: bytes) -> None:
    """Read a list as a restore does. Raises IntegrityError."""
    if name == "capture.json":
        record = document.decode(data, Capture, "capture")
        for item in (*record.scope, *record.examined, *record.nested_repositories):
            _ = item.raw
        for other in (*record.not_covered, *record.privileged):
            _ = other.name
    elif name == "outcomes.json":
        outcomes = document.decode(data, Outcomes, "outcomes")
        for touched in outcomes.touched:
            _ = touched.raw
    elif name in ("directories", "modes"):
        decode_modes(data, name)
    else:
        decode_paths(data, name)
