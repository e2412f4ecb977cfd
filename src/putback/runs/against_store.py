"""The checks of a run's evidence that need the store: what verification asks of it, and what is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from putback import paths
from putback.paths import RelPath
from putback.records.change import Change
from putback.runs.facts import Absent, Facts, differ

_HEX = re.compile(r"[0-9a-f]{64}")


class StoreView(Protocol):
    """What verification asks of the store. Ids and digests are as the documents have them: check before use."""

    @property
    def run(self) -> str:
        """The run whose evidence is asked for; empty where it may be any."""

    def files_tree(self, capture: str) -> str | None:
        """The id of the tree of files of a capture; None where there is no such capture."""

    def forgotten(self, captures: Iterable[str]) -> frozenset[RelPath]:
        """The paths that were purged from any of these captures after they were taken."""

    def changes(self, before: str, after: str) -> Iterable[Change]:
        """How two captures differ: in path order, directories included, what either could not hold left out."""

    def damaged(self, digests: Iterable[str]) -> Iterable[str]:
        """Those digests whose content is missing, or is not what the digest says."""

    def told(self, run: str) -> str | None:
        """The hash that the history has of the last event before rollback and end; None where it has none."""


def _captures(facts: Facts, store: StoreView) -> Iterator[str]:
    for each in (facts.before, facts.after):
        if gone := store.forgotten([_capture(each.capture)]):
            raise Absent(f"the content of {paths.quote(min(gone))} was forgotten, and is in no capture any more")
        tree = store.files_tree(_capture(each.capture))
        yield from differ(f"tree of the capture {each.when}", each.tree, tree or "no such capture")


def _capture(capture: str) -> str:
    if not capture:
        raise Absent("the run kept digests only")
    if not _HEX.fullmatch(capture):
        raise ValueError("the id of a capture is not 64 lowercase hexadecimal digits")
    return capture


def _store_changes(facts: Facts, store: StoreView) -> Iterator[str]:
    before, after = _capture(facts.before.capture), _capture(facts.after.capture)
    if store.files_tree(before) is None or store.files_tree(after) is None:
        raise Absent("a capture is not in the store")
    gone = store.forgotten([before, after])
    told = {path: change.nodes for path, change in facts.changes if not paths.within(path, gone)}
    for change in store.changes(before, after):
        if change.path not in told and not facts.tells_all:
            continue
        if told.pop(change.path, None) != (change.before, change.after):
            yield f"{paths.quote(change.path)}: the ledger tells something else"
    for path in told:
        yield f"{paths.quote(path)}: the captures do not differ there"


def _contents(facts: Facts, store: StoreView) -> Iterator[str]:
    after = facts.ledger.after
    captures = [_capture(facts.before.capture), "" if after is None else after.capture]
    gone = store.forgotten(captures)
    digests = {entry.digest for entry in facts.manifest.files if not paths.within(entry.name, gone)}
    digests.update(
        change.after.digest
        for change in facts.ledger.changes
        if change.after is not None and not paths.within(change.name, gone)
    )
    digests.discard("")
    if not all(_HEX.fullmatch(each) for each in digests):
        yield "a digest is not 64 lowercase hexadecimal digits"
        return
    for digest in store.damaged(sorted(digests)):
        yield f"content {digest[:12]} is missing or damaged"


def _told(facts: Facts, store: StoreView) -> Iterator[str]:
    run = facts.started.run
    if not _HEX.fullmatch(run):
        raise ValueError("the run's id is not 64 lowercase hexadecimal digits")
    if store.run:
        yield from differ("run", run, store.run)
    told = store.told(run)
    if told is None:
        raise Absent("the history does not have this run")
    yield from differ("last event before rollback and end", facts.ledger.told, told)


STORE_RULES: tuple[tuple[str, Callable[[Facts, StoreView], Iterator[str]]], ...] = (
    ("captures in the store", _captures),
    ("changes against captures", _store_changes),
    ("contents in the store", _contents),
    ("ledger against the history", _told),
)
