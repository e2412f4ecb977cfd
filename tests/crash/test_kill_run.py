"""A run killed at any point: its evidence says so, nothing held is lost, and the tree can be brought back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crash.killing import (
    World,
    fsck,
    kill_at,
    reached,
    representative,
    scratch_files,
    staged_files,
    undecided,
)
from putback.cli.main import run as putback
from putback.errors import FailedError, UnknownStateError
from putback.records.history import EntryKind
from putback.records.run import EndedBy, Limit, Limits, RunStatus
from putback.runs.evidence import Evidence, receipt_digest
from putback.runs.facts import Facts, tree_id
from putback.runs.unfinished import Unfinished
from support.hermetic import make_repository, unmoved
from support.trees import Dir, File, Link, Tree, same

pytestmark = pytest.mark.slow

START = {
    "app.py": "print('app')\n",
    "run.sh": File(b"#!/bin/sh\n", 0o755),
    "private.key": File(b"secret\n", 0o600),
    "other.key": File(b"other\n", 0o600),
    "src/a": "a\n",
    "src/deep/b": "b\n",
    "link": Link("app.py"),
    "swapped": "a file\n",
    "folder/inside": "in a folder\n",
    "empty": Dir(0o750),
}
AGENT = """
echo broken >> app.py; rm src/a; rm -r src/deep
mkdir -p new/dir; echo new > new/dir/file
chmod 644 run.sh; chmod 640 private.key; chmod 700 empty
ln -sfn /etc/passwd link
rm swapped; mkdir swapped; echo x > swapped/x
rm -r folder; echo 'a file now' > folder
"""
COMMAND = ("sh", "-c", AGENT)


@dataclass(frozen=True)
class Kind:
    """How the run is asked for, and from which seam on it is killed. A limit that is set is broken."""

    since: str = "run.prepared"
    contents: bool = False
    rollback: bool = False
    limits: Limits = field(default_factory=Limits)

    def run(self, world: World) -> object:
        return world.workspace.run(
            COMMAND, snapshot=self.contents, rollback_on_breach=self.rollback, limits=self.limits
        )


# Within a restore; test_kill_restore kills at each of them.
STEPS = frozenset(
    f"restore.{step}" for step in ("stage", "open_directory", "before_put", "make_directory", "before_remove")
)
BROKEN = Limits(max_files=2, verify="test ! -e folder/inside && false")
KINDS = {
    "digests": Kind(),
    "contents": Kind("capture.scanned", contents=True),
    "digests-breach": Kind("run.ended", limits=BROKEN),
    "rollback": Kind("run.recorded", contents=True, rollback=True, limits=BROKEN),
}


def cli(world: World, *arguments: str) -> int:
    return putback(
        ["-C", str(world.root), "--store", str(world.store), "-c", "store.min_free_bytes=0", *arguments]
    )


def folders(world: World) -> list[Path]:
    return sorted(world.store.glob("workspaces/*/runs/*"))


def killed(world: World) -> Unfinished:
    """The one run that was killed, when its command is no longer at work."""
    deadline = time.monotonic() + 10
    while True:
        [found] = world.workspace.runs.killed()
        if not found.processes:
            return found
        assert time.monotonic() < deadline, found.processes
        time.sleep(0.01)


def ready(base: Path) -> World:
    world = World(base)
    make_repository(world.root, START)
    world.workspace.snapshot("before everything")
    return world


@dataclass
class Killed:
    """What is known of the world in which a run was killed."""

    world: World
    kind: Kind
    before: Tree
    after: Tree
    names: list[str]
    number: int
    way: int

    def check(self) -> None:
        world = self.world
        fsck(world.store)
        assert undecided(world) or not staged_files(world.root)
        if self.early:
            same(world.tree, self.before)
            self.check_never_was()
        elif self.name == "run.sealed":
            assert world.workspace.runs.killed() == [] and cli(world, "status") == 0
            self.check_evidence()
        else:
            self.check_interrupted()
        self.check_next()

    @property
    def name(self) -> str:
        return self.names[self.number]

    @property
    def early(self) -> bool:
        """Before the command could be started."""
        return not self.reached("run.started")

    def reached(self, name: str) -> bool:
        return self.number >= self.names.index(name)

    def check_never_was(self) -> None:
        world = self.world
        assert world.workspace.runs.unfinished() == [] and folders(world) == []
        assert len(world.workspace.list()) == 1 and cli(world, "status") == 0

    def check_interrupted(self) -> None:
        world = self.world
        found = killed(world)
        left = world.tree
        assert found.command == COMMAND and not found.fault
        refused = (world.workspace.undo, world.workspace.redo, lambda: self.kind.run(world))
        for operation in refused if self.way == 0 else refused[:1]:
            with pytest.raises(UnknownStateError) as caught:
                operation()
            assert "putback recover" in (caught.value.hint or "")
        assert cli(world, "status") == 44 and cli(world, "recover") == 44 and cli(world, "list") == 0
        assert cli(world, "show", found.id) == (0 if self.reached("run.recorded") else 44)
        same(world.tree, left)
        if undecided(world) is not None:
            self.check_undecided(found)
        else:
            self.check_decided(found, left)

    def check_decided(self, found: Unfinished, left: Tree) -> None:
        world = self.world
        if self.way == 0:
            world.workspace.runs.close(found)
            same(world.tree, left)
            self.check_evidence(found)
            if self.kind.contents:
                world.workspace.restore(found.id)
        elif self.way == 1:
            if self.kind.contents:
                world.workspace.restore(found.id)
            else:
                with pytest.raises(FailedError, match="digests alone"):
                    world.workspace.restore(found.id)
        else:
            assert cli(world, "recover", "--back", "--yes") == (0 if self.kind.contents else 1)
        same(world.tree, self.before if self.kind.contents else left)
        self.check_evidence(found)

    def check_undecided(self, found: Unfinished) -> None:
        """A rollback was cut short: that is resolved first, and closing the run changes nothing any more."""
        world = self.world
        for attempt in (lambda: world.workspace.runs.close(found), lambda: world.workspace.restore(found.id)):
            with pytest.raises(UnknownStateError, match="interrupted restore"):
                attempt()
        choice, end = (("--forward", self.before), ("--back", self.after))[self.way % 2]
        assert cli(world, "recover", choice, "--yes") == 0
        same(world.tree, end)
        self.check_evidence(found)
        said = " ".join(Evidence(found.evidence.folder).load().receipt.limits_disclosure)  # type: ignore[union-attr]
        assert "The rollback was interrupted" in said
        if end is self.after:
            world.workspace.restore(found.id)
            same(world.tree, self.before)

    def check_evidence(self, found: Unfinished | None = None) -> None:
        """The documents are whole and agree, and closing is over."""
        world = self.world
        [folder] = folders(world)
        documents = Evidence(folder).load()
        ledger, receipt, manifest = documents.ledger, documents.receipt, documents.manifest
        assert ledger is not None and receipt is not None and manifest is not None and not documents.faults
        assert ledger.complete and ledger.ended is not None and ledger.exit is not None
        assert (receipt.ledger.head, receipt.ledger.events) == (ledger.head, ledger.count)
        assert ledger.ended.receipt == receipt_digest(receipt) and receipt.session.exit == ledger.exit
        assert len({breach.limit for breach in ledger.breaches}) == len(ledger.breaches)
        assert receipt.breaches == tuple(ledger.breaches) and receipt.changes.total == len(ledger.changes)
        assert tree_id(Facts(documents).final) == ledger.after.tree  # type: ignore[union-attr]
        self.check_told(folder)
        runs = [entry for entry in world.workspace.list() if entry.kind is EntryKind.RUN]
        assert [entry.id for entry in runs] == [folder.name] == [receipt.session.id]
        if found is None:
            return
        assert {path.name for path in folder.iterdir()} == {"ledger.jsonl", "manifest.json", "receipt.json"}
        assert world.workspace.runs.unfinished() == [] and cli(world, "status") == 0
        data = (folder / "receipt.json").read_bytes()
        with pytest.raises(FailedError, match="closed already"):
            world.workspace.runs.close(found)
        assert (folder / "receipt.json").read_bytes() == data
        assert world.workspace.show(found.id).receipt == receipt

    def check_told(self, folder: Path) -> None:
        """What is not known, and only that, is said in words."""
        documents = Evidence(folder).load()
        assert documents.receipt is not None and documents.ledger is not None
        receipt, ledger = documents.receipt, documents.ledger
        said = " ".join(receipt.limits_disclosure)
        by = ledger.exit.by if ledger.exit else None
        if self.reached("run.sealing"):
            assert receipt.session.status is (
                RunStatus.BREACHED if self.kind.limits.max_files else RunStatus.FINISHED
            )
            return
        assert receipt.session.status is RunStatus.INTERRUPTED
        unseen = not self.reached("run.ended")
        assert (by is EndedBy.UNKNOWN) == unseen == ("is not known" in said and "when the command ended" in said)
        assert unseen or "interrupted after the command had ended" in said
        if unseen:
            assert receipt.session.exit.status == 255
        if self.name == "run.started":
            assert receipt.changes.total == 0
            return
        assert {change.path for change in ledger.changes} >= {"app.py", "src/a", "swapped/x", "folder", "link"}
        assert "other.key" not in {change.path for change in ledger.changes}
        if self.kind.limits.max_files is not None:
            assert Limit.FILES in {breach.limit for breach in receipt.breaches}
            lost = any(breach.limit is Limit.VERIFICATION for breach in receipt.breaches)
            assert ("output of the verification command is lost" in said) == lost
            assert ("Whether the verification command succeeded" in said) == (not lost)

    def check_next(self) -> None:
        """The next run works, and nothing of the one before is left lying about."""
        world = self.world
        world.workspace.run(("true",), snapshot=self.kind.contents)
        assert not scratch_files(world.store)
        for name in ("receipt.draft", "rules", "process"):
            assert not list(world.store.glob(f"workspaces/*/runs/*/{name}")), name


def kill_everywhere(base: Path, kind: Kind) -> None:
    world = ready(base / "world")
    before = world.tree
    world.save("saved")
    Kind(contents=True).run(world)
    after = world.tree
    world.load("saved")
    names = reached(lambda: kind.run(world))
    assert {"run.prepared", "run.started", "run.command", "run.ended", "run.sealed"} <= set(names)
    wrong: list[str] = []
    chosen = [number for number in representative(names) if number >= names.index(kind.since)]
    if len(chosen) < len(names):
        # What a capture and a restore do by themselves is killed elsewhere; here, the last of each.
        last = {name: place for place, name in enumerate(names)}
        chosen = [
            number
            for number in chosen
            if names[number] not in STEPS and (names[number].startswith("run.") or number == last[names[number]])
        ]
    for turn, number in enumerate(chosen):
        world.load("saved")
        with unmoved(world.root):
            kill_at(number, lambda: kind.run(world))
            try:
                Killed(world, kind, before, after, names, number, turn % 3).check()
            except Exception as error:
                wrong.append(f"killed at {number} {names[number]}: {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} went wrong\n" + "\n\n".join(wrong)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_run_killed_anywhere_can_be_closed_and_taken_back(kind: Kind, tmp_path: Path, capsys) -> None:
    kill_everywhere(tmp_path, kind)
