"""Is what the store lists there and sound; and where it is not: what is lost, and what repair brings back."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import hypothesis
import pytest

from putback.errors import IntegrityError, LockedError, StorageError, UnknownId
from putback.fs import lock
from putback.git.objectid import object_id
from putback.progress import SILENT
from putback.records.upkeep import Checked, Part
from putback.upkeep import check as checking
from putback.upkeep import refill, repair
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace
from support.spoilt import Full, cut, flip, made
from support.trees import Literal, create, read_back, same

# Of these kinds what the store keeps can be made anew, as long as the workspace holds the content.
MENDED = ("idx", "loose", "ref", "snapshot", "index", "state", "workspace", "marker", "open")
# These are never made anew: what they told is told by nothing else.
KEPT = ("ledger", "manifest", "receipt", "pending", "begun", "sealed", "binding", "claim")
SPANS = ("restore", "run", "turn")
# Thoroughly with `--hypothesis-profile=long`.
LONG = hypothesis.settings.default.max_examples > 15
PLACES = (0.0, 0.2, 0.4, 0.6, 0.7, 0.9, 1.0) if LONG else (0.4,)
WAYS = ("cut", "emptied", "deleted") if LONG else ("deleted",)
# A flipped bit may make another number of a time or an inode, by which nothing is lost.
HARMLESS = ("workspace", "open", "begun", "sealed")
# Deleted, these are as if they had never been: a run that is not closed, a turn that is not sealed, a cache.
UNNOTICED = ("receipt", "sealed", "claim", "open", "index", "state", "snapshot", *SPANS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Full:
    base = tmp_path_factory.mktemp("full") / "base"
    base.mkdir()
    return made(base)


@pytest.fixture
def full(shared: Full) -> Full:
    shared.reset()
    return shared


def check(full: Full, *, repair: bool = False) -> Checked:
    return full.workspace.upkeep.check(read_share=1.0, repair=repair)


def check_rest(full: Full, found: Checked) -> None:
    """Assert that whatever is not said to be damaged can be looked at to the last byte."""
    workspace = full.workspace
    damaged = {item.entry for item in found.damage}
    for entry in workspace.list():
        if entry.id not in damaged:
            workspace.diff(entry.id)


def test_a_sound_store_is_sound(full: Full) -> None:
    found = check(full)
    assert found.sound
    assert not found.damage
    assert (found.entries, found.unlisted, found.leftovers) == (6, (), 0)
    assert found.bytes_read > 3000
    assert full.workspace.upkeep.check().bytes_read == 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", (*MENDED, *KEPT, *SPANS, "pack"))
def test_a_flipped_bit_is_found_and_said(full: Full, kind: str, place: float) -> None:
    path = full.one(kind)
    flip(path, place)
    try:
        found = check(full)
    except IntegrityError as error:
        # A version that is newer than any: nothing is known of such a store.
        assert kind == "marker"
        assert "version" in error.message
        return
    if not found.damage:
        assert kind in HARMLESS
        return
    assert not found.sound
    for item in found.damage:
        assert item.whole or item.lost or item.part is not Part.OBJECT or "no capture" in item.problem
    repaired = check(full, repair=True)
    again = check(full)
    if kind in MENDED:
        assert repaired.sound, repaired
        assert not again.damage
    elif kind in SPANS:
        assert not repaired.sound
        assert not again.damage
    elif kind in KEPT:
        assert not repaired.sound
        assert path.exists()
    if kind in ("pack", "loose", "restore") or LONG:
        check_rest(full, again)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", (*MENDED, *KEPT, *SPANS, "pack"))
def test_what_is_cut_off_or_gone_is_found(full: Full, kind: str, how: str) -> None:
    path = full.one(kind)
    if how == "deleted":
        path.unlink()
    else:
        cut(path, 0.6 if how == "cut" else 0.0)
    found = check(full)
    if how == "deleted" and kind in UNNOTICED:
        assert found.sound, found
        assert kind != "snapshot" or len(found.unlisted) == 1
        return
    assert found.damage
    repaired = check(full, repair=True)
    assert repaired.sound == (kind in MENDED), repaired
    again = check(full)
    assert bool(again.damage) == (kind in KEPT or kind == "pack")
    if kind == "pack" or LONG:
        check_rest(full, again)


def of_tree(tree: Path, literal: Literal, open_workspace: OpenWorkspace) -> Workspace:
    create(tree, literal)
    return open_workspace(tree)


def loose(ws: Workspace, content: bytes) -> Path:
    """The file of the object of a content."""
    name = object_id("blob", content).hex()
    return ws.paths.store.objects / name[:2] / name[2:]


def test_damage_names_the_paths_and_leaves_the_rest(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A", "d/b": "B", "d/c": "C", "same": "A"}, open_workspace)
    first = ws.snapshot("first")
    create(tree, {"a": "2", "d/b": "2", "same": "2", "e": "E"})
    second = ws.snapshot("second")
    flip(loose(ws, b"A"), 0.5)
    found = ws.upkeep.check(read_share=1.0)
    (damage,) = found.damage
    assert (damage.part, damage.entry, damage.whole) == (Part.OBJECT, first.id, False)
    assert [item.path for item in damage.lost] == ["a", "same"]
    assert damage.problem == f'2 of 4 files of snapshot {first.id[:12]} "first" cannot come back'
    # What needs it fails before anything is touched, what does not need it goes on.
    before = read_back(tree)
    with pytest.raises(IntegrityError):
        ws.restore(first.id)
    same(read_back(tree), before)
    assert ws.interrupted() is None
    ws.restore(first.id, paths=[tree / "d"])
    assert (tree / "d/b").read_text() == "B"
    create(tree, {"d/c": "3", "e": "3"})
    ws.restore(second.id)
    same(read_back(tree), before)


def test_a_damaged_tree_is_a_directory(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A", "d/x/b": "B", "d/y": "Y"}, open_workspace)
    first = ws.snapshot()
    create(tree, {"d/x/b": "2", "a": "2"})
    ws.snapshot()
    oid = subprocess.check_output(
        ["git", "--git-dir", ws.paths.store.git_dir, "rev-parse", f"{first.id}:files/d/x"], text=True
    ).strip()
    flip(ws.paths.store.objects / oid[:2] / oid[2:], 0.5)
    (damage,) = ws.upkeep.check().damage
    assert [(item.path, item.below) for item in damage.lost] == [("d/x", True)]
    # The tree can be made anew, because the workspace can be made to be as it was.
    create(tree, {"d/x/b": "B"})
    assert ws.upkeep.check(repair=True).sound
    assert not ws.upkeep.check(read_share=1.0).damage
    ws.restore(first.id)
    same(read_back(tree), {"a": "A", "d/x/b": "B", "d/y": "Y"})


@pytest.mark.parametrize("what", ["d/x", "", None])
def test_a_damaged_capture_stands_in_no_other_ones_way(
    tree: Path, open_workspace: OpenWorkspace, what: str | None
) -> None:
    """Every restore asks all captures what they hold; a tree, or the commit, of one of them is damaged."""
    ws = of_tree(tree, {"a": "A", "d/x/b": "B"}, open_workspace)
    first = ws.snapshot()
    create(tree, {"a": "2", "d/x/b": "2"})
    second = ws.snapshot()
    create(tree, {"a": "3", "d/x/b": "3", "new": "N"})
    third = ws.snapshot()
    name = second.id if what is None else f"{second.id}:files/{what}"
    git = ["git", "--git-dir", str(ws.paths.store.git_dir)]
    oid = subprocess.check_output([*git, "rev-parse", name], text=True).strip()
    flip(ws.paths.store.objects / oid[:2] / oid[2:], 0.5)
    ws.restore(first.id)
    same(read_back(tree), {"a": "A", "d/x/b": "B"})
    with pytest.raises(IntegrityError):
        ws.restore(second.id)
    same(read_back(tree), {"a": "A", "d/x/b": "B"})
    ws.undo()
    ws.restore(third.id)
    same(read_back(tree), {"a": "3", "d/x/b": "3", "new": "N"})


def test_contents_are_found_by_name_and_then_anywhere(
    tree: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    ws = of_tree(tree, {"a": "A", "b": "B", "l": "L", "gone": "G"}, open_workspace)
    first = ws.snapshot()
    other = of_tree(tmp_path / "other", {"a": "A"}, open_workspace)
    other.snapshot()
    create(tree, {"a": "2", "b": "2", ".gitignore": "kept\n", "kept": "B", "gone": "2"})
    (tree / "l").unlink()
    (tree / "link").symlink_to("L")
    ws.snapshot()
    for content in (b"A", b"B", b"L", b"G"):
        loose(ws, content).unlink()
    found = ws.upkeep.check(repair=True)
    assert not found.sound
    (left,) = [item for item in found.damage if item.entry == first.id]
    assert [item.path for item in left.lost] == ["gone"]
    assert "3 more were found" in left.problem
    assert loose(ws, b"A").exists()


def test_a_capture_after_a_repair_stores_again_what_was_set_aside(
    tree: Path, tmp_path: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private index of another workspace, too, must not go on promising what is gone."""
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    other = of_tree(tmp_path / "other", {"copy": "A"}, open_workspace)
    ws.snapshot()
    other.snapshot()
    flip(loose(ws, b"A"), 0.5)
    create(tree, {"a": "2"})
    monkeypatch.setattr(refill, "refill", lambda *_: None)
    assert not ws.upkeep.check(read_share=1.0, repair=True).sound
    assert not loose(ws, b"A").exists()
    assert list((ws.paths.store.root / "damaged").rglob(loose(ws, b"A").name))
    other.snapshot()
    assert ws.upkeep.check(read_share=1.0).sound


