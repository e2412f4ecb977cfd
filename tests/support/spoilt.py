"""A store with one of everything in it, and ways to spoil its files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from putback.git.objectid import object_id
from putback.records import document
from putback.records.agent import OpenTurn
from putback.workspace import Workspace
from support.bound import PATHS, prepared, work
from support.hermetic import settings
from support.trees import create

# Of a file that the workspace still has.
_LOOSE = object_id("blob", b"B of the turn\n").hex()


@dataclass
class Full:
    """A bound repository whose store has a pack, loose objects, snapshots, a restore, a run and a turn."""

    base: Path

    @property
    def tree(self) -> Path:
        return self.base / "tree"

    @property
    def store(self) -> Path:
        return self.base / "store"

    @property
    def workspace(self) -> Workspace:
        return Workspace.open(self.tree, store=self.store, settings=settings())

    @property
    def folder(self) -> Path:
        return self.workspace.paths.folder

    def one(self, kind: str) -> Path:
        """The file of a kind."""
        folder, git = self.folder, self.store / "objects.git"
        patterns = {
            "pack": (git, "objects/pack/*.pack"),
            "idx": (git, "objects/pack/*.idx"),
            "loose": (git, f"objects/{_LOOSE[:2]}/{_LOOSE[2:]}"),
            "ref": (git, "refs/putback/*/*"),
            "snapshot": (folder, "history/*-snapshot-*"),
            "restore": (folder, "history/*-restore-*"),
            "run": (folder, "history/*-run-*"),
            "turn": (folder, "history/*-turn-*"),
            "index": (folder, "index"),
            "state": (folder, "state"),
            "workspace": (folder, "workspace.json"),
            "marker": (self.store, "store.json"),
            "ledger": (folder, "runs/*/ledger.jsonl"),
            "manifest": (folder, "runs/*/manifest.json"),
            "receipt": (folder, "runs/*/receipt.json"),
            "pending": (folder, "turns/*/*/turns/*/pending.json"),
            "begun": (folder, "turns/*/*/turns/*/begun.json"),
            "sealed": (folder, "turns/*/*/turns/*/sealed.json"),
            "binding": (folder, "turns/*/*/binding.json"),
            "claim": (self.store, "claims/*.json"),
            "open": (folder, "agents/*.open"),
        }
        above, pattern = patterns[kind]
        found = sorted(above.glob(pattern))
        assert found, kind
        return found[0]

    def save(self) -> None:
        """Remember everything as it is now."""
        shutil.copytree(self.base, self.base.with_name("saved"), symlinks=True)

    def reset(self) -> None:
        """Put back what `save` remembered; the directories that records know by inode stay the same ones."""
        saved = self.base.with_name("saved")
        shutil.rmtree(self.store)
        shutil.copytree(saved / "store", self.store, symlinks=True)
        for path in self.tree.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(saved / "tree", self.tree, symlinks=True, dirs_exist_ok=True)


def made(base: Path) -> Full:
    """A store with one of everything, and the workspace as its last snapshot has it."""
    full = Full(base)
    prepared(full.tree)
    create(full.tree, {f"many/{number:03}": f"content {number}\n" * (1 + number % 5) for number in range(90)})
    workspace = full.workspace
    workspace.snapshot("first")
    create(full.tree, {"many/001": "changed\n", "many/new": "new\n"})
    workspace.snapshot("second")
    workspace.restore("@2")
    workspace.run(["/bin/sh", "-c", "echo of the run >many/005"], snapshot=True)
    bound = workspace.turns.bind(binding_id="mine", owner="me").binding
    begun = workspace.turns.begin(bound, workspace.turns.next_turn(bound, "t"), PATHS)
    work(full.tree)
    workspace.turns.seal(bound, begun.id)
    last = workspace.snapshot("last")
    opened = OpenTurn(agent="codex", session="s", before=last.id, began_ns=1)
    (full.folder / "agents").mkdir(exist_ok=True)
    (full.folder / "agents" / "codex-0123456789abcdef.open").write_bytes(document.encode(opened))
    full.save()
    return full


def flip(path: Path, share: float) -> None:
    """Change one bit of a file, at that share of its length."""
    path.chmod(0o600)
    body = bytearray(path.read_bytes())
    body[int((len(body) - 1) * share)] ^= 0x10
    path.write_bytes(body)


def cut(path: Path, share: float) -> None:
    """Cut a file off there."""
    path.chmod(0o600)
    body = path.read_bytes()
    path.write_bytes(body[: int(len(body) * share)])
