"""Close a run: capture what it left, write what it did, measure it against its limits, roll it back if asked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from putback import seams
from putback.errors import OverBudget, PutbackError, UnknownStateError
from putback.ops import diff, recover, restore
from putback.ops.restore import Options, Target
from putback.ops.session import Session, without_contents
from putback.paths import RelPath
from putback.records.capture import Capture
from putback.records.history import Cause, Entry, EntryKind
from putback.records.ledger import Changed, Instant, RollbackRefused, RolledBack, RunEnded, RunStarted, Snapshotted
from putback.records.receipt import (
    ChangeCounts,
    LedgerHead,
    Operations,
    Receipt,
    RollbackPart,
    SnapshotPart,
    Verification,
)
from putback.records.receipt import Session as SessionPart
from putback.records.run import Breach, Discipline, Exit, RunStatus
from putback.runs import account, limits, unfinished
from putback.runs.account import Meanwhile
from putback.runs.evidence import receipt_digest
from putback.runs.folder import RunFolder
from putback.runs.ledger import Ledger, LedgerWriter, timestamp
from putback.runs.sight import as_before
from putback.store import captures
from putback.store.captures import View


class RunResult(msgspec.Struct, frozen=True):
    """A run that is over: its entry in the history, its receipt, and the folder with its evidence."""

    entry: Entry
    receipt: Receipt
    folder: Path

    @property
    def contents(self) -> bool:
        """Whether contents were kept, so that it can be taken back."""
        return self.receipt.session.discipline is Discipline.CONTENTS

    @property
    def breached(self) -> bool:
        """Whether a limit was broken."""
        return bool(self.receipt.breaches)

    @property
    def exit_code(self) -> int:
        """The command's own status as a shell has it, or 42 where a limit was broken."""
        return 42 if self.breached else self.receipt.session.exit.status


class Begun(msgspec.Struct, frozen=True):
    """What is known from before the command: `sizes` are those of the files that were there."""

    started: RunStarted
    began: str
    snapshot: Snapshotted
    before: View
    sizes: Mapping[RelPath, int]

    @property
    def contents(self) -> bool:
        return self.started.discipline is Discipline.CONTENTS


class Left(msgspec.Struct, frozen=True):
    """What the command left: the tree, and how it differs. `lacking` says why its contents were not kept.

    `whole` is false where the list of changes is cut off.
    """

    snapshot: Snapshotted
    record: Capture
    changes: list[Changed]
    lacking: str = ""
    whole: bool = True


def close(
    session: Session,
    evidence: RunFolder,
    ledger: LedgerWriter,
    begun: Begun,
    how: Exit,
    verification: Verification | None,
    *,
    so_far: Ledger | None = None,
) -> RunResult:
    """Everything that comes after the command. The ledger has its `run.exit` already."""
    try:
        left = look(session, evidence, begun, contents=begun.contents)
    except OverBudget as error:
        # What the command did is done. It can be told, if not held; a rollback would have to hold it first.
        with without_contents(session) as aside:
            left = look(aside, evidence, begun, contents=False, lacking=error.message)
    seams.reach("run.captured")
    # Written together, so that whoever is killed here leaves all of it or nothing, unless the list is long.
    ledger.append(left.snapshot, sync=False)
    ledger.extend(left.changes)
    ledger.sync()
    seams.reach("run.told")
    return conclude(session, evidence, ledger, begun, how, left, verification, so_far=so_far)


