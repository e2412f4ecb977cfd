"""Check a run's evidence: do its documents agree with themselves, with each other and, where it is at hand, with
the store?

Agreement is all that this can show. Whoever can write the documents can write consistent ones, and whoever can
write the store can write one to match: that every check passes does not say who made the documents, nor that what
they tell has happened. The last check of every answer says so.

A check whose input is absent is skipped, never passed.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import msgspec

from putback import paths
from putback.errors import IntegrityError
from putback.records import document
from putback.records.change import PERMISSION_BITS, State
from putback.records.ledger import RolledBack
from putback.records.receipt import ChangeCounts, RollbackPart
from putback.records.run import Discipline, RunStatus
from putback.runs import LEDGER, MANIFEST, RECEIPT
from putback.runs.against_store import STORE_RULES, StoreView
from putback.runs.evidence import Documents, receipt_digest
from putback.runs.facts import Absent, Facts, differ, total_bytes, tree_id
from putback.runs.faults import CHAIN, ORDER, Fault, printable
from putback.runs.portable import Disagreement, root_of, state_fault

_RUN_ID = re.compile(r"[0-9a-f]{64}")
_EXAMPLES = 3
CONSISTENCY_ONLY = (
    "consistency is all that was checked: no check can show who wrote these documents, or that they tell the truth"
)


class Result(enum.StrEnum):
    """How a check came out; skipped means that its input is absent, or that it cannot be made at all."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


class Check(msgspec.Struct, frozen=True):
    """One check. `detail` is safe to print; for one that failed it names the first few problems."""

    name: str
    result: Result
    detail: str = ""


def verify(documents: Documents, store: StoreView | None = None) -> list[Check]:
    """Every check, always the same ones in the same order. Raises what the store raises, and nothing else."""
    facts = Facts(documents)
    checks = [_decoded(documents, MANIFEST, documents.manifest), _decoded(documents, RECEIPT, documents.receipt)]
    checks += _ledger_checks(documents)
    checks += [_check(name, lambda rule=rule: rule(facts)) for name, rule in _RULES]  # type: ignore[misc]
    for name, asks in STORE_RULES:
        if store is None:
            checks.append(Check(name, Result.SKIP, "no store"))
        else:
            checks.append(_check(name, lambda asks=asks: asks(facts, store)))  # type: ignore[misc]
    return [*checks, Check("authorship", Result.SKIP, CONSISTENCY_ONLY)]


def _check(name: str, rule: Callable[[], Iterator[str]]) -> Check:
    problems: list[str] = []
    more = 0
    try:
        for problem in rule():
            if len(problems) < _EXAMPLES:
                problems.append(problem)
            else:
                more += 1
    except Absent as absent:
        if not problems:
            return Check(name, Result.SKIP, str(absent))
    except IntegrityError as error:
        problems.append(error.message)
    except ValueError as error:
        problems.append(str(error))
    return _verdict(name, problems, more)


def _verdict(name: str, problems: list[str], more: int) -> Check:
    if not problems:
        return Check(name, Result.PASS)
    rest = [f"and {more} more"] if more else []
    return Check(name, Result.FAIL, printable("; ".join([*problems, *rest])))


def _decoded(documents: Documents, name: str, record: object) -> Check:
    if name in documents.faults:
        return _faulty(name, documents.faults[name])
    return Check(name, Result.SKIP, f"no {name}") if record is None else Check(name, Result.PASS)


def _faulty(name: str, faults: Iterable[Fault]) -> Check:
    words = [str(fault) for fault in faults]
    return _verdict(name, words[:_EXAMPLES], max(0, len(words) - _EXAMPLES))


def _ledger_checks(documents: Documents) -> list[Check]:
    names = (LEDGER, "ledger chain", "ledger order")
    faults = documents.faults.get(LEDGER, ())
    if documents.ledger is None:
        return [
            _decoded(documents, names[0], None),
            *(Check(name, Result.SKIP, "no ledger") for name in names[1:]),
        ]
    return [
        _faulty(names[0], (fault for fault in faults if fault.code not in CHAIN | ORDER)),
        _faulty(names[1], (fault for fault in faults if fault.code in CHAIN)),
        _faulty(names[2], (fault for fault in faults if fault.code in ORDER)),
    ]


