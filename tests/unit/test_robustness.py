"""What people, agents and closed pipes do to a tool, and what it must do then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from putback import seams
from putback.errors import IntegrityError, RefusedError, UsageError
from putback.fs.root import Root
from putback.ops.recover import Choice
from putback.progress import Silent
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, make_repository, settings, unmoved
from support.trees import create, read_back, same


def putback(tree: Path, store: Path, *arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    fixed = ["--store", str(store), "-c", "store.min_free_bytes=0"]
    line = [sys.executable, "-m", "putback", *fixed, *arguments]
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": 60, **how}
    return subprocess.run(line, cwd=tree, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("store", [".", "..", ".git", ".git/store"])
def test_a_store_that_would_hold_the_workspace_or_lie_in_a_git_is_refused(tree: Path, store: str) -> None:
    make_repository(tree)
    before = read_back(tree)
    with unmoved(tree), pytest.raises(UsageError, match="store"):
        Workspace.open(tree, store=tree / store, settings=settings())
    same(read_back(tree), before)


def test_an_empty_variable_names_no_store(tree: Path, tmp_path: Path) -> None:
    create(tree, {"a": "1"})
    environment = {**os.environ, "PUTBACK_STORE": "", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "putback", "-c", "store.min_free_bytes=0", "snapshot"],
        cwd=tree,
        env=environment,
        check=False,
    )
    assert done.returncode == 0
    assert (tmp_path / "state" / "putback" / "store.json").exists()
    same(read_back(tree), {"a": "1"})


class Stopping(Silent):
    """Wants to stop from the moment it is told."""

    def __init__(self) -> None:
        self.now = False

    def cancelled(self) -> bool:
        return self.now


@pytest.mark.requirement("K16")
def test_a_restore_that_has_begun_to_publish_is_finished(tree: Path, store: Path) -> None:
    create(tree, {f"f{number}": "1" for number in range(20)})
    progress = Stopping()
    ws = Workspace.open(tree, store=store, settings=settings(), progress=progress)
    ws.snapshot()
    create(tree, {f"f{number}": "2" for number in range(20)})
    seams.observe(lambda name: setattr(progress, "now", progress.now or name == "restore.put"))
    try:
        result = ws.restore("@1")
    finally:
        seams.observe(None)
        progress.now = False
    assert result.applied == 20
    assert result.entry is not None
    assert ws.interrupted() is None


@pytest.mark.parametrize("name", ["pyproject.toml", ".putback.toml"])
@pytest.mark.parametrize(
    "content", ["<<<<<<< HEAD\n[tool.putback]\n", "[capture]\nnonsense = 1\n[tool.putback.x]\ny=1\n"]
)
def test_settings_that_an_agent_broke_do_not_stand_in_the_way(
    tree: Path, store: Path, name: str, content: str
) -> None:
    create(tree, {"a": "1", name: ""})
    assert putback(tree, store, "snapshot").returncode == 0
    create(tree, {"a": "2", name: content})
    assert putback(tree, store, "snapshot").returncode == 2
    assert putback(tree, store, "list").returncode == 0
    done = putback(tree, store, "restore", "@1", "--yes")
    assert done.returncode == 0
    assert "settings ignored" in done.stderr
    same(read_back(tree), {"a": "1", name: ""})


@pytest.mark.parametrize("name", ["pyproject.toml", ".putback.toml"])
def test_a_pipe_or_a_device_in_place_of_settings_stops_nobody(tree: Path, store: Path, name: str) -> None:
    create(tree, {"a": "1"})
    os.mkfifo(tree / name)
    assert putback(tree, store, "list").returncode == 0
    (tree / name).unlink()
    (tree / name).symlink_to("/dev/zero")
    assert putback(tree, store, "list").returncode == 0


def test_a_pipe_in_place_of_ignore_rules_is_refused(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1", "d/b": "1"})
    os.mkfifo(tree / "d" / ".gitignore")
    with pytest.raises(RefusedError, match=r"d/\.gitignore"):
        open_workspace(tree).snapshot()


def test_pipes_in_place_of_a_repository_make_none(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1", ".git": ""})
    (tree / ".git").unlink()
    (tree / ".git").mkdir()
    os.mkfifo(tree / ".git" / "HEAD")
    os.mkfifo(tree / ".git" / "config")
    assert open_workspace(tree).snapshot().capture.files == 1


@pytest.mark.parametrize("at", [30, 50, 70, -40])
def test_a_damaged_index_loses_no_file_and_counts_right(
    tree: Path, open_workspace: OpenWorkspace, at: int
) -> None:
    create(tree, {f"d{number}/f": "1" for number in range(30)})
    ws = open_workspace(tree)
    ws.snapshot()
    body = bytearray(ws.paths.index.read_bytes())
    body[len(body) * at // 100 if at > 0 else at] ^= 0x10
    ws.paths.index.write_bytes(body)
    create(tree, {"d3/f": "2", "d4/new": "n"})
    assert ws.snapshot().entry.files == 31
    assert len(ws.files("@1")) == 31


def test_output_that_cannot_be_written_is_said_and_no_internal_error(tree: Path, store: Path) -> None:
    create(tree, {"a": "1"})
    assert putback(tree, store, "snapshot").returncode == 0
    for arguments in (("list",), ("ls",), ("--json", "list"), ("snapshot",), ("--json", "snapshot")):
        with open("/dev/full", "w") as full:
            done = putback(tree, store, *arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1, arguments
        assert "cannot write the output" in done.stderr
        assert "Traceback" not in done.stderr


def test_closed_streams_are_nobody_listening(tree: Path, store: Path) -> None:
    create(tree, {"a": "1"})
    line = f'"{sys.executable}" -m putback --store "{store}" -c store.min_free_bytes=0'
    for ending in (">&-", "<&-", "2>&-", ">&- 2>&- <&-"):
        done = subprocess.run(["bash", "-c", f"{line} snapshot {ending}"], cwd=tree, check=False)
        assert done.returncode == 0, ending


def test_a_deleted_directory_is_named(tree: Path, store: Path) -> None:
    gone = tree / "gone"
    gone.mkdir()
    script = f'rmdir "{gone}"; exec "{sys.executable}" -m putback --store "{store}" list'
    done = subprocess.run(["bash", "-c", script], cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "internal" not in done.stderr


def test_a_damaged_journal_has_a_way_out(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1"})
    ws = open_workspace(tree)
    ws.snapshot()
    ws.paths.journal.write_bytes(b"nonsense\n")
    with pytest.raises(IntegrityError) as caught:
        ws.snapshot()
    assert "recover --keep" in (caught.value.hint or "")
    ws.recover(Choice.KEEP)
    ws.snapshot()
    assert list(ws.paths.folder.glob("journal.damaged-*"))


def test_a_damaged_record_hides_no_other(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1"})
    ws = open_workspace(tree)
    first = ws.snapshot("first")
    ws.snapshot("second")
    newest = max(ws.paths.history.iterdir())
    newest.chmod(0o600)
    newest.write_bytes(b"{}")
    assert [entry.id for entry in ws.list()] == [first.id]
    assert len(ws.status().damaged) == 1
    assert ws.restore(first.id).failed is False


def test_a_git_in_the_workspace_is_never_run(
    tree: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, {"a": "1", "git": "#!/bin/sh\ntouch ran\n"})
    (tree / "git").chmod(0o755)
    monkeypatch.chdir(tree)
    for path in (":" + os.environ["PATH"], ".:" + os.environ["PATH"]):
        monkeypatch.setenv("PATH", path)
        open_workspace(tree).snapshot()
    assert not (tree / "ran").exists()


def test_the_same_restore_twice_is_the_same(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1", "b": "1"})
    ws = open_workspace(tree)
    ws.snapshot()
    create(tree, {"a": "2", "b": "2"})
    ws.restore("@1", paths=[tree / "a"])
    ws.restore("@1", paths=[tree / "b"])
    ws.restore("@1")
    same(read_back(tree), {"a": "1", "b": "1"})


def test_a_path_may_be_named_through_a_link_to_the_workspace(
    tree: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"d/a": "1", "b": "1"})
    (tmp_path / "link").symlink_to(tree)
    ws = open_workspace(tmp_path / "link")
    ws.snapshot()
    create(tree, {"d/a": "2", "b": "2"})
    ws.restore("@1", paths=[tmp_path / "link" / "d"])
    same(read_back(tree), {"d/a": "1", "b": "2"})


@pytest.mark.parametrize(
    "pair",
    [
        "store.lock_wait_seconds=nan",
        "store.max_bytes=inf",
        'capture.include=["\\u0000"]',
        "capture.max_files=\udcff",
    ],
)
def test_values_that_are_no_values_are_refused(tree: Path, store: Path, pair: str) -> None:
    with pytest.raises(UsageError):
        Workspace.open(tree, store=store, overrides=[pair])


def test_json_may_be_asked_for_after_the_command(tree: Path, store: Path) -> None:
    create(tree, {"a": "1"})
    assert json.loads(putback(tree, store, "snapshot", "--json").stdout)["files"] == 1


def test_an_unreadable_directory_stops_only_what_is_in_it(
    tree: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tree, {"closed/a": "1", "b": "1"})
    ws = open_workspace(tree)
    ws.snapshot()
    create(tree, {"b": "2"})
    closed = os.fsencode(tree / "closed")
    lstat, scandir, parent = os.lstat, os.scandir, Root.parent

    def refuse(path: object) -> None:
        if isinstance(path, bytes) and path.startswith((closed + b"/", b"closed/")):
            raise PermissionError(13, "Permission denied", path)

    def guarded_lstat(path: bytes, **named: int) -> os.stat_result:
        refuse(path)
        return lstat(path, **named)

    def guarded_scandir(path: bytes) -> object:
        refuse(path + b"/" if path == closed else path)
        return scandir(path)

    def guarded_parent(root: Root, path: bytes) -> object:
        refuse(path)
        return parent(root, path)

    os.utime(tree / "closed")
    monkeypatch.setattr(os, "lstat", guarded_lstat)
    monkeypatch.setattr(os, "scandir", guarded_scandir)
    monkeypatch.setattr(Root, "parent", guarded_parent)
    result = ws.restore("@1")
    monkeypatch.undo()
    assert (tree / "b").read_text() == "1"
    assert {outcome.path for outcome in result.outcomes if outcome.status.applied} == {"b"}


def test_ctrl_c_at_the_question_leaves(tree: Path, store: Path) -> None:
    import pty

    create(tree, {"a": "1"})
    assert putback(tree, store, "snapshot").returncode == 0
    create(tree, {"a": "2"})
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tree)
        line = [sys.executable, "-m", "putback", "--store", str(store), "restore", "@1"]
        os.execv(sys.executable, [*line[:5], "-c", "store.min_free_bytes=0", *line[5:]])
    shown = b""
    while b"?" not in shown:
        shown += os.read(terminal, 4096)
    ended = (0, 0)
    for _ in range(100):
        # A signal that comes just before the read begins wakes nobody; a person would press again, too.
        os.kill(pid, signal.SIGINT)
        time.sleep(0.2)
        ended = os.waitpid(pid, os.WNOHANG)
        if ended[0]:
            break
    assert os.waitstatus_to_exitcode(ended[1]) == 130
    os.close(terminal)
    assert (tree / "a").read_text() == "2"
