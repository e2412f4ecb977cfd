"""Refs that we write are what git reads; where the user's HEAD stands is what git would say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from putback.git import command, refs
from putback.git.user_repo import UserRepository, open_at
from support.plumbing import Bare, make_bare


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return make_bare(tmp_path)


def commit(bare: Bare) -> str:
    tree = bare.git("hash-object", "-w", "-t", "tree", "--stdin").decode().strip()
    content = f"tree {tree}\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\nx\n".encode()
    return bare.git("hash-object", "-w", "-t", "commit", "--stdin", given=content).decode().strip()


def test_git_reads_the_ref(bare: Bare) -> None:
    oid = commit(bare)
    refs.anchor(bare.dir, "w-123", oid, bare.scratch)
    assert bare.git("for-each-ref", "--format=%(refname) %(objectname)").decode().split() == [
        f"refs/putback/w-123/{oid}",
        oid,
    ]
    assert os.listdir(bare.scratch) == []
    bare.fsck()


def test_a_ref_that_exists_is_left(bare: Bare) -> None:
    oid = commit(bare)
    place = bare.dir / "refs/putback/w" / oid
    place.parent.mkdir(parents=True)
    place.write_text("other\n")
    with pytest.raises(FileExistsError):
        refs.anchor(bare.dir, "w", oid, bare.scratch)
    assert place.read_text() == "other\n" and os.listdir(bare.scratch) == []


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, check=True, text=True
    ).stdout.strip()


@pytest.fixture
def user(tmp_path: Path, home: Path) -> Path:
    root = tmp_path / "user"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    return root


def opened(root: Path) -> UserRepository:
    found = open_at(command.find(), os.fsencode(root))
    assert isinstance(found, UserRepository)
    return found


@pytest.mark.parametrize(
    ("arguments", "branch", "plain"),
    [
        ((), "main", True),
        (("checkout", "-q", "-b", "feature/caf\u00e9"), "feature/caf\u00e9", True),
        (("pack-refs", "--all"), "main", False),
        (("checkout", "-q", "--detach"), "", False),
    ],
)
def test_where_head_stands(user: Path, arguments: tuple[str, ...], branch: str, plain: bool) -> None:
    if arguments:
        git(user, *arguments)
    standing = opened(user).standing()
    assert (standing.known is not None) == plain
    assert standing.result().head == git(user, "rev-parse", "HEAD")
    assert standing.result().branch == branch


def test_a_branch_without_a_commit(user: Path) -> None:
    git(user, "checkout", "-q", "--orphan", "unborn")
    result = opened(user).standing().result()
    assert (result.head, result.branch) == ("", "unborn")


def test_a_linked_work_tree(user: Path, tmp_path: Path) -> None:
    git(user, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    git(tmp_path / "linked", "commit", "-q", "--allow-empty", "-m", "two")
    standing = opened(tmp_path / "linked").standing()
    assert standing.known is not None
    assert standing.result().head == git(tmp_path / "linked", "rev-parse", "HEAD")
    assert standing.result().branch == "other"


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main"])
def test_nobody_is_waited_for(user: Path, name: str) -> None:
    place = user / ".git" / name
    repository = opened(user)
    place.unlink()
    os.mkfifo(place)
    assert repository._plain_standing() is None
