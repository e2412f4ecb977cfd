"""Read a ledger: strictly, one line at a time, within bounds, and finding every fault rather than the first.

A ledger is a document that anybody can write. What is read here is well formed and consistent with itself, or its
faults are named; who wrote it nobody can say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

import msgspec

from putback import canonical, paths
from putback.errors import IntegrityError
from putback.records import document
from putback.records.change import Size
from putback.records.ledger import TYPES, Changed, EventData, Snapshotted
from putback.runs.faults import Code, Faults
from putback.runs.order import Order

# The longest event lists the paths of a rollback: 300,000 of them at some 200 bytes.
MAX_LINE_BYTES = 64 << 20
MAX_LEDGER_BYTES = 1 << 30

KINDS: dict[str, type[EventData]] = {name: kind for kind, name in TYPES.items()}
FOREIGN = "x-"
OURS = "x-putback."
_HEX = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class Opaque(msgspec.Struct, frozen=True):
    """The data of an event that another program defined: canonical JSON, not understood."""

    type: str
    data: bytes


class Event(msgspec.Struct, frozen=True):
    """One event. `ts` is RFC 3339, UTC, to the microsecond; `hash` is the one that the line claims.

    `data` is None where it could not be decoded.
    """

    seq: int
    ts: str
    data: EventData | Opaque | None
    hash: str


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    data: msgspec.Raw
    hash: str
    prev: str
    seq: Size
    ts: str
    type: str


class Reader:
    """Iterates over the events of a ledger; `faults` is complete when the iteration is.

    Holds one line at a time, however long the ledger is.
    """

    def __init__(
        self, file: BinaryIO, *, max_line_bytes: int = MAX_LINE_BYTES, max_bytes: int = MAX_LEDGER_BYTES
    ) -> None:
        self.faults = Faults()
        self.count = 0
        self.head = canonical.genesis()
        self.last_ts = ""
        self.order = Order()
        self._file = file
        self._max_line_bytes = max_line_bytes
        self._max_bytes = max_bytes
        self._number = 0
        # None after a line that could not be read, so that one fault is not told twice.
        self._seq: int | None = 0
        self._prev: str | None = self.head

    @property
    def complete(self) -> bool:
        """Whether the run's end is recorded."""
        return self.order.ended

    def __iter__(self) -> Iterator[Event]:
        for line in self._lines():
            event = self._event(line)
            if event is not None:
                yield event

    def _lines(self) -> Iterator[bytes]:
        total = 0
        while line := self._file.readline(self._max_line_bytes + 1):
            self._number += 1
            total += len(line)
            if total > self._max_bytes:
                self._fault(Code.TOO_LARGE, f"the ledger is larger than {self._max_bytes} bytes; not read on")
                return
            if line.endswith(b"\n"):
                yield line[:-1]
            elif len(line) > self._max_line_bytes:
                detail = f"a line is longer than {self._max_line_bytes} bytes; not read on"
                self._fault(Code.LINE_TOO_LONG, detail)
                return
            else:
                self._fault(Code.TORN_TAIL, f"the last line is torn after {len(line)} bytes")

    def _fault(self, code: Code, detail: str) -> None:
        self.faults.add(code, detail, self._number)

    def _event(self, raw: bytes) -> Event | None:
        self.count += 1
        try:
            line = msgspec.json.decode(raw, type=_Line)
        except (msgspec.DecodeError, RecursionError) as error:
            self._fault(_code_of(error, Code.NOT_AN_EVENT), f"not an event: {error}")
            self._seq = self._prev = None
            self.order.skip()
            return None
        self._check_chain(line)
        data = self._decode(line)
        self._check_form(line, raw, data)
        self._check_place(line.type, data)
        return Event(line.seq, line.ts, data, line.hash)

    def _check_chain(self, line: _Line) -> None:
        if self._seq is not None and line.seq != self._seq:
            self._fault(Code.WRONG_SEQ, f"seq is {line.seq}, expected {self._seq}")
        if self._prev is not None and line.prev != self._prev:
            self._fault(Code.BROKEN_CHAIN, "prev is not the hash of the event before")
        self._seq = line.seq + 1
        self._prev = self.head = line.hash
        if not _is_time(line.ts):
            self._fault(Code.BAD_TIME, f"not a time in UTC to the microsecond: {line.ts!r}")
        elif line.ts < self.last_ts:
            self._fault(Code.BAD_TIME, "earlier than the event before")
        else:
            self.last_ts = line.ts

    def _decode(self, line: _Line) -> EventData | Opaque | None:
        kind = KINDS.get(line.type)
        if kind is None:
            if not _TYPE.fullmatch(line.type) or not line.type.startswith(FOREIGN) or line.type.startswith(OURS):
                self._fault(Code.UNKNOWN_TYPE, f"unknown type {line.type!r}")
            return self._opaque(line)
        try:
            return msgspec.json.decode(line.data, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            self._fault(_code_of(error, Code.BAD_DATA), f"{line.type}: {error}")
            return None

    def _opaque(self, line: _Line) -> Opaque | None:
        try:
            decoded = msgspec.json.decode(line.data)
            if not _is_plain(decoded):
                self._fault(Code.BAD_DATA, "values other than strings, integers, lists and objects")
                return None
            return Opaque(line.type, msgspec.json.encode(decoded, order="sorted"))
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            self._fault(Code.BAD_DATA, f"{line.type}: {error}")
            return None

    def _check_form(self, line: _Line, raw: bytes, data: EventData | Opaque | None) -> None:
        """That the line is the one form of its event, and that its hash is that of this form."""
        if data is None or not _TYPE.fullmatch(line.type) or not _is_time(line.ts):
            return
        if not _HEX.fullmatch(line.prev):
            self._fault(Code.WRONG_HASH, "prev is not 64 lowercase hexadecimal digits")
            return
        encoded = data.data if isinstance(data, Opaque) else document.encode(data)
        whole, own = canonical.link(line.seq, line.ts, line.type, encoded, line.prev)
        if whole == raw:
            return
        if own != line.hash:
            self._fault(Code.WRONG_HASH, f"the hash is {line.hash[:12]}, the event's is {own[:12]}")
        place = len(b'{"data":') + len(encoded) + len(b',"hash":"')
        if whole[:place] + line.hash.encode() + whole[place + len(own) :] != raw:
            self._fault(Code.NOT_CANONICAL, "not in canonical form")

    def _check_place(self, kind: str, data: EventData | Opaque | None) -> None:
        when = data.when if isinstance(data, Snapshotted) else None
        path = None
        if isinstance(data, Changed):
            try:
                path = data.name
                reason = paths.fault(path)
                if reason is not None:
                    self._fault(Code.BAD_PATH, f"{reason}: {paths.quote(path)}")
            except IntegrityError as error:
                self._fault(Code.BAD_PATH, error.message)
        misplaced = self.order.take(kind, when, path)
        if misplaced is not None:
            self._fault(Code.OUT_OF_ORDER, misplaced)


def _code_of(error: Exception, otherwise: Code) -> Code:
    return Code.UNKNOWN_FIELD if "unknown field" in str(error) else otherwise


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    """Whether there is nothing in it but strings, integers, lists and objects."""
    front = [value]
    while front:
        item = front.pop()
        if isinstance(item, dict):
            front += item.values()
        elif isinstance(item, list):
            front += item
        elif isinstance(item, bool) or not isinstance(item, str | int):
            return False
    return True
