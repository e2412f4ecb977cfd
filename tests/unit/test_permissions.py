"""Who may use a store: its user alone, or a group. Every mode in it follows, whatever the umask."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from crash.killing import in_child
from putback import config, seams
from putback.config import Permissions
from putback.errors import IntegrityError, OverBudget, StorageError, UsageError
from putback.fs import lock, modes
from putback.fs.modes import GROUP, PRIVATE, Modes
from putback.git import command
from putback.git.index import write_index
from putback.opening import session
from putback.ops.recover import Choice
from putback.progress import SILENT
from putback.records.run import Limits
from putback.store.captures import EMPTY_TREE
from putback.store.layout import Store
from putback.workspace import Workspace
from support.hermetic import git, make_repository, settings
from support.trees import Dir, File, create, read_back, same

START = {
    ".gitignore": "ignored\n",
    "sub/.gitignore": "*.o\n",
    "sub/deep/a": "a\n",
    "run.sh": File(b"#!/bin/sh\n", 0o755),
    "shared": File(b"shared\n", 0o664),
    "key": File(b"key\n", 0o600),
    "empty": Dir(0o750),
}
MANY = {f"many/{number}": f"{number}\n" for number in range(100)}

pytestmark = pytest.mark.requirement("H13")


def opened(root: Path, store: Path, permissions: Permissions = "private", **chosen: object) -> Workspace:
    return Workspace.open(root, store=store, settings=settings(permissions=permissions, **chosen))


def child(mask: int, action: Callable[[], object]) -> None:
    """Do it in another process, under an umask."""

    def run() -> None:
        os.umask(mask)
        action()

    status, said = in_child(run)
    assert status == 0, said


def killed(mask: int, seam: str, action: Callable[[], object]) -> None:
    """Do it in another process that is killed at a seam, or where it first waits for the disk: `fsync`."""

    def stop(name: object) -> None:
        if name == seam or (seam == "fsync" and not isinstance(name, str)):
            os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        os.umask(mask)
        seams.observe(stop)
        os.fsync = stop
        action()

    status, said = in_child(run)
    assert status == -signal.SIGKILL, said


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def wrong_modes(store: Path, chosen: Modes) -> list[str]:
    """Everything in a store, and the store itself, that has another mode than it should."""
    wrong = []
    for path in (store, *store.rglob("*")):
        relative = path.relative_to(store)
        found = path.lstat().st_mode
        if stat.S_ISDIR(found):
            wanted = chosen.directory
        elif path.name != "alternates" and (
            "objects" in relative.parts or path.name.startswith(("object-", "pack-"))
        ):
            wanted = chosen.readonly
        else:
            wanted = chosen.file
        if stat.S_IMODE(found) != wanted:
            wrong.append(f"{relative}: {stat.S_IMODE(found):o}, not {wanted:o}")
    return wrong


def close_runs(workspace: Workspace) -> None:
    for run in workspace.runs.unfinished():
        workspace.runs.close(run)


def whole_session(root: Path, store: Path, permissions: Permissions) -> None:
    """Everything that writes to a store."""
    workspace = opened(root, store, permissions)
    first = workspace.snapshot("few")
    create(root, MANY)
    workspace.snapshot("many")
    workspace.run(("sh", "-c", "echo x > sub/deep/a; rm -r many"), snapshot=True)
    workspace.undo()
    workspace.run(("sh", "-c", "echo y > sub/deep/a"))
    workspace.run(("sh", "-c", "echo z > new"), rollback_on_breach=True, limits=Limits(max_files=0))
    workspace.restore(first.id, exact=True)
    workspace.undo()
    with pytest.raises(OverBudget):
        create(root, {"large": "x" * 1000})
        opened(root, store, permissions, max_new_bytes=10).snapshot("failed")


@pytest.mark.parametrize("mask", [0o077, 0o000, 0o777], ids=oct)
@pytest.mark.parametrize("permissions", ["private", "group"])
def test_every_mode_in_the_store_is_that_of_the_policy(
    permissions: Permissions, mask: int, tmp_path: Path, tree: Path
) -> None:
    chosen = GROUP if permissions == "group" else PRIVATE
    (tmp_path / "above").mkdir(0o711)
    before = {path: mode_of(path) for path in (tree, tmp_path, tmp_path / "above")}
    store = tmp_path / "above/store"
    make_repository(tree, START)
    git(tree, "update-index", "--split-index")
    child(mask, lambda: whole_session(tree, store, permissions))
    assert wrong_modes(store, chosen) == []
    workspace = opened(tree, store)
    newest = workspace.list()[0]
    killed(mask, "run.prepared", lambda: workspace.run(("true",), snapshot=True))
    assert wrong_modes(store, chosen) == []
    killed(mask, "run.captured", lambda: workspace.run(("sh", "-c", "echo > made"), snapshot=True))
    assert wrong_modes(store, chosen) == []
    child(mask, lambda: close_runs(workspace))
    killed(mask, "restore.published", lambda: workspace.restore(newest.id))
    assert workspace.paths.journal.exists() and wrong_modes(store, chosen) == []
    child(mask, lambda: workspace.recover(Choice.BACK))
    assert wrong_modes(store, chosen) == []
    assert {path: mode_of(path) for path in before} == before
    seen = {path.relative_to(store).parts[-1] for path in store.rglob("*")}
    assert {"lock", "index", "state", "excludes", "workspace.json", "trees.git", "ledger.jsonl"} <= seen
    assert {"manifest.json", "receipt.json"} <= seen
    assert list(store.rglob("*.pack")) and list(store.rglob("*.idx"))


def test_what_was_killed_in_between_leaves_files_of_the_policy(tmp_path: Path, tree: Path) -> None:
    create(tree, START)
    store = tmp_path / "store"
    workspace = opened(tree, store, "group")
    killed(0o077, "run.prepared", lambda: workspace.run(("true",), snapshot=True))
    left = {path.name for path in workspace.paths.scratch.rglob("*")}
    assert {"ledger.jsonl", "manifest.json", "rules", "excludes", "ignored", "sub", ".gitignore"} <= left
    assert wrong_modes(store, GROUP) == []
    for more in ({"few": "few\n"}, MANY):
        create(tree, more)
        killed(0o077, "fsync", lambda: workspace.snapshot("more"))
        assert list(workspace.paths.scratch.iterdir())
        # Another thread may have been in the middle of making one of these, which is garbage and has no mode yet.
        made = [line for line in wrong_modes(store, GROUP) if ".part" not in line and "index.lock" not in line]
        assert made == []


def test_restored_files_keep_the_modes_that_were_captured(tmp_path: Path, tree: Path) -> None:
    create(tree, START)
    before = read_back(tree)
    workspace = opened(tree, tmp_path / "store", "group")
    taken = workspace.snapshot("all")
    for name in ("sub", "empty"):
        shutil.rmtree(tree / name)
    for name in ("run.sh", "shared", "key"):
        (tree / name).unlink()
    child(0o077, lambda: workspace.restore(taken.id))
    same(read_back(tree), before)


@pytest.mark.parametrize(("permissions", "root_mode"), [("private", 0o2770), ("private", 0o755), ("group", 0o755)])
def test_a_root_that_was_there_keeps_its_mode_and_decides_nothing(
    permissions: Permissions, root_mode: int, tmp_path: Path, tree: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(root_mode)
    create(tree, START)
    child(0o022, lambda: whole_session(tree, store, permissions))
    assert mode_of(store) == root_mode
    wrong = wrong_modes(store, GROUP if permissions == "group" else PRIVATE)
    assert len(wrong) == 1 and wrong[0].startswith(".: ")


def test_a_private_store_in_a_setgid_directory_is_private(tmp_path: Path, tree: Path) -> None:
    above = tmp_path / "group"
    above.mkdir()
    above.chmod(0o2770)
    create(tree, START)
    child(0o002, lambda: whole_session(tree, above / "store", "private"))
    assert wrong_modes(above / "store", PRIVATE) == [] and mode_of(above) == 0o2770


def test_directories_that_were_there_are_left(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(0o711)
    assert not modes.directory(tmp_path / "there", GROUP)
    assert mode_of(tmp_path / "there") == 0o711


def test_the_record_of_a_store_wins_over_the_configuration(tmp_path: Path, tree: Path) -> None:
    create(tree, START)
    for had, asked, chosen in (("private", "group", PRIVATE), ("group", "private", GROUP)):
        store = tmp_path / had
        opened(tree, store, had).snapshot("first")
        whole_session(tree, store, asked)
        assert wrong_modes(store, chosen) == []
        assert Store(store).permissions == had and Store(store).modes == chosen
        assert opened(tree, store, asked).status().permissions == had


def test_of_two_that_make_a_store_at_once_one_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    store.create("group")
    shutil.rmtree(store.git_dir)
    monkeypatch.setattr(Store, "exists", lambda _: False)
    store.create("private")
    assert store.permissions == "group" and wrong_modes(store.root, GROUP) == []


def test_what_was_left_by_the_making_of_a_store_is_swept(tmp_path: Path, tree: Path) -> None:
    store = tmp_path / "store"
    workspace = opened(tree, store)
    workspace.snapshot("first")
    (store / "store.json.deadbeef.part").write_bytes(b"")
    (store / "notes.part").write_bytes(b"somebody's")
    workspace.snapshot("second")
    assert [path.name for path in store.glob("*.part")] == ["notes.part"]


def test_a_store_without_the_field_is_private(tmp_path: Path, tree: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(0o700)
    (store / "store.json").write_bytes(b'{"format":"putback/store","version":1}\n')
    (store / "store.json").chmod(0o600)
    child(0o000, lambda: opened(tree, store, "group").snapshot("first"))
    assert Store(store).permissions == "private" and wrong_modes(store, PRIVATE) == []


@pytest.mark.parametrize("value", ['"world"', "null", "511", '["group"]'])
def test_a_record_with_another_policy_is_refused(value: str, tmp_path: Path, tree: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "store.json").write_text(f'{{"format":"putback/store","version":1,"permissions":{value}}}\n')
    with pytest.raises(IntegrityError, match="permissions"):
        opened(tree, store).snapshot("first")
    assert os.listdir(store) == ["store.json"]


@pytest.mark.parametrize("name", ["pyproject.toml", ".putback.toml"])
def test_a_workspace_cannot_set_it(name: str, tree: Path) -> None:
    table = "tool.putback.store" if name == "pyproject.toml" else "store"
    (tree / name).write_text(f'[{table}]\npermissions = "group"\n')
    with pytest.raises(UsageError, match=r"store\.permissions can be set in your own configuration only"):
        config.load(tree, None)


def test_the_user_sets_it(tree: Path, tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text('[store]\npermissions = "group"\n')
    assert config.load(tree, None).store.permissions == "private"
    assert config.load(tree, user).store.permissions == "group"
    assert config.load(tree, user, ("store.permissions=private",)).store.permissions == "private"


@pytest.mark.parametrize("value", ["world", "", "0770", "true"])
def test_another_value_is_a_usage_error_that_names_the_key(value: str, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"-c: store\.permissions: "):
        config.load(tree, None, (f"store.permissions={value}",))
    user = tmp_path / "config.toml"
    user.write_text(f'[store]\npermissions = "{value}"\n')
    with pytest.raises(UsageError, match=r"config\.toml: store\.permissions: "):
        config.load(tree, user)


def putback(tree: Path, store: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-m", "putback", "--store", str(store), "-c", "store.min_free_bytes=0", *arguments)
    return subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False, umask=0o077)


def test_the_command_line_sets_it_and_status_says_so(tmp_path: Path, tree: Path) -> None:
    store = tmp_path / "store"
    create(tree, START)
    assert "permissions" not in putback(tree, store, "status").stdout
    done = putback(tree, store, "-c", "store.permissions=group", "snapshot")
    assert done.returncode == 0, done.stderr
    assert wrong_modes(store, GROUP) == []
    assert "  shared    permissions of the store are group\n" in putback(tree, store, "status").stdout
    told = msgspec.json.decode(putback(tree, store, "--json", "status").stdout)
    assert told["store"]["permissions"] == "group"
    refused = putback(tree, store, "-c", "store.permissions=world", "status")
    assert refused.returncode == 2 and "store.permissions" in refused.stderr


@pytest.mark.parametrize(("permissions", "chosen"), [("private", PRIVATE), ("group", GROUP)])
def test_what_git_makes_in_the_store_follows(
    permissions: Permissions, chosen: Modes, tmp_path: Path, tree: Path
) -> None:
    where = Store(tmp_path / "store").workspace(os.fsencode(tree))

    def write() -> None:
        with session(where, settings(permissions=permissions), SILENT, "snapshot", create=True) as opened:
            oid = opened.git.run("hash-object", "-w", "--stdin", given=b"by git").out.decode().strip()
            opened.git.run("update-ref", f"refs/by/git/{oid}", oid)
            # Here nothing but the umask counts.
            opened.git.run("archive", "-o", str(where.store.git_dir / "archive.tar"), EMPTY_TREE)

    child(0o000, write)
    assert (where.store.git_dir / "archive.tar").exists() and list((where.store.git_dir / "refs/by/git").iterdir())
    assert wrong_modes(where.store.root, chosen) == []


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770, 0o2700, 0o2750, 0o2755, 0o2775, 0o2777, 0o3770])
def test_a_directory_that_somebody_else_opened_is_not_a_groups(mode: int, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some").chmod(mode)
    assert modes.of(tmp_path / "some") == PRIVATE
    (tmp_path / "some").chmod(GROUP.directory)
    assert modes.of(tmp_path / "some") == GROUP


def test_git_is_private_until_it_is_told(tmp_path: Path) -> None:
    assert command.find().modes == PRIVATE and Store(tmp_path / "none").modes == PRIVATE


def test_nothing_is_seen_with_another_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed before a mode is set leaves nothing by that name, so that nothing goes by it."""
    Store(tmp_path / "store").create("group")
    workspaces = tmp_path / "store/workspaces"

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "chmod", stop)
    monkeypatch.setattr(os, "fchmod", stop)
    with pytest.raises(KeyboardInterrupt):
        modes.directory(workspaces / "one")
    with pytest.raises(KeyboardInterrupt), lock.hold(workspaces / "lock", "x", False, 0, SILENT):
        pass
    assert not (workspaces / "one").exists() and not (workspaces / "lock").exists()