def _complete(facts: Facts) -> Iterator[str]:
    if not facts.ledger.complete:
        yield "no run.end: the run was killed, has not ended, or the end of the ledger was cut off"


def _head(facts: Facts) -> Iterator[str]:
    yield from differ("head", facts.receipt.ledger.head, facts.ledger.head)
    yield from differ("number of events", facts.receipt.ledger.events, facts.ledger.count)


def _receipt_digest(facts: Facts) -> Iterator[str]:
    yield from differ("digest in run.end", facts.ended.receipt, receipt_digest(facts.receipt))


def _manifest_digest(facts: Facts) -> Iterator[str]:
    yield from differ("digest in fs.snapshot", facts.before.manifest, document.digest(facts.manifest))
    if facts.ledger.after is not None:
        yield from differ("digest of a manifest after", facts.after.manifest, "")


def _manifest_entries(facts: Facts) -> Iterator[str]:
    manifest = facts.manifest
    for entries in (manifest.files, manifest.directories):
        names = [entry.raw for entry in entries]
        if any(one >= other for one, other in pairwise(names)):
            yield "paths are not in order, or come twice"
    for path, states in facts.held.items():
        for state in states:
            yield from _impossible(path, state)
    if len(facts.held) != len(manifest.files) + len(manifest.directories):
        yield "a directory among the files, or a path that is listed twice"


def _impossible(path: bytes, state: State | None) -> Iterator[str]:
    if state is not None:
        reason = state_fault(state)
        if reason is None and state.mode > PERMISSION_BITS:
            reason = "its mode has more than permission bits"
        if reason is not None:
            yield f"{paths.quote(path)}: {reason}"


def _manifest_tree(facts: Facts) -> Iterator[str]:
    files = {entry.raw: entry.state for entry in facts.manifest.files}
    yield from differ("tree in the manifest", facts.manifest.tree, tree_id(files))


def _tree_before(facts: Facts) -> Iterator[str]:
    yield from differ("tree in fs.snapshot", facts.before.tree, facts.manifest.tree)


def _tree_after(facts: Facts) -> Iterator[str]:
    yield from differ("tree in fs.snapshot", facts.after.tree, tree_id(facts.final))


def _changes(facts: Facts) -> Iterator[str]:
    for path, change in facts.changes:
        if change.before == change.after:
            yield f"{paths.quote(path)}: nothing changed"
        yield from _impossible(path, change.before)
        yield from _impossible(path, change.after)


def _changes_before(facts: Facts) -> Iterator[str]:
    held = facts.held
    for path, change in facts.changes:
        states = held.get(path, [])
        if change.before is None and states:
            yield f"{paths.quote(path)}: was not there, the manifest lists it"
        elif change.before is not None and change.before not in states:
            yield f"{paths.quote(path)}: was not so in the manifest"


def _counts(facts: Facts) -> Iterator[str]:
    found = ChangeCounts.of(facts.ledger.changes)
    ended = facts.ended
    yield from differ(
        "changes in run.end",
        ChangeCounts(created=ended.created, modified=ended.modified, deleted=ended.deleted),
        found,
    )
    yield from differ("changes in the receipt", facts.receipt.changes, found)


def _files_before(facts: Facts) -> Iterator[str]:
    before, manifest = facts.before, facts.manifest
    yield from differ("files", before.files, len(manifest.files))
    yield from differ("bytes", before.bytes, sum(entry.size for entry in manifest.files))
    yield from differ("paths not covered", before.not_covered, len(manifest.not_covered))


def _files_after(facts: Facts) -> Iterator[str]:
    after = facts.after
    yield from differ("files", after.files, len(facts.final))
    yield from differ("bytes", after.bytes, total_bytes(facts.final.values()))


def _snapshot(facts: Facts) -> Iterator[str]:
    part, ledger = facts.receipt.ops.snapshot, facts.ledger
    taken = [each for each in (ledger.before, ledger.after) if each is not None]
    yield from differ("captures with contents", part.taken, sum(bool(each.capture) for each in taken))
    yield from differ("files", part.files, facts.before.files)
    yield from differ("bytes stored", part.bytes_stored, sum(each.stored_bytes for each in taken))
    yield from differ("manifest", part.manifest, facts.before.manifest)
    if not set(facts.manifest.not_covered) <= set(part.not_covered):
        yield "the receipt leaves out paths that the manifest does not cover"


