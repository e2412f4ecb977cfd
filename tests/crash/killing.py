"""Run an operation in a child that dies by SIGKILL at the n-th seam it reaches; and a world to do it in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hypothesis

from putback import seams
from putback.config import CaptureSettings, Settings, StoreSettings
from putback.git.objectid import object_id
from putback.ops.recover import Interrupted
from putback.workspace import Workspace
from support.trees import Dir, File, Link, Literal, Tree, create, destroy, read_back, same

SETTINGS = Settings(capture=CaptureSettings(), store=StoreSettings(min_free_bytes=0, lock_wait_seconds=5.0))


@dataclass
class World:
    """A workspace and its store, below one directory that can be saved whole and put back."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "tree"

    @property
    def store(self) -> Path:
        return self.base / "store"

    @property
    def workspace(self) -> Workspace:
        return Workspace.open(self.root, store=self.store, settings=SETTINGS)

    def become(self, literal: Literal) -> None:
        """Make the tree exactly this, with every file written anew."""
        if self.root.exists():
            destroy(self.root)
        create(self.root, literal)

    @property
    def tree(self) -> Tree:
        return read_back(self.root)

    def save(self, name: str) -> None:
        shutil.copytree(self.base, self.base.with_name(name), symlinks=True)

    def load(self, name: str) -> None:
        """Put back what `save` kept. Inodes and times are new, as after a move to another disk."""
        for part in (self.root, self.store):
            shutil.rmtree(part)
            shutil.copytree(self.base.with_name(name) / part.name, part, symlinks=True)

    def forget(self, name: str) -> None:
        shutil.rmtree(self.base.with_name(name))

    def remove(self) -> None:
        shutil.rmtree(self.base)


def reached(action: Callable[[], object]) -> list[str]:
    """The names of the seams that `action` reaches, in order, found out in a child process."""
    names: list[str] = []

    def report() -> None:
        seams.observe(names.append)
        action()

    status, said = in_child(report, lambda: "\n".join(names))
    assert status == 0, said
    return said.split("\n") if said else []


def is_long() -> bool:
    """Whether every case is wanted, however long that takes."""
    return hypothesis.settings.default == hypothesis.settings.get_profile("long")


def representative(points: Sequence[Hashable], times: int = 1) -> list[int]:
    """The places at which each point comes for the first `times` and for the last time; with the profile `long`
    of hypothesis all places. What comes between is the same step for one more path."""
    if is_long():
        return list(range(len(points)))
    last, seen = {point: number for number, point in enumerate(points)}, Counter[Hashable]()
    chosen = []
    for number, point in enumerate(points):
        seen[point] += 1
        if seen[point] <= times or number == last[point]:
            chosen.append(number)
    return chosen


def kill_at(number: int, action: Callable[[], object]) -> None:
    """Run `action` in a child that kills itself when it reaches the seam with this number, from 0."""
    left = number

    def observer(_: str) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def run() -> None:
        seams.observe(observer)
        action()

    status, said = in_child(run)
    assert status == -signal.SIGKILL, f"not killed at seam {number}: ended with {status}, {said}"


def in_child(action: Callable[[], object], result: Callable[[], str] = str) -> tuple[int, str]:
    """Fork, run, and return the exit code (negative for a signal) and the result or the traceback."""
    source, sink = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(source)
            try:
                action()
                text, code = result(), 0
            except BaseException:
                text = traceback.format_exc()
            os.write(sink, text.encode("utf-8", "backslashreplace"))
        finally:
            os._exit(code)
    os.close(sink)
    with open(source, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.decode()


def fsck(store: Path) -> None:
    """Assert that stock git finds nothing wrong with the store, and no file in it that it does not know."""
    if not (store / "store.json").exists():
        return
    done = subprocess.run(
        ["git", f"--git-dir={store}/objects.git", "fsck", "--full", "--strict", "--no-dangling"],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "LC_ALL": "C"},
    )
    said = (done.stdout + done.stderr).decode()
    quiet = [line for line in said.splitlines() if not line.startswith(("notice:", "Checking"))]
    assert done.returncode == 0 and not quiet, said


def staged_files(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in root.rglob(".putback-*")]


def scratch_files(store: Path) -> list[Path]:
    """Whatever a command left in the store that is neither a record nor an object."""
    left = list(store.glob("workspaces/*/scratch/*"))
    left += [*store.rglob("*.part"), *store.rglob("*.lock"), *store.rglob("part-*"), *store.rglob("tmp_*")]
    return sorted(set(left))


def every_entry_restores(world: World, known: list[Tree]) -> None:
    """Assert that each entry of the history can be read and, if it is a snapshot, brings back a known tree."""
    workspace = world.workspace
    for entry in workspace.list():
        workspace.show(entry.id)
        workspace.files(entry.id)
        if not entry.before:
            workspace.restore(entry.id, exact=True)
            assert world.tree in known, f"{entry.message}: an unknown tree came back: {world.tree}"


def holds(world: World, capture_id: str, tree: Tree) -> None:
    """Assert that a capture holds just this tree, by its digests and modes."""
    found = {
        path: (str(node.kind), node.mode, node.digest) for path, node in world.workspace.files(capture_id).items()
    }
    wanted = {}
    for path, entry in tree.items():
        if isinstance(entry, File):
            wanted[path] = ("file", entry.mode, object_id("blob", entry.content).hex())
        elif isinstance(entry, Link):
            wanted[path] = ("symlink", 0o777, object_id("blob", os.fsencode(entry.target)).hex())
        elif isinstance(entry, Dir) and not any(other.startswith(path + b"/") for other in tree):
            wanted[path] = ("directory", entry.mode, "")
    assert found == wanted


def snapshot_works(world: World) -> None:
    """Assert that a snapshot holds what is there, and that nothing of a command before is left."""
    tree = world.tree
    holds(world, world.workspace.snapshot("afterwards").id, tree)
    same(world.tree, tree)
    assert not scratch_files(world.store)


def next_snapshot_works(world: World) -> None:
    tree = world.tree
    taken = world.workspace.snapshot("afterwards")
    assert not scratch_files(world.store)
    destroy(world.root)
    world.workspace.restore(taken.id)
    same(world.tree, tree)


def undecided(world: World) -> Interrupted | None:
    return world.workspace.interrupted()
