"""Take a turn back: exactly the paths that were captured, in the work tree and in the index, or nothing.

Everything that could refuse is asked before the first effect, and asked again under git's own index lock. From the
record `started` on, whatever goes wrong leaves the turn unknown: the evidence stays, nothing is retried, and a
person closes it.

Not guaranteed: that several files appear at one instant, or isolation from a writer that keeps to neither lock.
What such a writer does is noticed at the last look at each target, or when everything is read back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from putback import seams
from putback.errors import (
    FailedError,
    OverBudget,
    PutbackError,
    Stale,
    StorageError,
    UnknownStateError,
    UnsupportedPath,
    UsageError,
)
from putback.git.user_index import NewEntry
from putback.ops.apply import Applier
from putback.paths import RelPath, quote
from putback.records import document
from putback.records.document import AtPath
from putback.records.history import Cause, Entry, EntryKind
from putback.records.plan import Action, Plan, Step
from putback.records.turn import (
    Deed,
    Effect,
    IndexEntry,
    Selected,
    TurnCapture,
    TurnEvent,
    TurnReceipt,
    TurnRollbackPlan,
    TurnRollbackResult,
    TurnSnapshot,
    TurnStarted,
    TurnState,
)
from putback.turns import leftovers, snapshot, turn, words
from putback.turns.custody import Custody
from putback.turns.evidence import TurnFolder
from putback.turns.index_lock import IndexLock
from putback.turns.snapshot import Purport, Reading

# The boundaries that an observer of an application is told of.
STARTED, WORKTREE_PUBLISHED, INDEX_PUBLISHED = "started", "worktree_published", "index_published"

_ACTIONS = {Effect.RESTORE: Action.RESTORE, Effect.RECREATE: Action.RECREATE, Effect.REMOVE: Action.REMOVE}


def apply(
    custody: Custody,
    plan: TurnRollbackPlan,
    *,
    yes: bool,
    actor: str,
    reason: str,
    on_step: turn.Observer | None = None,
) -> TurnRollbackResult:
    """Carry out a proposal that somebody has reviewed.

    Raises UsageError without `yes`, `actor` and `reason`; OutOfOrder where the turn is not the latest and sealed,
    or where a run is at work or unclosed; Stale where the proposal, HEAD, the index or a file is not what the end
    of the turn says; LockedError where somebody else holds git's index lock. After `started` is on record it
    raises UnknownStateError, and after the receipt StorageError, which says that the turn was taken back.
    """
    _check_asked(yes, actor, reason)
    folder = custody.latest(plan.capture_id)
    state = folder.evidence.state
    if state not in (TurnState.SEALED, TurnState.APPLIED):
        raise turn.out_of_order(folder, "taken back")
    sealed = turn.sealed_of(folder)
    made = turn.proposal(custody, sealed)
    if made.digest != plan.digest:
        raise Stale(
            f"the proposal {plan.digest[:12]} is not the one that turn {sealed.turn.turn_id!r} makes:"
            f" {made.digest[:12]}",
            hint="nothing was touched; `putback turn prepare` shows the present one",
        )
    custody.check_inactive()
    if state is TurnState.APPLIED:
        return _applied_already(custody, folder, sealed, made)
    application = _Application(custody, folder, sealed, made, actor, reason, on_step)
    try:
        return application.carry_out()
    except StorageError as error:
        if folder.evidence.receipt is not None:
            error.message = f"turn {sealed.turn.turn_id!r} was taken back, but {error.message}"
            error.hint = "the next `putback turn` command on the binding tries that again"
        raise


def _check_asked(yes: bool, actor: str, reason: str) -> None:
    said = {"yes": yes, "actor": bool(actor.strip()), "reason": bool(reason.strip())}
    missing = [name for name, given in said.items() if not given]
    if missing:
        raise UsageError(
            f"taking a turn back needs {', '.join(missing)}; nothing was touched",
            hint="say --yes, and with --actor and --reason who does it and why",
        )
    words.check(actor=actor, reason=reason)


def _applied_already(
    custody: Custody, folder: TurnFolder, sealed: TurnCapture, made: TurnRollbackPlan
) -> TurnRollbackResult:
    """The answer to a second application: read-only, and only while the beginning still stands."""
    reading = _look(custody, sealed)
    turn.check_head(sealed, reading)
    check_stands(reading, sealed.begin, f"turn {sealed.turn.turn_id!r} was taken back, and its beginning")
    entry = record(custody, folder, sealed)
    return TurnRollbackResult(
        capture_id=sealed.id, proposal=made.digest, steps=made.steps, already=True, entry=entry
    )


def _look(custody: Custody, sealed: TurnCapture) -> Reading:
    """What stands at the paths now. Raises Stale where that is nothing that a turn could have captured."""
    try:
        return snapshot.read(custody, sealed.raw_paths, Purport.APPLY)
    except (UnsupportedPath, OverBudget) as error:
        raise Stale(error.message, hint=Purport.APPLY.value) from error


def check_stands(reading: Reading, end: TurnSnapshot, what: str) -> None:
    """Raise Stale, with every path and both states, where the paths are not as one end of the turn has them."""
    found = [
        f"{quote(then.raw)} {side}: {was} on record, {now} found"
        for then, here in zip(end.selected, reading.selected, strict=True)
        for side, was, now in _sides(then, here)
        if was != now
    ]
    if found:
        raise Stale(
            f"{what} does not stand any more: {'; '.join(found)}",
            hint="nothing was touched; somebody has changed these since",
        )


def _sides(then: Selected, here: Selected) -> Iterator[tuple[str, str, str]]:
    yield "in the index", _index_words(then), _index_words(here)
    yield "in the work tree", str(then.worktree or "absent"), str(here.worktree or "absent")


def _index_words(item: Selected) -> str:
    return "absent" if item.index is None else f"{item.index.mode:o} {item.index.blob[:12]}"


def _new_entry(goal: IndexEntry | None) -> NewEntry | None:
    """Without stat data: git looks at the file itself before it takes it for unchanged."""
    return None if goal is None else NewEntry(goal.mode, goal.blob)


@dataclass
class _Application:
    """One application, from its last checks to its receipt."""

    custody: Custody
    folder: TurnFolder
    sealed: TurnCapture
    plan: TurnRollbackPlan
    actor: str
    reason: str
    on_step: turn.Observer | None

    def carry_out(self) -> TurnRollbackResult:
        assert self.sealed.end is not None
        with IndexLock(
            self.custody.binding.git_dir.raw, self.sealed.id, self.custody.session.where.store.modes.file
        ) as lock:
            seams.reach("turn.locked")
            reading = _look(self.custody, self.sealed)
            turn.check_head(self.sealed, reading)
            check_stands(reading, self.sealed.end, f"the end of turn {self.sealed.turn.turn_id!r}")
            contents = self._staged_contents()
            self.custody.staged.missing(contents)
            applier = self._applier()
            self.custody.log(self._event(applier))
            seams.reach("turn.announced")
            self._stage(applier)
            started = self._start(lock, applier)
            try:
                self._publish(applier, reading, lock, contents)
                self._conclude(started)
            except (Exception, KeyboardInterrupt) as error:
                raise self._unknown(error) from error
            seams.reach("turn.receipt")
        entry = record(self.custody, self.folder, self.sealed)
        return TurnRollbackResult(
            capture_id=self.sealed.id, proposal=self.plan.digest, steps=self.plan.steps, entry=entry
        )

    @property
    def _goals(self) -> dict[RelPath, IndexEntry | None]:
        """What is to be in the index at the paths where something else is."""
        return {item.raw: item.before.index for item in self.plan.steps if item.index is not Effect.KEEP}

    def _staged_contents(self) -> dict[str, bytes]:
        """The contents that the index will need, by their ids in the user's repository."""
        reader = self.custody.session.reader
        return {goal.blob: reader.read(goal.content, "blob") for goal in self._goals.values() if goal is not None}

    def _applier(self) -> Applier:
        wanted = (item for item in self.plan.steps if item.worktree is not Effect.KEEP)
        plan = Plan(
            steps=tuple(
                Step(
                    path=item.path,
                    path_b64=item.path_b64,
                    action=_ACTIONS[item.worktree],
                    now=item.end.worktree,
                    goal=item.before.worktree,
                )
                for item in wanted
            )
        )
        return Applier(
            self.custody.session.root,
            plan,
            os.urandom(4).hex(),
            lambda oid: self.custody.session.reader.stream(oid, "blob"),
            self.custody.session.progress,
        )

    def _event(self, applier: Applier) -> TurnEvent:
        return TurnEvent(
            deed=Deed.APPLY,
            actor=self.actor,
            reason=self.reason,
            binding=self.custody.binding.digest,
            turn=self.sealed.turn,
            capture_id=self.sealed.id,
            proposal=self.plan.digest,
            paths=self.sealed.paths,
            staged=tuple(AtPath.at(path) for path in applier.staging_places()),
            created_ns=time.time_ns(),
        )

    def _stage(self, applier: Applier) -> None:
        """Write every content beside its target. A target that moved meanwhile ends it here."""
        applier.stage()
        declined = [outcome for outcome in applier.outcomes.values() if not outcome.status.applied]
        if declined:
            applier.discard()
            listed = "; ".join(f"{quote(outcome.raw)}: {outcome.reason}" for outcome in declined)
            raise Stale(f"changed meanwhile: {listed}", hint="nothing was touched; prepare the turn again")

    def _start(self, lock: IndexLock, applier: Applier) -> TurnStarted:
        device, inode = lock.identity
        started = TurnStarted(
            capture_id=self.sealed.id,
            proposal=self.plan.digest,
            lock_device=device,
            lock_inode=inode,
            created_ns=time.time_ns(),
        )
        try:
            self.folder.write("started", started, self.custody.session.where.scratch)
        except BaseException:
            applier.discard()
            raise
        return started

    def _publish(self, applier: Applier, reading: Reading, lock: IndexLock, contents: Mapping[str, bytes]) -> None:
        self._reached(STARTED)
        # From here the workspace is neither as before nor as after: what can be finished is finished.
        self.custody.session.progress.up = True
        outcomes = applier.publish()
        bad = [outcome for outcome in outcomes if not outcome.status.applied]
        if bad:
            raise FailedError("; ".join(f"{quote(item.raw)}: {item.reason or item.status}" for item in bad))
        self._reached(WORKTREE_PUBLISHED)
        self.custody.staged.import_blobs(contents)
        lock.publish(reading.index, {path: _new_entry(goal) for path, goal in self._goals.items()})
        self._reached(INDEX_PUBLISHED)

    def _conclude(self, started: TurnStarted) -> None:
        """Read both trees back, and write the receipt."""
        reading = _look(self.custody, self.sealed)
        check_stands(reading, self.sealed.begin, "what was put back")
        receipt = TurnReceipt(
            capture_id=self.sealed.id,
            proposal=self.plan.digest,
            started=document.digest(started),
            actor=self.actor,
            reason=self.reason,
            capture=self.sealed.begin.capture,
            created_ns=time.time_ns(),
        )
        self.folder.write("receipt", receipt, self.custody.session.where.scratch)

    def _reached(self, step: str) -> None:
        seams.reach(f"turn.{step}")
        if self.on_step is not None:
            self.on_step(step)

    def _unknown(self, error: Exception | KeyboardInterrupt) -> UnknownStateError:
        said = error.message if isinstance(error, PutbackError) else str(error) or type(error).__name__
        said = "interrupted" if isinstance(error, KeyboardInterrupt) else said
        return UnknownStateError(
            f"taking turn {self.sealed.turn.turn_id!r} back was started and not completed: {said}",
            hint=f"nothing is retried; look, then `putback turn resolve {self.sealed.id[:12]}`",
        )


