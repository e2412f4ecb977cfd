"""Runs that were interrupted: what is closed with what is known, what is refused, and what is said of the rest."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest

from crash.killing import kill_at, reached
from putback.cli.main import run as putback
from putback.errors import IntegrityError, UnknownStateError
from putback.records.ledger import Instant, RunEnded, Snapshotted
from putback.records.receipt import Receipt
from putback.records.run import EndedBy, Limits
from putback.runs import unfinished
from putback.runs.evidence import Evidence
from putback.runs.facts import Facts, tree_id
from putback.runs.unfinished import Unfinished
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace
from support.trees import File, create, read_back, same

pytestmark = pytest.mark.slow

START = {".gitignore": "*.log\n", "old.log": "log\n", "a": "a\n", "b": "b\n", "key": File(b"secret\n", 0o600)}


@pytest.fixture
def workspace(tree: Path, open_workspace: OpenWorkspace) -> Workspace:
    create(tree, START)
    return open_workspace(tree)


def interrupt(
    workspace: Workspace, seam: str, script: str, *, snapshot: bool = False, **chosen: object
) -> Unfinished:
    """Kill a run at a seam, and wait until its command is over."""
    limits = Limits(**chosen)  # type: ignore[arg-type]

    def act() -> object:
        return workspace.run(("sh", "-c", script), snapshot=snapshot, limits=limits)

    create(workspace.root, START)
    names = [name for name in reached(act) if name != "capture.sealed"]
    create(workspace.root, START)
    for path in workspace.root.glob("new*"):
        path.unlink()
    kill_at(names.index(seam), act)
    while (found := workspace.runs.killed())[0].processes:
        pass
    return found[0]


def whole(found: Unfinished) -> Receipt:
    """The receipt, if all documents are whole and agree on the tree."""
    documents = Evidence(found.evidence.folder).load()
    assert not documents.faults and documents.ledger is not None and documents.ledger.after is not None
    assert tree_id(Facts(documents).final) == documents.ledger.after.tree
    assert documents.receipt is not None and documents.receipt.changes.total == len(documents.ledger.changes)
    return documents.receipt


def cut(found: Unfinished, lines: int, torn: int = 0) -> None:
    """Leave so many lines of the ledger, and so many bytes of the next."""
    ledger = found.evidence.ledger
    whole = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(whole[:lines]) + b"".join(whole[lines:])[:torn])


@pytest.mark.parametrize("snapshot", [False, True], ids=["digests", "contents"])
def test_a_list_of_changes_that_was_cut_off_is_completed(workspace: Workspace, snapshot: bool) -> None:
    found = interrupt(workspace, "run.told", "echo x > a; rm b; echo n > new1; echo n > new2", snapshot=snapshot)
    # run.start, before, exit, after, then the changes: some, and half of the next
    cut(found, 6, torn=30)
    assert workspace.runs.killed()[0].fault == ""
    workspace.runs.close(found)
    receipt = whole(found)
    assert receipt.changes.total == 4 and "cut off" not in " ".join(receipt.limits_disclosure)


@pytest.mark.parametrize("path", ["a", "new2"])
def test_a_list_that_nobody_can_complete_any_more_says_so(workspace: Workspace, tree: Path, path: str) -> None:
    found = interrupt(workspace, "run.told", "echo x > a; rm b; echo n > new1; echo n > new2")
    cut(found, 6)
    (tree / path).write_text("changed since\n")
    receipt = workspace.runs.close(found).receipt
    assert receipt.changes.total == 2 and "The list of changes is cut off" in " ".join(receipt.limits_disclosure)


def test_a_complete_list_is_believed_though_the_tree_went_on(workspace: Workspace, tree: Path) -> None:
    found = interrupt(workspace, "run.recorded", "echo x > a; rm b", max_files=1)
    (tree / "a").write_text("changed since\n")
    workspace.runs.close(found)
    receipt = whole(found)
    assert receipt.changes.total == 2 and "cut off" not in " ".join(receipt.limits_disclosure)


@pytest.mark.parametrize("snapshot", [False, True], ids=["digests", "contents"])
def test_what_comes_to_light_is_not_taken_for_created(workspace: Workspace, snapshot: bool) -> None:
    found = interrupt(workspace, "run.ended", "echo > .gitignore", snapshot=snapshot)
    receipt = workspace.runs.close(found).receipt
    changes = Evidence(found.evidence.folder).load().ledger.changes  # type: ignore[union-attr]
    assert [change.path for change in changes] == [".gitignore"]
    assert any(said.startswith("1 paths that ignore rules leave out") for said in receipt.limits_disclosure)


def test_an_end_that_nobody_saw_is_neither_success_nor_failure(workspace: Workspace) -> None:
    found = interrupt(workspace, "run.command", "exit 3", fail_on_error=1)
    result = workspace.runs.close(found)
    assert result.receipt.session.exit.by is EndedBy.UNKNOWN and not result.breached
    assert result.exit_code == 255 == result.entry.exit_code


def test_what_was_ended_meanwhile_is_not_called_killed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = interrupt(workspace, "run.sealing", "echo x > a")
    looked: list[Path] = []

    def slow(path: Path) -> bool:
        if not looked:
            looked.append(path)
            workspace.runs.close(found)
        return False

    monkeypatch.setattr(unfinished, "is_locked", slow)
    assert workspace.runs.unfinished() == [] and looked


def test_somebody_who_only_looks_does_not_keep_a_run_from_being_closed(workspace: Workspace) -> None:
    found = interrupt(workspace, "run.ended", "echo x > a")
    with open(found.evidence.ledger, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.05, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        workspace.runs.close(found)
    assert workspace.runs.killed() == []


class TestDamage:
    """Evidence that is damaged is named, is no obstacle for ever, and is kept."""

    def spoil_ledger(self, found: Unfinished) -> None:
        data = found.evidence.ledger.read_bytes()
        found.evidence.ledger.write_bytes(data.replace(b"run.start", b"run.stuff", 1))

    def drop_manifest(self, found: Unfinished) -> None:
        found.evidence.manifest.unlink()

    def drop_ledger(self, found: Unfinished) -> None:
        found.evidence.ledger.unlink()

    def shorten_ledger(self, found: Unfinished) -> None:
        cut(found, 1)

    def swap(self, found: Unfinished) -> None:
        found.evidence.folder.rename(found.evidence.folder.with_name("0" * 64))

    @pytest.mark.parametrize("damage", ["spoil_ledger", "drop_manifest", "drop_ledger", "shorten_ledger", "swap"])
    def test_it_is_told_and_can_be_set_aside(
        self, workspace: Workspace, tree: Path, store: Path, damage: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        getattr(self, damage)(interrupt(workspace, "run.ended", "echo x > a"))
        before = read_back(tree)
        fixed = ["-C", str(tree), "--store", str(store), "-c", "store.min_free_bytes=0", "--json"]
        assert putback([*fixed, "status"]) == 46
        [said] = json.loads(capsys.readouterr().out)["runs"]
        assert said["fault"] and not said["alive"]
        [found] = workspace.runs.killed()
        with pytest.raises(IntegrityError) as refused:
            workspace.runs.close(found)
        assert "--keep" in (refused.value.hint or "")
        assert putback([*fixed, "recover", "--forward", "--yes"]) == 46
        with pytest.raises(UnknownStateError):
            workspace.run(("true",))
        files = {path.name for path in found.evidence.folder.iterdir()}
        assert putback([*fixed, "recover", "--keep", "--yes"]) == 0
        [kept] = store.glob("workspaces/*/runs/damaged-*")
        assert {path.name for path in kept.iterdir()} == files
        assert workspace.runs.unfinished() == []
        same(read_back(tree), before)
        workspace.run(("true",))

    def test_a_receipt_that_the_ledger_does_not_end_with_is_not_published(self, workspace: Workspace) -> None:
        found = interrupt(workspace, "run.sealing", "echo x > a")
        data = found.evidence.draft.read_bytes()
        found.evidence.draft.write_bytes(data.replace(b'"modified":1', b'"modified":2'))
        assert found.evidence.draft.read_bytes() != data
        with pytest.raises(IntegrityError, match="receipt is not the one"):
            workspace.runs.close(found)
        assert not found.evidence.receipt.exists()

    def test_captures_that_contradict_the_ledger_are_not_written_into_it(self, workspace: Workspace) -> None:
        from putback.runs.ledger import LedgerWriter

        found = interrupt(workspace, "run.captured", "echo x > a; rm b", snapshot=True)
        ledger = Evidence(found.evidence.folder).load().ledger
        assert ledger is not None and ledger.before is not None
        forged = Snapshotted(
            when=Instant.AFTER,
            tree=ledger.before.tree,
            files=1,
            bytes=1,
            not_covered=0,
            capture=ledger.before.capture,
        )
        with LedgerWriter.reopen(found.evidence.ledger) as writer:
            writer.append(forged, sync=False)
            change = Evidence(self._told(workspace)).load().ledger.changes[0]  # type: ignore[union-attr]
            writer.append(change, sync=True)
        with pytest.raises(IntegrityError, match="contradict"):
            workspace.runs.close(found)

    def test_an_end_without_a_beginning_is_no_reason_to_crash(self, workspace: Workspace) -> None:
        from putback.records.run import RunStatus
        from putback.runs.ledger import LedgerWriter

        found = interrupt(workspace, "run.command", "echo x > a")
        with LedgerWriter.reopen(found.evidence.ledger) as writer:
            writer.append(RunEnded(status=RunStatus.FINISHED), sync=True)
        with pytest.raises(IntegrityError):
            workspace.runs.close(found)

    @staticmethod
    def _told(workspace: Workspace) -> Path:
        """The folder of the run that came to its end when the seams were counted."""
        return next(path.parent for path in workspace.paths.runs.glob("*/receipt.json"))
