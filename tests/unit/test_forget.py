"""Forgetting: nothing of a path's content is left in the store, every id resolves, restores leave it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crash.killing import fsck, kill_at, reached
from putback import seams
from putback.cli.main import run as putback
from putback.errors import FailedError, LockedError, OutOfOrder, UnknownStateError, UnsafePath
from putback.fs import lock
from putback.git.index import REGULAR
from putback.git.objectid import Kind, object_id
from putback.git.trees import build_trees
from putback.paths import RelPath
from putback.progress import SILENT
from putback.records.capture import Reason
from putback.runs.verify import Result
from putback.upkeep.rewrite import Rewriter, minimal
from putback.workspace import Workspace
from support.agents import Agent
from support.hermetic import OpenWorkspace, make_repository, unmoved
from support.stores import bytes_of
from support.trees import Dir, create, destroy, read_back, same
from support.turns import Turning

SECRET = b"hunter2-hunter2-hunter2"


def paths_of(workspace: Workspace, *names: str) -> frozenset[RelPath]:
    return workspace.paths_below(names)


def forgotten(workspace: Workspace, asked: str) -> list[str]:
    shown = workspace.show(asked).capture
    assert shown is not None
    return [item.path for item in shown.not_covered if item.reason is Reason.FORGOTTEN]


def test_every_capture_loses_the_path_and_keeps_the_rest(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    make_repository(tree, {"a": "1\n", "d/x": "x\n"})
    workspace = open_workspace(tree)
    clean = workspace.snapshot("before there was one")
    secrets = {".env": SECRET, "d/keys/one": b"1 " + SECRET, "d/keys/two": b"2 " + SECRET, "d/keys/no": Dir(0o700)}
    create(tree, secrets)
    first = workspace.snapshot("first")
    old_short = first.id[:12]
    create(tree, {"a": "2\n", ".env": b"other " + SECRET})
    run = workspace.run(("sh", "-c", "echo by the run >> a; cp .env .env.bak; rm d/keys/two"), snapshot=True)
    restored = workspace.restore(first.id)
    assert restored.entry is not None
    only = workspace.snapshot("only", paths=[".env"])
    before = read_back(tree)
    trees = {entry.id: workspace.files(entry.after) for entry in workspace.list()}

    with unmoved(tree):
        done = workspace.upkeep.forget(paths_of(workspace, ".env", "d/keys", "d/keys/one", ".env.bak"))
    assert (done.done, done.elsewhere, len(done.paths)) == (True, (), 3)
    same(read_back(tree), before)
    assert SECRET not in bytes_of(store)
    fsck(store)
    checked = workspace.upkeep.check(read_share=1.0)
    assert checked.sound, checked

    for entry in workspace.list():
        held = workspace.files(entry.after)
        assert not [path for path in held if path.startswith((b".env", b"d/keys"))]
        if entry.id in trees:
            then = trees[entry.id]
            assert held == {path: node for path, node in then.items() if not path.startswith((b".env", b"d/keys"))}
        record = workspace.show(entry.after).capture
        assert record is not None and (entry.files, entry.bytes) == (record.files, record.bytes)
    assert workspace.show(clean.id).entry == clean.entry, "a capture that never held it stays"
    for asked in (first.id, old_short, "@3"):
        assert forgotten(workspace, asked) == [".env", "d/keys"]
    kept = workspace.show(first.id).capture
    assert kept is not None and (kept.files, kept.bytes) == (2, 4)
    assert forgotten(workspace, run.entry.id) == [".env", ".env.bak", "d/keys"]
    assert workspace.show(only.id).capture.scope == only.capture.scope  # type: ignore[union-attr]

    create(tree, {".env": "live\n", "a": "3\n"})
    (tree / "d" / "keys" / "one").unlink()
    workspace.restore(old_short, exact=True)
    assert (tree / ".env").read_text() == "live\n" and (tree / "a").read_text() == "1\n"
    assert not (tree / "d" / "keys" / "one").exists() and (tree / "d" / "keys" / "two").exists()
    workspace.restore(only.id, exact=True)
    assert (tree / ".env").read_text() == "live\n"
    workspace.undo(restored.entry.id)
    assert (tree / ".env").read_text() == "live\n" and (tree / "a").read_text() == "2\nby the run\n"


def test_a_second_time_the_first_id_still_leads_there(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"one": SECRET, "two": SECRET + b"2", "a": "a\n"})
    workspace = open_workspace(tree)
    first = workspace.snapshot("first").id
    workspace.upkeep.forget(paths_of(workspace, "one"))
    second = workspace.show(first).entry
    assert second is not None and second.id != first
    workspace.upkeep.forget(paths_of(workspace, "two"))
    third = workspace.show(first).entry
    assert third is not None and third == workspace.show(second.id).entry and third not in (first, second.id)
    assert forgotten(workspace, first) == ["one", "two"] and list(workspace.files(first)) == [b"a"]
    again = workspace.upkeep.forget(paths_of(workspace, "one"))
    assert (again.captures, again.entries) == (0, 0), "it is gone already"
    with pytest.raises(FailedError, match="no capture holds 'on'"):
        workspace.upkeep.forget(paths_of(workspace, "on"))
    with pytest.raises(UnsafePath, match="the workspace itself"):
        paths_of(workspace, ".")


def test_a_capture_that_looked_at_it_says_nothing_of_it_any_more(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    """Else its absence would read as if it had not been there, and an exact restore would remove it."""
    create(tree, {".env": SECRET})
    workspace = open_workspace(tree)
    first = workspace.snapshot("first")
    create(tree, {".gitignore": ".env\n", ".env": b"ignored " + SECRET})
    restored = workspace.restore(first.id, paths=[".env"]).entry
    assert restored is not None
    workspace.upkeep.forget(paths_of(workspace, ".env"))
    with workspace._session("show") as session:
        assert session.capture(restored.after).touched == frozenset()
    (tree / ".gitignore").unlink()
    (tree / ".env").write_text("live\n")
    workspace.restore(restored.before, exact=True)
    same(read_back(tree), {".gitignore": ".env\n", ".env": "live\n"})


def test_what_something_else_holds_stays_and_is_told(
    tree: Path, store: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {".env": SECRET, "copy": SECRET})
    create(tmp_path / "other", {"theirs": SECRET})
    workspace, other = open_workspace(tree), open_workspace(tmp_path / "other")
    first, theirs = workspace.snapshot("first"), other.snapshot("theirs")
    done = workspace.upkeep.forget(paths_of(workspace, ".env"))
    assert done.elsewhere == (
        f"the files of '{other.root}' as they are now",
        f"'theirs' of '{other.root}'",
        f"'copy' of '{tree}'",
    )
    destroy(tree)
    workspace.restore(first.id)
    same(read_back(tree), {"copy": SECRET})
    workspace.upkeep.forget(paths_of(workspace, "copy"))
    assert SECRET in bytes_of(store)
    destroy(other.root)
    other.restore(theirs.id)
    same(read_back(other.root), {"theirs": SECRET})
    other.upkeep.forget(paths_of(other, "theirs"))
    assert SECRET not in bytes_of(store)


def test_a_dry_run_writes_nothing(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {".env": SECRET, "a": "a\n"})
    workspace = open_workspace(tree)
    workspace.snapshot("first")
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}
    would = workspace.upkeep.forget(paths_of(workspace, ".env"), dry_run=True)
    assert (would.done, would.captures, would.entries, would.reclaimed) == (False, 1, 1, None)
    assert {
        path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"
    } == before


def test_a_run_stays_verifiable_and_goes_back_but_for_the_path(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {".env": SECRET, "a": "a\n"})
    workspace = open_workspace(tree)
    run = workspace.run(
        ("sh", "-c", "echo more >> .env; echo more >> a; echo made > made"), snapshot=True
    ).entry.id
    workspace.upkeep.forget(paths_of(workspace, ".env"))
    checks = {check.name: check for check in workspace.runs.verify(run)}
    assert not [check for check in checks.values() if check.result is Result.FAIL]
    assert checks["changes against captures"].result is Result.PASS
    assert "'.env' was forgotten" in checks["captures in the store"].detail
    live = (tree / ".env").read_bytes()
    done = workspace.restore(run)
    refused = {item.path: item.reason for item in done.plan.refused}
    assert refused == {".env": "its content was forgotten, and is in no capture any more"}
    same(read_back(tree), {".env": live, "a": "a\n"})


def test_open_turns_of_agents_go_on(tree: Path, store: Path) -> None:
    make_repository(tree, {"a": "a\n"})
    create(tree, {".env": SECRET})
    agent = Agent(tree, store)
    agent.prompt("do it")
    agent.write("a", "changed\n")
    agent.workspace.upkeep.forget(paths_of(agent.workspace, ".env"))
    (tree / ".env").write_text("new\n")
    agent.stop()
    (entry,) = agent.workspace.list()
    assert list(store.glob(f"objects.git/refs/putback/*/{entry.before}")), "its beginning is one that is kept"
    assert [change.path for change in agent.workspace.diff(entry.id).changes] == [b"a"]
    assert SECRET not in bytes_of(store)
    agent.workspace.undo()
    assert (tree / "a").read_text() == "a\n" and (tree / ".env").read_text() == "new\n"


@pytest.mark.slow
def test_turns_that_hold_it(turning: Turning) -> None:
    workspace = turning.workspace
    turning.write("a", SECRET)
    turning.stage("a")
    begun = turning.begin("a", "b")
    with pytest.raises(OutOfOrder, match="turn 't' holds the path and is begun") as caught:
        workspace.upkeep.forget(paths_of(workspace, "a"))
    assert caught.value.hint is not None and begun.id[:12] in caught.value.hint
    turning.write("a", "harmless\n")
    turning.write("b", "changed\n")
    sealed = turning.seal(begun)
    with turning.untouched():
        done = workspace.upkeep.forget(paths_of(workspace, "a"))
    assert done.turns == ("t",) and SECRET not in bytes_of(turning.store)
    checked = workspace.upkeep.check()
    assert checked.sound, checked
    status = turning.turns.inspect(turning.binding, sealed.id)
    assert status.forgotten and not turning.turns.open_here()
    for attempt in (lambda: turning.prepare(sealed), workspace.undo):
        with pytest.raises(OutOfOrder, match="the content of 'a' was forgotten"), turning.untouched():
            attempt()
    assert [change.path for change in workspace.diff(sealed.id).changes] == [b"b"]
    assert workspace.restore(sealed.id).applied == 1
    turning.over("a", act=lambda: turning.write("a", "next\n"))


@pytest.mark.slow
def test_nothing_is_forgotten_while_something_is_undecided(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {".env": SECRET, "a": "a\n"})
    workspace = open_workspace(tree)
    first = workspace.snapshot("first").id
    chosen = paths_of(workspace, ".env")

    def run() -> object:
        return workspace.run(("sh", "-c", "echo 2 > a"), snapshot=True)

    def back() -> object:
        (tree / "a").write_text("3\n")
        return workspace.restore(first)

    kill_at(reached(run).index("run.captured"), run)
    with pytest.raises(UnknownStateError, match="was interrupted and is not closed") as caught:
        workspace.upkeep.forget(chosen)
    assert "putback recover" in (caught.value.hint or "")
    for killed in workspace.runs.killed():
        workspace.runs.close(killed)
    kill_at(reached(back).index("restore.publishing"), back)
    with pytest.raises(UnknownStateError, match="an interrupted restore"):
        workspace.upkeep.forget(chosen)


def test_whoever_keeps_the_store_busy_is_waited_for_by_the_next_command(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {".env": SECRET, "other": SECRET + b" other", "a": "a\n"})
    workspace = open_workspace(tree, lock_wait_seconds=0.1)
    workspace.snapshot("first")
    with lock.hold(store / "lock", "a capture", True, 0.0, SILENT):
        for name in (".env", "other"):
            with pytest.raises(LockedError) as caught:
                workspace.upkeep.forget(paths_of(workspace, name))
            assert caught.value.message.startswith("forgotten, but the bytes are still on the disk")
    assert SECRET in bytes_of(store) and workspace.status().purging
    assert forgotten(workspace, "@1") == [".env", "other"]
    assert SECRET not in bytes_of(store) and not workspace.status().purging


def test_the_command_asks(
    tree: Path, store: Path, open_workspace: OpenWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    make_repository(tree)
    create(tree, {"d/.env": SECRET, "a": "a\n"})
    open_workspace(tree).snapshot("first")
    base = ["--store", str(store), "-C", str(tree / "d"), "-c", "store.min_free_bytes=0"]
    assert putback([*base, "forget", ".env"]) == 43
    said = capsys.readouterr()
    assert said.out == "would purge d/.env\nfrom 1 capture, named by 1 entry of the history\n"
    assert "needs --yes" in said.err
    assert putback([*base, "--json", "forget", "--dry-run", ".env"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] is False
    assert putback([*base, "forget", "--yes", "--", ".env"]) == 0
    assert capsys.readouterr().out == (
        "purged d/.env from 1 capture, named by 1 entry of the history\n"
        "still in the workspace: d/.env; the next capture holds it, unless it is ignored\n"
    )
    assert putback([*base, "forget", ".env"]) == 0
    assert capsys.readouterr().out == "no capture holds that any more\n"
    assert putback([*base, "forget", "--yes", "nothing"]) == 1


class FakeReader:
    """Objects in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def keep(self, kind: Kind, data: bytes) -> str:
        oid = object_id(kind, data).hex()
        self.objects[oid] = data
        return oid

    def read(self, oid: str, kind: str) -> bytes:
        return self.objects[oid]


