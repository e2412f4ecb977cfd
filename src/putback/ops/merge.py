"""Three-way merges: what a span did to a file is taken back, and what was changed at it since is kept.

The base is the file as the span left it, theirs as it was before the span, ours as it is now. Content, permission
bits and kind are each judged by themselves. git merges texts, line by line and byte for byte; what it cannot merge
without a conflict is not used at all, so no mark of a conflict is ever written.

What a merge makes has lines of theirs and ours alone, so that a base which a document names tells nothing of
itself. It is stored before the plan is made; where nothing comes of the plan it is garbage. Not guaranteed: that
two changes which do not touch the same lines mean something together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from putback import seams
from putback.errors import IntegrityError, StorageError
from putback.fs import modes
from putback.git.loose import LooseWriter
from putback.git.objectid import object_id
from putback.ops.classify import check_budgets
from putback.ops.session import Session
from putback.ops.survey import Survey
from putback.paths import RelPath
from putback.records.change import Change, Kind, Node

# The largest file of which three versions are read into memory.
MOST_BYTES = 16 << 20
# So much of what merges have made is kept in memory before it is written.
MOST_HELD = 32 << 20
# Where git looks for a NUL to tell binary files.
_BEGINNING = 8000

_CONFLICTS = frozenset(range(1, 128))
_FAILED = 255

SAME_LINES = "the same lines, or lines beside them, were changed since"
BINARY = "it is binary"
TOO_LARGE = f"it is larger than {MOST_BYTES} bytes"
MODE = "its mode was changed since, too"
KIND = "its kind was changed"
LINK = "it is a symbolic link"
MADE_ANEW = "it was deleted then, and made anew since"
NOT_BEFORE = "it was not there before"
REMOVED = "it was removed since"

Contents = Callable[[str, str, str], str]
Value = TypeVar("Value", int, str)


class Unmergeable(Exception):
    """No merge can be made; the text says why."""


def merged(session: Session, wanted: Iterable[Change], survey: Survey) -> dict[RelPath, Node | str]:
    """For each change whose path is not as the record says: what a merge makes of it, or why none can be made.

    Raises OverBudget before anything is stored, StorageError, OSError, and what starting git raises.
    """
    result: dict[RelPath, Node | str] = {}
    with LooseWriter(session.where.scratch, session.where.store.objects) as writer:
        texts = _Texts(session, writer)
        for change in wanted:
            now = survey.found.get(change.path, change.before)
            if now not in (change.before, change.after):
                result[change.path] = three_way(change.before, change.after, now, texts.merge)
        texts.flush()
    return result


def three_way(base: Node | None, theirs: Node | None, ours: Node | None, contents: Contents) -> Node | str:
    """What taking `base` back to `theirs` makes of `ours`, or why it cannot be told.

    `contents` merges three contents, given and returned by digest; it raises Unmergeable.
    """
    if base is None or theirs is None or ours is None:
        return MADE_ANEW if base is None else NOT_BEFORE if theirs is None else REMOVED
    kinds = {base.kind, theirs.kind, ours.kind}
    if kinds != {Kind.FILE}:
        return KIND if len(kinds) > 1 else LINK if Kind.SYMLINK in kinds else MODE
    mode = _one_sided(base.mode, theirs.mode, ours.mode)
    if mode is None:
        return MODE
    digests = (base.digest, theirs.digest, ours.digest)
    try:
        return Node(Kind.FILE, mode, _one_sided(*digests) or contents(*digests))
    except Unmergeable as reason:
        return str(reason)


def _one_sided(base: Value, theirs: Value, ours: Value) -> Value | None:
    """The value where at most one side changed it, or both to the same; else None."""
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base else None


class _Texts:
    """Merges texts of the store, and keeps what comes of it until `flush` stores it."""

    def __init__(self, session: Session, writer: LooseWriter) -> None:
        self._session = session
        self._writer = writer
        self._made: dict[str, bytes] = {}
        self._bytes = 0

    def merge(self, base: str, theirs: str, ours: str) -> str:
        """The digest of what a merge of three texts makes. Raises Unmergeable."""
        sides = [self._read(digest) for digest in (ours, base, theirs)]
        if any(b"\0" in side[:_BEGINNING] for side in sides):
            raise Unmergeable(BINARY)
        with _files(self._session.where.scratch, sides) as paths:
            accepted = {0, _FAILED, *_CONFLICTS}
            done = self._session.git.run("merge-file", "-p", "-q", *paths, accept=accepted)
        if done.code:
            raise Unmergeable(SAME_LINES if done.code in _CONFLICTS else "git cannot merge it")
        digest = object_id("blob", done.out).hex()
        if digest not in self._made:
            self._made[digest] = done.out
            self._bytes += len(done.out)
        if self._bytes > MOST_HELD:
            self.flush()
        return digest

    def flush(self) -> None:
        """Store what was made. Raises OverBudget before any of it is written, and StorageError."""
        if not self._made:
            return
        session = self._session
        check_budgets(session.capturer.settings, session.where.store, 0, self._bytes)
        try:
            for data in self._made.values():
                self._writer.add_whole("blob", data)
            self._writer.finish()
        except OSError as error:
            raise StorageError(f"cannot write the store: {error.strerror}") from error
        self._made.clear()
        self._bytes = 0

    def _read(self, digest: str) -> bytes:
        blocks: list[bytes] = []
        size = 0
        try:
            for block in self._session.reader.stream(digest, "blob"):
                size += len(block)
                if size > MOST_BYTES:
                    raise Unmergeable(TOO_LARGE)
                blocks.append(block)
        except IntegrityError as error:
            raise Unmergeable(error.message) from error
        return b"".join(blocks)


@contextmanager
def _files(scratch: Path, contents: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The contents as files for as long as the block lasts; git reads no text to merge from anywhere else."""
    places = [scratch / f"merge-{side}" for side in ("ours", "base", "theirs")]
    mode = modes.of(scratch).file
    try:
        for place, content in zip(places, contents, strict=True):
            with open(modes.create(place, os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
                file.write(content)
        seams.reach("restore.merging")
        yield [os.fsencode(place) for place in places]
    finally:
        for place in places:
            with suppress(OSError):
                place.unlink()