def conclude(
    session: Session,
    evidence: RunFolder,
    ledger: LedgerWriter,
    begun: Begun,
    how: Exit,
    left: Left,
    verification: Verification | None,
    *,
    so_far: Ledger | None,
) -> RunResult:
    """Judge the run, record it and act on it. The ledger has every change already.

    `so_far` is what the ledger has where the supervisor was killed. Such a run is never rolled back: nobody
    watched it to its end.
    """
    known = [] if so_far is None else so_far.breaches
    found = limits.breaches(begun.started.limits, how, left.changes, verification)
    fresh = [breach for breach in found if breach.limit not in {item.limit for item in known}]
    broken = (*known, *fresh)
    for breach in fresh:
        ledger.append(breach, sync=True)
    status = RunStatus.INTERRUPTED if so_far else RunStatus.BREACHED if broken else RunStatus.FINISHED
    entry = _record(session, begun, how, left, status, ledger.head)
    seams.reach("run.recorded")
    rollback = None if so_far is None else so_far.rollback or rolled_back(session, begun, broken)
    if so_far is None and broken and begun.started.rollback_on_breach:
        rollback = _roll_back(session, begun, left, _trigger(broken))
    if rollback is not None and (so_far is None or so_far.rollback is None):
        ledger.append(rollback, sync=True)
        seams.reach("run.rolled_back")
    said = account.meanwhile(_meanwhile(session, begun))
    if so_far is not None:
        recovered = _restores(session, begun, Cause.RECOVER)
        said += account.interruption(
            so_far, how, broken, verification, rollback, [entry.short_id for entry in recovered]
        )
    receipt = _receipt(begun, how, left, status, broken, verification, rollback, said)
    return RunResult(entry, seal(evidence, ledger, receipt), evidence.folder)


def seal(evidence: RunFolder, ledger: LedgerWriter, receipt: Receipt) -> Receipt:
    """End the ledger with the receipt's digest, and write the receipt with the ledger's head."""
    evidence.write_draft(receipt)
    seams.reach("run.drafted")
    counts = receipt.changes
    end = RunEnded(
        status=receipt.session.status,
        created=counts.created,
        modified=counts.modified,
        deleted=counts.deleted,
        receipt=receipt_digest(receipt),
    )
    ledger.append(end, sync=True)
    seams.reach("run.sealing")
    return publish(evidence, ledger, receipt)


def publish(evidence: RunFolder, ledger: LedgerWriter, draft: Receipt) -> Receipt:
    """Write the receipt of a ledger that has its end."""
    receipt = msgspec.structs.replace(draft, ledger=LedgerHead(head=ledger.head, events=ledger.count))
    evidence.write_receipt(receipt)
    seams.reach("run.sealed")
    evidence.close()
    return receipt


def look(session: Session, evidence: RunFolder, begun: Begun, *, contents: bool, lacking: str = "") -> Left:
    """Capture the tree as it is now, and compare it with what it was."""
    intake = session.capturer.intake
    seen = as_before(session, begun.before, begun.sizes, evidence.rules)
    state = seen.state

    def size(path: RelPath) -> int:
        return seen.sizes[path] if path in seen.sizes else intake.size(path)

    found = diff.changes(session.git, begun.before, state)
    snapshot = Snapshotted(
        when=Instant.AFTER,
        tree=state.files_tree,
        files=state.record.files,
        bytes=state.record.bytes,
        not_covered=len(state.record.not_covered),
        capture=captures.write(session.where, state) if contents else "",
        stored_bytes=intake.stored_bytes,
    )
    return Left(snapshot, state.record, list(account.changed(found, begun.sizes.__getitem__, size)), lacking)


def _record(session: Session, begun: Begun, how: Exit, left: Left, status: RunStatus, told: str) -> Entry:
    """Put the run into the history, unless it is there already."""
    known = session.entry(begun.started.run)
    if known is not None:
        return known
    entry = Entry(
        seq=session.history.next_seq(),
        id=begun.started.run,
        kind=EntryKind.RUN,
        created_ns=time.time_ns(),
        before=begun.snapshot.capture,
        after=left.snapshot.capture,
        message=" ".join(begun.started.command),
        files=left.record.files,
        bytes=left.record.bytes,
        not_covered=len(left.record.not_covered),
        status=status,
        exit_code=how.status,
        ledger=told,
        changed=len(left.changes),
    )
    session.history.add(entry, session.where.scratch)
    return entry