def settle(custody: Custody) -> None:
    """Finish what a killed process left of the latest turn, where its evidence leaves no doubt.

    What it left beside its targets and its index lock are taken away, and the history gets what it lacks. A turn
    that is unknown is left alone. Raises IntegrityError where the turn is damaged.
    """
    for folder in custody.turns.folders()[-1:]:
        evidence = folder.evidence
        if evidence.state not in (TurnState.SEALED, TurnState.APPLIED):
            continue
        leftovers.clear(custody, folder.capture_id)
        sealed = turn.sealed_of(folder)
        if evidence.state is TurnState.APPLIED:
            record(custody, folder, sealed)
        else:
            turn.record(custody, sealed)


def record(custody: Custody, folder: TurnFolder, sealed: TurnCapture) -> str:
    """Enter an application into the history, unless it is there, and return the id of its entry.

    Undo and redo take it for what it is: the turn undone.
    """
    receipt = folder.evidence.receipt
    assert receipt is not None and sealed.end is not None
    history = custody.session.history
    turn.record(custody, sealed)
    entry = Entry(
        seq=0,
        id="",
        kind=EntryKind.RESTORE,
        created_ns=receipt.created_ns,
        before=sealed.end.capture,
        after=sealed.begin.capture,
        message=f"turn {sealed.turn.turn_id}: {receipt.reason}",
        cause=Cause.TURN,
        of=sealed.id,
        scope=sealed.paths,
        files=sum(item.worktree is not None for item in sealed.begin.selected),
        bytes=sum(item.size for item in sealed.begin.selected),
        applied=(changed := turn.changed(sealed)),
        changed=changed,
    )
    entry = msgspec.structs.replace(entry, id=document.digest(entry))
    if all(name.id != entry.id for name in history.names()):
        numbered = msgspec.structs.replace(entry, seq=history.next_seq())
        history.add(numbered, custody.session.where.scratch)
    return entry.id
