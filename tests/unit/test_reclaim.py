"""Reclaiming: what is needed stays whole, what is not goes, and nobody else is disturbed."""

from __future__ import annotations

import os
import random
import signal
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.killing import fsck, in_child, scratch_files
from putback import seams
from putback.errors import IntegrityError, LockedError
from putback.fs import lock
from putback.git import command, refs
from putback.git.index import read_index, write_index
from putback.git.index_edit import IndexEditor
from putback.git.pack_index import PackIndex
from putback.ops.recover import Choice
from putback.progress import SILENT
from putback.upkeep import packing
from putback.upkeep.packing import Pack, rolled_up
from putback.upkeep.roots import Needed
from putback.workspace import Workspace
from support.hermetic import settings
from support.trees import Link, create, destroy, normal, read_back, same
from support.upkeep import blob_of, drop, holds_object, litter, loose, packs, reclaim

SOME = {f"d{number % 5}/f{number}": f"{number}\n" * 40 for number in range(90)}


@pytest.fixture
def workspace(tree: Path, open_workspace) -> Workspace:
    create(tree, {**SOME, "changing": "0\n", "link": Link("changing")})
    opened: Workspace = open_workspace(tree, lock_wait_seconds=0.3)
    opened.snapshot("first")
    return opened


def _revisions(workspace: Workspace, count: int, lines: int = 3_000) -> dict[str, dict[bytes, object]]:
    """Take snapshots of a text that changes a little each time; what the tree was, by id."""
    chance = random.Random(count)
    text = [f"{chance.getrandbits(200)}" for _ in range(lines)]
    known = {}
    for _ in range(count):
        text[chance.randrange(lines)] = f"{chance.getrandbits(200)}"
        (workspace.root / "changing").write_text("\n".join(text))
        known[workspace.snapshot().id] = read_back(workspace.root)
    return known


def _all_come_back(workspace: Workspace, known: dict[str, dict[bytes, object]]) -> None:
    for oid, was in known.items():
        workspace.restore(oid, exact=True)
        same(read_back(workspace.root), was)


def test_revisions_of_a_text_cost_what_differs(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 5, lines=1_000)
    done = reclaim(workspace)
    assert not loose(store) and len(packs(store)) == 1
    one = len(zlib.compress((workspace.root / "changing").read_bytes()))
    assert packs(store)[0].stat().st_size < 2 * one
    assert done.bytes_after < done.bytes_before and not done.waiting and not done.objects_dropped
    fsck(store)
    _all_come_back(workspace, known)


def test_what_only_dropped_entries_had_goes(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 4)
    gone, *rest = known
    lost = blob_of(workspace, gone, b"changing")
    shared = blob_of(workspace, gone, b"d1/f1")
    drop(workspace, [gone])
    assert reclaim(workspace).objects_dropped >= 3
    assert not holds_object(store, lost) and not holds_object(store, gone)
    assert holds_object(store, shared)
    fsck(store)
    _all_come_back(workspace, {oid: known[oid] for oid in rest})


def test_the_private_index_keeps_its_promise(workspace: Workspace, store: Path) -> None:
    _revisions(workspace, 2)
    was = read_back(workspace.root)
    drop(workspace, [entry.id for entry in workspace.list()])
    reclaim(workspace)
    again = workspace.snapshot("nothing has changed")
    fsck(store)
    destroy(workspace.root)
    workspace.restore(again.id)
    same(read_back(workspace.root), was)


def test_the_private_index_keeps_its_promise_where_it_names_no_trees(workspace: Workspace, store: Path) -> None:
    _revisions(workspace, 1)
    content = blob_of(workspace, workspace.list()[0].id, b"changing")
    drop(workspace, [entry.id for entry in workspace.list()])
    write_index(workspace.paths.index, read_index(workspace.paths.index), None)
    workspace.paths.state.unlink()
    reclaim(workspace)
    assert holds_object(store, content)