def _roll_back(session: Session, begun: Begun, left: Left, trigger: str) -> RolledBack | RollbackRefused:
    """Take the run back. Whatever prevents it becomes the reason of a refusal."""
    run = begun.started.run
    if left.lacking:
        return RollbackRefused(trigger=trigger, reason=f"what the run left cannot be held: {left.lacking}")
    try:
        target = Target(
            goal=session.capture(begun.snapshot.capture),
            recorded=session.capture(left.snapshot.capture),
            of=run,
            cause=Cause.ROLLBACK,
            message=f"rollback of {run[:12]}: {trigger}",
        )
        prepared = restore.prepare(session, target, Options(force=True))
        done = restore.carry_out(session, prepared)
    except PutbackError as error:
        if recover.inspect(session) is not None:
            # Paths have gone back already: to call that a refusal would be a lie.
            raise UnknownStateError(
                f"the rollback was cut short: {error.message}",
                hint="`putback recover` shows how far it came, resolves that and closes the run",
            ) from error
        return RollbackRefused(trigger=trigger, reason=error.message)
    return account.rollback(trigger, done.outcomes, done.entry)


def rolled_back(session: Session, begun: Begun, broken: tuple[Breach, ...]) -> RolledBack | RollbackRefused | None:
    """The rollback of this run that the history has, though the ledger may not."""
    for entry in _restores(session, begun, Cause.ROLLBACK):
        return account.rollback(_trigger(broken), session.capture(entry.after).outcomes, entry)
    return None


def _restores(session: Session, begun: Begun, cause: Cause) -> list[Entry]:
    """The entries of the history in which this run was put back for that reason, oldest first."""
    entries = session.history.readable()[0]
    return [entry for entry in reversed(entries) if entry.cause is cause and entry.of == begun.started.run]


def _meanwhile(session: Session, begun: Begun) -> Meanwhile:
    """What else was done to the workspace since the run began. Whatever ended after that was at work then."""
    own = (begun.started.run, *(entry.id for entry in _restores(session, begun, Cause.ROLLBACK)))
    entries = [
        entry
        for entry in session.history.readable()[0]
        if entry.id not in own and timestamp(entry.created_ns) >= begun.began
    ]
    ended = {entry.id for entry in entries if entry.kind is EntryKind.RUN}
    supervised = set(unfinished.supervised(session.where)) - {begun.started.run}
    return Meanwhile(
        runs=tuple(sorted(ended | supervised)),
        restores=tuple(entry.id for entry in reversed(entries) if entry.kind is EntryKind.RESTORE),
    )


def _trigger(broken: tuple[Breach, ...]) -> str:
    return " ".join(breach.limit for breach in broken)


def _receipt(
    begun: Begun,
    how: Exit,
    left: Left,
    status: RunStatus,
    broken: tuple[Breach, ...],
    verification: Verification | None,
    rollback: RolledBack | RollbackRefused | None,
    said: list[str],
) -> Receipt:
    started = begun.started
    missing = {item.raw: item for item in (*begun.before.record.not_covered, *left.record.not_covered)}
    return Receipt(
        session=SessionPart(
            id=started.run,
            command=started.command,
            root=account.root(started),
            cwd=started.cwd,
            start=begun.began,
            end=timestamp(time.time_ns()),
            status=status,
            exit=how,
            discipline=started.discipline,
            tool=started.tool,
        ),
        ledger=LedgerHead(head="", events=0),
        ops=Operations(
            snapshot=SnapshotPart(
                taken=bool(begun.snapshot.capture) + bool(left.snapshot.capture),
                files=begun.snapshot.files,
                bytes_stored=begun.snapshot.stored_bytes + left.snapshot.stored_bytes,
                manifest=begun.snapshot.manifest,
                not_covered=tuple(missing[path] for path in sorted(missing)),
            ),
            rollback=None if rollback is None else RollbackPart.of(rollback),
        ),
        changes=ChangeCounts.of(left.changes),
        limits=started.limits,
        breaches=broken,
        verification=verification,
        limits_disclosure=(
            *account.disclosure(started, how, len(begun.before.ignored), left.lacking, left.whole),
            *said,
        ),
    )
