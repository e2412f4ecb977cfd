"""Begin a turn, seal it, and propose to take it back.

Every function is given the custody of the binding and refuses before it writes. What it writes is the turn's own
evidence and captures; neither the work tree nor the user's index is touched here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from putback import seams
from putback.errors import OutOfOrder, OverBudget, Stale
from putback.records.capture import Purpose
from putback.records.document import AtPath
from putback.records.history import Entry, EntryKind
from putback.records.turn import (
    MOST_BINDING_BYTES,
    MOST_CAPTURES,
    MOST_SNAPSHOT_BYTES,
    Effect,
    Selected,
    TurnCapture,
    TurnIdentity,
    TurnPending,
    TurnRollbackPlan,
    TurnState,
    TurnStep,
)
from putback.turns import selection, snapshot, words
from putback.turns.custody import Custody
from putback.turns.evidence import BindingTurns, TurnFolder
from putback.turns.snapshot import Purport, Reading

# What an observer of a capture is told: the content is stored, and nothing says so yet.
CONTENT_PERSISTED = "content_persisted"
Observer = Callable[[str], None]


def begin(
    custody: Custody, turn: TurnIdentity, given: Iterable[bytes], on_snapshot_step: Observer | None = None
) -> TurnCapture:
    """Capture the beginning of a turn.

    Raises OutOfOrder while an earlier turn is open and for a generation that is not above all others, OverBudget
    before anything is written, UnsupportedPath, UnsafePath for the paths, UsageError for them or
    the identity, and StorageError.
    """
    words.check_identity(turn)
    chosen = selection.chosen(given)
    turns = custody.turns.all()
    _check_next(turns, custody.turns.latest_generation, turn)
    reading = snapshot.read(custody, chosen, Purport.BEGIN)
    _check_caps(custody.turns, reading.bytes, new=True)
    pending = TurnPending(
        binding=custody.binding.digest,
        binding_id=custody.binding.id,
        binding_generation=custody.binding.generation,
        turn=turn,
        paths=tuple(AtPath.at(path) for path in chosen),
        reserved_bytes=reading.bytes,
        created_ns=time.time_ns(),
    )
    scratch = custody.session.where.scratch
    folder = custody.turns.open(pending, scratch)
    seams.reach("turn.pending")
    stored = snapshot.store(custody.session, reading, f"begin of turn {turn.turn_id}", Purpose.BEFORE)
    _persisted(on_snapshot_step)
    capture = TurnCapture(
        id=folder.capture_id,
        binding=pending.binding,
        binding_id=pending.binding_id,
        binding_generation=pending.binding_generation,
        turn=turn,
        paths=pending.paths,
        begin=stored,
    )
    folder.write("begun", capture, scratch)
    seams.reach("turn.begun")
    return capture


def seal(custody: Custody, asked: str, on_snapshot_step: Observer | None = None) -> TurnCapture:
    """Capture the end of the latest turn, and make it an entry of the history.

    Raises OutOfOrder where it is not the latest or not open, Stale where HEAD has moved since the beginning, and
    what `begin` raises.
    """
    folder = custody.latest(asked)
    evidence = folder.evidence
    if evidence.state is not TurnState.BEGUN or evidence.begun is None:
        raise out_of_order(folder, "sealed")
    begun = evidence.begun
    chosen = begun.raw_paths
    reading = snapshot.read(custody, chosen, Purport.SEAL)
    check_head(begun, reading)
    _check_caps(custody.turns, reading.bytes, new=False)
    pending = structs.replace(
        evidence.pending, reserved_bytes=reading.bytes, capture_id=begun.id, created_ns=time.time_ns()
    )
    scratch = custody.session.where.scratch
    folder.write("sealing", pending, scratch)
    seams.reach("turn.sealing")
    stored = snapshot.store(custody.session, reading, f"end of turn {begun.turn.turn_id}", Purpose.AFTER)
    _persisted(on_snapshot_step)
    sealed = structs.replace(begun, end=stored)
    folder.write("sealed", sealed, scratch)
    seams.reach("turn.sealed")
    record(custody, sealed)
    return sealed


def record(custody: Custody, sealed: TurnCapture) -> None:
    """Enter a sealed turn into the history, unless it is there."""
    end = sealed.end
    assert end is not None
    history = custody.session.history
    if any(name.id == sealed.id for name in history.names()):
        return
    history.add(
        Entry(
            seq=history.next_seq(),
            id=sealed.id,
            kind=EntryKind.TURN,
            created_ns=end.created_ns,
            before=sealed.begin.capture,
            after=end.capture,
            message=sealed.turn.turn_id,
            of=sealed.binding_id,
            scope=sealed.paths,
            files=sum(item.worktree is not None for item in end.selected),
            bytes=sum(item.size for item in end.selected),
            changed=changed(sealed),
        ),
        custody.session.where.scratch,
    )
    seams.reach("turn.recorded")


def changed(sealed: TurnCapture) -> int:
    """How many paths the two ends of a turn differ at, on either side."""
    assert sealed.end is not None
    made = steps(sealed.begin.selected, sealed.end.selected)
    return sum(step.index is not Effect.KEEP or step.worktree is not Effect.KEEP for step in made)


def prepare(custody: Custody, asked: str) -> TurnRollbackPlan:
    """The proposal to take the latest sealed turn back. Has no effect on content.

    Raises OutOfOrder where the turn is not the latest, or is not sealed, and IntegrityError where the store does
    not hold both of its ends.
    """
    folder = custody.latest(asked)
    if folder.evidence.state not in (TurnState.SEALED, TurnState.APPLIED):
        raise out_of_order(folder, "taken back")
    return proposal(custody, sealed_of(folder))


def sealed_of(folder: TurnFolder) -> TurnCapture:
    """The sealed capture of a turn that is known to have one."""
    sealed = folder.evidence.sealed
    if sealed is None:
        raise out_of_order(folder, "taken back")
    return sealed


def proposal(custody: Custody, sealed: TurnCapture) -> TurnRollbackPlan:
    """The plan that the two ends of a turn make, both of them checked. Raises IntegrityError."""
    assert sealed.end is not None
    for end in (sealed.begin, sealed.end):
        snapshot.check(custody, end)
    return TurnRollbackPlan(
        capture_id=sealed.id,
        binding=sealed.binding,
        binding_id=sealed.binding_id,
        binding_generation=sealed.binding_generation,
        turn=sealed.turn,
        head=sealed.end.head,
        steps=steps(sealed.begin.selected, sealed.end.selected),
    )


def steps(before: Sequence[Selected], end: Sequence[Selected]) -> tuple[TurnStep, ...]:
    """One step per path; both sequences are of the same paths, in path order. Pure."""
    return tuple(
        TurnStep(
            path=then.path,
            path_b64=then.path_b64,
            before=then,
            end=now,
            index=Effect.between(_staged(then), _staged(now)),
            worktree=Effect.between(then.worktree, now.worktree),
        )
        for then, now in zip(before, end, strict=True)
    )


def check_head(capture: TurnCapture, reading: Reading) -> None:
    """Raise Stale where HEAD is not what it was when the turn began."""
    was, now = capture.begin.head, reading.head
    if was != now:
        raise Stale(
            f"HEAD has moved: {_said(was.head, was.branch)} at the beginning of turn"
            f" {capture.turn.turn_id!r}, {_said(now.head, now.branch)} now",
            hint="nothing was touched; put HEAD back where it was, or close the turn with `putback turn resolve`",
        )


def out_of_order(folder: TurnFolder, wish: str) -> OutOfOrder:
    """The refusal of what the state of a turn does not allow."""
    evidence = folder.evidence
    what = f"turn {evidence.pending.turn.turn_id!r} cannot be {wish}: it is {evidence.state}"
    ways_out = {
        TurnState.BEGUN: f"`putback turn seal {folder.capture_id[:12]}` captures its end",
        TurnState.UNKNOWN: f"look, then `putback turn resolve {folder.capture_id[:12]}` closes it",
    }
    doubt = f", {evidence.doubt}" if evidence.doubt else ""
    return OutOfOrder(what + doubt, hint=ways_out.get(evidence.state, "begin another turn"))


def _staged(item: Selected) -> tuple[int, str] | None:
    return None if item.index is None else (item.index.mode, item.index.content)


def _said(head: str, branch: str) -> str:
    return f"{head[:12] or 'no commit'} on {branch or 'no branch'}"


def _check_next(turns: Sequence[TurnFolder], newest: int, turn: TurnIdentity) -> None:
    for folder in turns:
        if folder.evidence.open:
            raise out_of_order(folder, "followed by another")
    if turn.generation <= newest:
        raise OutOfOrder(
            f"generation {turn.generation} is not above {newest}, that of the latest turn",
            hint=f"the next free one is {newest + 1}",
        )


def _check_caps(turns: BindingTurns, wanted: int, *, new: bool) -> None:
    """Raise OverBudget where a capture would not fit; whatever was ever begun counts."""
    whole, damaged = turns.all(), len(turns.aside)
    count = len(whole) + damaged
    if new and count >= MOST_CAPTURES:
        raise _over("turn.captures", f"{count} captures of this binding", MOST_CAPTURES, count + 1)
    reserved = sum(folder.evidence.reserved_bytes for folder in whole) + damaged * 2 * MOST_SNAPSHOT_BYTES
    if reserved + wanted > MOST_BINDING_BYTES:
        said = f"{reserved} bytes captured of this binding, and {wanted} more"
        raise _over("turn.binding_bytes", said, MOST_BINDING_BYTES, reserved + wanted)


def _over(key: str, said: str, limit: int, measured: int) -> OverBudget:
    return OverBudget(
        f"{said}; at most {limit}",
        key=key,
        limit=limit,
        measured=measured,
        hint="nothing was captured and nothing is evicted; release the binding and bind again",
    )


def _persisted(observer: Observer | None) -> None:
    seams.reach("turn.content_persisted")
    if observer is not None:
        observer(CONTENT_PERSISTED)
