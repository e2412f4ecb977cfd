"""The documents of a whole, consistent run, small but with one of everything; and pieces of them for tables."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from putback.git.objectid import object_id
from putback.paths import RelPath
from putback.records import document
from putback.records.capture import NotCovered, Reason
from putback.records.change import Change, Kind, Node, State
from putback.records.document import AtPath
from putback.records.ledger import Changed, EventData, Instant, RolledBack, RunEnded, RunStarted, Snapshotted
from putback.records.manifest import Listed, ListedDirectory, Manifest
from putback.records.plan import Outcome, Status
from putback.records.receipt import (
    ChangeCounts,
    LedgerHead,
    Operations,
    Receipt,
    RollbackPart,
    Session,
    SnapshotPart,
)
from putback.records.run import Breach, Discipline, EndedBy, Exit, Limit, Limits, RunStatus
from putback.runs.events import Event, Reader
from putback.runs.evidence import Documents, receipt_digest
from putback.runs.facts import tree_id
from putback.runs.ledger import LedgerWriter

RUN = "5" * 64
CAPTURES = ("b" * 64, "a" * 64)
ROOT = b"/home/u/project"


def file(content: bytes, mode: int = 0o644) -> State:
    return State(kind=Kind.FILE, mode=mode, size=len(content), digest=object_id("blob", content).hex())


def link(target: bytes) -> State:
    return State(kind=Kind.SYMLINK, mode=0o777, size=len(target), digest=object_id("blob", target).hex())


def directory(mode: int = 0o755) -> State:
    return State(kind=Kind.DIRECTORY, mode=mode)


def changed(path: bytes | str, before: State | None, after: State | None) -> Changed:
    return Changed.at(path.encode() if isinstance(path, str) else path, before=before, after=after)


Tree = dict[bytes, State]

BEFORE: Tree = {
    b"caf\xe9": file(b"latin"),
    b"dir": directory(),
    b"dir/gone": file(b"deleted by the run\n"),
    b"keep": file(b"the same\n"),
    b"link": link(b"keep"),
    b"run.sh": file(b"#!/bin/sh\n", 0o755),
}
AFTER: Tree = {
    b"caf\xe9": file(b"latin too"),
    b"dir": directory(0o700),
    b"keep": file(b"the same\n"),
    b"link": link(b"run.sh"),
    b"new": file(b"created\n"),
    b"run.sh": file(b"#!/bin/sh\n", 0o700),
}
NOT_COVERED = (NotCovered.at(b"shrunk", reason=Reason.TOO_LARGE, size=1 << 30),)


def listing(tree: Tree) -> tuple[tuple[Listed, ...], tuple[ListedDirectory, ...]]:
    """The two lists of a manifest."""
    files = {path: state for path, state in sorted(tree.items()) if state.kind is not Kind.DIRECTORY}
    return (
        tuple(
            Listed.at(path, kind=each.kind, mode=each.mode, size=each.size, digest=each.digest)
            for path, each in files.items()
        ),
        tuple(
            ListedDirectory.at(path, mode=each.mode) for path, each in sorted(tree.items()) if path not in files
        ),
    )


def manifest_of(held: Tree, **fields: Any) -> Manifest:
    """A manifest that says so; with `tree` given, also of what no tree can be."""
    files, directories = listing(held)
    if "tree" not in fields:
        fields["tree"] = tree_id({entry.raw: entry.state for entry in files})
    usual: dict[str, Any] = {
        "run": RUN,
        "root": AtPath.at(ROOT),
        "discipline": Discipline.CONTENTS,
        "files": files,
        "directories": directories,
    }
    return Manifest(**(usual | fields))


@dataclass
class Run:
    """A run's documents before they are written: change a part, then `build`."""

    before: Tree = field(default_factory=lambda: dict(BEFORE))
    after: Tree = field(default_factory=lambda: dict(AFTER))
    discipline: Discipline = Discipline.CONTENTS
    rolled_back: bool = True
    edit_events: Callable[[list[EventData]], list[EventData]] = lambda events: events
    edit_receipt: Callable[[Receipt], Receipt] = lambda receipt: receipt
    edit_manifest: Callable[[Manifest], Manifest] = lambda manifest: manifest

    def changes(self) -> list[Changed]:
        names = sorted({*self.before, *self.after})
        pairs = ((name, self.before.get(name), self.after.get(name)) for name in names)
        return [changed(name, old, new) for name, old, new in pairs if old != new]

    def build(self, folder: Path) -> Files:
        """Write the three documents as a run would."""
        manifest = self.edit_manifest(
            manifest_of(self.before, discipline=self.discipline, not_covered=NOT_COVERED, ignored=2)
        )
        receipt = self.edit_receipt(self._receipt(manifest))
        data = document.encode(manifest)
        events = self.edit_events(self._events(manifest, receipt))
        ticks = itertools.count(1_700_000_000_000_000_000, 1_000_000)
        path = folder / "ledger.jsonl"
        path.unlink(missing_ok=True)
        with LedgerWriter(path, clock=lambda: next(ticks)) as writer:
            for event in events:
                writer.append(event, sync=False)
            head = LedgerHead(head=writer.head, events=writer.count)
        whole = document.encode(msgspec.structs.replace(receipt, ledger=head))
        return Files(data, whole, path.read_bytes())

    def _captures(self) -> tuple[str, str]:
        return CAPTURES if self.discipline is Discipline.CONTENTS else ("", "")

    def _taken(self, tree: Tree, when: Instant, **fields: Any) -> Snapshotted:
        files, _ = listing(tree)
        return Snapshotted(
            when=when,
            tree=tree_id({entry.raw: entry.state for entry in files}),
            files=len(files),
            bytes=sum(entry.size for entry in files),
            capture=self._captures()[when is Instant.AFTER],
            stored_bytes=100,
            **fields,
        )

    def _events(self, manifest: Manifest, receipt: Receipt) -> list[EventData]:
        counts = receipt.changes
        digest = document.digest(manifest)
        session = receipt.session
        rollback = receipt.ops.rollback
        return [
            RunStarted.at(
                ROOT,
                run=RUN,
                command=session.command,
                cwd=session.cwd,
                discipline=self.discipline,
                limits=Limits(max_files=1),
            ),
            self._taken(self.before, Instant.BEFORE, not_covered=1, manifest=digest),
            session.exit,
            self._taken(self.after, Instant.AFTER, not_covered=1),
            *self.changes(),
            *receipt.breaches,
            *(
                [
                    RolledBack(
                        trigger="files",
                        applied=2,
                        entry="e" * 64,
                        restored=1,
                        removed=1,
                        paths=rollback.paths,
                        refusals=rollback.refusals,
                    )
                ]
                if rollback
                else []
            ),
            RunEnded(
                status=RunStatus.BREACHED,
                created=counts.created,
                modified=counts.modified,
                deleted=counts.deleted,
                receipt=receipt_digest(receipt),
            ),
        ]

    def _receipt(self, manifest: Manifest) -> Receipt:
        kinds = [change.status for change in self.changes()]
        rollback = RollbackPart(
            applied=2,
            trigger="files",
            restored=1,
            removed=1,
            paths=(AtPath.at(b"caf\xe9"), AtPath.at(b"new")),
            refusals=(Outcome.at(b"link", status=Status.REFUSED, reason="changed meanwhile"),),
        )
        return Receipt(
            session=Session(
                id=RUN,
                command=("make", "all"),
                root=AtPath.at(ROOT),
                cwd="/home/u/project/dir",
                start="2023-11-14T22:13:20.000000Z",
                end="2023-11-14T22:13:21.000000Z",
                status=RunStatus.BREACHED,
                exit=Exit(by=EndedBy.EXIT, code=3, duration_ms=1000),
                discipline=self.discipline,
            ),
            ledger=LedgerHead(head="", events=0),
            ops=Operations(
                snapshot=SnapshotPart(
                    taken=2 if self.discipline is Discipline.CONTENTS else 0,
                    files=len(manifest.files),
                    bytes_stored=200,
                    manifest=document.digest(manifest),
                    not_covered=manifest.not_covered,
                ),
                rollback=rollback if self.rolled_back else None,
            ),
            changes=ChangeCounts(
                created=kinds.count("created"), modified=kinds.count("modified"), deleted=kinds.count("deleted")
            ),
            limits=Limits(max_files=1),
            breaches=(Breach(limit=Limit.FILES, allowed="1", measured="5", detail="caf\\xe9"),),
            limits_disclosure=("this shows consistency, not authorship",),
        )


