"""A run, and everything around it that its documents, or its command, could be turned against."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash.killing import SETTINGS, World
from putback.git import refs
from putback.ops.restore import Restored
from putback.records.plan import Outcome, Status
from putback.workspace import Workspace
from support.doctor import Doctor
from support.trees import Dir, File, Link, Tree, create, read_back, same

# What moves a cursor, or turns the direction of writing.
CONTROLS = "\x1b[2J\x07\r\x9b31m\u202e"
START = {
    "app.py": "print('app')\n",
    "run.sh": File(b"#!/bin/sh\n", 0o755),
    "private.key": File(b"secret\n", 0o600),
    "src/a": "a\n",
    "src/deep/b": "b\n",
    "gone": "gone\n",
    "untouched": "mine\n",
    "folder/inside": "inside\n",
    "empty": Dir(0o750),
    "link": Link("app.py"),
    "out": Link("../outside"),
    "way-out": Link("../outside/secret"),
}
COMMAND = (
    "echo broken >> app.py; chmod 644 run.sh; rm src/a; rm -r src/deep; rm gone; ln -sfn run.sh link; rm way-out;"
    "mkdir new; echo new > new/file; chmod 700 empty"
)
HONEST = {
    "app.py": Status.RESTORED,
    "empty": Status.RESTORED,
    "gone": Status.RECREATED,
    "link": Status.RESTORED,
    "new": Status.REMOVED,
    "new/file": Status.REMOVED,
    "run.sh": Status.RESTORED,
    "src/a": Status.RECREATED,
    "src/deep": Status.RECREATED,
    "src/deep/b": Status.RECREATED,
    "way-out": Status.RECREATED,
}
SECRET = b"the other project's secret\n"
NOBODYS = b"no capture holds this\n"
NO_RUN = "9" * 64


class Place(World):
    """A run with contents, and everything that it could be turned against. `load` makes all of it new."""

    run = other_run = ""
    other_captures = ("", "")

    def build(self) -> None:
        create(self.base / "outside", {"secret": "outside\n", "a": "outside\n", "deep/b": "outside\n"})
        create(self.base / "other", {"kept": "kept\n", "secret": File(SECRET)})
        other = self.other.run(("sh", "-c", "rm secret"), snapshot=True)
        self.other_run, self.other_captures = other.entry.id, (other.entry.before, other.entry.after)
        create(self.root, START)
        self.run = self.workspace.run(("sh", "-c", COMMAND), snapshot=True).entry.id
        self.save("fresh")

    @property
    def other(self) -> Workspace:
        return Workspace.open(self.base / "other", store=self.store, settings=SETTINGS)

    @property
    def documents(self) -> Path:
        return self.base / "documents"

    @property
    def folder(self) -> Path:
        return self.workspace.paths.runs / self.run

    def doctor(self) -> Doctor:
        return Doctor(self.folder)

    def load(self, name: str) -> None:
        for part in ("tree", "store", "outside", "other", "documents", "own"):
            shutil.rmtree(self.base / part, ignore_errors=True)
        shutil.copytree(self.base.with_name(name), self.base, symlinks=True, dirs_exist_ok=True)

    def forget_run(self) -> None:
        """As on a machine whose store never saw the run; a snapshot of the tree before it is there."""
        with self.workspace._session("show") as session:
            refs.release(session.git, session.where.name, refs.anchored(session.git, session.where.name))
        shutil.rmtree(self.workspace.paths.history)
        now = self.tree
        self.become(START)
        self.workspace.snapshot("as it was")
        self.become(now)

    @property
    def beyond(self) -> dict[str, Tree | list[Path]]:
        """Everything that a restore of this workspace must leave alone."""
        theirs = self.other.paths.folder
        return {
            "outside": read_back(self.base / "outside"),
            "other": read_back(self.base / "other"),
            "history": sorted(path for path in theirs.rglob("*") if "history" in path.parts),
        }

    def restore(self, **options: Any) -> dict[str, Outcome]:
        """Restore from `documents`, and see to it that it stays inside and can be undone."""
        return self._watched(lambda: self.workspace.restore_documents(self.documents, **options))

    def restore_run(self, **options: Any) -> dict[str, Outcome]:
        return self._watched(lambda: self.workspace.restore(self.run, **options))

    def _watched(self, action: Callable[[], Restored]) -> dict[str, Outcome]:
        before, beyond = self.tree, self.beyond
        restored = action()
        after = self.tree
        assert self.beyond == beyond
        assert not any(getattr(entry, "mode", 0) & 0o7000 for entry in after.values())
        if restored.entry is not None:
            self.workspace.undo()
            same(self.tree, before)
            self.workspace.redo()
            same(self.tree, after)
        names = [outcome.path for outcome in restored.outcomes]
        assert len(names) == len(set(names)), "two outcomes of one path"
        return {outcome.path: outcome for outcome in restored.outcomes}


def is_known(place: Place) -> bool:
    return any(entry.id == place.run for entry in place.workspace.list())


def cli(place: World, *arguments: str) -> list[str]:
    """A command line in the workspace of the place."""
    return ["-C", str(place.root), "--store", str(place.store), "-c", "store.min_free_bytes=0", *arguments]


def no_controls(said: Any) -> bool:
    """Whether nothing that was printed can do anything to a terminal."""
    return all(character.isprintable() or character == "\n" for character in said.out + said.err)