NAMES = st.sampled_from(["a", "b", "a.b", "ab"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@given(files=st.dictionaries(PATHS, st.integers(0, 3), max_size=8), chosen=st.sets(PATHS, min_size=1, max_size=3))
def test_a_tree_without_paths_is_the_tree_of_the_other_files(files: dict[str, int], chosen: set[str]) -> None:
    held = {
        name.encode(): bytes(24) + REGULAR.to_bytes(4, "big") + bytes(12) + bytes([content] * 32)
        for name, content in files.items()
        if not any(other.startswith(name + "/") for other in files)
    }
    reader = FakeReader()
    made = build_trees(held)
    for oid, data in made.objects:
        reader.objects[oid.hex()] = data
    doomed = minimal(RelPath(name.encode()) for name in chosen)
    left = {
        name: record
        for name, record in held.items()
        if not any((name + b"/").startswith(p + b"/") for p in doomed)
    }
    cut = Rewriter(reader, doomed, "", reader.keep)._without(made.root.hex())  # type: ignore[arg-type]
    assert (cut.tree or object_id("tree", b"").hex()) == build_trees(left).root.hex()
    gone = [record[40:].hex() for name, record in held.items() if name not in left]
    assert sorted(cut.contents) == sorted(gone)


def test_what_is_forgotten_during_a_purge_is_purged_too(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"one": SECRET + b"1", "two": SECRET + b"2", "a": "1\n"})
    workspace = open_workspace(tree)
    workspace.snapshot()
    destroy(tree)
    create(tree, {"a": "1\n"})

    def meanwhile(name: str) -> None:
        if name == "forget.purged":
            seams.observe(None)
            with lock.hold(workspace.paths.store.root / "upkeep" / "lock", "reclaim", False, 0.0, SILENT):
                impatient = open_workspace(tree, lock_wait_seconds=0.0)
                with pytest.raises(LockedError):
                    impatient.upkeep.forget(paths_of(impatient, "two"))

    seams.observe(meanwhile)
    try:
        workspace.upkeep.forget(paths_of(workspace, "one"))
    finally:
        seams.observe(None)
    assert workspace.status().purging
    workspace.snapshot("later")
    assert not workspace.status().purging and SECRET not in bytes_of(workspace.paths.store.root)


def test_what_a_repair_set_aside_is_told(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {".env": SECRET, "a": "1\n"})
    workspace = open_workspace(tree)
    first = workspace.snapshot()
    oid = workspace.files(first.id)[b".env"].digest
    path = workspace.paths.store.objects / oid[:2] / oid[2:]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b"junk")
    workspace.upkeep.check(read_share=1.0, repair=True)
    done = workspace.upkeep.forget(paths_of(workspace, ".env"))
    assert done.elsewhere == (f"perhaps what a repair set aside in '{workspace.paths.store.root / 'damaged'}'",)