def test_trees_that_only_captures_of_digests_share_stay(workspace: Workspace, store: Path) -> None:
    workspace.run(["true"])
    drop(workspace, [entry.id for entry in workspace.list() if entry.message == "first"])
    # The private index goes on; that of the digests still stands for what was.
    create(workspace.root, dict.fromkeys(SOME, "other\n"))
    workspace.snapshot()
    reclaim(workspace)
    aside = workspace.paths.digests().store.git_dir
    tree = workspace.paths.digests()
    cached = IndexEditor.read(tree.index).trees
    assert cached is not None
    bound = command.find().on(aside)
    bound.run("rev-list", "--objects", "--missing=allow-any", "--filter=blob:none", cached.oid.hex())
    assert workspace.run(["true"]).exit_code == 0


def test_a_large_pack_is_left_alone_until_enough_in_it_is_dead(workspace: Workspace, store: Path) -> None:
    create(workspace.root, {f"big{number}": os.urandom(3_000).hex() for number in range(80)})
    workspace.snapshot("big")
    reclaim(workspace)
    before = max(packs(store), key=lambda pack: pack.stat().st_size)
    _revisions(workspace, 2, lines=100)
    reclaim(workspace)
    assert before in packs(store) and not loose(store)
    for number in range(80):
        (workspace.root / f"big{number}").unlink()
    last = workspace.snapshot("without").id
    drop(workspace, [entry.id for entry in workspace.list() if entry.id != last])
    done = reclaim(workspace)
    assert before not in packs(store) and done.bytes_after < done.bytes_before / 2
    fsck(store)


def test_small_packs_are_rolled_up() -> None:
    def sizes(*each: int, base: int = 0) -> list[int]:
        return [pack.size for pack in rolled_up([Pack(Path(str(size)), size) for size in each], base)]

    assert sizes(10) == [] and sizes(10, 20, 60) == [] and sizes() == []
    assert sizes(10, base=6) == [10] and sizes(10, base=5) == []
    assert sizes(10, 15) == [10, 15] and sizes(10, 15, 60) == [10, 15]
    assert sizes(10, 20, 60, 170) == [10, 20, 60, 170], "what is beneath one that is too small goes with it"


def test_what_came_to_be_needed_meanwhile_stays(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 3)
    dead, *_ = known
    reclaim(workspace)
    drop(workspace, [dead])
    (workspace.root / "more").write_text("so that there is something to pack\n")
    workspace.snapshot()
    taken = []

    def meanwhile(name: str) -> None:
        if name == "reclaim.packed" and not taken:
            (workspace.root / "changing").write_bytes(known[dead][b"changing"].content)
            taken.append(workspace.snapshot("the same again").id)

    before = packs(store)
    seams.observe(meanwhile)
    try:
        _make_wasteful(workspace)
        done = reclaim(workspace)
    finally:
        seams.observe(None)
    assert taken and done.waiting and set(before) & set(packs(store))
    fsck(store)
    workspace.restore(taken[0], exact=True)
    assert (workspace.root / "changing").read_bytes() == known[dead][b"changing"].content
    assert not reclaim(workspace).waiting
    assert not set(before) & set(packs(store))
    fsck(store)


def _make_wasteful(workspace: Workspace) -> None:
    """One more capture as large as all others together, so that everything is rolled up."""
    create(workspace.root, {f"noise{number}": os.urandom(2_000).hex() for number in range(70)})
    workspace.snapshot("noise")


def test_others_at_work_put_it_off(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 2)
    drop(workspace, [next(iter(known))])
    secret = blob_of(workspace, list(known)[1], b"changing")
    with lock.hold(store / "lock", "other", True, 0.0, SILENT):
        assert reclaim(workspace).waiting
        with pytest.raises(LockedError):
            reclaim(workspace, purge=frozenset({next(iter(known))}))
    assert holds_object(store, secret)
    done = reclaim(workspace)
    assert not done.waiting and len(packs(store)) == 1 and not loose(store)
    fsck(store)
    with lock.hold(store / "upkeep" / "lock", "other", False, 0.0, SILENT):
        assert reclaim(workspace).waiting
        with pytest.raises(LockedError):
            reclaim(workspace, purge=frozenset({secret}))


def test_a_pack_that_is_made_again_is_not_dropped_for_its_like(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 2)
    for _ in range(2):
        with lock.hold(store / "lock", "other", True, 0.0, SILENT):
            assert reclaim(workspace).waiting and loose(store)
    reclaim(workspace)
    assert not loose(store)
    fsck(store)
    _all_come_back(workspace, known)


