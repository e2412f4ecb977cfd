"""Runs: a command is watched, what it did is known and proved, and it is put back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from putback.errors import CommandNotFound, FailedError, OverBudget, RootDisagreement
from putback.git.objectid import object_id
from putback.records.ledger import RollbackRefused, RolledBack
from putback.records.plan import Status
from putback.records.run import Discipline, EndedBy, Limit, Limits, RunStatus
from putback.runs.close import RunResult
from putback.runs.evidence import Documents, Evidence
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, make_repository, unmoved
from support.trees import Dir, File, Link, create, normal, read_back, same

START = {
    "app.py": "print('app')\n",
    "run.sh": File(b"#!/bin/sh\n", 0o755),
    "private.key": File(b"secret\n", 0o600),
    "src/a": "a\n",
    "src/deep/b": "b\n",
    "link": Link("app.py"),
    "swapped": "a file\n",
    "folder/inside": "in a folder\n",
    "empty": Dir(0o750),
}

AGENT = r"""
import os, shutil, subprocess
open("app.py", "a").write("broken\n")
os.unlink("src/a")
shutil.rmtree("src/deep")
os.makedirs("new/dir"); open("new/dir/file", "w").write("new\n")
os.chmod("run.sh", 0o644); os.chmod("private.key", 0o640); os.chmod("empty", 0o700)
os.unlink("link"); os.symlink("/etc/passwd", "link")
os.unlink("swapped"); os.mkdir("swapped"); open("swapped/x", "w").write("x\n")
shutil.rmtree("folder"); open("folder", "w").write("now a file\n")
subprocess.Popen(["sh", "-c", "sleep 0.3; echo late > background"], start_new_session=True)
"""


def agent(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def documents(result: RunResult) -> Documents:
    return Evidence(result.folder).load()


def is_stored(store: Path, content: bytes) -> bool:
    oid = object_id("blob", content).hex()
    done = subprocess.run(["git", f"--git-dir={store}/objects.git", "cat-file", "-e", oid], check=False)
    return done.returncode == 0


@pytest.fixture
def workspace(tree: Path, open_workspace: OpenWorkspace) -> Workspace:
    create(tree, START)
    return open_workspace(tree)


@pytest.mark.requirement("D1", "D2")
def test_without_being_asked_only_digests_are_kept(workspace: Workspace, tree: Path, store: Path) -> None:
    result = workspace.run(shell("echo changed > app.py; rm src/a; echo new > n"))
    ledger = documents(result).ledger
    assert ledger is not None and ledger.complete and not ledger.faults
    assert [(change.path, change.status) for change in ledger.changes] == [
        ("app.py", "modified"),
        ("n", "created"),
        ("src/a", "deleted"),
    ]
    changed = ledger.changes[0]
    assert changed.before is not None and changed.after is not None
    assert changed.before.digest == object_id("blob", b"print('app')\n").hex()
    assert (changed.after.digest, changed.after.size) == (object_id("blob", b"changed\n").hex(), 8)
    for content in (b"print('app')\n", b"changed\n", b"secret\n"):
        assert not is_stored(store, content)
    assert result.receipt.ops.snapshot.taken == 0 and result.receipt.ops.snapshot.bytes_stored == 0


@pytest.mark.requirement("D2", "D23")
def test_what_kept_digests_alone_cannot_be_taken_back_and_says_so(workspace: Workspace, tree: Path) -> None:
    result = workspace.run(shell("echo changed > app.py"))
    for attempt in (lambda: workspace.restore(result.entry.id), workspace.undo):
        with pytest.raises(FailedError, match="kept digests alone"):
            attempt()
    assert (tree / "app.py").read_text() == "changed\n"


def test_digests_after_a_snapshot_need_not_be_made_anew(workspace: Workspace, store: Path) -> None:
    workspace.snapshot("before")
    result = workspace.run(shell("true"))
    assert result.receipt.changes.total == 0
    assert result.receipt.ops.snapshot.files == 8


@pytest.mark.requirement("D2", "D14", "D16", "D18")
def test_a_breached_run_is_rolled_back_to_an_identical_tree(workspace: Workspace, tree: Path) -> None:
    make_repository(tree, START)
    before = read_back(tree)
    with unmoved(tree):
        result = workspace.run(agent(AGENT), rollback_on_breach=True, limits=Limits(max_files=2))
    same(read_back(tree), before)
    assert result.exit_code == 42 and [breach.limit for breach in result.receipt.breaches] == [Limit.FILES]
    part = result.receipt.ops.rollback
    assert part is not None and part.trigger == "files"
    assert part.applied == part.restored + part.recreated + part.removed == len(part.paths) > 10
    assert "background" in {item.path for item in part.paths}
    event = documents(result).ledger.rollback  # type: ignore[union-attr]
    assert isinstance(event, RolledBack) and (event.applied, event.paths) == (part.applied, part.paths)
    assert {process.fate for process in result.receipt.session.exit.survivors} == {"waited"}


@pytest.mark.requirement("D23")
def test_nothing_is_rolled_back_that_was_not_asked_for(workspace: Workspace, tree: Path) -> None:
    result = workspace.run(agent(AGENT), snapshot=True, limits=Limits(max_files=2))
    assert result.breached and result.receipt.ops.rollback is None
    assert (tree / "app.py").read_text().endswith("broken\n")


def test_a_run_is_taken_back_by_restore_and_by_undo(workspace: Workspace, tree: Path) -> None:
    before = read_back(tree)
    first = workspace.run(agent(AGENT), snapshot=True)
    after = read_back(tree)
    restored = workspace.restore(first.entry.id)
    assert not restored.failed
    same(read_back(tree), before)
    workspace.undo()
    same(read_back(tree), after)
    workspace.undo()
    same(read_back(tree), before)
    workspace.redo()
    same(read_back(tree), after)


@pytest.mark.requirement("D3")
def test_over_budget_the_command_is_never_started(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, START)
    workspace = open_workspace(tree, max_new_bytes=10)
    with pytest.raises(OverBudget) as refused:
        workspace.run(shell("echo started > started"), snapshot=True)
    assert refused.value.limit == 10 and str(refused.value.measured) in refused.value.message
    assert not (tree / "started").exists() and workspace.list() == []
    assert not list(store.glob("objects.git/objects/??/*")) and not list(store.glob("workspaces/*/runs/*"))


def test_a_command_that_does_not_exist_leaves_no_trace(workspace: Workspace, store: Path) -> None:
    with pytest.raises(CommandNotFound):
        workspace.run(("no-such-command-anywhere",), snapshot=True)
    assert not store.exists()


@pytest.mark.requirement("D4", "D18")
def test_what_is_declined_is_in_the_receipt(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"small": "s\n", "large": "l" * 1000})
    os.mkfifo(tree / "pipe")
    result = open_workspace(tree, max_file_bytes=100).run(shell("echo big > later; head -c 500 /dev/zero > later"))
    found = {(item.path, str(item.reason)) for item in result.receipt.ops.snapshot.not_covered}
    assert found == {("large", "too_large"), ("pipe", "special_file"), ("later", "too_large")}


@pytest.mark.requirement("D5", "D20")
def test_revisions_and_copies_cost_what_is_new_in_them(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    data = os.urandom(2 << 20)
    create(tree, {"big": File(data), "copy/big": File(data)})
    workspace = open_workspace(tree)
    ten = (
        "import os\n"
        "for n in range(10):\n"
        "    open('big', 'r+b').write(os.urandom(16))\n"
        "open('big', 'r+b').write(b'x' * 16)\n"
    )
    result = workspace.run(agent(ten), snapshot=True)
    assert result.receipt.ops.snapshot.bytes_stored == 2 * len(data)
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) < 2.1 * len(data)
    assert workspace.run(shell("cp big copy/big"), snapshot=True).receipt.ops.snapshot.bytes_stored == 0


@pytest.mark.requirement("D22")
def test_no_target_of_a_link_enters_the_store(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("do not copy\n")
    create(tree, {"file": Link(str(outside / "secret")), "folder": Link(str(outside))})
    result = open_workspace(tree).run(shell("true"), snapshot=True)
    manifest = documents(result).manifest
    assert manifest is not None and [item.kind for item in manifest.files] == ["symlink", "symlink"]
    assert not is_stored(store, b"do not copy\n")


@pytest.mark.parametrize(
    ("limits", "script", "limit", "measured"),
    [
        (Limits(max_ms=200), "sleep 60", Limit.TIME, " ms"),
        (Limits(max_files=1), "echo > n; echo > m", Limit.FILES, "2 changed"),
        (Limits(max_bytes=10), "echo 0123456789 > n", Limit.BYTES, "11 bytes"),
        (Limits(protected=("*.key",)), "echo > private.key", Limit.PROTECTED, "1 changed"),
        (Limits(protected=("src/",)), "rm src/deep/b", Limit.PROTECTED, "1 changed"),
        (Limits(fail_on_error=1), "exit 3", Limit.FAILURE, "exit code 3"),
        (Limits(fail_on_error=1), "kill -9 $$", Limit.FAILURE, "signal 9"),
        (Limits(verify="grep -q app app.py"), "echo > app.py", Limit.VERIFICATION, "exit code 1"),
    ],
    ids=["time", "files", "bytes", "protected", "protected-folder", "failure", "signal", "verification"],
)
def test_each_limit_is_a_breach_with_both_values(
    workspace: Workspace, limits: Limits, script: str, limit: Limit, measured: str
) -> None:
    result = workspace.run(shell(script), limits=limits)
    assert [breach.limit for breach in result.receipt.breaches] == [limit]
    assert measured in result.receipt.breaches[0].measured and result.receipt.breaches[0].allowed
    assert result.exit_code == 42 and result.entry.status is RunStatus.BREACHED
    ledger = documents(result).ledger
    assert ledger is not None and tuple(ledger.breaches) == result.receipt.breaches
    assert ledger.started is not None and ledger.started.limits == limits


def test_within_its_limits_a_run_keeps_its_own_exit_code(workspace: Workspace) -> None:
    limits = Limits(max_ms=60_000, max_files=1, max_bytes=100, protected=("*.key",), verify="true")
    result = workspace.run(shell("echo > n; exit 7"), limits=limits)
    assert result.exit_code == 7 and not result.breached


def test_the_output_of_the_verification_is_kept(workspace: Workspace) -> None:
    result = workspace.run(shell("true"), limits=Limits(verify="echo no good; echo at all >&2; false"))
    verification = result.receipt.verification
    assert verification is not None and verification.output == "no good\nat all\n" and verification.exit == 1


@pytest.mark.requirement("D17")
def test_a_rollback_with_nothing_to_take_back_is_a_refusal(workspace: Workspace) -> None:
    result = workspace.run(shell("exit 1"), rollback_on_breach=True, limits=Limits(fail_on_error=1))
    part = result.receipt.ops.rollback
    assert part is not None and part.applied == 0 and part.reason
    assert isinstance(documents(result).ledger.rollback, RollbackRefused)  # type: ignore[union-attr]


@pytest.mark.requirement("D17")
def test_what_cannot_be_held_is_not_taken_back_and_the_receipt_says_why(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "a\n"})
    result = open_workspace(tree, max_new_bytes=1000).run(
        shell("head -c 5000 /dev/urandom > huge; rm a"), rollback_on_breach=True, limits=Limits(max_files=1)
    )
    part = result.receipt.ops.rollback
    assert part is not None and part.applied == 0 and "5,000" in part.reason and "1,000" in part.reason
    assert (tree / "huge").exists()
    changed = {item.path for item in documents(result).ledger.changes}  # type: ignore[union-attr]
    assert changed == {"a", "huge"}
    restored = open_workspace(tree, max_new_bytes=10_000).restore(result.entry.id)
    assert not restored.failed
    same(read_back(tree), normal({"a": "a\n"}))


@pytest.mark.requirement("D13")
def test_a_path_that_changed_since_is_refused_with_both_digests(workspace: Workspace, tree: Path) -> None:
    result = workspace.run(shell("echo agent > app.py; echo agent > src/a"), snapshot=True)
    (tree / "app.py").write_text("mine\n")
    restored = workspace.restore(result.entry.id)
    outcome = {item.path: item for item in restored.outcomes}["app.py"]
    assert outcome.status is Status.REFUSED
    for content in (b"agent\n", b"mine\n"):
        assert object_id("blob", content).hex()[:12] in outcome.reason
    assert (tree / "app.py").read_text() == "mine\n" and (tree / "src/a").read_text() == "a\n"
    assert not workspace.restore(result.entry.id, force=True).failed
    assert (tree / "app.py").read_text() == "print('app')\n"


@pytest.mark.requirement("D12")
def test_another_tree_is_taken_only_where_the_user_names_it(
    workspace: Workspace, tree: Path, open_workspace: OpenWorkspace, tmp_path: Path
) -> None:
    result = workspace.run(shell("echo agent > app.py"), snapshot=True)
    other = tmp_path / "other"
    create(other, {"app.py": "agent\n"})
    elsewhere = open_workspace(other)
    elsewhere.snapshot("known")
    with pytest.raises(RootDisagreement) as refused:
        elsewhere.restore_documents(result.folder)
    assert str(tree) in refused.value.message and str(other) in refused.value.message
    assert (other / "app.py").read_text() == "agent\n"
    elsewhere.restore_documents(result.folder, insist=True)
    assert (other / "app.py").read_text() == "print('app')\n"
    assert (tree / "app.py").read_text() == "agent\n"


def test_the_command_may_use_putback_itself(workspace: Workspace, tree: Path, store: Path) -> None:
    putback = f"{sys.executable} -m putback --store {store} -c store.min_free_bytes=0"
    result = workspace.run(shell(f"echo x > x; {putback} snapshot -m inside; rm x"), snapshot=True)
    assert result.receipt.session.exit.code == 0 and result.receipt.changes.total == 0
    assert [entry.message for entry in workspace.list()][1] == "inside"


def test_what_the_command_does_to_a_configuration_is_of_no_effect_on_its_own_run(tree: Path, store: Path) -> None:
    create(tree, {".putback.toml": "[run]\nmax_files = 1\n[store]\nmin_free_bytes = 0\n", "a": "a\n"})
    workspace = Workspace.open(tree, store=store)
    result = workspace.run(shell("printf '[run]\\nmax_files = 1000\\n' > .putback.toml; echo > a; echo > b"))
    assert [breach.allowed for breach in result.receipt.breaches] == ["1"]


class TestIgnoreRules:
    """A command that edits the rules neither hides what it did nor gets blamed for what comes to light."""

    @pytest.fixture
    def workspace(self, tree: Path, open_workspace: OpenWorkspace) -> Workspace:
        create(
            tree, {".gitignore": "*.log\nbuild/\n", "old.log": "log\n", "data/kept": "kept\n", "build/o": "o\n"}
        )
        return open_workspace(tree)

    def test_what_is_deleted_behind_a_new_rule_comes_back(self, workspace: Workspace, tree: Path) -> None:
        before = read_back(tree)
        result = workspace.run(shell("echo 'data/' >> .gitignore; rm -r data"), snapshot=True)
        assert {item.path for item in documents(result).ledger.changes} >= {".gitignore", "data/kept"}  # type: ignore[union-attr]
        workspace.restore(result.entry.id)
        same(read_back(tree), before)

    def test_what_is_changed_behind_a_new_rule_comes_back(self, workspace: Workspace, tree: Path) -> None:
        before = read_back(tree)
        workspace.run(
            shell("echo 'data/' >> .gitignore; echo broken > data/kept"),
            rollback_on_breach=True,
            limits=Limits(max_files=0),
        )
        same(read_back(tree), before)

    def test_what_is_created_behind_a_new_rule_goes(self, workspace: Workspace, tree: Path) -> None:
        before = read_back(tree)
        workspace.run(
            shell("echo 'junk/' >> .gitignore; mkdir -p junk/deep; echo > junk/deep/x; echo > junk/y.log"),
            rollback_on_breach=True,
            limits=Limits(max_files=0),
        )
        left = read_back(tree)
        # What the rules of the start ignore is out of reach, whoever made it.
        assert left.keys() - before.keys() == {b"junk", b"junk/y.log"}

    def test_what_comes_to_light_is_not_taken_for_created(self, workspace: Workspace, tree: Path) -> None:
        before = read_back(tree)
        result = workspace.run(shell("echo > .gitignore"), rollback_on_breach=True, limits=Limits(max_files=0))
        assert [item.path for item in documents(result).ledger.changes] == [".gitignore"]  # type: ignore[union-attr]
        same(read_back(tree), before)

    def test_what_grew_over_the_ceiling_comes_back(self, tree: Path, open_workspace: OpenWorkspace) -> None:
        create(tree, {"data": "small\n"})
        before = read_back(tree)
        workspace = open_workspace(tree, max_file_bytes=100)
        workspace.run(shell("head -c 1000 /dev/zero > data"), rollback_on_breach=True, limits=Limits(max_files=0))
        same(read_back(tree), before)


def test_a_name_that_is_not_utf8_goes_all_the_way(workspace: Workspace, tree: Path) -> None:
    name = os.fsencode(tree) + b"/caf\xe9\n-rf"
    with open(name, "wb") as file:
        file.write(b"1\n")
    result = workspace.run(agent("import os; os.unlink(b'caf\\xe9\\n-rf')"), snapshot=True)
    assert [item.raw for item in documents(result).ledger.changes] == [b"caf\xe9\n-rf"]  # type: ignore[union-attr]
    workspace.restore(result.entry.id)
    with open(name, "rb") as file:
        assert file.read() == b"1\n"


def test_the_history_tells_how_a_run_came_out(workspace: Workspace) -> None:
    workspace.run(shell("exit 3"), snapshot=True)
    entry = workspace.list()[0]
    assert (entry.kind, entry.exit_code, entry.status) == ("run", 3, RunStatus.FINISHED)
    shown = workspace.show(entry.id)
    assert shown.receipt is not None and shown.receipt.session.exit.by is EndedBy.EXIT
    assert shown.receipt.session.discipline is Discipline.CONTENTS
