"""Taking a turn back: who has to say so, what has to stand, and what is on record when it fails halfway."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from putback import seams
from putback.errors import (
    IntegrityError,
    LockedError,
    OutOfOrder,
    Stale,
    StorageError,
    UnknownStateError,
    UsageError,
)
from putback.records.turn import Deed, Effect, TurnCapture, TurnState
from putback.turns import binding as bindings
from putback.turns.evidence import TurnFolder
from support.trees import File, Link, put
from support.turns import Turning

SELECTED = ("a", "b", "gone", "made", "private")


def act(turning: Turning) -> None:
    turning.write("a", "by the turn\n")
    turning.stage("a")
    turning.write("b", "by the turn\n")
    turning.remove("gone")
    turning.write("made", "by the turn\n")
    turning.write("private", "private\n", 0o644)


@pytest.fixture
def sealed(turning: Turning) -> TurnCapture:
    return turning.over(*SELECTED, act=lambda: act(turning))


def events(turning: Turning) -> list[Deed]:
    return [event.deed for event in bindings.events(turning.place, turning.binding)]


@pytest.mark.requirement("H25", "H26", "H38")
def test_somebody_has_to_say_so(turning: Turning, sealed: TurnCapture) -> None:
    plan = turning.prepare(sealed)
    with turning.unrecorded():
        with pytest.raises(UsageError, match="needs yes, actor, reason; nothing was touched"):
            turning.turns.apply(turning.binding, plan, actor="", reason=" ")
        for word, empty in (("yes", False), ("actor", ""), ("actor", " \n"), ("reason", "")):
            with pytest.raises(UsageError, match=f"needs {word}; nothing was touched"):
                turning.apply(plan, **{word: empty})
    assert turning.state(sealed) is TurnState.SEALED


@pytest.mark.requirement("H23", "H26")
def test_a_proposal_has_to_be_the_one_that_the_turn_makes(turning: Turning, sealed: TurnCapture) -> None:
    plan = turning.prepare(sealed)
    assert turning.prepare(sealed).digest == plan.digest
    step = plan.steps[0]
    other = msgspec.structs.replace
    tampered = [
        other(plan, steps=plan.steps[1:]),
        other(plan, steps=(other(step, worktree=Effect.KEEP), *plan.steps[1:])),
        other(plan, steps=(other(step, path="other"), *plan.steps[1:])),
        other(plan, turn=other(plan.turn, generation=2)),
        other(plan, head=other(plan.head, branch="side")),
        other(plan, binding_generation=2),
    ]
    for wrong in tampered:
        with turning.unrecorded(), pytest.raises(Stale, match="is not the one that turn 't' makes") as caught:
            turning.apply(wrong)
        assert plan.digest[:12] in caught.value.message and wrong.digest[:12] in caught.value.message
    # Wrong paths in a proposal lead nowhere: what is carried out is what the store makes of the turn.
    turning.apply(plan)
    assert turning.tree[b"other"] == File(b"other, unstaged\n")


DRIFTS: dict[str, tuple[Callable[[Turning], object], str]] = {
    "content": (lambda t: t.write("a", "later\n"), "'a' in the work tree: "),
    "mode alone": (lambda t: os.chmod(t.root / "private", 0o640), "'private' in the work tree: file 0644"),
    "staged": (lambda t: t.stage("b"), "'b' in the index: 100644 "),
    "mode in the index": (lambda t: t.git("update-index", "--chmod=+x", "a"), "'a' in the index: 100644 "),
    "unstaged": (lambda t: t.git("rm", "-q", "--cached", "b"), "'b' in the index: 100644 "),
    "removed": (lambda t: t.remove("made"), "'made' in the work tree: file 0644"),
    "made again": (lambda t: t.write("gone", "gone\n"), "'gone' in the work tree: absent on record, file 0644"),
    "a link": (lambda t: (t.remove("a"), put(os.fsencode(t.root / "a"), Link("b"))), "'a' is a symbolic link"),
    "a second name": (lambda t: os.link(t.root / "a", t.root / "a2"), "'a' is a hard link"),
    "too large": (lambda t: t.write("a", bytes(9 << 20)), "at most 8388608"),
    "assumed": (lambda t: t.git("update-index", "--assume-unchanged", "b"), "'b' is in the index as assume_unch"),
}


@pytest.mark.requirement("H11", "H23", "H26", "H31")
def test_one_path_that_was_changed_since_refuses_all(turning: Turning, sealed: TurnCapture) -> None:
    plan = turning.prepare(sealed)
    before = turning.root.parent / "before"
    shutil.copytree(turning.root, before, symlinks=True)
    for way, (drift, said) in DRIFTS.items():
        drift(turning)
        with turning.untouched_files(), pytest.raises(Stale) as caught:
            turning.apply(plan)
        assert said in caught.value.message, way
        assert "nothing was touched" in (caught.value.hint or "")
        back(turning, before)
    assert Deed.APPLY not in events(turning)
    # What no turn named may change as it likes.
    turning.write("other", "later\n")
    turning.stage("other")
    turning.apply(plan)
    assert turning.tree[b"other"] == File(b"later\n") and turning.staged("other") == b"later\n"


def back(turning: Turning, before: Path) -> None:
    """Put the tree back by hand; the directories stay the ones that were bound."""
    shutil.copyfile(before / ".git" / "index", turning.root / ".git" / "index")
    for name in ("a", "a2", "gone", *SELECTED):
        (turning.root / name).unlink(missing_ok=True)
        if (before / name).exists():
            shutil.copy2(before / name, turning.root / name)


@pytest.mark.requirement("H32", "H33")
def test_what_is_on_record_of_an_application(turning: Turning, sealed: TurnCapture) -> None:
    """The event before anything is staged, `started` before the first effect, the receipt after the last."""
    plan, folder = turning.prepare(sealed), turning.folder(sealed)
    seen: dict[str, tuple[bool, bool, bool, bool, bool]] = {}

    def look(name: str) -> None:
        if name.startswith(("turn.", "restore.stage", "restore.put")) and name not in seen:
            on_record = TurnFolder(folder.path).evidence
            put_back = turning.tree[b"b"] == File(b"b\n")
            seen[name] = (
                Deed.APPLY in events(turning),
                any(path.startswith(b".putback-") for path in turning.tree),
                on_record.started is not None,
                put_back,
                on_record.receipt is not None,
            )

    seams.observe(look)
    try:
        turning.apply(plan, actor="bob", reason="not this")
    finally:
        seams.observe(None)
    assert seen["turn.locked"] == (False, False, False, False, False)
    assert seen["turn.announced"] == (True, False, False, False, False)
    assert seen["restore.stage"][:3] == (True, False, False)
    assert seen["turn.started"] == (True, True, True, False, False)
    assert seen["turn.worktree_published"] == (True, False, True, True, False)
    assert seen["turn.index_published"] == (True, False, True, True, False)
    assert seen["turn.receipt"] == (True, False, True, True, True)
    event = bindings.events(turning.place, turning.binding)[-1]
    assert (event.actor, event.reason, event.turn) == ("bob", "not this", sealed.turn)
    assert (event.capture_id, event.proposal, event.paths) == (sealed.id, plan.digest, sealed.paths)
    assert len(event.staged) == 3
    receipt = TurnFolder(folder.path).evidence.receipt
    assert receipt is not None
    assert (receipt.actor, receipt.reason, receipt.capture) == ("bob", "not this", sealed.begin.capture)


@pytest.mark.requirement("H27")
def test_while_git_works_on_the_index_nothing_is_taken_back(turning: Turning, sealed: TurnCapture) -> None:
    plan = turning.prepare(sealed)
    (turning.root / ".git" / "index.lock").touch()
    with turning.untouched(), pytest.raises(LockedError, match="locked by another program"):
        turning.apply(plan)
    (turning.root / ".git" / "index.lock").unlink()
    turning.apply(plan)


@pytest.mark.requirement("H34", "H35")
def test_a_second_application_says_that_it_was_done(turning: Turning, sealed: TurnCapture) -> None:
    """Only while the beginning stands, and nothing is written for it."""
    plan = turning.prepare(sealed)
    first = turning.apply(plan)
    for _ in range(2):
        with turning.unrecorded():
            again = turning.apply(plan, actor="somebody else", reason="again")
        assert again.already and not first.already
        assert (again.entry, again.steps) == (first.entry, first.steps)
    turning.write("b", "later\n")
    turning.stage("gone")
    with turning.unrecorded(), pytest.raises(Stale, match="was taken back, and its beginning does not stand") as e:
        turning.apply(plan)
    assert "'b' in the work tree" in e.value.message
    turning.write("b", "b\n")
    turning.write("a", "link it\n")
    turning.remove("a")
    put(os.fsencode(turning.root / "a"), Link("b"))
    with turning.unrecorded(), pytest.raises(Stale, match="'a' is a symbolic link"):
        turning.apply(plan)


# --- observers, and failures in between -------------------------------------------------------------------------


def failing_at(step: str) -> Callable[[str], None]:
    def observer(reached: str) -> None:
        if reached == step:
            raise RuntimeError(f"observer at {step}")

    return observer


@pytest.mark.requirement("H17", "H18", "H34")
def test_an_observer_of_a_capture_that_throws(turning: Turning) -> None:
    steps: list[str] = []
    with pytest.raises(RuntimeError, match="observer"):
        turning.begin("a", on_snapshot_step=failing_at("content_persisted"))
    (status,) = turning.turns.list(turning.binding)
    assert status.state is TurnState.UNKNOWN and "its capture was begun and not completed" in status.detail
    with (
        turning.unrecorded(),
        pytest.raises(OutOfOrder, match="cannot be followed by another: it is unknown, its"),
    ):
        turning.begin("a")
    with turning.unrecorded(), pytest.raises(OutOfOrder, match="cannot be sealed: it is unknown"):
        turning.turns.seal(turning.binding, status.capture_id)
    turning.resolve(status.capture_id)
    begun = turning.begin("a", on_snapshot_step=steps.append)
    with pytest.raises(RuntimeError, match="observer"):
        turning.seal(begun, on_snapshot_step=failing_at("content_persisted"))
    assert turning.turns.inspect(turning.binding, begun.id).detail == "its seal was begun and not completed"
    for ask in (lambda: turning.seal(begun), lambda: turning.prepare(begun), lambda: turning.begin("b")):
        with turning.unrecorded(), pytest.raises(OutOfOrder, match="it is unknown, its seal") as caught:
            ask()
        assert "putback turn resolve" in (caught.value.hint or "")
    turning.resolve(begun)
    turning.seal(turning.begin("a"), on_snapshot_step=steps.append)
    assert steps == ["content_persisted", "content_persisted"]


BOUNDARIES = ["started", "worktree_published", "index_published"]


@pytest.mark.requirement("H18", "H33", "H34", "H36")
@pytest.mark.parametrize("step", BOUNDARIES)
def test_an_observer_of_an_application_that_throws(turning: Turning, sealed: TurnCapture, step: str) -> None:
    plan, steps = turning.prepare(sealed), []

    def observer(reached: str) -> None:
        steps.append(reached)
        failing_at(step)(reached)

    with pytest.raises(UnknownStateError, match=f"started and not completed: observer at {step}") as caught:
        turning.apply(plan, on_step=observer)
    assert f"putback turn resolve {sealed.id[:12]}" in (caught.value.hint or "")
    assert steps == BOUNDARIES[: len(steps)] and steps[-1] == step
    status = turning.turns.inspect(turning.binding, sealed.id)
    assert status.state is TurnState.UNKNOWN and status.proposal == plan.digest
    assert status.detail == "taking it back was started, and there is no receipt"
    assert (turning.tree[b"b"] == File(b"b\n")) is (step != "started")
    assert (turning.staged("a") == b"a\n") is (step == "index_published")
    assert not (turning.root / ".git" / "index.lock").exists()
    with turning.unrecorded():
        for ask in (lambda: turning.apply(plan), lambda: turning.prepare(sealed), lambda: turning.begin("a")):
            with pytest.raises(OutOfOrder, match="it is unknown, taking it back was started"):
                ask()
    content = {path: entry for path, entry in turning.tree.items() if not path.startswith(b".putback-")}
    turning.resolve(sealed)
    assert turning.tree == content, "what was staged is gone, and nothing is rewritten"
    assert turning.state(sealed) is TurnState.RESOLVED
    turning.begin("a")


def swap_index(turning: Turning) -> None:
    shutil.copyfile(turning.root / ".git" / "index", turning.root / ".git" / "index.new")
    with open(turning.root / ".git" / "index.new", "ab") as file:
        file.write(b"\0")
    os.rename(turning.root / ".git" / "index.new", turning.root / ".git" / "index")


MEDDLERS: dict[str, tuple[str, Callable[[Turning], object], str]] = {
    "a target": ("started", lambda t: t.write("b", "meddled\n"), "'b': changed meanwhile"),
    "the index": ("worktree_published", swap_index, "index was changed while it was locked"),
    "what was put back": ("index_published", lambda t: t.write("b", "meddled\n"), "'b' in the work tree"),
    "what was staged": (
        "index_published",
        lambda t: (t.remove(".git/index.lock"), t.stage("b", "a"), t.git("update-index", "--chmod=+x", "a")),
        "'a' in the index: 100644",
    ),
    "a link": (
        "index_published",
        lambda t: (t.remove("b"), put(os.fsencode(t.root / "b"), Link("a"))),
        "'b' is a symbolic link",
    ),
}


@pytest.mark.requirement("H18", "H29", "H33", "H36")
@pytest.mark.parametrize("way", MEDDLERS)
def test_an_observer_stands_in_for_no_check(turning: Turning, sealed: TurnCapture, way: str) -> None:
    step, meddle, said = MEDDLERS[way]
    with pytest.raises(UnknownStateError) as caught:
        turning.apply(sealed, on_step=lambda reached: meddle(turning) if reached == step else None)
    assert said in caught.value.message
    assert turning.state(sealed) is TurnState.UNKNOWN


@pytest.mark.requirement("H34")
def test_what_fails_before_the_start_leaves_the_turn_as_it_was(
    turning: Turning, sealed: TurnCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that moves after the first look, and a record that cannot be written."""
    plan, write = turning.prepare(sealed), TurnFolder.write

    def moved(name: str) -> None:
        if name == "turn.announced":
            turning.write("b", "meddled\n")

    seams.observe(moved)
    try:
        with pytest.raises(Stale, match="changed meanwhile: 'b'"):
            turning.apply(plan)
    finally:
        seams.observe(None)
    turning.write("b", "by the turn\n")

    def full(self: TurnFolder, name: str, *rest: object) -> None:
        if name == "started":
            raise StorageError("no space left")
        write(self, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(TurnFolder, "write", full)
    with turning.untouched_files(), pytest.raises(StorageError, match="no space left"):
        turning.apply(plan)
    assert turning.state(sealed) is TurnState.SEALED
    monkeypatch.setattr(TurnFolder, "write", write)
    assert not turning.apply(plan).already


@pytest.mark.requirement("H28", "H34")
def test_a_staged_content_that_is_damaged_in_the_repository(turning: Turning, sealed: TurnCapture) -> None:
    """What the beginning had staged is needed again: found out before anything is touched."""
    oid = turning.git("rev-parse", "HEAD:a").decode().strip()
    place = turning.root / ".git" / "objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(b"damaged")
    with turning.untouched_files(), pytest.raises(IntegrityError, match=oid) as caught:
        turning.apply(sealed)
    assert "git fsck" in (caught.value.hint or "")
    assert turning.state(sealed) is TurnState.SEALED
