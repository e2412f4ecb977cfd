"""A turn is an entry of the history: told like any other, and taken back as a turn or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from putback.cli.main import run
from putback.errors import NothingToUndo, OutOfOrder, PutbackError, Stale, UsageError
from putback.records.history import Cause, EntryKind
from putback.records.turn import TurnCapture, TurnState
from support.trees import File
from support.turns import Turning, files_of_git


@pytest.fixture
def sealed(turning: Turning) -> TurnCapture:
    def act() -> None:
        turning.write("a", "by the turn\n")
        turning.stage("a", "b")
        turning.remove("gone")
        turning.write("made", "made\n")

    turning.write("b", "B, unstaged\n")
    return turning.over("a", "b", "gone", "made", act=act)


@pytest.mark.requirement("H39", "H24")
def test_the_history_tells_of_a_turn(turning: Turning, sealed: TurnCapture) -> None:
    workspace = turning.workspace
    (entry,) = workspace.list()
    assert sealed.end is not None
    assert (entry.kind, entry.id, entry.of, entry.message) == (EntryKind.TURN, sealed.id, "mine", "t")
    assert (entry.before, entry.after) == (sealed.begin.capture, sealed.end.capture)
    assert (entry.changed, entry.files, entry.scope) == (4, 3, sealed.paths)
    shown = workspace.show(sealed.id)
    assert shown.comparison is not None
    told = {change.path: change.status for change in shown.comparison.changes}
    assert told == {b"a": "modified", b"gone": "deleted", b"made": "created"}
    patch = workspace.diff(sealed.id).patch
    assert patch is not None and b"+by the turn" in patch and b"other" not in patch
    assert turning.turns.list(turning.binding)[0].capture_id == sealed.id


@pytest.mark.requirement("H39", "H26")
def test_undo_of_a_turn_is_its_application(turning: Turning, sealed: TurnCapture) -> None:
    workspace = turning.workspace
    with turning.unrecorded():
        with pytest.raises(UsageError, match="goes back exactly or not at all, so it cannot be forced") as caught:
            workspace.undo(force=True)
        assert f"putback restore {sealed.id[:12]} --force" in (caught.value.hint or "")
        with pytest.raises(UsageError, match="goes back exactly or not at all, so it cannot be merged") as caught:
            workspace.undo(merge=True)
        assert f"putback restore {sealed.id[:12]} --merge" in (caught.value.hint or "")
        plan = workspace.undo(dry_run=True).plan
        assert {step.path: (str(step.action), step.note) for step in plan.steps} == {
            "a": ("restore", "in the index, too"),
            "b": ("restore", "in the index alone"),
            "gone": ("recreate", ""),
            "made": ("remove", ""),
        }
        assert not workspace.undo(confirm=lambda plan: False).outcomes
    turning.write("made", "later\n")
    with turning.untouched_files(), pytest.raises(Stale, match="'made' in the work tree"):
        workspace.undo()
    turning.write("made", "made\n")
    done = workspace.undo()
    assert {outcome.path for outcome in done.outcomes} == {"a", "b", "gone", "made"}
    assert turning.tree[b"gone"] == File(b"gone\n") and b"made" not in turning.tree
    assert turning.staged("a") == b"a\n" and turning.staged("b") == b"b\n"
    assert turning.state(sealed) is TurnState.APPLIED
    newest = workspace.list()[0]
    assert (newest.kind, newest.cause, newest.of) == (EntryKind.RESTORE, Cause.TURN, sealed.id)
    assert (newest.changed, newest.applied) == (4, 4)
    assert done.entry is not None and done.entry.id == newest.id
    with turning.unrecorded():
        with pytest.raises(NothingToUndo):
            workspace.undo()
        with pytest.raises(NothingToUndo, match="taken back in the index, too, which redo does not write") as e:
            workspace.redo()
    # What the hint says works, on the files alone.
    hint = (e.value.hint or "").split("`")[1].split()
    assert hint[:2] == ["putback", "restore"]
    before = files_of_git(turning.root)
    workspace.restore(hint[2])
    assert turning.tree[b"a"] == File(b"by the turn\n") and b"gone" not in turning.tree
    assert files_of_git(turning.root) == before


@pytest.mark.requirement("H39")
def test_restore_of_a_turn_puts_back_its_files_alone(turning: Turning, sealed: TurnCapture) -> None:
    before, other = files_of_git(turning.root), turning.tree[b"other"]
    turning.write("a", "later\n")
    refused = turning.workspace.restore(sealed.id)
    assert [outcome.path for outcome in refused.outcomes if not outcome.status.applied] == ["a"]
    turning.workspace.restore(sealed.id, force=True)
    tree = turning.tree
    assert (tree[b"a"], tree[b"b"]) == (File(b"a\n"), File(b"B, unstaged\n"))
    assert (tree[b"gone"], tree[b"other"]) == (File(b"gone\n"), other) and b"made" not in tree
    assert files_of_git(turning.root) == before, "the index is not what restore writes"
    assert turning.state(sealed) is TurnState.SEALED


@pytest.mark.requirement("H5", "H39")
def test_what_undo_cannot_take_back_says_what_can(turning: Turning, sealed: TurnCapture) -> None:
    """Where the turn is not the latest any more, was closed, or is of a binding that was given up."""

    def refuses(error: type[PutbackError]) -> None:
        with turning.untouched_files(), pytest.raises(error) as caught:
            turning.workspace.undo()
        assert f"`putback restore {sealed.id[:12]}`" in (caught.value.hint or ""), caught.value.hint

    begun = turning.begin("a")
    refuses(OutOfOrder)
    turning.resolve(begun)
    turning.turns.release(turning.binding)
    refuses(PutbackError)
    turning.turns.bind(binding_id="mine", owner="me")
    refuses(PutbackError)
    turning.workspace.restore(sealed.id)
    assert turning.tree[b"a"] == File(b"a\n")


# --- the same at the command line -------------------------------------------------------------------------------


@pytest.fixture
def putback(turning: Turning, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, Any]]:
    """A command in the tree, within this process; its exit code and its one object."""

    def call(*words: str) -> tuple[int, Any]:
        place = ["-C", str(turning.root), "--store", str(turning.store), "-c", "store.min_free_bytes=0"]
        capfdbinary.readouterr()
        code = run([*place, "--json", *words])
        return code, json.loads(capfdbinary.readouterr().out)

    return call


@pytest.mark.requirement("H1", "H23", "H25", "H39")
def test_the_command_has_the_same_contract(turning: Turning, putback: Callable[..., tuple[int, Any]]) -> None:
    code, begun = putback("turn", "begin", "--turn", "fix", "a")
    assert code == 0
    (status,) = turning.turns.list(turning.binding)
    assert begun["turn"]["id"] == status.capture_id
    turning.write("a", "by the turn\n")
    code, sealed = putback("turn", "seal", status.capture_id[:12])
    assert code == 0 and sealed["turn"]["end"]
    code, plan = putback("turn", "prepare")
    assert plan["proposal"] == turning.turns.prepare(turning.binding, status.capture_id).digest
    accountable = ["--actor", "ann", "--reason", "wrong file"]
    proposal = ["--proposal", plan["proposal"][:12]]
    with turning.untouched():
        assert putback("turn", "apply", "--yes", *accountable)[0] == 43
        assert putback("turn", "apply", *proposal, *accountable)[0] == 2
        code, said = putback("turn", "apply", *proposal, "--yes")
        assert code == 2 and "needs actor, reason" in said["error"]["message"]
        code, said = putback("turn", "apply", "--proposal", "0" * 12, "--yes", *accountable)
        assert (code, said["error"]["code"]) == (43, "stale")
    code, done = putback("turn", "apply", *proposal, "--yes", *accountable)
    assert code == 0 and done["done"] and turning.tree[b"a"] == File(b"a\n")
    code, told = putback("turn", "inspect")
    assert (code, told["status"]["state"]) == (0, "applied")


@pytest.mark.requirement("H38", "H39")
def test_a_run_that_is_a_turn(turning: Turning, putback: Callable[..., tuple[int, Any]]) -> None:
    """It ends with its own code, and is sealed; where it cannot be, that is said, and how to go on."""
    words = ["run", "--turn", "fix", "--paths-from", str(turning.root.parent / "paths"), "--"]
    (turning.root.parent / "paths").write_text("a\nmade\n")
    code, _ = putback(*words, "sh", "-c", "echo made > made; exit 7")
    (status,) = turning.turns.list(turning.binding)
    assert (code, status.state) == (7, TurnState.SEALED)
    turning.workspace.undo()
    assert b"made" not in turning.tree
    code, said = putback(*words, "git", "-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "x")
    assert code == 43, said
    assert "HEAD has moved" in said["error"]["message"] and "putback turn resolve" in said["error"]["hint"]
