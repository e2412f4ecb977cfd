"""Which turn, when, and whose: generations, HEAD, runs at work, and claims."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from putback.errors import (
    AmbiguousId,
    LockedError,
    MalformedId,
    NotOwned,
    OutOfOrder,
    OverlappingClaim,
    PutbackError,
    Stale,
    UnknownId,
    UsageError,
)
from putback.records.turn import Deed, TurnCapture, TurnState
from putback.turns import binding as bindings
from putback.turns.custody import find
from putback.turns.evidence import TurnFolder
from putback.turns.ownership import Disposition
from support.claims import repository_at
from support.turns import Turning
from support.waiting import until


@pytest.mark.requirement("H3", "H4", "H5")
def test_turns_come_one_after_the_other(turning: Turning) -> None:
    first = turning.begin("a", generation=3)
    with turning.unrecorded():
        with pytest.raises(OutOfOrder, match="'t' cannot be followed by another: it is begun") as caught:
            turning.begin("b", generation=4)
        assert f"putback turn seal {first.id[:12]}" in (caught.value.hint or "")
        with pytest.raises(OutOfOrder, match="cannot be taken back: it is begun"):
            turning.prepare(first)
    turning.write("a", "by the first\n")
    first = turning.seal(first)
    with turning.unrecorded(), pytest.raises(OutOfOrder, match="cannot be sealed: it is sealed") as caught:
        turning.seal(first)
    assert "begin another turn" in (caught.value.hint or "")
    plan = turning.prepare(first)
    with turning.unrecorded():
        for generation in (1, 3):
            with pytest.raises(OutOfOrder, match=f"generation {generation} is not above 3") as caught:
                turning.begin("a", generation=generation)
            assert "the next free one is 4" in (caught.value.hint or "")
    second = turning.begin("a", generation=9, name="u")
    assert second.turn.generation == 9
    refused: list[Callable[[], object]] = [
        lambda: turning.seal(first),
        lambda: turning.prepare(first),
        lambda: turning.apply(plan),
    ]
    for ask in (*refused, lambda: turning.seal(second), *refused):
        if ask in refused:
            said = r"'t' is not the latest: 'u' \(generation 9\) came after it"
            with turning.unrecorded(), pytest.raises(OutOfOrder, match=said):
                ask()
        else:
            ask()
    assert [status.latest for status in turning.turns.list(turning.binding)] == [True, False]
    assert turning.turns.next_turn(turning.binding, "v").generation == 10


@pytest.mark.requirement("H5")
def test_a_turn_is_asked_for_by_its_id_or_the_beginning_of_it(turning: Turning) -> None:
    turn = turning.begin("a")
    assert turning.turns.inspect(turning.binding, turn.id[:7]).capture_id == turn.id
    for asked, error in ((turn.id[:6], MalformedId), (turn.id[:7].upper() + "G", MalformedId)):
        with pytest.raises(error, match="malformed turn id"):
            turning.turns.seal(turning.binding, asked)
    other = "".join("0" if digit != "0" else "1" for digit in turn.id)
    with pytest.raises(UnknownId, match="unknown turn"):
        turning.turns.seal(turning.binding, other)
    folders = [TurnFolder(Path(f"{number:016d}-{'ab' * 32}")) for number in (1, 2)]
    with pytest.raises(AmbiguousId):
        find(folders, "abababa")
    turning.turns.seal(turning.binding, turn.id[:12])


def commit(turning: Turning) -> None:
    turning.git("commit", "-q", "--allow-empty", "-m", "second")


HEADS: dict[str, tuple[Callable[[Turning], object], Callable[[Turning], object]]] = {
    "a commit": (commit, lambda t: t.git("reset", "-q", "--soft", "HEAD~1")),
    "a branch": (lambda t: t.git("checkout", "-q", "-B", "side"), lambda t: t.git("checkout", "-q", "main")),
    "detached": (lambda t: t.git("checkout", "-q", "--detach"), lambda t: t.git("checkout", "-q", "main")),
}


@pytest.mark.requirement("H23")
@pytest.mark.parametrize("way", HEADS)
def test_head_has_moved(turning: Turning, way: str) -> None:
    """At the seal, at the application, and at the question whether it was done; back again, all is well."""
    there, back = HEADS[way]
    begun = turning.begin("b")
    asked: list[Callable[[], object]] = [lambda: turning.seal(begun), lambda: turning.apply(begun)]
    for ask in (*asked, asked[-1]):
        there(turning)
        quiet = turning.unrecorded() if ask is asked[0] else turning.untouched_files()
        said = r"HEAD has moved: [0-9a-f]{12} on main at the beginning of turn 't', [0-9a-f]{12} on "
        with quiet, pytest.raises(Stale, match=said):
            ask()
        back(turning)
        ask()
    assert turning.state(begun) is TurnState.APPLIED


@pytest.mark.requirement("H23")
def test_a_run_at_work_and_one_that_was_killed(turning: Turning) -> None:
    sealed = turning.over("a", act=lambda: turning.write("a", "by the turn\n"))
    plan = turning.prepare(sealed)
    words = ["-c", "store.min_free_bytes=0", "--store", turning.store, "run", "--", "sleep", "60"]
    run = subprocess.Popen(
        [sys.executable, "-m", "putback", *words],
        cwd=turning.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    (seen,) = until(lambda: [r for r in turning.workspace.runs.unfinished() if r.alive and r.command], 20.0)
    child = until(seen.evidence.read_process, 20.0)
    with turning.untouched_files(), pytest.raises(OutOfOrder, match=f"run {seen.id[:12]} is at work in the tree"):
        until(lambda: not locked(lambda: turning.apply(plan)))
    run.kill()
    run.wait()
    with turning.untouched_files(), pytest.raises(OutOfOrder, match="is at work in the tree"):
        turning.apply(plan)
    os.kill(child[0], signal.SIGKILL)
    until(lambda: not turning.workspace.runs.killed()[0].processes)
    with turning.untouched_files(), pytest.raises(OutOfOrder, match="was killed and is not closed") as caught:
        turning.apply(plan)
    assert "putback recover" in (caught.value.hint or "")
    turning.workspace.runs.close(turning.workspace.runs.killed()[0])
    turning.apply(plan)
    assert turning.tree[b"a"].content == b"a\n"  # type: ignore[union-attr]


def locked(action: Callable[[], object]) -> bool:
    """Whether the run still holds the workspace's lock for its first capture."""
    try:
        action()
    except LockedError:
        return True
    return False


