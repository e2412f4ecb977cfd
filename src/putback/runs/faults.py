"""What is wrong with a document: a code for programs, and words that are safe to print."""

from __future__ import annotations

import enum

import msgspec

from putback import paths

MAX_FAULTS = 1000


class Code(enum.StrEnum):
    """The kinds of fault, a closed list."""

    UNREADABLE = "unreadable"
    NOT_REGULAR = "not_regular"
    TOO_LARGE = "too_large"
    DAMAGED = "damaged"
    TORN_TAIL = "torn_tail"
    LINE_TOO_LONG = "line_too_long"
    NOT_AN_EVENT = "not_an_event"
    NOT_CANONICAL = "not_canonical"
    BAD_TIME = "bad_time"
    BAD_DATA = "bad_data"
    BAD_PATH = "bad_path"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_FIELD = "unknown_field"
    WRONG_SEQ = "wrong_seq"
    WRONG_HASH = "wrong_hash"
    BROKEN_CHAIN = "broken_chain"
    OUT_OF_ORDER = "out_of_order"
    MORE = "more"


CHAIN = frozenset({Code.WRONG_SEQ, Code.WRONG_HASH, Code.BROKEN_CHAIN})
ORDER = frozenset({Code.OUT_OF_ORDER})


class Fault(msgspec.Struct, frozen=True):
    """One fault. `line` counts from 1; 0 where the fault is of the whole document."""

    code: Code
    detail: str
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.detail}" if self.line else self.detail


class Faults(msgspec.Struct):
    """Every fault in the order found; after `MAX_FAULTS` only that there are more."""

    found: list[Fault] = []

    def add(self, code: Code, detail: str, line: int = 0) -> None:
        if len(self.found) < MAX_FAULTS:
            self.found.append(Fault(code, printable(detail), line))
        elif len(self.found) == MAX_FAULTS:
            self.found.append(Fault(Code.MORE, "and more"))


def printable(text: str) -> str:
    """Text that quotes a document, so that nothing in it can move a terminal's cursor."""
    return paths.printable(text.encode("utf-8", "backslashreplace"))
