"""Close the account of runs whose supervisor was killed, with what can still be known.

Closing writes evidence, never the workspace: nothing is rolled back by itself. What nobody saw stays unknown, and
the receipt says so.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from putback.errors import FailedError, IntegrityError, LockedError
from putback.ops import diff, recover
from putback.ops.session import Session, without_contents
from putback.paths import RelPath
from putback.records.ledger import Snapshotted
from putback.records.manifest import Manifest
from putback.records.run import EndedBy, Exit
from putback.runs import account
from putback.runs.at_work import at_work
from putback.runs.close import Begun, Left, RunResult, close, conclude, look, publish
from putback.runs.evidence import receipt_digest
from putback.runs.folder import RunFolder
from putback.runs.ledger import Ledger, LedgerWriter
from putback.runs.processes import command_line
from putback.runs.restore import ManifestView
from putback.runs.unfinished import Unfinished, fault
from putback.store.captures import View

SET_ASIDE = "`putback recover --keep` sets it aside and accepts the tree as it is"

# Whoever looks at a ledger holds its lock for an instant.
_TRIES, _PAUSE_SECONDS = 10, 0.02


def finish(session: Session, found: Unfinished) -> RunResult:
    """Close a run whose supervisor is gone.

    Raises LockedError where it, or the command, is still at work; UnknownStateError where a restore was cut short,
    which has to be resolved first; IntegrityError where its evidence is damaged, and FailedError where somebody
    closed it meanwhile.
    """
    evidence = found.evidence
    if found.alive:
        raise found.not_over()
    recover.check_known(session)
    if found.fault:
        raise _damaged(evidence, found.fault)
    with _reopen(evidence) as writer:
        if evidence.receipt.exists():
            raise FailedError(f"nothing to close: run {found.id[:12]} is closed already")
        documents = evidence.load()
        ledger, manifest = documents.ledger, documents.manifest
        wrong = fault(evidence, documents)
        if wrong or ledger is None or ledger.started is None or ledger.before is None or manifest is None:
            raise _damaged(evidence, wrong)
        if ledger.ended is not None:
            return _reseal(evidence, writer, session, ledger)
        ended = ledger.exit
        if ended is None:
            check_gone(evidence)
            ended = Exit(by=EndedBy.UNKNOWN)
            writer.append(ended, sync=True)
        begun = Begun(
            started=ledger.started,
            began=ledger.began,
            snapshot=ledger.before,
            before=_before(session, evidence, ledger.before, manifest),
            sizes={item.raw: item.size for item in manifest.files},
        )
        if ledger.after is None:
            return close(session, evidence, writer, begun, ended, None, so_far=ledger)
        left = _left(session, evidence, begun, ledger, ledger.after)
        writer.extend(left.changes[len(ledger.changes) :])
        return conclude(session, evidence, writer, begun, ended, left, None, so_far=ledger)


def check_gone(evidence: RunFolder) -> None:
    """Raise LockedError while any process of the command lives: what it does is not over."""
    for process in at_work(evidence.id, evidence.read_process()):
        who = f"process {process.pid}, {command_line(process)}"
        raise LockedError(
            f"the command of run {evidence.id[:12]} is still at work: {who}",
            hint=f"wait for it or end it (kill {process.pid}), then `putback recover` again",
        )


def set_aside(session: Session, found: Unfinished) -> Path:
    """Give up a run whose evidence is damaged; the evidence is kept. The session is what locks the workspace."""
    recover.check_known(session)
    return found.evidence.set_aside()


def _reopen(evidence: RunFolder) -> LedgerWriter:
    for _ in range(_TRIES):
        try:
            return LedgerWriter.reopen(evidence.ledger)
        except LockedError:
            time.sleep(_PAUSE_SECONDS)
    return LedgerWriter.reopen(evidence.ledger)


def _damaged(evidence: RunFolder, wrong: str) -> IntegrityError:
    return IntegrityError(f"the evidence of run {evidence.id[:12]} is damaged: {wrong}", hint=SET_ASIDE)


def _left(session: Session, evidence: RunFolder, begun: Begun, ledger: Ledger, after: Snapshotted) -> Left:
    """What the ledger, the captures that it names or the tree still say of what the command left.

    Changes are written in path order, so what the ledger has of them is how the whole list begins.
    """
    written = ledger.changes
    if not after.capture:
        return _left_untold(session, evidence, begun, ledger, after)
    capture = session.capture(after.capture)
    found = diff.changes(session.git, begun.before, capture)
    digests = {change.path: change.after.digest for change in found if change.after is not None}

    def size(path: RelPath) -> int:
        return len(session.reader.read(digests[path], "blob"))

    changes = list(account.changed(found, begun.sizes.__getitem__, size))
    if changes[: len(written)] != written:
        raise _damaged(evidence, "the captures in the store contradict the changes in its ledger")
    return Left(after, capture.record, changes)


def _left_untold(session: Session, evidence: RunFolder, begun: Begun, ledger: Ledger, after: Snapshotted) -> Left:
    """The same without a capture: from the tree, if that is still what the ledger says it was."""
    lacking = "it could not be held when the command had ended" if begun.contents else ""
    record = msgspec.structs.replace(begun.before.record, files=after.files, bytes=after.bytes)
    if ledger.breaches or ledger.rollback is not None:
        return Left(after, record, ledger.changes, lacking)  # they come after the last change
    if begun.contents:
        with without_contents(session) as aside:
            now = look(aside, evidence, begun, contents=False, lacking=lacking)
    else:
        now = look(session, evidence, begun, contents=False)
    if now.snapshot.tree == after.tree and now.changes[: len(ledger.changes)] == ledger.changes:
        return Left(after, now.record, now.changes, lacking)
    return Left(after, record, ledger.changes, lacking, whole=False)


def _reseal(evidence: RunFolder, writer: LedgerWriter, session: Session, ledger: Ledger) -> RunResult:
    """Put the receipt in its place, where only that was left to be done."""
    draft = evidence.read_draft()
    if ledger.ended is None or receipt_digest(draft) != ledger.ended.receipt:
        raise _damaged(evidence, "its receipt is not the one that its ledger ends with")
    entry = session.entry(evidence.id)
    if entry is None:
        raise _damaged(evidence, "it ended, and the history does not have it")
    return RunResult(entry, publish(evidence, writer, draft), evidence.folder)


def _before(session: Session, evidence: RunFolder, snapshot: Snapshotted, manifest: Manifest) -> View:
    if snapshot.capture:
        return session.capture(snapshot.capture)
    return ManifestView(manifest, evidence.read_ignored())