# --- whose ------------------------------------------------------------------------------------------------------


def operations(turning: Turning, turn: TurnCapture) -> dict[str, Callable[[], object]]:
    plan = turning.prepare(turn)
    return {
        "begin": lambda: turning.begin("a"),
        "seal": lambda: turning.seal(turn),
        "prepare": lambda: turning.prepare(turn),
        "apply": lambda: turning.apply(plan),
    }


@pytest.mark.requirement("H1", "H19", "H20", "H22")
def test_without_a_claim_nothing_is_done(turning: Turning, tmp_path: Path) -> None:
    sealed = turning.over("a", act=lambda: turning.write("a", "by the turn\n"))
    asked = operations(turning, sealed)

    def refuses(error: type[PutbackError], said: str) -> None:
        for ask in asked.values():
            with turning.unrecorded(), pytest.raises(error, match=said):
                ask()

    claim = turning.workspace.paths.store.claims / "mine.json"
    data = claim.read_bytes()
    claim.unlink()
    refuses(NotOwned, "nothing is bound as 'mine'")
    with pytest.raises(NotOwned):
        turning.turns.binding()
    claim.write_bytes(data[:-2])
    refuses(PutbackError, "damaged claim")
    claim.write_bytes(data)
    turning.turns.release(turning.binding, disposition=Disposition.RETAIN)
    refuses(NotOwned, "is retained, not active")
    turning.turns.bind(binding_id="mine", owner="me")

    peer = repository_at(tmp_path / "peer")
    other = turning.workspace.open(peer, store=turning.store).turns
    other.bind(binding_id="other")
    peer.rename(turning.root / "peer")
    peer.symlink_to(turning.root / "peer")
    refuses(OverlappingClaim, "'other'")
    (turning.root / "peer").rename(tmp_path / "elsewhere")
    peer.unlink()
    turning.apply(asked["prepare"]())  # type: ignore[arg-type]
    turning.turns.release(turning.binding, disposition=Disposition.ARCHIVE)
    refuses(NotOwned, "is archived, not active")


@pytest.mark.requirement("H3", "H19")
def test_a_tree_that_was_bound_anew_has_turns_of_its_own(turning: Turning) -> None:
    sealed = turning.over("a", act=lambda: turning.write("a", "by the turn\n"))
    turning.turns.release(turning.binding)
    again = turning.turns.bind(binding_id="mine", owner="me").binding
    assert again.generation == 2 and turning.turns.list(again) == []
    with turning.unrecorded():
        with pytest.raises(NotOwned, match="bound anew since, as generation 2"):
            turning.prepare(sealed)
        with pytest.raises(UnknownId):
            turning.turns.prepare(again, sealed.id)
    assert turning.state(sealed) is TurnState.SEALED, "what is on record is still told"


