"""What is on record of one turn: a folder of documents, each written once, and what they say together.

A document that begins something (`pending`, `sealing`, `started`) is on disk before it begins, and one that ends
it (`begun`, `sealed`, `receipt`) after it was verified; the first without the second means unknown. That a file is
there proves nothing: each has to decode, and to be about the same turn as the others.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from putback.errors import IntegrityError, StorageError
from putback.fs import modes
from putback.fs.durable import sync_directory, write_new_file
from putback.records import document
from putback.records.turn import (
    Binding,
    TurnCapture,
    TurnPending,
    TurnReceipt,
    TurnResolution,
    TurnRollbackStatus,
    TurnSnapshot,
    TurnStarted,
    TurnState,
)
from putback.store.layout import durable_directory

Document = TypeVar("Document", bound=msgspec.Struct)

_NAME = re.compile(r"(\d{16})-([0-9a-f]{64})")
_PART = ".part"


@dataclass(frozen=True)
class Evidence:
    """The documents of one turn, decoded; None for those that are not there."""

    capture_id: str
    pending: TurnPending
    begun: TurnCapture | None
    sealing: TurnPending | None
    sealed: TurnCapture | None
    started: TurnStarted | None
    receipt: TurnReceipt | None
    resolution: TurnResolution | None

    @property
    def capture(self) -> TurnCapture | None:
        """The turn as far as it was captured."""
        return self.sealed or self.begun

    @property
    def ends(self) -> frozenset[str]:
        """The ids that its captures had when they were taken."""
        captured = self.capture
        both = () if captured is None else (captured.begin, captured.end)
        return frozenset(end.capture for end in both if end is not None)

    @property
    def state(self) -> TurnState:
        """What the documents say together."""
        if self.resolution is not None:
            return TurnState.RESOLVED
        if self.doubt:
            return TurnState.UNKNOWN
        if self.receipt is not None:
            return TurnState.APPLIED
        return TurnState.BEGUN if self.sealed is None else TurnState.SEALED

    @property
    def doubt(self) -> str:
        """What was begun and has no end; empty where there is no such thing."""
        if self.begun is None:
            return "its capture was begun and not completed"
        if self.sealing is not None and self.sealed is None:
            return "its seal was begun and not completed"
        if self.started is not None and self.receipt is None:
            return "taking it back was started, and there is no receipt"
        return ""

    @property
    def open(self) -> bool:
        """Whether the turn stands in the way of the next: not sealed, or unknown."""
        return self.state in (TurnState.BEGUN, TurnState.UNKNOWN)

    @property
    def reserved_bytes(self) -> int:
        """What the turn counts against the caps of its binding, whether its captures were completed or not."""
        return self.pending.reserved_bytes + (0 if self.sealing is None else self.sealing.reserved_bytes)

    def status(self, *, latest: bool) -> TurnRollbackStatus:
        """The documents in one record."""
        return TurnRollbackStatus(
            capture_id=self.capture_id,
            binding_id=self.pending.binding_id,
            binding_generation=self.pending.binding_generation,
            turn=self.pending.turn,
            state=self.state,
            paths=self.pending.paths,
            latest=latest,
            detail=self.doubt,
            reserved_bytes=self.reserved_bytes,
            proposal="" if self.started is None else self.started.proposal,
        )


@dataclass(frozen=True)
class TurnFolder:
    """The folder of one turn. Documents are written first in `scratch`, which lies on the same file system."""

    path: Path

    @property
    def capture_id(self) -> str:
        return self.path.name.partition("-")[2]

    @property
    def generation(self) -> int:
        return int(self.path.name.partition("-")[0])

    @cached_property
    def evidence(self) -> Evidence:
        """Everything on record. Raises IntegrityError where a document is malformed, or about something else."""
        pending = self._read("pending", TurnPending)
        if pending is None:
            raise self._fault("pending.json", "is missing")
        found = Evidence(
            self.capture_id,
            pending,
            self._read("begun", TurnCapture),
            self._read("sealing", TurnPending),
            self._read("sealed", TurnCapture),
            self._read("started", TurnStarted),
            self._read("receipt", TurnReceipt),
            self._read("resolution", TurnResolution),
        )
        for name, field in _disagreements(found, self.generation):
            raise self._fault(f"{name}.json", f"{field} is not that of the turn")
        return found

    def write(self, name: str, record: msgspec.Struct, scratch: Path) -> None:
        """Write a document that must not be there yet: on disk before the call returns. Raises StorageError."""
        path = self.path / f"{name}.json"
        try:
            write_new_file(path, document.encode(record) + b"\n", scratch)
        except OSError as error:
            raise StorageError(f"cannot write {str(path)!r}: {error.strerror}") from error
        self.__dict__.pop("evidence", None)

    def _read(self, name: str, kind: type[Document]) -> Document | None:
        path = self.path / f"{name}.json"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error
        try:
            return document.decode_canonical(data.removesuffix(b"\n"), kind, f"turn document {str(path)!r}")
        except IntegrityError as error:
            error.hint = self._way_out
            raise

    def _fault(self, name: str, problem: str) -> IntegrityError:
        return IntegrityError(
            f"damaged turn document {str(self.path / name)!r}: {problem}",
            hint=self._way_out,
        )

    @property
    def _way_out(self) -> str:
        command = f"putback turn resolve {self.capture_id[:12]} --set-aside"
        return f"evidence is never repaired; `{command}` leaves the turn out"


def _disagreements(found: Evidence, generation: int) -> list[tuple[str, str]]:
    """Documents that are not about this turn, or cannot follow each other; each with the field that tells."""
    pending = found.pending
    same = (pending.binding, pending.binding_id, pending.binding_generation, pending.turn, pending.paths)
    checks: list[tuple[str, str, bool]] = [
        ("pending", "digest", document.digest(pending) == found.capture_id and not pending.capture_id),
        ("pending", "generation", pending.turn.generation == generation),
    ]
    for name, capture in (("begun", found.begun), ("sealed", found.sealed)):
        if capture is not None:
            of = (capture.binding, capture.binding_id, capture.binding_generation, capture.turn, capture.paths)
            checks += [(name, "id", capture.id == found.capture_id), (name, "turn", of == same)]
            checks.append((name, "paths", all(_has_paths(capture, end) for end in (capture.begin, capture.end))))
    if found.begun is not None:
        checks.append(("begun", "end", found.begun.end is None))
    if found.sealing is not None:
        item = found.sealing
        of = (item.binding, item.binding_id, item.binding_generation, item.turn, item.paths)
        checks += [("sealing", "capture_id", item.capture_id == found.capture_id), ("sealing", "turn", of == same)]
        checks.append(("sealing", "beginning", found.begun is not None))
    if found.sealed is not None:
        checks.append(("sealed", "end", found.sealed.end is not None))
        checks.append(("sealed", "beginning", found.begun is not None and found.sealed.begin == found.begun.begin))
        checks.append(("sealed", "seal", found.sealing is not None))
    if found.started is not None:
        checks.append(("started", "capture_id", found.started.capture_id == found.capture_id))
        checks.append(("started", "end", found.sealed is not None))
    if found.receipt is not None:
        checks += _receipt_checks(found, found.receipt)
    if found.resolution is not None:
        checks.append(("resolution", "capture_id", found.resolution.capture_id == found.capture_id))
    return [(name, field) for name, field, holds in checks if not holds]


def _has_paths(capture: TurnCapture, end: TurnSnapshot | None) -> bool:
    """Whether an end is of just the paths of the turn."""
    names = [(item.path, item.path_b64) for item in capture.paths]
    return end is None or [(item.path, item.path_b64) for item in end.selected] == names


def _receipt_checks(found: Evidence, receipt: TurnReceipt) -> list[tuple[str, str, bool]]:
    started, sealed = found.started, found.sealed
    if started is None or sealed is None:
        return [("receipt", "started", False)]
    return [
        ("receipt", "capture_id", receipt.capture_id == found.capture_id),
        ("receipt", "proposal", receipt.proposal == started.proposal),
        ("receipt", "started", receipt.started == document.digest(started)),
        ("receipt", "capture", receipt.capture == sealed.begin.capture),
    ]


@dataclass(frozen=True)
class BindingTurns:
    """The turns of one binding, in `turns/` of its folder."""

    folder: Path
    binding: Binding

    def all(self) -> list[TurnFolder]:
        """The turns, oldest first. Raises IntegrityError where one is damaged, or something else lies there."""
        turns = self.folders()
        for turn in turns:
            if turn.evidence.pending.binding != self.binding.digest:
                raise IntegrityError(f"a turn of another binding: {str(turn.path)!r}")
        return turns

    def folders(self) -> list[TurnFolder]:
        """The folders of all turns, oldest first, unread. Raises IntegrityError where another thing lies there."""
        return _folders(self.folder)

    @property
    def aside(self) -> list[TurnFolder]:
        """The folders of damaged turns that a person has set aside."""
        return _folders(self._aside)

    @property
    def latest_generation(self) -> int:
        """That of the newest turn there ever was; 0 where there was none."""
        return max((turn.generation for turn in (*self.folders(), *self.aside)), default=0)

    @property
    def _aside(self) -> Path:
        return self.folder.with_name("set-aside")

    def set_aside(self, turn: TurnFolder) -> Path:
        """Keep the folder of a damaged turn where it counts as none; returns the place. Raises StorageError."""
        kept = self._aside / turn.path.name
        try:
            durable_directory(kept.parent)
            turn.path.rename(kept)
            sync_directory(self.folder)
            sync_directory(kept.parent)
        except OSError as error:
            raise StorageError(f"cannot set {str(turn.path)!r} aside: {error.strerror}") from error
        return kept

    def open(self, pending: TurnPending, scratch: Path) -> TurnFolder:
        """The folder of a new turn, with its first document: on disk before the call returns.

        The caller holds the lease, so that whatever else was half-made here is a leftover. Raises StorageError.
        """
        name = f"{pending.turn.generation:016d}-{document.digest(pending)}"
        making = self.folder / (name + _PART)
        try:
            durable_directory(self.folder)
            for leftover in self.folder.glob("*" + _PART):
                shutil.rmtree(leftover)
            modes.directory(making)
            TurnFolder(making).write("pending", pending, scratch)
            making.rename(self.folder / name)
            sync_directory(self.folder)
        except OSError as error:
            raise StorageError(f"cannot write {str(making)!r}: {error.strerror}") from error
        return TurnFolder(self.folder / name)


def turn_folders(turns: Path) -> Iterator[list[TurnFolder]]:
    """The turns of every binding that a workspace ever had, oldest first. Raises IntegrityError."""
    for generation in sorted(turns.glob("*/*")):
        yield _folders(generation / "turns")


def _folders(place: Path) -> list[TurnFolder]:
    try:
        names = sorted(path.name for path in place.iterdir() if not path.name.endswith(_PART))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read {str(place)!r}: {error.strerror}") from error
    for name in names:
        if not _NAME.fullmatch(name):
            raise IntegrityError(f"no turn: {str(place / name)!r}")
    return [TurnFolder(place / name) for name in names]
