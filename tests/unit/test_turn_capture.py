"""What a turn holds of its paths at both ends, what goes back, and that nothing else moves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from putback.errors import UsageError
from putback.git.objectid import object_id
from putback.records.turn import Effect, TurnState
from support import indexes
from support.hermetic import git, unmoved
from support.trees import File, same
from support.turns import BINARY, Turning, files_of_git, stored, whole

NAMES = ["a", "b", "binary", "c", "gone", "made", "private", "run.sh", "sub/deep/x", b"odd-\xff"]
RAW = sorted(os.fsencode(name) for name in NAMES)


def prepare_the_beginning(turning: Turning) -> None:
    """Staged A, unstaged B, untracked C."""
    turning.write("a", "A, staged\n")
    turning.stage("a")
    turning.write("a", "A, unstaged\n")
    turning.write("b", "B, unstaged\n")
    turning.write("c", "C, untracked\n", 0o640)


def work(turning: Turning) -> None:
    """Change each path in a way of its own, and some that no turn has named."""
    turning.write("a", "by the turn\n")
    turning.stage("a")
    turning.write("b", "by the turn\n", 0o755)
    turning.stage("b")
    turning.write("c", "by the turn\n", 0o600)
    turning.stage("c")
    turning.git("rm", "-q", "-f", "binary")
    turning.remove("gone")
    turning.write("made", "by the turn\n")
    turning.stage("made")
    turning.write("private", "by the turn\n", 0o755)
    os.chmod(turning.root / "run.sh", 0o644)
    turning.stage("run.sh")
    turning.write("sub/deep/x", "staged by the turn\n")
    turning.stage("sub/deep/x")
    turning.write("sub/deep/x", "x\n")
    turning.git("rm", "-q", "--cached", "--", b"odd-\xff")
    turning.write("other", "other, by the turn\n")
    turning.write("zz/last", "by the turn\n")
    turning.stage("zz/last")
    turning.write("stray", "not named\n")


EFFECTS = {
    b"a": ("restore", "restore"),
    b"b": ("restore", "restore"),
    b"binary": ("recreate", "recreate"),
    b"c": ("remove", "restore"),
    b"gone": ("keep", "recreate"),
    b"made": ("remove", "remove"),
    b"private": ("keep", "restore"),
    b"run.sh": ("restore", "restore"),
    b"sub/deep/x": ("restore", "keep"),
    b"odd-\xff": ("recreate", "keep"),
}


@pytest.mark.requirement("H6", "H7", "H8", "H9", "H10", "H14", "H24", "H26", "H27", "H28", "H31")
def test_a_turn_goes_back_exactly_and_nothing_else_moves(turning: Turning) -> None:
    prepare_the_beginning(turning)
    tree, entries = turning.tree, indexes.listed(turning.root)
    with unmoved(turning.root):
        begun = turning.begin(*NAMES)
    work(turning)
    # What the turn staged in place of A is all that still needs it.
    lost = turning.git("hash-object", "--stdin", given=b"A, staged\n").decode().strip()
    turning.git("prune", "--expire=now")
    end_tree, end_entries, end_files = turning.tree, indexes.listed(turning.root), files_of_git(turning.root)
    index = turning.index
    with turning.untouched():
        sealed = turning.seal(begun)
        plan = turning.prepare(sealed)
    assert turning.index == index

    assert {step.raw: (str(step.index), str(step.worktree)) for step in plan.steps} == EFFECTS
    assert [step.raw for step in plan.steps] == RAW
    for step, then, now in zip(plan.steps, sealed.begin.selected, sealed.end.selected, strict=True):  # type: ignore[union-attr]
        assert (step.before, step.end) == (then, now)

    assert not turning.apply(plan).already
    unnamed = {path: entry for path, entry in end_tree.items() if path not in RAW}
    same(turning.tree, unnamed | {path: entry for path, entry in tree.items() if path in RAW})
    assert turning.tree[b"c"] == File(b"C, untracked\n", 0o640)
    assert turning.tree[b"private"] == File(b"private\n", 0o600)
    assert turning.tree[b"binary"] == File(BINARY)
    assert b"made" not in turning.tree

    now = indexes.listed(turning.root)
    heads = {key: head for key, (head, _) in entries.items() if key[0] in RAW}
    assert {key: head for key, (head, _) in now.items() if key[0] in RAW} == heads
    assert indexes.of_paths(now, *RAW) == indexes.of_paths(end_entries, *RAW), "with stat data and flags"
    tags = {key[0]: head[:1] for key, (head, _) in now.items()}
    assert tags[b"assumed"].islower() and tags[b"skipped"] == b"S"
    assert turning.staged("a") == b"A, staged\n" and turning.staged("other") == b"other, staged\n"
    assert b"added-only" in turning.git("diff", "--name-only"), "the intent to add is still there"

    files = files_of_git(turning.root)
    assert {name for name in files if files[name] != end_files.get(name)} == {
        "index",
        f"objects/{lost[:2]}/{lost[2:]}",
    }
    assert end_files.keys() <= files.keys()
    assert b"missing" not in git(turning.root, "fsck", "--strict")
    assert turning.state(sealed) is TurnState.APPLIED


@pytest.mark.requirement("H2", "H6", "H7", "H8", "H16")
def test_a_capture_is_what_stock_git_reads_in_the_store(turning: Turning) -> None:
    prepare_the_beginning(turning)
    turn = turning.begin(*reversed(NAMES), "a", name="fix", generation=7)
    assert (turn.turn.turn_id, turn.turn.generation) == ("fix", 7)
    assert (turn.binding, turn.binding_generation) == (turning.binding.digest, 1)
    assert [item.raw for item in turn.paths] == RAW, "sorted, and each once"
    head = turning.git("rev-parse", "HEAD").decode().strip()
    assert (turn.begin.head.head, turn.begin.head.branch) == (head, "main")
    capture = turn.begin.capture

    def tree_of(name: str) -> dict[bytes, bytes]:
        lines = stored(turning.store, "ls-tree", "-r", "-z", f"{capture}:{name}").split(b"\0")[:-1]
        return {path: head for head, _, path in (line.partition(b"\t") for line in lines)}

    def entry(mode: int, content: bytes) -> bytes:
        return b"%o blob %s" % (mode, object_id("blob", content).hex().encode())

    absent = {b"made"}
    standing = {path: entry for path, entry in turning.tree.items() if path in RAW}
    assert standing.keys() == set(RAW) - absent
    assert tree_of("files") == {
        path: entry(0o100755 if file.mode & 0o100 else 0o100644, file.content)
        for path, file in standing.items()
        if isinstance(file, File)
    }
    staged = {path: turning.staged(path) for path in RAW}
    assert tree_of("index") == {
        path: entry(0o100755 if path == b"run.sh" else 0o100644, content)
        for path, content in staged.items()
        if content is not None
    }
    assert stored(turning.store, "show", f"{capture}:untracked") == b"c\0"
    assert stored(turning.store, "show", f"{capture}:modes") == b"640 c\x00600 private\0"
    assert turn.begin.bytes == sum(
        len(content)
        for content in [*staged.values(), *(f.content for f in standing.values())]
        if content  # type: ignore[union-attr]
    )
    assert turning.binding.digest == turn.binding and not turn.sealed


@pytest.mark.requirement("H10", "H24")
def test_a_turn_that_did_nothing_has_nothing_to_take_back(turning: Turning) -> None:
    sealed = turning.over("a", "made")
    plan = turning.prepare(sealed)
    assert plan.empty and all(step.index is step.worktree is Effect.KEEP for step in plan.steps)
    tree, files = turning.tree, files_of_git(turning.root)
    assert not turning.apply(plan).already
    assert turning.tree == tree and files_of_git(turning.root) == files, "the index is not even written anew"
    assert turning.state(sealed) is TurnState.APPLIED


@pytest.mark.requirement("H10")
def test_what_was_there_at_the_beginning_is_never_removed(turning: Turning) -> None:
    """A file that the index alone did not know stays; one that was absent goes, from both."""

    def act() -> None:
        turning.stage("loose")
        turning.write("made", "made\n")

    whole(turning, "loose", "made", act=act)
    assert turning.tree[b"loose"] == File(b"untracked\n") and turning.staged("loose") is None
    assert b"made" not in turning.tree


@pytest.mark.requirement("H6", "H10", "H27")
def test_a_repository_without_a_commit_and_without_an_index(tree: Path, open_workspace) -> None:
    git(tree, "init", "-q", "--template=")
    workspace = open_workspace(tree)
    turning = Turning(tree, workspace, workspace.turns.bind().binding)

    def act() -> None:
        turning.write("a", "a\n", 0o755)
        turning.stage("a")

    sealed, _ = whole(turning, "a", act=act)
    assert sealed.begin.head.head == ""
    assert turning.tree == {} and turning.listed() == {}
    again, _ = whole(turning, "a", "b", act=lambda: turning.write("b", "b\n"))
    assert again.turn.generation == 2 and turning.tree == {}


@pytest.mark.requirement("H7", "H31")
def test_the_mode_of_the_index_and_that_of_the_file_are_two_things(turning: Turning) -> None:
    """git forgets all bits but one; a turn keeps them all, and takes neither for the other."""
    turning.git("update-index", "--chmod=+x", "a")
    os.chmod(turning.root / "run.sh", 0o711)

    def act() -> None:
        turning.git("update-index", "--chmod=-x", "a")
        os.chmod(turning.root / "a", 0o755)
        os.chmod(turning.root / "run.sh", 0o755)

    sealed, _ = whole(turning, "a", "run.sh", act=act)
    assert turning.listed()[b"a"].startswith(b"H 100755 ")
    assert turning.tree[b"a"] == File(b"a\n", 0o644)
    assert turning.tree[b"run.sh"] == File(b"#!/bin/sh\n", 0o711)
    assert turning.state(sealed) is TurnState.APPLIED


@pytest.mark.requirement("H2")
def test_a_turn_needs_a_path_and_takes_a_hundred(turning: Turning) -> None:
    with turning.unrecorded():
        with pytest.raises(UsageError, match="at least one path"):
            turning.begin()
        with pytest.raises(UsageError, match="101 paths"):
            turning.begin(*(f"new-{number}" for number in range(101)))
    turn = turning.begin(*(f"new-{number}" for number in range(100)), "new-1")
    assert len(turn.paths) == 100