def _breaches(facts: Facts) -> Iterator[str]:
    if facts.receipt.breaches != tuple(facts.ledger.breaches):
        yield f"the receipt has {len(facts.receipt.breaches)}, the ledger {len(facts.ledger.breaches)}, or others"
    status = facts.receipt.session.status
    yield from differ("status in the receipt", status, facts.ended.status)
    if status is not RunStatus.INTERRUPTED and bool(facts.ledger.breaches) is not (status is RunStatus.BREACHED):
        yield f"the run is called {status} with {len(facts.ledger.breaches)} breaches"


def _rollback(facts: Facts) -> Iterator[str]:
    part, event = facts.receipt.ops.rollback, facts.ledger.rollback
    if event is None or part is None:
        if event is not None or part is not None:
            yield "only one of receipt and ledger tells of a rollback"
        return
    told = RollbackPart.of(event)
    if isinstance(event, RolledBack):
        yield from differ("applied", event.applied, event.restored + event.recreated + event.removed)
        yield from differ("applied", event.applied, len(event.paths))
        if event.applied <= 0:
            yield "applied, and nothing went back"
        elif not {item.raw for item in event.paths} <= dict(facts.changes).keys():
            yield "a path went back that the run had not changed"
    if part != told:
        yield "the receipt tells another rollback than the ledger"


def _exit(facts: Facts) -> Iterator[str]:
    yield from differ("exit", facts.receipt.session.exit, facts.exit)


def _session(facts: Facts) -> Iterator[str]:
    session, started = facts.receipt.session, facts.started
    yield from differ("command", session.command, started.command)
    yield from differ("limits", facts.receipt.limits, started.limits)
    yield from differ("tool", session.tool, started.tool)


def _run_id(facts: Facts) -> Iterator[str]:
    started = facts.started.run
    if not _RUN_ID.fullmatch(started):
        yield "the run's id is not 64 lowercase hexadecimal digits"
    if facts.documents.manifest is not None:
        yield from differ("manifest", facts.manifest.run, started)
    if facts.documents.receipt is not None:
        yield from differ("receipt", facts.receipt.session.id, started)


def _root(facts: Facts) -> Iterator[str]:
    found = root_of(facts.receipt, facts.ledger, facts.manifest)
    if isinstance(found, Disagreement):
        yield str(found)


def _discipline(facts: Facts) -> Iterator[str]:
    started, ledger = facts.started.discipline, facts.ledger
    if facts.documents.manifest is not None:
        yield from differ("manifest", facts.manifest.discipline, started)
    if facts.documents.receipt is not None:
        yield from differ("receipt", facts.receipt.session.discipline, started)
    for each in (ledger.before, ledger.after):
        if each is not None and bool(each.capture) is not (started is Discipline.CONTENTS):
            yield f"{started}, and the capture {each.when} is {'named' if each.capture else 'not named'}"


def _disclosure(facts: Facts) -> Iterator[str]:
    if not any(line.strip() for line in facts.receipt.limits_disclosure):
        yield "the receipt does not say what it cannot show"


_RULES: tuple[tuple[str, Callable[[Facts], Iterator[str]]], ...] = (
    ("ledger complete", _complete),
    ("ledger head in receipt", _head),
    ("receipt digest in run.end", _receipt_digest),
    ("manifest digest in fs.snapshot", _manifest_digest),
    ("manifest entries", _manifest_entries),
    ("tree of the manifest", _manifest_tree),
    ("tree before", _tree_before),
    ("files before", _files_before),
    ("changes", _changes),
    ("changes against manifest", _changes_before),
    ("tree after", _tree_after),
    ("files after", _files_after),
    ("counts of changes", _counts),
    ("snapshot in receipt", _snapshot),
    ("breaches in receipt", _breaches),
    ("rollback in receipt", _rollback),
    ("exit in receipt", _exit),
    ("session in receipt", _session),
    ("run id", _run_id),
    ("root", _root),
    ("discipline", _discipline),
    ("limits disclosure", _disclosure),
)
