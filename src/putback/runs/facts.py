"""What the documents of a run say, for checks that ask: computed once, and honest about what is absent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

import msgspec

from putback.git.index import EXECUTABLE, REGULAR, SYMLINK, Entries
from putback.git.trees import build_trees
from putback.paths import RelPath
from putback.records.change import Kind, State
from putback.records.ledger import Changed, RunEnded, RunStarted, Snapshotted
from putback.records.manifest import Manifest
from putback.records.receipt import Receipt
from putback.records.run import Exit, RunStatus
from putback.runs import LEDGER, MANIFEST, RECEIPT
from putback.runs.evidence import Documents
from putback.runs.ledger import Ledger
from putback.runs.portable import holdings

T = TypeVar("T")


class Absent(Exception):
    """What a check asks for is not there; says what."""


class Facts(msgspec.Struct, frozen=True, dict=True):
    """Every property raises Absent where what it is made from is not there.

    Those that compute raise IntegrityError or ValueError where the documents say what cannot be.
    """

    documents: Documents

    def _whole(self, name: str, document: T | None) -> T:
        if document is None:
            raise Absent(f"{name} was not taken" if name in self.documents.faults else f"no {name}")
        return document

    @property
    def manifest(self) -> Manifest:
        return self._whole(MANIFEST, self.documents.manifest)

    @property
    def receipt(self) -> Receipt:
        return self._whole(RECEIPT, self.documents.receipt)

    @property
    def ledger(self) -> Ledger:
        return self._whole(LEDGER, self.documents.ledger)

    @property
    def started(self) -> RunStarted:
        return _there(self.ledger.started, "run.start")

    @property
    def before(self) -> Snapshotted:
        return _there(self.ledger.before, "fs.snapshot of the tree before")

    @property
    def after(self) -> Snapshotted:
        return _there(self.ledger.after, "fs.snapshot of the tree after")

    @property
    def exit(self) -> Exit:
        return _there(self.ledger.exit, "run.exit")

    @property
    def ended(self) -> RunEnded:
        return _there(self.ledger.ended, "run.end")

    @cached_property
    def held(self) -> dict[RelPath, list[State]]:
        """What the manifest says of each path, directories included."""
        return holdings(self.manifest)

    @cached_property
    def changes(self) -> list[tuple[RelPath, Changed]]:
        """Every change with its path, checked once."""
        return [(change.raw, change) for change in self.ledger.changes]

    @cached_property
    def final(self) -> dict[RelPath, State]:
        """Every file and link after the run: what the manifest and the changes make together."""
        files = {entry.raw: entry.state for entry in self.manifest.files}
        for path, change in self.changes:
            files.pop(path, None)
            if change.after is not None and change.after.kind is not Kind.DIRECTORY:
                files[path] = change.after
        if not self.tells_all and tree_id(files) != self.after.tree:
            raise Absent("the run was cut short: not every change need be in the ledger")
        return files

    @property
    def tells_all(self) -> bool:
        """Whether the ledger has to have every change: it has an end, and not that of an interrupted run."""
        ended = self.ledger.ended
        return ended is not None and ended.status is not RunStatus.INTERRUPTED


def _there(event: T | None, name: str) -> T:
    if event is None:
        raise Absent(f"no {name} in the ledger")
    return event


def tree_id(files: Mapping[RelPath, State]) -> str:
    """git's sha256 id of the tree of these files and links. Raises ValueError where none can be made of them."""
    entries: Entries = {}
    for path, state in files.items():
        if state.kind is Kind.DIRECTORY:
            raise ValueError("a directory among the files")
        mode = EXECUTABLE if state.mode & 0o100 else REGULAR
        if state.kind is Kind.SYMLINK:
            mode = SYMLINK
        oid = bytes.fromhex(state.digest)
        if len(oid) != 32:
            raise ValueError("a digest that is no sha256")
        # An index record, of which only mode and id matter here.
        entries[path] = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + oid
    return build_trees(entries).root.hex()


def total_bytes(states: Iterable[State]) -> int:
    """The sum of the sizes."""
    return sum(state.size for state in states)


def differ(what: str, one: object, other: object) -> Iterator[str]:
    """`one` is what the document says that speaks second-hand, `other` what it is about."""
    if one != other:
        yield f"{what}: {_short(one)} against {_short(other)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
