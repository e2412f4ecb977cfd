"""A bound repository with a turn's worth of changes in it: staged, unstaged, untracked, created and deleted."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from crash.killing import World, fsck, scratch_files
from putback.errors import NotOwned
from putback.records.turn import (
    Binding,
    TurnCapture,
    TurnIdentity,
    TurnRollbackPlan,
    TurnRollbackResult,
    TurnRollbackStatus,
    TurnState,
)
from putback.turns.catalog import Turns
from support.hermetic import git, make_repository
from support.trees import File, Literal, Tree, create

BEFORE: Literal = {
    "d/staged": "A\n",
    "d/unstaged": "B\n",
    "d/untracked": "C\n",
    "deleted": File(b"D\n", 0o755),
    "both": "E\n",
    "other": "not of this turn\n",
}
# The paths of every turn here; `e/created` is absent at the beginning and there at the end, `deleted` the reverse.
PATHS = (b"both", b"d/staged", b"d/unstaged", b"d/untracked", b"deleted", b"e/created")
WORDS = {"actor": "a person", "reason": "a test"}
# What every command writes anew, and what is no record: who holds a lock, what was seen of the tree.
_PASSING = ("lock", "lease", "gate", "index", "state", "turn-excludes")

# Content and mode of a file, both None where it is absent; of the staged one and of the one in the work tree.
Side = tuple[bytes | None, int | None]


@dataclass
class BoundWorld(World):
    """A world whose root is bound as `mine`, or will be."""

    @property
    def turns(self) -> Turns:
        return self.workspace.turns

    @property
    def binding(self) -> Binding:
        return self.turns.binding("mine")

    def bind(self) -> Binding:
        return self.turns.bind(binding_id="mine", owner="me").binding

    def bound(self) -> bool:
        try:
            return bool(self.binding)
        except NotOwned:
            return False

    def begin(self, name: str = "t", paths: tuple[bytes, ...] = PATHS, generation: int = 0) -> TurnCapture:
        identity = self.turns.next_turn(self.binding, name)
        if generation:
            identity = TurnIdentity(turn_id=name, generation=generation)
        return self.turns.begin(self.binding, identity, paths)

    def seal(self) -> TurnCapture:
        return self.turns.seal(self.binding, self.latest.capture_id)

    def prepare(self) -> TurnRollbackPlan:
        return self.turns.prepare(self.binding, self.latest.capture_id)

    def apply(self, plan: TurnRollbackPlan | None = None) -> TurnRollbackResult:
        return self.turns.apply(self.binding, plan or self.prepare(), yes=True, **WORDS)

    def resolve(self) -> TurnRollbackStatus:
        return self.turns.resolve(self.binding, self.latest.capture_id, **WORDS)

    @property
    def listed(self) -> list[TurnRollbackStatus]:
        """What is on record of every turn, newest first."""
        return self.turns.list(self.binding)

    @property
    def latest(self) -> TurnRollbackStatus:
        return self.listed[0]

    @property
    def state(self) -> TurnState:
        return self.latest.state

    def load(self, name: str) -> None:
        """Put back what `save` kept; the directories that a binding knows by their inodes stay the same ones."""
        kept = self.base.with_name(name)
        for place in (self.root / ".git", self.root):
            for path in place.iterdir():
                if path.name == ".git":
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        shutil.copytree(kept / "tree", self.root, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(self.store, ignore_errors=True)
        if (kept / "store").exists():
            shutil.copytree(kept / "store", self.store, symlinks=True)

    # --- both sides ---------------------------------------------------------------------------------------------

    @property
    def index(self) -> dict[bytes, Side]:
        """What stock git says is staged, by path."""
        found: dict[bytes, Side] = {}
        contents: dict[bytes, bytes] = {}
        for line in git(self.root, "ls-files", "-s", "-z").split(b"\0")[:-1]:
            mode, oid, rest = line.split(b" ", 2)
            if oid not in contents:
                contents[oid] = git(self.root, "cat-file", "blob", oid.decode())
            found[rest.partition(b"\t")[2]] = (contents[oid], int(mode, 8))
        return found

    @property
    def sides(self) -> tuple[Tree, dict[bytes, Side]]:
        return self.tree, self.index

    def ours(self) -> list[str]:
        """Every file of ours outside the store."""
        names = [*self.root.rglob(".putback-*"), *git_dir(self.root).glob("index?*")]
        return sorted(str(path) for path in names)

    def checksum(self) -> str:
        """A digest of every file below the world that is a record, an object or the user's; with its mode."""
        digest = hashlib.sha256()
        for path in sorted(self.base.rglob("*")):
            inside = self.store in path.parents
            if path.is_file() and not (inside and (path.name in _PASSING or "scratch" in path.parts)):
                digest.update(b"%s %o %d\0" % (os.fsencode(path), path.lstat().st_mode, path.lstat().st_mtime_ns))
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def sound(self) -> None:
        """Assert that stock git finds nothing wrong, neither in the store nor in the user's repository."""
        fsck(self.store)
        git(self.root, "fsck", "--strict", "--full", "--no-dangling")
        git(self.root, "status", "--porcelain")
        git(self.root, "diff", "--cached", "--stat")

    def next_turn_works(self, *, clean: bool = True) -> None:
        """Assert that one more turn goes there and back, and that nothing of ours is left then."""
        self.begin("next", (b"d/unstaged", b"next"))
        before = self.sides
        write(self.root, "d/unstaged", b"of the next turn\n")
        write(self.root, "next", b"created\n")
        git(self.root, "add", "d/unstaged")
        self.seal()
        assert not self.apply().already
        assert self.sides == before
        assert not self.ours()
        assert not clean or not scratch_files(self.store)


def write(root: Path, name: str, content: bytes) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def git_dir(root: Path) -> Path:
    return Path(os.fsdecode(git(root, "rev-parse", "--absolute-git-dir").strip()))


def work(root: Path) -> None:
    """What the turn does: each path changes, most on both sides and differently."""
    write(root, "d/staged", b"A of the turn\n")
    write(root, "both", b"E of the turn, staged\n")
    write(root, "e/created", b"F of the turn\n")
    (root / "deleted").unlink()
    git(root, "add", "-A", "d/staged", "both", "e/created", "deleted")
    write(root, "both", b"E of the turn, unstaged\n")
    write(root, "d/unstaged", b"B of the turn\n")
    (root / "d/unstaged").chmod(0o755)
    write(root, "d/untracked", b"C of the turn\n")


def prepared(root: Path) -> Path:
    """A repository in which something is staged, something unstaged and something untracked before the turn."""
    make_repository(root, {"d/staged": "a\n", "d/unstaged": "b\n", "both": "e\n", "other": "o\n"})
    create(root, BEFORE)
    (root / "e").mkdir()
    git(root, "add", "d/staged", "deleted", "both")
    write(root, "both", b"E, and more of it\n")
    return root


@cache
def _template() -> Path:
    return prepared(Path(tempfile.mkdtemp(prefix="putback-bound-")))


def made(base: Path, upto: str = "bound") -> BoundWorld:
    """A world in a state: unbound, bound, begun, worked (begun, and the work is done), sealed or applied."""
    world = BoundWorld(base)
    shutil.copytree(_template(), world.root, symlinks=True)
    steps = {
        "bound": world.bind,
        "begun": world.begin,
        "worked": lambda: work(world.root),
        "sealed": world.seal,
        "applied": world.apply,
    }
    for name, step in steps.items():
        if upto == "unbound":
            break
        step()
        if name == upto:
            break
    return world