def test_a_damaged_pack_is_not_relied_on(workspace: Workspace, store: Path) -> None:
    create(workspace.root, {f"big{number}": os.urandom(500).hex() for number in range(80)})
    workspace.snapshot()
    reclaim(workspace)
    before = packs(store)
    create(workspace.root, {f"big{number}": os.urandom(500).hex() for number in range(80)})
    workspace.snapshot()
    with lock.hold(store / "lock", "other", True, 0.0, SILENT):
        assert reclaim(workspace).waiting
    (twice,) = (pack for pack in set(packs(store)) - set(before) if _holds_as_much(pack, before[0]))
    _damage(twice)
    reclaim(workspace)
    for half in (twice, twice.with_suffix(".idx")):
        half.unlink()
    fsck(store)


def _holds_as_much(pack: Path, other: Path) -> bool:
    ids = [{oid for oid, _ in PackIndex(each).sizes()} for each in (pack, other)]
    return ids[0] >= ids[1]


def _damage(pack: Path) -> None:
    pack.chmod(0o600)
    with pack.open("r+b") as file:
        file.seek(pack.stat().st_size // 2)
        file.write(bytes(40))


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_purged_is_gone(workspace: Workspace, store: Path, packed: bool) -> None:
    create(
        workspace.root, {f"big{number}": os.urandom(3_000).hex() for number in range(80)} | {"secret": "s3cret"}
    )
    one = workspace.snapshot("leaked").id
    secret = blob_of(workspace, one, b"secret")
    if packed:
        reclaim(workspace)
    told = reclaim(workspace, purge=frozenset({secret}))
    assert told.still_needed == (secret,) and holds_object(store, secret)
    (workspace.root / "secret").unlink()
    workspace.snapshot("without")
    drop(workspace, [one])
    told = reclaim(workspace, purge=frozenset({secret}))
    assert told.still_needed == () and not holds_object(store, secret)
    fsck(store)


def test_a_purge_takes_the_store_for_itself_in_the_end(workspace: Workspace, store: Path) -> None:
    """A capture that needs a dead object of the same pack gets in between again and again."""
    known = _revisions(workspace, 6)
    reclaim(workspace)
    ids = list(known)
    secret = blob_of(workspace, ids[0], b"changing")
    drop(workspace, ids[:-1])
    left = ids[1:-1]

    def meanwhile(name: str) -> None:
        if name == "reclaim.packed" and left:
            (workspace.root / "changing").write_bytes(known[left.pop()][b"changing"].content)
            workspace.snapshot()

    seams.observe(meanwhile)
    try:
        reclaim(workspace, purge=frozenset({secret}))
    finally:
        seams.observe(None)
    assert len(left) == 2 and not holds_object(store, secret)
    fsck(store)


def test_leftovers_of_ours_go_and_those_of_the_living_stay(
    workspace: Workspace, store: Path, tmp_path: Path
) -> None:
    create(tmp_path / "other", {"a": "1\n"})
    other = Workspace.open(tmp_path / "other", store=store, settings=workspace.settings)
    other.snapshot()
    mine, objects = workspace.paths, store / "objects.git/objects"
    left = [
        litter(mine.scratch / "object-1"),
        litter(mine.scratch / "pack-1-2.pack.part"),
        litter(mine.folder / "state.12345678.part"),
        litter(mine.folder / "index.lock"),
        litter(objects / "pack/tmp_pack_x"),
        litter(objects / "pack/tmp_idx_x"),
        litter(objects / "ab/tmp_obj_x"),
        litter(objects / "pack" / f"pack-{'1' * 64}.pack"),
        litter(store / "objects.git/refs/putback" / mine.name / f"{'2' * 64}.lock"),
        litter(store / "upkeep/1234/pack-x.pack"),
    ]
    (objects / "cd.12345678.part").mkdir()
    alive = litter(other.paths.scratch / "object-2")
    with lock.hold(other.paths.lock, "snapshot", False, 0.0, SILENT):
        done = reclaim(workspace)
        assert alive.exists() and not any(path.exists() for path in left)
    assert done.leftovers_removed >= len(left)
    assert scratch_files(store) == [alive]
    reclaim(workspace)
    assert not scratch_files(store)
    fsck(store)


def test_while_something_needed_is_lost_nothing_is_dropped(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 3)
    dead, damaged, _ = known
    drop(workspace, [dead])
    (store / "objects.git/objects" / damaged[:2] / damaged[2:]).unlink()
    secret = blob_of(workspace, list(known)[2], b"changing")
    before = loose(store)
    done = reclaim(workspace)
    assert done.unreadable == 1 and done.objects_dropped == 0 and loose(store) == before
    assert holds_object(store, dead)
    assert reclaim(workspace, purge=frozenset({dead})).unreadable == 1
    assert not holds_object(store, dead) and holds_object(store, secret)


def test_what_is_lost_meanwhile_has_nothing_dropped(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 2)
    dead = next(iter(known))
    drop(workspace, [dead])

    def meanwhile(name: str) -> None:
        if name == "reclaim.packed":
            (workspace.root / "changing").write_text("new\n")
            taken = workspace.snapshot().id
            (store / "objects.git/objects" / taken[:2] / taken[2:]).unlink()

    seams.observe(meanwhile)
    try:
        done = reclaim(workspace)
    finally:
        seams.observe(None)
    assert done.waiting and done.unreadable and holds_object(store, dead)


def test_a_damaged_content_stays_where_it_is(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 2)
    broken = blob_of(workspace, next(iter(known)), b"changing")
    place = store / "objects.git/objects" / broken[:2] / broken[2:]
    place.chmod(0o600)
    place.write_bytes(place.read_bytes()[:200])
    before = loose(store)
    done = reclaim(workspace)
    assert loose(store) == before and done.unreadable
    with pytest.raises(IntegrityError):
        reclaim(workspace, purge=frozenset({"0" * 64}))


def test_a_ref_counts_by_its_name(workspace: Workspace, store: Path) -> None:
    known = _revisions(workspace, 2)
    damaged = next(iter(known))
    ref = store / "objects.git" / refs.PREFIX / workspace.paths.name / damaged
    ref.write_bytes(b"\0" * 65)
    create(workspace.root, {"changing": "away\n"})
    workspace.snapshot()
    reclaim(workspace)
    ref.write_text(f"{damaged}\n")
    _all_come_back(workspace, known)


def test_without_room_only_what_is_dead_goes(tree: Path, store: Path, workspace: Workspace) -> None:
    known = _revisions(workspace, 3)
    dead, *rest = known
    drop(workspace, [dead])
    full = Workspace.open(tree, store=store, settings=settings(min_free_bytes=1 << 60))
    done = reclaim(full)
    assert done.objects_dropped and done.waiting and loose(store) and not holds_object(store, dead)
    fsck(store)
    _all_come_back(workspace, {oid: known[oid] for oid in rest})


def test_no_round_writes_more_than_its_bound(workspace: Workspace, store: Path, monkeypatch) -> None:
    create(workspace.root, {f"big{number}": os.urandom(3_000).hex() for number in range(80)})
    workspace.snapshot("big")
    assert len(packs(store)) == 2
    monkeypatch.setattr(packing, "MOST_BYTES", 100_000)
    before = packs(store)
    reclaim(workspace)
    large = max(before, key=lambda pack: pack.stat().st_size)
    assert large in packs(store), "a pack beyond the bound stays as it is"
    fsck(store)


def test_new_files_have_the_modes_of_the_store(tree: Path, store: Path, open_workspace) -> None:
    create(tree, SOME)
    os.umask(0o077)
    workspace = open_workspace(tree, permissions="group")
    workspace.snapshot()
    _revisions(workspace, 2, lines=50)
    reclaim(workspace)
    (pack,) = packs(store)
    for file, mode in ((pack, 0o440), (pack.with_suffix(".idx"), 0o440), (store / "upkeep/lock", 0o660)):
        assert stat.S_IMODE(file.stat().st_mode) == mode
    assert stat.S_IMODE((store / "upkeep").stat().st_mode) == 0o2770


def test_without_a_store_there_is_nothing_to_do(tree: Path, store: Path, open_workspace) -> None:
    done = reclaim(open_workspace(tree))
    assert (done.bytes_before, done.bytes_after) == (0, 0) and not store.exists()


def test_digests_that_have_grown_begin_anew(workspace: Workspace, monkeypatch) -> None:
    workspace.run(["true"])
    create(workspace.root, {"changing": "other\n"})
    workspace.run(["true"])
    monkeypatch.setattr("putback.upkeep.sweep.MOST_DIGESTS_BYTES", 10)
    folder = workspace.paths.folder / "digests"
    assert folder.exists()
    reclaim(workspace)
    assert not folder.exists()
    assert workspace.run(["true"]).exit_code == 0


def test_the_tree_is_as_it_was(workspace: Workspace, tree: Path) -> None:
    reclaim(workspace)
    same(read_back(tree), normal({**SOME, "changing": "0\n", "link": Link("changing")}))


def test_what_an_interrupted_merge_has_made_stays(tree: Path, workspace: Workspace) -> None:
    lines = [f"{number}\n" for number in range(9)]
    create(tree, {"text": "".join(lines)})
    workspace.snapshot("before")
    create(tree, {"text": "".join(["turned\n", *lines[1:]])})
    workspace.snapshot("after")
    create(tree, {"text": "".join(["turned\n", *lines[1:], "added since\n"])})
    interrupt("restore.publishing", lambda: workspace.restore("@2..@1", merge=True))
    reclaim(workspace)
    workspace.recover(Choice.FORWARD)
    assert (tree / "text").read_text() == "".join([*lines, "added since\n"])


def interrupt(seam: str, action: Callable[[], object]) -> None:
    """Have a process killed at a seam."""

    def observer(name: str) -> None:
        if name == seam:
            os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        seams.observe(observer)
        action()

    status, said = in_child(run)
    assert status == -signal.SIGKILL, said


def test_a_pack_that_lost_its_index_stays_while_something_is_missing(workspace: Workspace, store: Path) -> None:
    create(workspace.root, {f"many/{number}": f"{number}\n" for number in range(80)})
    workspace.snapshot("many")
    pack = max(packs(store), key=lambda path: path.stat().st_size)
    pack.with_suffix(".idx").unlink()
    reclaim(workspace)
    assert pack.exists()
    workspace.upkeep.check(repair=True)
    assert not workspace.upkeep.check(read_share=1.0).damage
    left = litter(pack.with_name(f"pack-{'3' * 64}.pack"))
    reclaim(workspace)
    assert not left.exists()


def test_a_purge_takes_along_all_that_is_dead(workspace: Workspace, store: Path) -> None:
    """Where a path had other contents before, in entries that were dropped, nobody knows their ids any more."""
    many = {f"many/{number}": os.urandom(2000) for number in range(80)}
    create(workspace.root, {**many, "key": "first secret\n"})
    first = workspace.snapshot("first").id
    older = blob_of(workspace, first, b"key")
    create(workspace.root, {"key": "second secret\n"})
    newer = blob_of(workspace, workspace.snapshot("second").id, b"key")
    drop(workspace, [first])
    reclaim(workspace)
    assert holds_object(store, older), "a small share of a large pack"
    workspace.upkeep.forget(workspace.paths_below(["key"]))
    assert not holds_object(store, older) and not holds_object(store, newer)


def test_a_capture_that_a_journal_named_before_a_ref_did_is_looked_into(workspace: Workspace, store: Path) -> None:
    """A restore puts its safety capture into the journal; a reclaim that is under way sees that before the ref."""
    create(workspace.root, {"changing": "once\n"})
    capture = workspace.snapshot("once").id
    content = bytes.fromhex(blob_of(workspace, capture, b"changing"))
    where, git = workspace.paths, command.find()
    drop(workspace, [capture])
    where.index.unlink()
    where.journal.write_text(capture)
    needed = Needed(where.store, git)
    assert bytes.fromhex(capture) in needed.look() and content not in needed
    refs.anchor(where.store.git_dir, where.name, capture, where.scratch)
    assert content in needed.look() and content in needed