@dataclass(frozen=True)
class Files:
    """The three documents as bytes; None for one that is absent."""

    manifest: bytes | None
    receipt: bytes | None
    ledger: bytes | None

    def load(self) -> Documents:
        return Documents.of(manifest=self.manifest, receipt=self.receipt, ledger=self.ledger)

    def put(self, folder: Path) -> None:
        """Write them, for tests of what reads files."""
        names = {"manifest.json": self.manifest, "receipt.json": self.receipt, "ledger.jsonl": self.ledger}
        for name, data in names.items():
            if data is not None:
                (folder / name).write_bytes(data)

    def with_(self, **fields: bytes | None) -> Files:
        return replace(self, **fields)


@dataclass
class FakeStore:
    """A store that holds what `Run` says; change a part to make it differ."""

    trees: dict[str, str]
    differences: list[Change]
    heads: dict[str, str]
    gone: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    run: str = ""

    @classmethod
    def of(cls, files: Files) -> FakeStore:
        ledger = files.load().ledger
        assert ledger is not None and ledger.before is not None and ledger.after is not None
        differences = [Change(each.raw, node(each.before), node(each.after)) for each in ledger.changes]
        trees = dict(zip(CAPTURES, (ledger.before.tree, ledger.after.tree), strict=True))
        return cls(trees, differences, {RUN: ledger.told})

    def files_tree(self, capture: str) -> str | None:
        return self.trees.get(capture)

    def forgotten(self, captures: Iterable[str]) -> frozenset[RelPath]:
        return frozenset()

    def changes(self, before: str, after: str) -> Iterable[Change]:
        assert (before, after) == CAPTURES and {before, after} <= self.trees.keys()
        return self.differences

    def damaged(self, digests: Iterable[str]) -> Iterator[str]:
        self.asked = set(digests)
        return iter(sorted(self.asked & self.gone))

    def told(self, run: str) -> str | None:
        return self.heads.get(run)


def node(state: State | None) -> Node | None:
    return None if state is None else Node(state.kind, state.mode, state.digest)


def read(data: bytes, **limits: int) -> tuple[list[Event], Reader]:
    """Every event of a ledger, and the reader that has its faults."""
    reader = Reader(io.BytesIO(data), **limits)
    return list(reader), reader