def test_a_pack_that_is_whole_again_has_its_name_again(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {f"f{number}": f"content {number}" for number in range(70)}, open_workspace)
    first = ws.snapshot()
    (pack,) = (ws.paths.store.objects / "pack").glob("*.pack")
    flip(pack, 0.0)
    shutil.rmtree(tree)
    tree.mkdir()
    assert ws.upkeep.check(read_share=1.0, repair=True).sound
    ws.restore(first.id)
    assert len(read_back(tree)) == 70


def test_the_commit_of_a_capture_is_made_anew(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    first = ws.snapshot("m")
    create(tree, {"a": "2"})
    flip(ws.paths.store.objects / first.id[:2] / first.id[2:], 0.5)
    (damage,) = ws.upkeep.check().damage
    assert damage.whole
    assert damage.entry == first.id
    assert ws.upkeep.check(repair=True).sound
    ws.restore(first.id)
    same(read_back(tree), {"a": "A"})


def test_a_corrupt_pack_keeps_what_is_sound_in_it(tree: Path, open_workspace: OpenWorkspace) -> None:
    """Also through deltas, as reclaiming makes them."""
    body = [f"line {number} of a file that changes little\n" for number in range(400)]
    ws = of_tree(tree, {"big": "".join(body)}, open_workspace)
    ids = [ws.snapshot().id]
    for number in range(4):
        body[number * 50] = f"changed {number}\n"
        create(tree, {"big": "".join(body)})
        ids.append(ws.snapshot().id)
    git = ["git", "--git-dir", str(ws.paths.store.git_dir), "-c", "pack.writeReverseIndex=true"]
    subprocess.run([*git, "repack", "-adfq", "--depth=50"], check=True)
    subprocess.run([*git, "prune-packed"], check=True)
    (pack,) = (ws.paths.store.objects / "pack").glob("*.pack")
    # One byte of the header: all that is in it is sound, and git takes none of it.
    flip(pack, 0.0)
    assert all(item.whole or item.part is not Part.OBJECT for item in ws.upkeep.check().damage)
    os.rename(tree / "big", tree / "elsewhere")
    (tree / "elsewhere").write_text("nothing of it is here any more")
    assert ws.upkeep.check(repair=True).sound
    assert not ws.upkeep.check(read_share=1.0).damage
    ws.restore(ids[2])
    assert "changed 1" in (tree / "big").read_text()
    assert "changed 2" not in (tree / "big").read_text()


def test_a_damaged_second_copy_loses_nothing(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    first = ws.snapshot()
    subprocess.run(["git", "--git-dir", str(ws.paths.store.git_dir), "repack", "-adq"], check=True)
    copy = loose(ws, b"A")
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(zlib.compress(b"blob 1\0X"))
    (damage,) = ws.upkeep.check(read_share=1.0).damage
    assert not damage.lost
    assert ws.upkeep.check(read_share=1.0, repair=True).sound
    assert not copy.exists()
    create(tree, {"a": "2"})
    ws.restore(first.id)
    same(read_back(tree), {"a": "A"})


def test_packed_refs_that_make_no_sense(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    first = ws.snapshot()
    git = ["git", "--git-dir", str(ws.paths.store.git_dir)]
    subprocess.run([*git, "pack-refs", "--all", "--prune"], check=True)
    assert ws.upkeep.check().sound
    packed = ws.paths.store.git_dir / "packed-refs"
    packed.write_bytes(packed.read_bytes() + b"nonsense\n")
    assert not ws.upkeep.check().sound
    assert ws.upkeep.check(repair=True).sound
    create(tree, {"a": "2"})
    ws.restore(first.id)
    same(read_back(tree), {"a": "A"})


def test_a_ref_that_another_workspace_drops_meanwhile_is_no_damage(
    tree: Path, tmp_path: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    other = of_tree(tmp_path / "other", {"a": "A"}, open_workspace)
    ws.snapshot()
    ref = ws.paths.store.git_dir / "refs" / "putback" / other.paths.name / other.snapshot().id
    read = Path.read_bytes

    def reading(path: Path) -> bytes:
        if path == ref:
            path.unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    assert ws.upkeep.check().sound and not ref.exists()


def test_a_repair_drops_no_index_that_another_process_is_at_work_with(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "A"})
    ws = open_workspace(tree, lock_wait_seconds=0.0)
    ws.snapshot()
    with lock.hold(ws.paths.lock, "test", False, 0.0, SILENT), pytest.raises(LockedError):
        refill.capture_anew(ws.upkeep, ["f" * 64])
    assert ws.paths.index.exists()


def test_a_damaged_plan_of_an_exchange_is_told(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    ws.snapshot()
    create(ws.paths.exchange, {"plan.json": "nonsense"})
    (damage,) = ws.upkeep.check().damage
    assert damage.part is Part.WORKSPACE and "plan" in damage.problem


def test_a_store_whose_configuration_git_refuses(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    ws.snapshot()
    (ws.paths.store.git_dir / "config").write_bytes(b"[core\n")
    assert not ws.upkeep.check().sound
    assert ws.upkeep.check(repair=True).sound
    assert ws.upkeep.check(read_share=1.0).sound


def test_an_entry_that_cannot_be_made_anew_now_stays_listed(
    tree: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = of_tree(tree, {"a": "1\n"}, open_workspace)
    first = ws.snapshot("first")
    (record,) = ws.paths.history.iterdir()
    record.write_bytes(record.read_bytes()[:-9])

    def refuse(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(repair, "write_new_file", refuse)
        with pytest.raises(StorageError, match="No space left"):
            ws.upkeep.check(repair=True)
    assert record.exists()
    ws.upkeep.check(repair=True)
    assert ws.list() == [first.entry]


def test_a_damaged_journal(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    ws.snapshot()
    ws.paths.journal.write_bytes(b"nonsense\n")
    (damage,) = ws.upkeep.check().damage
    assert damage.part is Part.JOURNAL
    assert ws.paths.journal.exists()
    assert ws.upkeep.check(repair=True).sound
    ws.snapshot()


def test_shares_add_up_to_everything(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {f"f{number}": f"content {number}" for number in range(70)}, open_workspace)
    ws.snapshot()
    whole = ws.upkeep.check(read_share=1.0).bytes_read
    read = [ws.upkeep.check(read_share=0.25).bytes_read for _ in range(4)]
    assert sum(read) == whole
    assert all(0 < part < whole for part in read)


def test_a_window_goes_round() -> None:
    oids = [bytes([first, 0, 0, 0]) + bytes(28) for first in range(256)]
    seen: list[int] = []
    for turn in range(8):
        chosen = checking.window(0xF0000000 + turn * (1 << 29), 0.125)
        seen += [oid[0] for oid in oids if chosen(oid)]
    assert sorted(seen) == list(range(256))


def test_all_workspaces_of_a_store(tree: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    other = of_tree(tmp_path / "other", {"b": "B"}, open_workspace)
    ws.snapshot()
    theirs = other.snapshot()
    loose(ws, b"B").unlink()
    shutil.rmtree(tmp_path / "other")
    assert ws.upkeep.check(read_share=1.0).sound
    found = ws.upkeep.check(read_share=1.0, everything=True)
    assert found.entries == 2
    assert {item.entry for item in found.damage if item.lost} == {theirs.id}


def test_nothing_was_ever_captured(tree: Path, open_workspace: OpenWorkspace) -> None:
    with pytest.raises(UnknownId, match="nothing was ever captured"):
        open_workspace(tree).upkeep.check()
    assert open_workspace(tree).upkeep.check(everything=True).sound


def test_hostile_names_in_a_tree_are_damage(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {"a": "A"}, open_workspace)
    first = ws.snapshot()
    git = ["git", "--git-dir", str(ws.paths.store.git_dir)]
    blob = subprocess.check_output([*git, "hash-object", "-w", "--stdin"], input=b"x").strip()
    evil = b"100644 ..\0" + bytes.fromhex(blob.decode())
    tree_id = subprocess.check_output(
        [*git, "hash-object", "-w", "-t", "tree", "--literally", "--stdin"], input=evil
    )
    listed = subprocess.check_output([*git, "ls-tree", first.id])
    lines = [line for line in listed.splitlines() if not line.endswith(b"\tfiles")]
    lines.append(b"040000 tree " + tree_id.strip() + b"\tfiles")
    top = subprocess.check_output([*git, "mktree"], input=b"\n".join(lines) + b"\n").strip()
    commit = b"tree " + top + b"\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n"
    made_up = subprocess.check_output([*git, "hash-object", "-w", "-t", "commit", "--stdin"], input=commit).strip()
    subprocess.run([*git, "update-ref", f"refs/putback/{ws.paths.name}/{made_up.decode()}", made_up], check=True)
    (damage,) = ws.upkeep.check().damage
    assert damage.whole
    assert damage.capture == made_up.decode()


def test_the_command_line(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    ws = of_tree(tree, {f"d/{number:02}": f"{number}" for number in range(14)}, open_workspace)
    ws.snapshot("m")
    line = [sys.executable, "-m", "putback", "--store", str(store), "-c", "store.min_free_bytes=0", "check"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*line, *words], cwd=tree, capture_output=True, text=True, check=False)

    done = run("--read-data-subset", "50%")
    assert (done.returncode, done.stdout[:6]) == (0, "sound:")
    for number in range(14):
        loose(ws, f"{number}".encode()).unlink()
        (tree / f"d/{number:02}").unlink()
    done = run()
    assert done.returncode == 46
    assert "14 of 14 files of snapshot" in done.stdout
    assert "… and 9 more" in done.stdout
    found = json.loads(run("--json").stdout)
    assert found["failed"]
    assert len(found["damage"][0]["lost"]) == 14
    assert run("--read-data-subset", "0%").returncode == 2
