"""What things cost, measured against git's own word on what each capture needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from putback.errors import LockedError
from putback.fs import lock
from putback.fs.filesystem import used_bytes
from putback.progress import SILENT
from putback.store.layout import Store
from putback.upkeep.sizes import _meet, _owner, _workspace
from support.hermetic import OpenWorkspace, git
from support.trees import create


def needed(store: Path, *captures: str) -> set[bytes]:
    """Every object that captures need, as git has it."""
    found: set[bytes] = set()
    for capture in filter(None, captures):
        lines = git(store / "objects.git", "rev-list", "--objects", "--no-object-names", capture)
        found |= set(lines.splitlines())
    return found


def on_disk(store: Path, objects: set[bytes]) -> int:
    """What objects take: a file of its own in whole blocks, or a part of a pack."""
    total, packed = 0, []
    for oid in map(bytes.decode, objects):
        path = store / "objects.git" / "objects" / oid[:2] / oid[2:]
        if path.exists():
            total += path.stat().st_blocks * 512
        else:
            packed.append(oid)
    given = "".join(f"{oid}\n" for oid in packed).encode()
    asked = "--batch-check=%(objectsize:disk)"
    return total + sum(map(int, git(store / "objects.git", "cat-file", asked, given=given).split()))


def test_what_vanishes_while_it_is_measured_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    whole, scan = used_bytes(tmp_path), os.scandir

    @contextmanager
    def scandir(place: str) -> Iterator[list[os.DirEntry[str]]]:
        with scan(place) as found:
            entries = list(found)
        Path(entries[0].path).unlink()
        yield entries

    monkeypatch.setattr(os, "scandir", scandir)
    assert used_bytes(tmp_path) == whole * 2 // 3


def test_each_entry_costs_what_only_it_needs(
    tree: Path, store: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    same = os.urandom(3000)
    create(tree, {"a": "1\n", "d/e/f": "deep\n", "d/g": "g\n"})
    (tree / "shared").write_bytes(same)
    ours = open_workspace(tree)
    ours.snapshot("first")
    (tree / "d/e/f").write_text("deeper\n")
    (tree / "alone").write_bytes(os.urandom(5000))
    ours.snapshot("second")
    (tree / "alone").unlink()
    ours.snapshot("third")
    ours.restore("@2")
    ours.run(["sh", "-c", "echo 2 >a"], snapshot=True)
    ours.run(["sh", "-c", "echo 3 >a"])
    beside = tmp_path / "beside"
    create(beside, {"d/e/f": "deep\n", "own": "own\n" * 1000})
    (beside / "shared").write_bytes(same)
    theirs = open_workspace(beside)
    theirs.snapshot("another")
    theirs.snapshot("again")

    found = ours.upkeep.sizes()
    everything = {ws: [needed(store, e.before, e.after) for e in ws.list()] for ws in (ours, theirs)}
    for at, (entry, size) in enumerate(zip(ours.list(), found.entries, strict=True)):
        others = [*everything[ours][:at], *everything[ours][at + 1 :], *everything[theirs]]
        alone = everything[ours][at] - set().union(*others)
        evidence = used_bytes(ours.paths.runs / entry.id)
        assert (size.name, size.physical) == (entry.id, on_disk(store, alone) + evidence)
        assert size.logical == (entry.bytes if entry.after else 0)
    second = found.entries[-2]
    assert second.physical < 30_000, "the restore's safety capture, and what the run found, have it, too"
    by_name = {size.name: size for size in found.workspaces}
    for one, other in ((ours, theirs), (theirs, ours)):
        alone = set().union(*everything[one]) - set().union(*everything[other])
        expected = on_disk(store, alone) + used_bytes(one.paths.folder)
        assert by_name[one.paths.name].physical == expected
        assert by_name[one.paths.name].logical == sum(e.bytes for e in one.list() if e.after)
    assert found.total >= sum(size.physical for size in found.workspaces)


def test_what_is_missing_or_unnamed_is_passed_over(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"d/a": "1\n", "b": "2\n"})
    workspace = open_workspace(tree)
    assert workspace.upkeep.sizes().entries == ()
    first = workspace.snapshot("first")
    before = workspace.upkeep.sizes()
    folder = store / "objects.git" / "objects"
    for oid in needed(store, first.id) - {first.id.encode()}:
        (folder / os.fsdecode(oid[:2]) / os.fsdecode(oid[2:])).unlink(missing_ok=True)
    after = workspace.upkeep.sizes()
    assert [size.name for size in after.entries] == [first.id]
    assert 0 < after.entries[0].physical < before.entries[0].physical


def test_a_capture_that_no_entry_names_is_the_workspaces(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "1\n"})
    workspace = open_workspace(tree)
    workspace.snapshot("kept")
    (tree / "b").write_bytes(os.urandom(50_000))
    workspace.snapshot("dropped")
    next(path for path in workspace.paths.history.iterdir() if path.name.startswith("0000000002")).unlink()
    found = workspace.upkeep.sizes()
    assert [size.physical < 30_000 for size in found.entries] == [True]
    assert found.workspaces[0].physical > 50_000


def test_reclaiming_is_waited_for(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1\n"})
    workspace = open_workspace(tree, lock_wait_seconds=0.0)
    workspace.snapshot("first")
    with lock.hold(Store(store).lock, "reclaim", False, 0, SILENT), pytest.raises(LockedError):
        workspace.upkeep.sizes()


def test_who_owns_what_two_need() -> None:
    first, second, other = _owner(0, 0), _owner(0, 1), _owner(1, 0)
    ours, theirs, nobody = _workspace(0), _workspace(1), 0
    assert (_meet(first, first), _meet(first, second), _meet(second, ours)) == (first, ours, ours)
    assert {_meet(first, other), _meet(ours, other), _meet(ours, theirs), _meet(nobody, first)} == {nobody}
