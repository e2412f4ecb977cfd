"""The system refuses one call at a time to what looks after the store: nothing that is listed is lost by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crash.killing import World, is_long
from putback.records.retention import Keep
from support.stores import bytes_of
from support.trees import Tree, same
from unit.test_faults import MANY, NEW, OLD, each_call, varied

pytestmark = pytest.mark.slow


class Upkeep:
    """Some snapshots, a run and a restore; then something is done about the store."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.world = World(base / "world")
        self.ids: list[str] = []

    def prepare(self, turn: int) -> None:
        self.world = World(self._base / str(turn))
        world = self.world
        world.become({**varied(OLD, turn), "secret": self.secret, **MANY})
        self.ids = [world.workspace.snapshot("old").id]
        world.become(varied(NEW, turn))
        self.ids.append(world.workspace.snapshot("new").id)
        world.become({**varied(NEW, turn + 1), "secret": self.secret + b" 2"})
        world.workspace.snapshot("newer")
        world.workspace.restore(self.ids[1])

    @property
    def secret(self) -> bytes:
        return b"hunter2-hunter2-hunter2"

    def act(self) -> object:
        raise NotImplementedError

    def check(self, before: Tree, entries: int, message: str) -> None:
        world = self.world
        same(world.tree, before)
        world.workspace.status()
        checked = world.workspace.upkeep.check(read_share=1.0)
        assert not checked.damage, (message, checked.damage)
        self.rest(entries, message)
        checked = world.workspace.upkeep.check(read_share=1.0)
        assert not checked.damage, (message, checked.damage)
        world.workspace.undo()
        world.workspace.redo()
        same(world.tree, before)

    def rest(self, entries: int, message: str) -> None:
        """What else must hold."""


class Prune(Upkeep):
    def act(self) -> object:
        return self.world.workspace.upkeep.prune(Keep(last=1))

    def rest(self, entries: int, message: str) -> None:
        left = len(self.world.workspace.list())
        assert message or left == 2
        self.act()
        assert [entry.message for entry in self.world.workspace.list() if not entry.before] == ["newer"]


class Forget(Upkeep):
    def act(self) -> object:
        workspace = self.world.workspace
        return workspace.upkeep.forget(workspace.paths_below(["secret"]))

    def rest(self, entries: int, message: str) -> None:
        workspace = self.world.workspace
        assert len(workspace.list()) == entries
        held = [b"secret" in workspace.files(entry.after) for entry in workspace.list()]
        gone = self.secret not in bytes_of(self.world.store)
        assert gone is not any(held), (gone, held, message)
        assert message or gone
        self.act()
        assert self.secret not in bytes_of(self.world.store)
        assert not any(b"secret" in workspace.files(oid) for oid in self.ids)


class Reclaim(Upkeep):
    def prepare(self, turn: int) -> None:
        super().prepare(turn)
        workspace = self.world.workspace
        from putback.upkeep import prune

        prune.drop(workspace.upkeep, Keep(last=1))

    def act(self) -> object:
        return self.world.workspace.upkeep.reclaim()


class Relocate(Upkeep):
    """The history of one place goes before that of another."""

    def prepare(self, turn: int) -> None:
        super().prepare(turn)
        self.old = self.world.root
        self.before = len(self.world.workspace.list())
        moved = Moved(self.world.base)
        self.world.root.rename(moved.root)
        self.world = moved
        (moved.root / "more").write_text(f"{turn}\n")
        moved.workspace.snapshot("here")

    def act(self) -> object:
        return self.world.workspace.upkeep.relocate(os.fsencode(self.old))

    def rest(self, entries: int, message: str) -> None:
        workspace = self.world.workspace
        if len(workspace.list()) == entries:
            self.act()
        assert len(workspace.list()) == entries + self.before
        for oid in self.ids:
            workspace.files(oid)


class Moved(World):
    @property
    def root(self) -> Path:
        return self.base / "elsewhere"


class Repair(Upkeep):
    """A pack has no index any more, one has a flipped bit, a content that the workspace has is gone, and so is the
    record of a snapshot; another content is nowhere any more, until somebody brings it back."""

    def prepare(self, turn: int) -> None:
        super().prepare(turn)
        workspace = self.world.workspace
        objects = workspace.paths.store.objects
        workspace.upkeep.reclaim()
        self.world.become({**varied(NEW, turn), "here": f"here {turn}\n"})
        held = workspace.files(workspace.snapshot("more").id)
        gone = [held[b"here"].digest]
        self.world.become({**varied(NEW, turn), "here": f"here {turn}\n", "lost": self.lost})
        gone.append(workspace.files(workspace.snapshot("last").id)[b"lost"].digest)
        (self.world.root / "lost").unlink()
        for oid in gone:
            (objects / oid[:2] / oid[2:]).unlink()
        next((objects / "pack").glob("*.idx")).unlink()
        record = next(workspace.paths.history.glob(f"*-{self.ids[0]}.json"))
        record.chmod(0o600)
        record.write_bytes(record.read_bytes()[:-9])

    @property
    def lost(self) -> str:
        return "lost for now\n"

    def act(self) -> object:
        return self.world.workspace.upkeep.check(read_share=1.0, repair=True)

    def check(self, before: Tree, entries: int, message: str) -> None:
        same(self.world.tree, before)
        self.act()
        left = self.world.workspace.upkeep.check(read_share=1.0)
        assert [[at.path for at in item.lost] for item in left.damage] == [["lost"]], left.damage
        assert len(self.world.workspace.list()) == entries + 1
        (self.world.root / "lost").write_text(self.lost)
        self.act()
        assert not self.world.workspace.upkeep.check(read_share=1.0).damage


KINDS = [Prune, Forget, Reclaim, Relocate, Repair]


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__.lower() for kind in KINDS])
def test_each_refused_call(kind: type[Upkeep], part: int, tmp_path: Path) -> None:
    if not is_long():
        pytest.skip("with the profile `long` of hypothesis; what it once found has tests of its own")
    each_call(kind(tmp_path), part, 3)
