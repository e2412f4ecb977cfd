"""Records beside the history that somebody else wrote: nothing outside of the store changes, and nothing hangs."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from putback.errors import IntegrityError, PutbackError, StorageError
from putback.records.retention import Keep
from putback.records.upkeep import Part
from putback.runs import RECEIPT
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace
from support.trees import create, read_back, same

OUTSIDE = {RECEIPT: "r\n", "precious": "p\n"}


@pytest.fixture
def workspace(tree: Path, open_workspace: OpenWorkspace) -> Workspace:
    create(tree, {"a": "1\n"})
    workspace = open_workspace(tree)
    workspace.snapshot("first")
    return workspace


def test_the_note_of_a_prune_leads_nowhere_else(workspace: Workspace, tmp_path: Path) -> None:
    create(tmp_path / "outside", OUTSIDE)
    workspace.paths.runs.mkdir()
    for run in (str(tmp_path / "outside"), os.path.relpath(tmp_path / "outside", workspace.paths.runs)):
        note = {"format": "putback/pruning/v1", "runs": [run]}
        workspace.paths.pruning.write_text(json.dumps(note))
        workspace.upkeep.prune(Keep(last=1))
        same(read_back(tmp_path / "outside"), OUTSIDE)


@pytest.mark.parametrize(
    "plan", [{"removed": ["../../../../outside/precious"]}, {"moved": "."}, {"moved": ".."}, {"moved": "a/b"}]
)
def test_the_plan_of_an_exchange_leads_nowhere_else(
    plan: dict[str, object], workspace: Workspace, tmp_path: Path
) -> None:
    create(tmp_path / "outside", OUTSIDE)
    place = workspace.paths.exchange
    place.mkdir()
    (place / "plan.json").write_text(json.dumps({"format": "putback/exchange/v1", **plan}))
    for name in plan.get("removed", ()):  # type: ignore[attr-defined]
        plan["removed"] = [os.path.relpath(tmp_path / "outside" / "precious", workspace.paths.history), name]
    with pytest.raises(IntegrityError, match="damaged plan"):
        workspace.snapshot("second")
    same(read_back(tmp_path / "outside"), OUTSIDE)


@pytest.mark.parametrize("data", [b"\xff\xfe\n", b"../../x\n", b"zz\n"])
def test_a_list_of_what_is_to_be_purged_that_names_nothing(data: bytes, workspace: Workspace) -> None:
    workspace.paths.purge.write_bytes(data)
    workspace.snapshot("second")
    workspace.paths.exchange.mkdir()
    (workspace.paths.exchange / "anchoring").write_bytes(data)
    workspace.snapshot("third")


@pytest.mark.parametrize("name", ["purge", "pruning", "settled", "aliases", "exchange/plan.json", "journal"])
def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(name: str, workspace: Workspace) -> None:
    path = workspace.paths.folder / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    for act in (
        lambda: workspace.snapshot("second"),
        lambda: workspace.upkeep.prune(Keep(last=1)),
        lambda: workspace.upkeep.forget(workspace.paths_below(["a"])),
    ):
        try:
            act()
        except PutbackError as error:
            assert isinstance(error, StorageError) and "no regular file" in error.message


def test_a_repair_sets_a_damaged_table_of_ids_aside(workspace: Workspace) -> None:
    workspace.paths.aliases.write_bytes(b"junk")
    with pytest.raises(IntegrityError, match="damaged aliases"):
        workspace.snapshot("second")
    workspace.upkeep.check(repair=True)
    workspace.snapshot("second")
    assert (workspace.paths.store.root / "damaged/workspaces" / workspace.paths.name / "aliases").exists()


def test_links_in_the_place_of_folders_have_nothing_swept_away(workspace: Workspace, tmp_path: Path) -> None:
    create(tmp_path / "outside", OUTSIDE)
    store = workspace.paths.store
    for place in (workspace.paths.scratch, store.upkeep, store.root / "damaged"):
        if place.exists():
            shutil.rmtree(place)
        place.symlink_to(tmp_path / "outside")
        workspace.paths.aliases.write_bytes(b"junk")
        for act in (workspace.upkeep.reclaim, lambda: workspace.upkeep.check(repair=True)):
            with suppress(StorageError):
                act()
        place.unlink()
        same(read_back(tmp_path / "outside"), OUTSIDE)


@pytest.mark.parametrize("broken", ["junk", "pipe", "file", "link"])
def test_an_exchange_that_nobody_can_end_is_found_and_set_aside(
    broken: str, workspace: Workspace, tmp_path: Path
) -> None:
    create(tmp_path / "outside", OUTSIDE)
    place = workspace.paths.exchange
    if broken in ("junk", "pipe"):
        place.mkdir()
        (place / "plan.json").write_text("junk") if broken == "junk" else os.mkfifo(place / "plan.json")
    elif broken == "file":
        place.write_text("junk")
    else:
        place.symlink_to(tmp_path / "outside")
    with pytest.raises(PutbackError):
        workspace.snapshot("second")
    assert [item.part for item in workspace.upkeep.check().damage] == [Part.WORKSPACE]
    repaired = workspace.upkeep.check(repair=True)
    assert [item.repaired for item in repaired.damage] == ["set aside"]
    assert workspace.upkeep.check().sound
    workspace.snapshot("second")
    assert [entry.message for entry in workspace.list()] == ["second", "first"]
    same(read_back(tmp_path / "outside"), OUTSIDE)
