"""A bound work tree with one of everything in it, and turns taken in it; what stock git says of its index."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from putback.records.turn import (
    Binding,
    TurnCapture,
    TurnIdentity,
    TurnRollbackPlan,
    TurnRollbackResult,
    TurnState,
)
from putback.turns.binding import BindingFolder, folder_of
from putback.turns.catalog import Turns
from putback.turns.evidence import TurnFolder
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, git, make_repository, unmoved
from support.trees import Entry, File, Name, Tree, put, read_back

BINARY = bytes(range(256)) * 3 + b"\r\n\0"
TREE: dict[Name, Entry] = {
    "a": "a\n",
    "b": "b\n",
    "binary": File(BINARY),
    "gone": "gone\n",
    "private": File(b"private\n", 0o600),
    "run.sh": File(b"#!/bin/sh\n", 0o755),
    "sub/deep/x": "x\n",
    b"odd-\xff": "odd\n",
    # What no turn here selects.
    "assumed": "assumed\n",
    "other": "other\n",
    "skipped": "skipped\n",
    "zz/last": "last\n",
    ".gitignore": "*.log\n/ignored/\n",
}
WORDS = {"actor": "ann", "reason": "wrong file"}
# What changes with every command and is no record: locks say who held them, caches what was seen.
_PASSING = ("lock", "lease", "gate", "index", "scratch", "state", "turn-excludes")


@cache
def _template() -> Path:
    """A repository with TREE committed, and in its index what a turn must leave as it is."""
    root = make_repository(Path(tempfile.mkdtemp(prefix="putback-turns-")), TREE)
    put(os.fsencode(root / "added-only"), File(b"intent\n"))
    git(root, "add", "-N", "added-only")
    git(root, "update-index", "--assume-unchanged", "assumed")
    git(root, "update-index", "--skip-worktree", "skipped")
    put(os.fsencode(root / "other"), File(b"other, staged\n"))
    git(root, "add", "other")
    put(os.fsencode(root / "other"), File(b"other, unstaged\n"))
    put(os.fsencode(root / "loose"), File(b"untracked\n"))
    return root


@dataclass
class Turning:
    """A work tree that is bound, and the calls of the library with the words that a test does not care about."""

    root: Path
    workspace: Workspace
    binding: Binding

    @property
    def turns(self) -> Turns:
        return self.workspace.turns

    @property
    def store(self) -> Path:
        return self.workspace.paths.store.root

    @property
    def place(self) -> BindingFolder:
        return folder_of(self.workspace.paths.store, self.binding)

    def folder(self, turn: TurnCapture) -> TurnFolder:
        return TurnFolder(self.place.path / "turns" / f"{turn.turn.generation:016d}-{turn.id}")

    # --- the tree and its index -------------------------------------------------------------------------------

    def write(self, name: Name, content: str | bytes, mode: int | None = None) -> None:
        """Write a file in place of what is there; the mode stays unless it is given."""
        path = os.path.join(os.fsencode(self.root), os.fsencode(name))
        kept = os.stat(path).st_mode & 0o777 if mode is None and os.path.exists(path) else mode or 0o644
        put(path, File(content.encode() if isinstance(content, str) else content, kept))

    def remove(self, *names: Name) -> None:
        for name in names:
            os.unlink(os.path.join(os.fsencode(self.root), os.fsencode(name)))

    def stage(self, *names: Name) -> None:
        """Stage files as they are, also where they are gone."""
        git(self.root, "add", "-A", "-f", "--", *(os.fsencode(name) for name in names))

    def git(self, *arguments: str | bytes, given: bytes = b"") -> bytes:
        return git(self.root, *arguments, given=given)

    @property
    def tree(self) -> Tree:
        return read_back(self.root)

    @property
    def index(self) -> bytes:
        return (self.root / ".git" / "index").read_bytes()

    def listed(self) -> dict[bytes, bytes]:
        """What stock git says of each index entry: tag, mode, id and stage."""
        lines = self.git("ls-files", "-s", "-v", "-z").split(b"\0")[:-1]
        return {name: head for head, _, name in (line.partition(b"\t") for line in lines)}

    def staged(self, name: Name) -> bytes | None:
        """The staged content of a path, None where the index lacks it."""
        head = self.listed().get(os.fsencode(name))
        return None if head is None else self.git("cat-file", "blob", head.split(b" ")[2].decode())

    # --- turns --------------------------------------------------------------------------------------------------

    def begin(self, *names: Name, generation: int = 0, name: str = "t", **more: Any) -> TurnCapture:
        identity = self.turns.next_turn(self.binding, name)
        if generation:
            identity = TurnIdentity(turn_id=name, generation=generation)
        return self.turns.begin(self.binding, identity, [os.fsencode(each) for each in names], **more)

    def seal(self, turn: TurnCapture, **more: Any) -> TurnCapture:
        return self.turns.seal(self.binding, turn.id, **more)

    def prepare(self, turn: TurnCapture) -> TurnRollbackPlan:
        return self.turns.prepare(self.binding, turn.id)

    def apply(self, of: TurnCapture | TurnRollbackPlan, **more: Any) -> TurnRollbackResult:
        plan = self.prepare(of) if isinstance(of, TurnCapture) else of
        return self.turns.apply(self.binding, plan, **{"yes": True, **WORDS, **more})

    def state(self, turn: TurnCapture) -> TurnState:
        return self.turns.inspect(self.binding, turn.id).state

    def resolve(self, turn: TurnCapture | str, **more: Any) -> None:
        asked = turn if isinstance(turn, str) else turn.id
        self.turns.resolve(self.binding, asked, **{**WORDS, **more})

    def over(self, *names: Name, act: Callable[[], object] = lambda: None) -> TurnCapture:
        """A turn around `act`, sealed."""
        begun = self.begin(*names)
        act()
        return self.seal(begun)

    # --- nothing has happened -----------------------------------------------------------------------------------

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Assert that neither the tree nor the user's .git is different afterwards."""
        before = self.tree
        with unmoved(self.root):
            yield
        assert self.tree == before

    @contextmanager
    def untouched_files(self) -> Iterator[None]:
        """Like `untouched`, but git's lock may have come and gone."""
        before = self.tree, files_of_git(self.root)
        yield
        assert (self.tree, files_of_git(self.root)) == before

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Assert that, besides, no record and no object of the store is different afterwards."""
        before = records(self.store)
        with self.untouched():
            yield
        assert records(self.store) == before


def records(store: Path) -> dict[str, str]:
    """The files of a store that are meant to last, with a digest of each."""
    found = {}
    for path in store.rglob("*"):
        parts = path.relative_to(store).parts
        if path.is_file() and not (path.name in _PASSING or "scratch" in parts[:3]):
            found[str(path.relative_to(store))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def bound(root: Path, open_workspace: OpenWorkspace, **chosen: Any) -> Turning:
    """Copy the template to `root` and bind it."""
    shutil.copytree(_template(), root, symlinks=True, dirs_exist_ok=True)
    workspace = open_workspace(root, **{"lock_wait_seconds": 0.0, **chosen})
    return Turning(root, workspace, workspace.turns.bind(binding_id="mine", owner="me").binding)


def whole(turning: Turning, *names: Name, act: Callable[[], object]) -> tuple[TurnCapture, TurnRollbackResult]:
    """A turn from its beginning to its end and back: begin, `act`, seal, prepare, apply."""
    sealed = turning.over(*names, act=act)
    return sealed, turning.apply(sealed)


@pytest.fixture
def turning(tree: Path, open_workspace: OpenWorkspace) -> Turning:
    """A bound work tree with TREE in it."""
    return bound(tree, open_workspace)


def files_of_git(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every file of the user's .git: inode, mode, time of its last write, content."""
    found = {}
    for path in (root / ".git").rglob("*"):
        if path.is_file():
            seen = path.stat()
            content = path.read_bytes()
            found[str(path.relative_to(root / ".git"))] = (seen.st_ino, seen.st_mode, seen.st_mtime_ns, content)
    return found


def stored(store: Path, *arguments: str) -> bytes:
    """What stock git says of the store."""
    return git(store, f"--git-dir={store / 'objects.git'}", *arguments)