A, B, STRANGER, SHARED = 54321, 54322, 54323, 54320


def become(user: int, *groups: int) -> None:
    os.setgroups(groups)
    os.setgid(user)
    os.setuid(user)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A setgid directory of a group that two users have beside their own, with a workspace in it."""
    if os.geteuid() != 0:
        pytest.skip("only root can be other users")
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(base, A, SHARED)
    base.chmod(0o2775)
    tree = base / "tree"
    create(tree, {"a": "a\n", "sub/b": "b\n", ".gitignore": "*.o\n"})
    for path in (tree, *tree.rglob("*")):
        os.chown(path, A, SHARED)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    monkeypatch.setenv("HOME", str(base))
    # Other users may not be able to read our modules, so all that are needed have to be there already.
    assert ctypes.CDLL
    create(tmp_path / "warm", START)
    whole_session(tmp_path / "warm", tmp_path / "warm-store", "private")
    yield base
    shutil.rmtree(base)


def as_user(user: int, action: Callable[[], object], *groups: int) -> None:
    def run() -> None:
        become(user, *groups)
        action()

    child(0o077, run)


def test_two_users_of_one_group_share_a_store(shared: Path) -> None:
    tree, store = shared / "tree", shared / "store"
    workspace = opened(tree, store, "group")

    def first() -> None:
        workspace.snapshot("first of A")
        create(tree, {"of-A": "A\n"})
        workspace.run(("sh", "-c", "echo changed >> a; rm -r sub"), snapshot=True)

    def second() -> None:
        other = opened(tree, store)
        assert [entry.kind for entry in other.list()] == ["run", "snapshot"]
        other.undo()
        assert (tree / "sub/b").read_text() == "b\n"
        other.redo()
        assert not (tree / "sub").exists()
        other.run(("sh", "-c", "umask 002; echo by B > of-B"))
        create(tree, MANY)
        (tree / "many").chmod(0o2775)
        other.snapshot("of B")

    def third() -> None:
        workspace.restore(workspace.list()[-1].id, exact=True)
        assert (tree / "sub/b").exists() and not (tree / "many").exists()
        workspace.undo()
        assert (tree / "many").exists()
        workspace.snapshot("second of A")

    as_user(A, first, SHARED)
    as_user(B, second, SHARED)
    as_user(A, third, SHARED)
    assert wrong_modes(store, GROUP) == []
    assert {path.lstat().st_gid for path in (store, *store.rglob("*"))} == {SHARED}
    assert {path.lstat().st_uid for path in store.rglob("*")} == {A, B}


def test_what_another_user_left_half_done_is_no_obstacle(shared: Path) -> None:
    tree, store = shared / "tree", shared / "store"
    workspace = opened(tree, store, "group")
    as_user(A, lambda: workspace.snapshot("first"), SHARED)
    taken = workspace.list()[0].id

    def stopped(seam: str, action: Callable[[], object]) -> None:
        def run() -> None:
            become(A, SHARED)
            action()

        killed(0o077, seam, run)

    stopped("run.captured", lambda: workspace.run(("sh", "-c", "echo x > a"), snapshot=True))
    as_user(B, lambda: close_runs(workspace), SHARED)
    stopped("restore.published", lambda: workspace.restore(taken))
    as_user(B, lambda: workspace.recover(Choice.FORWARD), SHARED)
    assert (tree / "a").read_text() == "a\n"
    left = workspace.paths.index.with_name("index.lock")
    as_user(A, lambda: os.close(modes.create(left, os.O_WRONLY, GROUP.file)), SHARED)
    as_user(B, lambda: write_index(workspace.paths.index, {}, None), SHARED)
    assert wrong_modes(store, GROUP) == []


def test_a_private_store_is_closed_to_the_group(shared: Path) -> None:
    workspace = opened(shared / "tree", shared / "store")
    as_user(A, lambda: workspace.snapshot("first"), SHARED)

    def look() -> None:
        with pytest.raises(StorageError):
            workspace.list()

    as_user(B, look, SHARED)


def test_a_group_that_cannot_be_kept_is_refused(shared: Path) -> None:
    place = shared / "foreign"
    place.mkdir()
    os.chown(place, 0, STRANGER)
    place.chmod(0o2777)

    def refused() -> None:
        with pytest.raises(StorageError, match="does not give it the mode 2770"):
            opened(shared / "tree", place / "store", "group").snapshot("first")

    as_user(A, refused, SHARED)
    assert list(place.iterdir()) == []
