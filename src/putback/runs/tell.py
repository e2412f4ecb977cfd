"""Tell what a run did, from its evidence."""

from __future__ import annotations

from pathlib import Path

import msgspec

from putback.ops.compare import Comparison, Shown
from putback.records.change import Change
from putback.records.ledger import Changed
from putback.runs.evidence import Evidence


def with_evidence(shown: Shown, folder: Path) -> Shown:
    """The entry with its receipt, and, where the store has no captures of it, with the changes in its ledger."""
    documents = Evidence(folder).load()
    comparison = shown.comparison
    if comparison is None and documents.ledger is not None:
        changes = [_change(item) for item in documents.ledger.changes]
        comparison = Comparison("before the run", "after it", changes)
    return msgspec.structs.replace(shown, comparison=comparison, receipt=documents.receipt)


def _change(item: Changed) -> Change:
    return Change(item.raw, *item.nodes)
