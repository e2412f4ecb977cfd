"""Refusals that take a broken repository, a failing disk, a forged record or a race to be seen."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crash.killing import in_child
from putback import seams
from putback.errors import (
    FailedError,
    IntegrityError,
    NotOwned,
    OutOfOrder,
    OverlappingClaim,
    RefusedError,
    StorageError,
    UnknownStateError,
    UnsuitableRoot,
    UsageError,
)
from putback.fs.root import Root
from putback.git import command
from putback.git.command import Git, Result
from putback.git.salvage import Salvage
from putback.git.user_repo import UserRepository, open_at
from putback.ops.recover import Choice
from putback.records import document
from putback.records.turn import Binding, Deed
from putback.turns import binding as bindings
from putback.turns import staged
from putback.turns.overlap import Ground, overlap
from putback.turns.worktree import GitWorktree
from support.claims import Registry, repository_at
from support.hermetic import git, unmoved
from support.turns import Turning


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    return repository_at(tmp_path / "main")


@pytest.mark.requirement("H19")
def test_an_interrupted_restore_comes_first(turning: Turning) -> None:
    """Nobody knows what the tree is, so that no end of a turn can be captured, and none taken back."""
    workspace = turning.workspace
    taken = workspace.snapshot("before")
    sealed = turning.over("a", act=lambda: turning.write("a", "by the turn\n"))
    plan = turning.prepare(sealed)
    turning.write("a", "1\n")
    turning.write("b", "2\n")

    def killed() -> None:
        seams.observe(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == "restore.put" else None)
        workspace.restore(taken.id)

    assert in_child(killed)[0] == -signal.SIGKILL
    for ask in (lambda: turning.begin("a"), lambda: turning.prepare(sealed), lambda: turning.apply(plan)):
        with unmoved(turning.root), pytest.raises(UnknownStateError):
            ask()
    workspace.recover(Choice.KEEP)
    turning.write("a", "by the turn\n")
    turning.apply(plan)


@pytest.mark.requirement("H20")
def test_records_of_bindings_with_names_that_are_none(registry: Registry, main: Path) -> None:
    held = registry.bound(main, "first")
    for name in ("../x", "", "x/y", "X"):
        with pytest.raises(IntegrityError, match="not the id of a binding"):
            bindings.folder(registry.store, held.root.raw, name, 1)
    with pytest.raises(StorageError, match="no directory"):
        bindings.directory(os.fsencode(main / "committed"))
    relative = msgspec.structs.replace(held.common_dir, path="relative")
    lie = msgspec.structs.replace(held, common_dir=relative)
    registry.folder(held).record.write_bytes(document.encode(lie) + b"\n")
    with pytest.raises(IntegrityError, match="not an absolute path"):
        bindings.load(registry.store, held.root.raw, "first", 1)


def test_a_repository_that_git_cannot_read(registry: Registry, main: Path) -> None:
    git(main, "config", "core.repositoryFormatVersion", "99")
    with pytest.raises(FailedError, match=r"cannot be read: .*version"):
        registry.bind(main, "first")
    assert registry.states() == {}


def test_two_names_for_one_index_leave_no_record(registry: Registry, main: Path, tmp_path: Path) -> None:
    registry.bind(main, "first")
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {main}/.git\n")
    before = sorted(registry.store.root.rglob("*"))
    with pytest.raises(OverlappingClaim, match="the same git index"):
        registry.bind(other, "second")
    assert sorted(registry.store.root.rglob("*")) == before


@pytest.mark.requirement("H19")
def test_what_was_bound_anew_meanwhile_is_not_released(registry: Registry, main: Path) -> None:
    held = registry.bound(main, "first")

    @contextmanager
    def lease(binding: Binding) -> Iterator[None]:
        registry.release("first")
        registry.bind(main, "first")
        yield

    with pytest.raises(NotOwned, match="bound anew meanwhile"):
        registry.release("first", lease=lease)
    assert registry.claim("first").binding.generation == held.generation + 1


@pytest.mark.requirement("H17", "H37")
def test_a_damaged_turn_is_set_aside_on_a_persons_word(turning: Turning) -> None:
    sealed = turning.over("a")
    folder = turning.folder(sealed).path
    words = {"actor": "ann", "reason": "broken disk"}
    with turning.unrecorded():
        with pytest.raises(OutOfOrder):
            turning.turns.set_aside(turning.binding, sealed.id, **words)
        (folder / "begun.json").rename(folder.parent.parent / "begun.json")
        with pytest.raises(UsageError, match="needs an actor and a reason"):
            turning.turns.set_aside(turning.binding, sealed.id, actor=" ", reason="x")
        (folder.parent.parent / "begun.json").rename(folder / "begun.json")
    (folder / "begun.json").unlink()
    with pytest.raises(IntegrityError):
        turning.begin("a")
    kept = turning.turns.set_aside(turning.binding, sealed.id, **words)
    assert kept.exists() and not folder.exists()
    assert turning.begin("a").turn.generation == 2, "its place in the order stays taken"


# --- work trees that are made -----------------------------------------------------------------------------------


def test_no_work_tree_is_made_from_a_home_directory(registry: Registry, home: Path) -> None:
    repository_at(home)
    with pytest.raises(UnsuitableRoot, match="home"):
        registry.bind(home, "agent", provider="git-worktree")


def test_the_main_work_tree_is_not_taken_over(registry: Registry, main: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(main, "worktree", "add", "-q", "-b", "side", str(linked))
    with pytest.raises(RefusedError, match="is the main work tree of this repository"):
        registry.bind(linked, "agent", provider="git-worktree", place=os.fsencode(main), branch="main")
    assert registry.states() == {}


def test_the_work_tree_of_another_repository_is_not_removed(
    registry: Registry, main: Path, tmp_path: Path
) -> None:
    """The same directory, with another repository's git directory put into it."""
    held = registry.bound(main, "agent", provider="git-worktree")
    made, other = Path(held.root.path), repository_at(tmp_path / "other")
    git(other, "worktree", "add", "-q", "-b", "x", str(tmp_path / "x"))
    (made / ".git").write_text((tmp_path / "x" / ".git").read_text())
    before = sorted(made.rglob("*"))
    with pytest.raises(NotOwned, match="is another one now"):
        registry.release("agent")
    assert sorted(made.rglob("*")) == before and registry.states() == {"agent": "active"}
    assert (other / ".git" / "worktrees" / "x").exists()


