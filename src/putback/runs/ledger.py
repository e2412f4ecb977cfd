"""The ledger of a run: the one place that appends to it, and the whole of it read back.

Guaranteed by the writer: every line is canonical and chained to the one before, times never go backwards, events
stand in their order, and what was appended with `sync` is on disk when the call returns. A writer that was killed
leaves at most one torn line, which `reopen` cuts off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from putback import canonical
from putback.errors import IntegrityError, LockedError, RefusedError, StorageError
from putback.fs.journal import Journal
from putback.records import document
from putback.records.ledger import (
    TYPES,
    Changed,
    EventData,
    Instant,
    RollbackRefused,
    RolledBack,
    RunEnded,
    RunStarted,
    Snapshotted,
)
from putback.records.run import Breach, Exit
from putback.runs.events import MAX_LINE_BYTES, Opaque, Reader
from putback.runs.faults import Code, Fault
from putback.runs.order import Order

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(ns: int) -> str:
    """RFC 3339, UTC, to the microsecond, for nanoseconds since the epoch; of equal length, so that texts sort."""
    seconds, microseconds = divmod(ns // 1000, 1_000_000)
    return f"{_to_the_second(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=4)
def _to_the_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


class LedgerWriter:
    """A ledger open for appending, by one process at a time.

    `head` is the hash of the last event appended (that of the genesis before the first), `count` how many there
    are. Every method that writes raises StorageError; after that the ledger has to be reopened.
    """

    def __init__(self, path: Path, *, clock: Callable[[], int] = time.time_ns) -> None:
        """Begin a new ledger, 0600. Raises StorageError, also where there is one."""
        self._clock = clock
        self._order = Order()
        self._last_ts = ""
        self.head = canonical.genesis()
        self.count = 0
        try:
            self._journal = Journal(path)
        except OSError as error:
            raise StorageError(f"cannot begin the ledger {str(path)!r}: {error.strerror}") from error

    @classmethod
    def reopen(cls, path: Path, *, clock: Callable[[], int] = time.time_ns) -> Self:
        """Go on with a ledger whose writer was killed; a torn last line is cut off, every whole event stays.

        Raises LockedError where the writer still lives, IntegrityError where the ledger has any other fault (it is
        left as it was) and StorageError.
        """
        self = cls.__new__(cls)
        self._clock = clock
        try:
            self._journal = Journal.reopen(path, self._resume)
        except BlockingIOError as error:
            raise LockedError(f"another process writes the ledger {str(path)!r}") from error
        except OSError as error:
            raise StorageError(f"cannot go on with the ledger {str(path)!r}: {error.strerror or error}") from error
        return self

    def _resume(self, file: BinaryIO) -> None:
        reader = Reader(file)
        for _ in reader:
            pass
        faults = [fault for fault in reader.faults.found if fault.code is not Code.TORN_TAIL]
        if faults:
            raise IntegrityError(f"damaged ledger, {faults[0]}; it was not continued")
        self._order, self._last_ts = reader.order, reader.last_ts
        self.head, self.count = reader.head, reader.count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is buffered, without waiting for the disk, and close. Raises StorageError."""
        try:
            self._journal.close()
        except OSError as error:
            raise _cannot_write(error) from error

    @property
    def ended(self) -> bool:
        """Whether `run.end` has been appended."""
        return self._order.ended

    def append(self, data: EventData, *, sync: bool) -> None:
        """Add one event; with `sync`, wait until it, and all before it, is on disk.

        Raises ValueError where the event may not stand here, RefusedError where it is longer than a reader takes;
        neither writes anything.
        """
        self._add(data)
        if sync:
            self.sync()

    def extend(self, changes: Iterable[Changed]) -> None:
        """Add many changes, buffered; no more than a buffer of them is held. Raises as `append` does."""
        for change in changes:
            self._add(change)

    def sync(self) -> None:
        """Wait until every event is on disk. Raises StorageError."""
        try:
            self._journal.sync()
        except OSError as error:
            raise _cannot_write(error) from error

    def _add(self, data: EventData) -> None:
        kind = TYPES[type(data)]
        encoded = document.encode(data)
        if len(encoded) > MAX_LINE_BYTES - 1000:
            raise RefusedError(f"an event of {len(encoded)} bytes; a ledger takes {MAX_LINE_BYTES - 1000}")
        when = data.when if isinstance(data, Snapshotted) else None
        path = data.name if isinstance(data, Changed) else None
        misplaced = self._order.fault(kind, when, path)
        if misplaced is not None:
            raise ValueError(f"out of order: {misplaced}")
        self._order.take(kind, when, path)
        self._last_ts = max(self._last_ts, timestamp(self._clock()))
        line, self.head = canonical.link(self.count, self._last_ts, kind, encoded, self.head)
        self.count += 1
        try:
            self._journal.add(line)
        except OSError as error:
            raise _cannot_write(error) from error


def _cannot_write(error: OSError) -> StorageError:
    return StorageError(f"cannot write the ledger: {error.strerror or error}")


class Ledger(msgspec.Struct):
    """A whole ledger. Where an event that stands once comes again, the first counts; that is a fault as well.

    `began` is when it was begun, `told` the hash of the last event before rollback and end. `complete` is false
    where the run's end is not recorded: the run was killed, goes on, or the end was cut off.
    """

    started: RunStarted | None = None
    began: str = ""
    told: str = ""
    before: Snapshotted | None = None
    exit: Exit | None = None
    after: Snapshotted | None = None
    changes: list[Changed] = []
    breaches: list[Breach] = []
    rollback: RolledBack | RollbackRefused | None = None
    ended: RunEnded | None = None
    head: str = ""
    count: int = 0
    complete: bool = False
    faults: tuple[Fault, ...] = ()

    def _take(self, data: EventData | Opaque | None) -> None:
        match data:
            case Changed():
                self.changes.append(data)
            case Breach():
                self.breaches.append(data)
            case RunStarted():
                self.started = self.started or data
            case Snapshotted(when=Instant.BEFORE):
                self.before = self.before or data
            case Snapshotted():
                self.after = self.after or data
            case Exit():
                self.exit = self.exit or data
            case RolledBack() | RollbackRefused():
                self.rollback = self.rollback or data
            case RunEnded():
                self.ended = self.ended or data


def read(file: BinaryIO) -> Ledger:
    """The whole ledger, with every fault. Raises OSError."""
    reader = Reader(file)
    ledger = Ledger()
    for event in reader:
        ledger._take(event.data)
        if isinstance(event.data, RunStarted):
            ledger.began = event.ts
        if not isinstance(event.data, RolledBack | RollbackRefused | RunEnded):
            ledger.told = event.hash
    ledger.head, ledger.count, ledger.complete = reader.head, reader.count, reader.complete
    ledger.faults = tuple(reader.faults.found)
    return ledger