@pytest.mark.requirement("H30")
def test_without_descriptors_of_directories_nothing_is_done(
    turning: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", frozenset())
    with turning.unrecorded(), pytest.raises(PutbackError, match="cannot confine writes"):
        turning.begin("a")


# --- the audited way out ----------------------------------------------------------------------------------------


@pytest.mark.requirement("H17", "H34")
def test_a_person_closes_what_stands_open(turning: Turning) -> None:
    begun = turning.begin("a")
    turning.write("a", "by the turn\n")
    with turning.unrecorded():
        for words in ({"actor": " "}, {"reason": ""}, {"actor": "", "reason": ""}):
            with pytest.raises(UsageError, match="needs an actor and a reason"):
                turning.resolve(begun, **words)
    with turning.untouched():
        turning.resolve(begun, actor="bob", reason="gave up")
    assert turning.state(begun) is TurnState.RESOLVED
    event = bindings.events(turning.place, turning.binding)[-1]
    assert (event.deed, event.actor, event.reason) == (Deed.RESOLVED, "bob", "gave up")
    assert (event.capture_id, event.turn, event.paths) == (begun.id, begun.turn, begun.paths)
    said = turning.folder(begun).evidence.resolution
    assert said is not None and (said.actor, said.reason, said.was) == ("bob", "gave up", "begun")
    with turning.unrecorded():
        with pytest.raises(OutOfOrder, match="is resolved: there is nothing to resolve"):
            turning.resolve(begun)
        for ask in (lambda: turning.seal(begun), lambda: turning.prepare(begun)):
            with pytest.raises(OutOfOrder, match="it is resolved"):
                ask()
    sealed = turning.over("a")
    with turning.unrecorded(), pytest.raises(OutOfOrder, match="is sealed: there is nothing to resolve"):
        turning.resolve(sealed)


@pytest.mark.requirement("H34")
def test_a_tree_with_an_open_turn_is_not_freed(turning: Turning) -> None:
    begun = turning.begin("a")
    with pytest.raises(OutOfOrder, match="'mine' is not free to go: turn 't' is begun"):
        turning.turns.release(turning.binding)
    turning.resolve(begun)
    turning.turns.release(turning.binding)
    with pytest.raises(NotOwned):
        turning.turns.binding()


@pytest.mark.requirement("H38", "H39")
def test_a_turn_around_a_block_is_sealed_also_where_that_fails(turning: Turning) -> None:
    """And what failed is not taken back by itself."""
    identity = turning.turns.next_turn(turning.binding, "t")

    def block() -> None:
        with turning.turns.around(turning.binding, identity, [b"a"]):
            turning.write("a", "half\n")
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        block()
    (status,) = turning.turns.list(turning.binding)
    assert status.state is TurnState.SEALED
    assert turning.tree[b"a"].content == b"half\n"  # type: ignore[union-attr]


@pytest.mark.requirement("H2", "H32")
def test_words_that_no_record_takes_are_refused_before_anything_is_done(turning: Turning) -> None:
    """Once written they could not be read again, and the turn would be lost with them."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"actor": "x" * 201}, "actor has 201 characters; at most 200"),
        ({"reason": "x" * 1901}, "reason has 1901 characters; at most 1900"),
        ({"actor": "\udcff"}, "actor is no text"),
        ({"reason": "\udcff"}, "reason is no text"),
    ]
    identities: list[tuple[dict[str, Any], str]] = [
        ({"name": "x" * 201}, "name has 201 characters"),
        ({"name": "\udcff"}, "name is no text"),
        ({"name": ""}, "not a turn's name and generation"),
        ({"generation": -1}, "not a turn's name and generation"),
        ({"generation": 1 << 53}, "not a turn's name and generation"),
    ]
    with turning.unrecorded():
        for more, said in identities:
            with pytest.raises(UsageError, match=said):
                turning.begin("a", **more)
    begun = turning.begin("a", name="x" * 200, generation=(1 << 53) - 1)
    with turning.unrecorded():
        for more, said in refused:
            with pytest.raises(UsageError, match=said):
                turning.resolve(begun, **more)
    turning.write("a", "by the turn\n")
    sealed = turning.seal(begun)
    with turning.unrecorded():
        for more, said in refused:
            with pytest.raises(UsageError, match=said):
                turning.apply(sealed, **more)
            with pytest.raises(UsageError, match=said):
                turning.turns.bind(binding_id="other", **{"actor": "me", "reason": "why", **more})
    turning.apply(sealed, actor="x" * 200, reason="\n" + "x" * 1899)
    assert turning.state(sealed) is TurnState.APPLIED
    assert bindings.events(turning.place, turning.binding)[-1].actor == "x" * 200