def test_a_change_before_the_locks_are_held_leaves_no_event(registry: Registry, main: Path) -> None:
    """Work that goes on is seen before the release is announced."""
    held = registry.bound(main, "agent", provider="git-worktree")
    made = Path(held.root.path)
    (made / "x.log").write_text("ignored\n")
    (made / ".gitignore").write_text("*.log\n")

    def keep(root: Path) -> str:
        (made / "x.log").write_text("changed again\n")
        return "5" * 64

    with pytest.raises(RefusedError, match="somebody is changing"):
        registry.release("agent", salvage=True, keep_ignored=keep)
    told = bindings.events(registry.folder(held), held)
    assert [event.deed for event in told] == [Deed.BOUND]


def test_a_salvage_that_does_not_hold_what_is_unsaved_removes_nothing(
    registry: Registry, main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path(registry.bound(main, "agent", provider="git-worktree").root.path)
    (made / "new").write_text("precious\n")
    monkeypatch.setattr(Salvage, "holds", lambda self, *rest: False)
    with pytest.raises(FailedError, match="does not hold what is unsaved; nothing was removed"):
        registry.release("agent", salvage=True)
    assert (made / "new").read_text() == "precious\n"


def test_a_work_tree_that_came_from_nowhere_is_not_attested(registry: Registry, main: Path) -> None:
    held = registry.bound(main, "agent", provider="git-worktree")
    GitWorktree().attest(command.find(), held)
    with pytest.raises(NotOwned, match="not the linked work tree"):
        GitWorktree().attest(command.find(), msgspec.structs.replace(held, source=None))


@pytest.mark.requirement("H19")
@pytest.mark.parametrize("same", [{"git_paths": frozenset({b"/g"})}, {"git_own": frozenset({(1, 2)})}])
def test_one_index_by_its_name_or_by_its_identity(same: dict[str, Any]) -> None:
    def ground(path: bytes, **more: Any) -> Ground:
        return Ground(frozenset({path}), frozenset(), frozenset(), **more)

    assert overlap(ground(b"/a", **same), ground(b"/b", **same)) == "a work tree with the same git index"
    assert overlap(ground(b"/a", **same), ground(b"/b")) is None


# --- git and the disk fail --------------------------------------------------------------------------------------


def answering(monkeypatch: pytest.MonkeyPatch, word: str, answer: Result) -> None:
    """Let git answer this to every command of that name."""
    real = Git.run

    def run(self: Git, *arguments: str | bytes, **more: object) -> Result:
        return answer if arguments[0] == word else real(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Git, "run", run)


@pytest.mark.requirement("H28")
@pytest.mark.parametrize(("code", "said"), [(1, b"something else"), (128, b"no such thing")])
def test_git_that_does_not_say_what_is_there(
    main: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: bytes
) -> None:
    found = open_at(command.find(), os.fsencode(main))
    assert isinstance(found, UserRepository)
    state = staged.open_at(found)
    answering(monkeypatch, "cat-file", Result(code, b"", b"fatal: " + said + b"\n"))
    with pytest.raises(IntegrityError, match=said.decode()):
        state.sizes({b"a": "0" * 40})


@pytest.mark.requirement("H28")
def test_git_that_gives_a_content_another_id(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_at(command.find(), os.fsencode(main))
    assert isinstance(found, UserRepository)
    state = staged.open_at(found)
    oid = git(main, "hash-object", "--stdin", given=b"new\n").decode().strip()
    answering(monkeypatch, "hash-object", Result(0, b"0" * 40 + b"\n", b""))
    with pytest.raises(IntegrityError, match=f"another id than {oid}"):
        state.import_blobs({oid: b"new\n"})


@pytest.mark.requirement("H29")
def test_a_parent_that_cannot_be_looked_at(turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Root, path: bytes) -> os.stat_result:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(Root, "lstat", fails)
    with turning.unrecorded(), pytest.raises(StorageError, match="cannot look at 'sub/deep/x': broken disk"):
        turning.begin("sub/deep/x")
