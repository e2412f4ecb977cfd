"""What a capture covers and what it does not, in every kind of folder, and what a restore may therefore touch."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from putback.config import Settings
from putback.errors import OverBudget, StorageError, UnsafePath, UnsuitableRoot
from putback.fs.root import Root
from putback.git.user_repo import UserRepository
from putback.ops import scan
from putback.records.capture import Reason
from putback.records.plan import Status
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, git, make_repository, unmoved
from support.trees import Dir, Fifo, File, Link, create, destroy, read_back, same


def held(ws: Workspace, asked: str = "@1") -> set[str]:
    return {os.fsdecode(path) for path in ws.files(asked)}


def reasons(ws: Workspace, asked: str = "@1") -> dict[str, Reason]:
    return {item.path: item.reason for item in ws.show(asked).capture.not_covered}


def statuses(result: object) -> dict[str, Status]:
    return {item.path: item.status for item in result.outcomes}  # type: ignore[attr-defined]


@pytest.fixture(params=["folder", "repository"])
def anywhere(request: pytest.FixtureRequest, tree: Path) -> Iterator[Path]:
    """A workspace with and without git; the user's git does not move."""
    if request.param == "repository":
        make_repository(tree, {})
    with unmoved(tree):
        yield tree


@pytest.fixture
def place(tree: Path) -> Iterator[Path]:
    """A workspace that is a repository, which does not move."""
    make_repository(tree, {})
    with unmoved(tree):
        yield tree


IGNORING = {
    ".gitignore": "*.log\n/only-top\nbuilt/\n!keep.log\nwith\\ blank\n",
    "a.log": "out",
    "keep.log": "in",
    "only-top": "out",
    "built/x": "out",
    "built/deep/y": "out",
    "with blank": "out",
    "sub/only-top": "in",
    "sub/b.log": "out",
    "sub/.gitignore": "!b2.log\n*.tmp\n/local\n",
    "sub/b2.log": "in",
    "sub/c.tmp": "out",
    "sub/local": "out",
    "sub/deep/c.tmp": "out",
    "sub/deep/local": "in",
    "sub/deep/.gitignore": "!c2.tmp\n*\n!.gitignore\n!local\n",
    "sub/deep/other": "out",
    "other/c.tmp": "in",
    "negated/.gitignore": "*\n!yes\n!.gitignore\n",
    "negated/yes": "in",
    "negated/no": "out",
    "link.log": Link("keep.log"),
}


@pytest.mark.requirement("K2", "K5")
def test_gitignore_files_count_at_every_depth_with_negations(
    anywhere: Path, open_workspace: OpenWorkspace
) -> None:
    create(anywhere, IGNORING)
    ws = open_workspace(anywhere)
    taken = ws.snapshot()
    wanted = {name for name, entry in IGNORING.items() if entry == "in" or name.endswith(".gitignore")}
    assert held(ws) == wanted
    assert taken.capture.ignored == 11
    assert taken.capture.not_covered == ()


@pytest.mark.requirement("K2", "K10", "K13")
def test_ignored_files_are_neither_restored_nor_removed(anywhere: Path, open_workspace: OpenWorkspace) -> None:
    create(anywhere, IGNORING)
    ws = open_workspace(anywhere)
    ws.snapshot()
    destroy(anywhere)
    create(
        anywhere,
        {
            ".gitignore": IGNORING[".gitignore"],
            "new.log": "n",
            "built/x": "changed",
            "sub/b.log": "b",
            "sub/extra": "e",
        },
    )
    ws.restore("@1", exact=True)
    found = read_back(anywhere)
    assert found[b"new.log"] == File(b"n")
    assert found[b"built/x"] == File(b"changed")
    assert found[b"sub/b.log"] == File(b"b")
    assert b"sub/extra" not in found and b"a.log" not in found and b"keep.log" in found


def user_config(home: Path, text: str) -> None:
    (home / ".gitconfig").write_text(text)


def default_ignore(tree: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    create(home, {".config/git/ignore": "*.out\n"})


def xdg_ignore(tree: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(home, {"xdg/git/ignore": "*.out\n", ".config/git/ignore": "*\n"})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))


def global_file(tree: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    create(home, {"mine": "*.out\n"})
    user_config(home, f"[core]\n\texcludesFile = {home}/mine\n")


def global_file_below_home(tree: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    create(home, {"mine": "*.out\n"})
    user_config(home, "[core]\n\texcludesFile = ~/mine\n")


def included_config(tree: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    create(home, {"mine": "*.out\n", "more": "[core]\n\texcludesFile = ~/mine\n"})
    user_config(home, "[include]\n\tpath = more\n")


def xdg_config(tree: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    create(home, {"mine": "*.out\n", ".config/git/config": "[core]\n\texcludesFile = ~/mine\n"})


@pytest.mark.requirement("K2")
@pytest.mark.parametrize(
    "arrange", [default_ignore, xdg_ignore, global_file, global_file_below_home, included_config, xdg_config]
)
def test_the_users_global_ignore_file_counts(
    arrange: Callable[[Path, Path, pytest.MonkeyPatch], None],
    place: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_workspace: OpenWorkspace,
) -> None:
    arrange(place, home, monkeypatch)
    create(place, {"a.out": "x", "d/b.out": "x", "in": "x", "keep/.gitignore": "!c.out\n", "keep/c.out": "x"})
    ws = open_workspace(place)
    ws.snapshot()
    assert held(ws) == {"in", "d", "keep/.gitignore", "keep/c.out"}


@pytest.mark.requirement("K2", "K5")
@pytest.mark.parametrize("named", ["absolute", "relative"])
def test_an_ignore_file_named_in_the_repositorys_config_counts_before_the_global_one(
    named: str, repository: Path, home: Path, open_workspace: OpenWorkspace
) -> None:
    create(home, {"theirs": "*.global\n"})
    user_config(home, f"[core]\n\texcludesFile = {home}/theirs\n")
    create(repository, {"mine": "*.local\n", "a.local": "x", "a.global": "x"})
    git(repository, "config", "core.excludesFile", str(repository / "mine") if named == "absolute" else "mine")
    ws = open_workspace(repository)
    with unmoved(repository):
        ws.snapshot()
    assert held(ws) == {"committed", "mine", "a.global"}


@pytest.mark.requirement("K2", "K5")
def test_info_exclude_counts_and_gitignore_wins_over_it(repository: Path, open_workspace: OpenWorkspace) -> None:
    create(repository, {".git/info/exclude": "*.x\n/top\n", "a.x": "-", "b.x": "-", "top": "-", "d/top": "-"})
    create(repository, {".gitignore": "!b.x\n"})
    ws = open_workspace(repository)
    with unmoved(repository):
        ws.snapshot()
    assert held(ws) == {".gitignore", "committed", "b.x", "d/top"}


@pytest.mark.requirement("K2", "K5")
def test_files_that_are_tracked_though_ignored_are_captured_and_restored(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    create(repository, {"t.log": "1", "out/t": "1", "out/deep/t": "1"})
    git(repository, "add", "-f", "t.log", "out")
    create(repository, {".gitignore": "*.log\nout/\n", "u.log": "1", "out/u": "1"})
    ws = open_workspace(repository)
    with unmoved(repository):
        ws.snapshot()
        assert held(ws) == {".gitignore", "committed", "t.log", "out/t", "out/deep/t"}
        create(repository, {"t.log": "2", "u.log": "2", "out/u": "2"})
        shutil.rmtree(repository / "out" / "deep")
        ws.restore("@1", exact=True)
        found = read_back(repository)
        assert found[b"t.log"] == File(b"1") and found[b"out/deep/t"] == File(b"1")
        assert found[b"u.log"] == File(b"2") and found[b"out/u"] == File(b"2")


@pytest.mark.requirement("K2")
def test_a_file_enters_when_it_is_tracked_and_leaves_when_it_is_not_any_more(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    create(repository, {".gitignore": "*.log\n", "t.log": "1"})
    ws = open_workspace(repository)
    ws.snapshot()
    assert "t.log" not in held(ws)
    git(repository, "add", "-f", "t.log")
    ws.snapshot()
    assert "t.log" in held(ws)
    git(repository, "rm", "-q", "--cached", "t.log")
    ws.snapshot()
    assert "t.log" not in held(ws)
    assert ws.diff("@2..@1").changes == []


@pytest.mark.requirement("K2")
def test_what_git_could_not_tell_once_is_asked_again_however_old_the_index_is(
    repository: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(repository, {".gitignore": "*.log\n", "t.log": "1"})
    git(repository, "add", "-f", "t.log")
    monkeypatch.setattr(scan, "settled", lambda *_: True)
    ws = open_workspace(repository)
    with monkeypatch.context() as patch:
        patch.setattr(
            UserRepository, "tracked_but_ignored", lambda here, *_: here.git.background("ls-files", "--no-such")
        )
        assert ws.snapshot().capture.warnings
    ws.snapshot()
    assert "t.log" in held(ws)


@pytest.mark.requirement("K2")
def test_a_directory_is_not_held_for_a_tracked_file_that_is_not_there(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    create(repository, {"out/deep/t": "1", "out/x": "1"})
    git(repository, "add", "-f", "out/deep/t")
    create(repository, {".gitignore": "out/\n"})
    (repository / "out/deep/t").unlink()
    (repository / "out/deep/t").mkdir()
    ws = open_workspace(repository)
    ws.snapshot()
    assert held(ws) == {".gitignore", "committed"}


@pytest.mark.requirement("K2", "K10", "K13")
def test_a_path_that_a_new_rule_covers_leaves_scope_and_is_never_taken_for_deleted(
    anywhere: Path, open_workspace: OpenWorkspace
) -> None:
    create(anywhere, {"a.log": "1", "dir/x": "1", "dir/y": "1", "keep": "k"})
    ws = open_workspace(anywhere)
    first = ws.snapshot()
    create(anywhere, {".gitignore": "*.log\ndir/\n"})
    second = ws.snapshot()
    assert held(ws) == {".gitignore", "keep"}
    assert second.capture.ignored == 2
    assert [change.path for change in ws.diff(f"{first.id}..{second.id}").changes] == [b".gitignore"]

    create(anywhere, {"a.log": "2", "dir/x": "2"})
    (anywhere / "dir" / "y").unlink()
    ws.restore(second.id, exact=True)
    assert (anywhere / "a.log").read_text() == "2" and (anywhere / "dir" / "x").read_text() == "2"

    ws.restore(first.id, exact=True)
    same(read_back(anywhere), {"a.log": "1", "dir/x": "1", "dir/y": "1", "keep": "k"})
    ws.undo()
    same(read_back(anywhere), {"a.log": "2", "dir/x": "2", "keep": "k", ".gitignore": "*.log\ndir/\n"})
    ws.redo()
    same(read_back(anywhere), {"a.log": "1", "dir/x": "1", "dir/y": "1", "keep": "k"})


@pytest.mark.requirement("K2")
def test_a_file_that_changes_while_it_leaves_scope_is_not_captured(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a.log": "1", "keep": "k"})
    ws = open_workspace(place)
    ws.snapshot()
    create(place, {".gitignore": "*.log\n", "a.log": "secret"})
    taken = ws.snapshot()
    assert held(ws) == {".gitignore", "keep"}
    assert (taken.capture.files, taken.capture.bytes, taken.capture.ignored) == (2, 7, 1)


@pytest.mark.requirement("K2")
def test_a_file_that_is_deleted_while_it_leaves_scope_is_counted_once(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"out/a": "1", "out/b": "1", "keep": "k"})
    ws = open_workspace(place)
    ws.snapshot()
    create(place, {".gitignore": "out/\n"})
    (place / "out" / "a").unlink()
    taken = ws.snapshot()
    assert held(ws) == {".gitignore", "keep"}
    assert (taken.capture.files, taken.capture.bytes) == (2, 6)


@pytest.mark.requirement("K9")
def test_diff_shows_what_a_restore_would_do_to_a_file_that_is_ignored_now(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a.log": "1\n", "same.log": "1\n"})
    ws = open_workspace(place)
    ws.snapshot()
    create(place, {".gitignore": "*.log\n", "a.log": "2\n"})
    found = ws.diff("@1")
    assert {change.path for change in found.changes} == {b".gitignore", b"a.log"}
    assert b"-2\n+1\n" in found.patch


@pytest.mark.requirement("K10")
def test_an_ignored_directory_that_a_restore_changes_comes_back_by_undo(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"gives-way": "file", "mode/file": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    (place / "gives-way").unlink()
    create(place, {".gitignore": "*\n", "gives-way": Dir(0o700), "mode": Dir(0o711)})
    changed = read_back(place)
    ws.restore("@1")
    assert read_back(place)[b"gives-way"] == File(b"file") and read_back(place)[b"mode"] == Dir()
    ws.undo()
    same(read_back(place), changed)


@pytest.mark.requirement("K12")
def test_a_new_file_in_a_directory_that_has_to_give_way_refuses_that_path_alone(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"x": "file", "z": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    destroy(place)
    create(place, {"x/a": "a", "y": "new"})
    ws.restore("@1", exact=True)
    ws.undo()
    create(place, {"x/since": "s"})
    result = ws.redo()
    assert statuses(result)["x"] is Status.REFUSED
    assert statuses(result)["y"] is Status.REMOVED
    assert (place / "x" / "since").read_text() == "s"


@pytest.mark.requirement("K2")
def test_a_path_that_no_rule_covers_any_more_enters_again(anywhere: Path, open_workspace: OpenWorkspace) -> None:
    create(anywhere, {".gitignore": "*.log\ndir/\n", "a.log": "1", "dir/x": "1", "sub/b.log": "1"})
    ws = open_workspace(anywhere)
    ws.snapshot()
    assert held(ws) == {".gitignore", "sub"}
    (anywhere / ".gitignore").write_text("# nothing\n")
    ws.snapshot()
    assert held(ws) == {".gitignore", "a.log", "dir/x", "sub/b.log"}
    (anywhere / ".gitignore").unlink()
    create(anywhere, {"sub/.gitignore": "*.log\n"})
    ws.snapshot()
    assert held(ws) == {"a.log", "dir/x", "sub/.gitignore"}
    (anywhere / "sub" / ".gitignore").rename(anywhere / ".gitignore")
    ws.snapshot()
    assert held(ws) == {".gitignore", "dir/x", "sub"}


@pytest.mark.requirement("K2")
def test_a_global_rule_that_changes_is_noticed(place: Path, home: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"a.log": "1", "b.tmp": "1"})
    ws = open_workspace(place)
    for rules, expected in (
        ("", {"a.log", "b.tmp"}),
        ("*.log\n", {"b.tmp"}),
        ("*.tmp\n", {"a.log"}),
        ("*", set()),
    ):
        create(home, {".config/git/ignore": rules})
        ws.snapshot()
        assert held(ws) == expected


def test_an_ignore_file_that_cannot_be_read_stops_the_capture(
    place: Path, home: Path, open_workspace: OpenWorkspace
) -> None:
    create(home, {".config/git/ignore": Dir()})
    create(place, {"a": "1"})
    with pytest.raises(StorageError, match="ignore"):
        open_workspace(place).snapshot()


def test_a_gitignore_that_is_a_link_is_captured_and_not_followed(
    place: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    (tmp_path / "rules").write_text("*\n")
    create(place, {".gitignore": Link(str(tmp_path / "rules")), "a": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    assert held(ws) == {".gitignore", "a"}


def test_a_gitignore_that_is_a_directory_is_an_ordinary_directory(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {".gitignore/a": "1", "b": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    assert held(ws) == {".gitignore/a", "b"}


NESTED = {
    "own": "o",
    "lib/file": "1",
    "lib/deep/file": "1",
    "lib/inner/file": "1",
    "empty-repo": Dir(),
    "headless": Dir(),
    "lib/empty": Dir(0o700),
}


def make_nested(tree: Path) -> None:
    create(tree, NESTED)
    git(tree / "lib/inner", "init", "-q")
    git(tree / "lib/inner", "add", "-A")
    git(tree / "lib/inner", "commit", "-q", "-m", "inner")
    git(tree / "lib", "init", "-q")
    git(tree / "lib", "add", "file")
    git(tree / "empty-repo", "init", "-q")
    create(tree, {"headless/.git": "gitdir: /nowhere\n"})


@pytest.mark.requirement("K2", "K5", "K10")
@pytest.mark.parametrize("kind", ["folder", "repository"])
def test_nested_repositories_are_captured_as_plain_files(
    kind: str, tree: Path, open_workspace: OpenWorkspace
) -> None:
    place = tree if kind == "folder" else make_repository(tree, {})
    make_nested(place)
    before = read_back(place)
    ws = open_workspace(place)
    with unmoved(place):
        taken = ws.snapshot()
        assert {item.path for item in taken.capture.nested_repositories} >= {"lib", "lib/inner", "empty-repo"}
        assert not any(".git/" in path or path.endswith(".git") for path in held(ws))
        create(place, {"lib/file": "2", "lib/inner/new": "n", "lib/deep/file": "2"})
        (place / "lib" / "inner" / "file").unlink()
        ws.restore(taken.id, exact=True)
        same(read_back(place), before)
        ws.undo()
        assert (place / "lib" / "inner" / "new").read_text() == "n"
    shutil.rmtree(place / "lib")
    shutil.rmtree(place / "empty-repo")
    shutil.rmtree(place / "headless")
    ws.restore(taken.id)
    same(read_back(place), before)


@pytest.mark.requirement("K5", "K13")
@pytest.mark.parametrize("exact", [False, True])
def test_a_repository_that_was_cloned_since_is_left_whole(
    exact: bool, repository: Path, open_workspace: OpenWorkspace
) -> None:
    ws = open_workspace(repository)
    first = ws.snapshot()
    create(repository, {"vendor/lib/file": "1", "vendor/lib/empty": Dir(), "vendor/other": "o"})
    make_repository(repository / "vendor/lib", {})
    ws.snapshot()
    with unmoved(repository):
        result = ws.restore(first.id, exact=exact)
        found = read_back(repository)
        assert found[b"vendor/lib/file"] == File(b"1") and b"vendor/lib/empty" in found
        assert b"vendor/other" not in found
        assert not result.failed
        assert {item.code for item in result.plan.left} == {"nested_repository"}


@pytest.mark.requirement("K2", "K5", "K10")
def test_submodules_are_captured_as_plain_files(
    repository: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    other = make_repository(tmp_path / "other", {"in-sub": "1\n", "d/x": "1\n"})
    git(repository, "submodule", "--quiet", "add", str(other), "sub")
    git(repository, "submodule", "--quiet", "add", str(other), "not-checked-out")
    git(repository, "commit", "-q", "-m", "submodules")
    git(repository, "submodule", "--quiet", "deinit", "-f", "not-checked-out")
    before = read_back(repository)
    ws = open_workspace(repository)
    with unmoved(repository):
        ws.snapshot()
        assert held(ws) == {".gitmodules", "committed", "sub/in-sub", "sub/d/x", "not-checked-out"}
        create(repository, {"sub/in-sub": "2\n", "sub/new": "n", "not-checked-out/new": "n"})
        shutil.rmtree(repository / "sub" / "d")
        ws.restore("@1", exact=True)
        same(read_back(repository), before)


@pytest.mark.requirement("K2", "K5")
def test_ignore_files_of_a_nested_repository_count_for_its_files(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    create(repository, {"lib/.gitignore": "*.o\n", "lib/a.o": "x", "lib/a.c": "x", "b.o": "x"})
    git(repository / "lib", "init", "-q")
    ws = open_workspace(repository)
    with unmoved(repository):
        ws.snapshot()
    assert held(ws) == {"committed", "lib/.gitignore", "lib/a.c", "b.o"}


def round_trip(ws: Workspace, root: Path, *more: Path) -> None:
    """Snapshot, change everything, restore, undo and redo; nothing below any `.git` moves."""
    before = read_back(root)
    with unmoved(root, *more):
        ws.snapshot()
        assert held(ws) == {os.fsdecode(p) for p, e in before.items() if not isinstance(e, Dir)}
        for path, entry in before.items():
            if isinstance(entry, File):
                (root / os.fsdecode(path)).write_bytes(b"changed " + entry.content)
        create(root, {"since/then": "x"})
        changed = read_back(root)
        assert ws.diff("@1").patch
        ws.restore("@1", exact=True)
        same(read_back(root), before)
        ws.undo()
        same(read_back(root), changed)
        ws.redo()
        same(read_back(root), before)
        ws.list()
        ws.show("@1")


@pytest.mark.requirement("K5", "K10")
def test_a_linked_worktree(repository: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    linked = tmp_path / "linked"
    create(linked, {"untracked": "u"})
    create(repository, {".git/info/exclude": "*.no\n"})
    ws = open_workspace(linked)
    assert ws.root == linked
    round_trip(ws, linked, repository)
    create(linked, {"a.no": "x"})
    taken = ws.snapshot()
    assert "a.no" not in held(ws)
    assert taken.capture.repository is not None and taken.capture.repository.branch == "side"


@pytest.mark.requirement("K2", "K5")
def test_a_worktree_inside_the_workspace_is_plain_files(repository: Path, open_workspace: OpenWorkspace) -> None:
    git(repository, "worktree", "add", "-q", "-b", "side", "trees/side")
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K5", "K10")
def test_a_repository_without_commits(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"staged": "s", "untracked": "u"})
    git(tree, "init", "-q")
    git(tree, "add", "staged")
    ws = open_workspace(tree)
    round_trip(ws, tree)
    standing = ws.show("@1").capture.repository
    assert standing is not None and (standing.head, standing.branch) == ("", "main")


@pytest.mark.requirement("K5", "K10")
def test_a_repository_without_an_index(tree: Path, open_workspace: OpenWorkspace) -> None:
    git(tree, "init", "-q")
    create(tree, {"a": "1"})
    round_trip(open_workspace(tree), tree)


@pytest.mark.requirement("K5", "K10")
def test_a_detached_head(repository: Path, open_workspace: OpenWorkspace) -> None:
    head = git(repository, "rev-parse", "HEAD").decode().strip()
    git(repository, "checkout", "-q", "--detach")
    ws = open_workspace(repository)
    round_trip(ws, repository)
    standing = ws.show("@1").capture.repository
    assert standing is not None and (standing.head, standing.branch) == (head, "")


@pytest.mark.requirement("K5", "K10")
def test_in_the_middle_of_a_merge(repository: Path, open_workspace: OpenWorkspace) -> None:
    git(repository, "checkout", "-q", "-b", "other")
    (repository / "committed").write_text("theirs\n")
    git(repository, "commit", "-q", "-a", "-m", "theirs")
    git(repository, "checkout", "-q", "-")
    (repository / "committed").write_text("ours\n")
    git(repository, "commit", "-q", "-a", "-m", "ours")
    git(repository, "merge", "other", check=False)
    assert (repository / ".git" / "MERGE_HEAD").exists()
    assert b"<<<<<<<" in (repository / "committed").read_bytes()
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K5", "K10")
def test_a_stash_and_staged_changes_stay(repository: Path, open_workspace: OpenWorkspace) -> None:
    (repository / "committed").write_text("stashed\n")
    git(repository, "stash", "-q")
    (repository / "committed").write_text("staged\n")
    git(repository, "add", "committed")
    (repository / "committed").write_text("worktree\n")
    status, stash = git(repository, "status", "--porcelain"), git(repository, "stash", "list")
    round_trip(open_workspace(repository), repository)
    assert git(repository, "status", "--porcelain") == status
    assert git(repository, "stash", "list") == stash
    assert git(repository, "show", ":committed") == b"staged\n"


@pytest.mark.requirement("K5", "K10")
def test_a_sparse_checkout(tree: Path, open_workspace: OpenWorkspace) -> None:
    make_repository(tree, {"in/a": "1", "out/b": "1", "top": "1"})
    git(tree, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    assert not (tree / "out").exists()
    round_trip(open_workspace(tree), tree)


@pytest.mark.requirement("K5", "K10")
def test_a_split_index_with_an_untracked_cache_and_version_4(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    git(repository, "update-index", "--index-version", "4")
    git(repository, "update-index", "--split-index", "--untracked-cache")
    create(repository, {"second": "2"})
    git(repository, "add", "second")
    assert list((repository / ".git").glob("sharedindex.*"))
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K5", "K10")
def test_flags_that_hide_changes_from_git_hide_none_from_us(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    create(repository, {"skipped": "1", "assumed": "1"})
    git(repository, "add", "-A")
    git(repository, "update-index", "--skip-worktree", "skipped")
    git(repository, "update-index", "--assume-unchanged", "assumed")
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K5", "K10")
@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "config.lock", "refs/heads/main.lock"])
def test_a_lock_lying_about_in_the_users_repository(
    name: str, repository: Path, open_workspace: OpenWorkspace
) -> None:
    (repository / ".git" / name).write_text("")
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K5", "K10")
def test_a_git_that_is_a_file(tree: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"committed": "1\n", "out.log": "x", ".gitignore": "*.log\n"})
    (tmp_path / "elsewhere").mkdir()
    git(tree, "init", "-q", f"--separate-git-dir={tmp_path / 'elsewhere' / '.git'}")
    git(tree, "add", "committed")
    (tree / "out.log").unlink()
    ws = open_workspace(tree)
    round_trip(ws, tree, tmp_path / "elsewhere")
    create(tree, {"out.log": "x"})
    ws.snapshot()
    assert "out.log" not in held(ws)


@pytest.mark.requirement("K5", "K10")
def test_a_git_that_is_a_link(repository: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / ".git").rename(tmp_path / "elsewhere" / ".git")
    (repository / ".git").symlink_to(tmp_path / "elsewhere" / ".git")
    round_trip(open_workspace(repository), repository, tmp_path / "elsewhere")


@pytest.mark.parametrize("entry", [Link("nowhere"), "garbage", "gitdir: nowhere\n", Dir(), Fifo()])
@pytest.mark.requirement("K2", "K5", "K10")
def test_a_git_that_is_no_repository(entry: object, tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {".git": entry, "a": "1", "d/b": "1"})  # type: ignore[dict-item]
    round_trip(open_workspace(tree), tree)


@pytest.mark.parametrize("broken", ["HEAD", "config", "index", "objects"])
@pytest.mark.requirement("K2", "K10")
def test_a_damaged_repository_of_the_user_does_not_stop_us(
    broken: str, repository: Path, open_workspace: OpenWorkspace
) -> None:
    place = repository / ".git" / broken
    if broken == "objects":
        shutil.rmtree(place)
    else:
        place.write_bytes(b"garbage\n")
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K5", "K6")
@pytest.mark.parametrize("where", ["elsewhere", "/", "..", "../../nowhere"])
def test_a_hostile_core_worktree_leads_nowhere(
    where: str, repository: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    create(tmp_path / "elsewhere", {"secret": "s"})
    git(repository, "config", "core.worktree", where.replace("elsewhere", str(tmp_path / "elsewhere")))
    round_trip(open_workspace(repository), repository)
    same(read_back(tmp_path / "elsewhere"), {"secret": "s"})


@pytest.mark.requirement("K5")
def test_a_bare_flag_in_the_repositorys_config_does_not_matter(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    git(repository, "config", "core.bare", "true")
    round_trip(open_workspace(repository), repository)


@pytest.mark.requirement("K2", "K5")
def test_a_folder_inside_a_repository_stands_for_the_whole_repository(
    repository: Path, open_workspace: OpenWorkspace
) -> None:
    create(repository, {"sub/deep/file": "1"})
    assert open_workspace(repository / "sub" / "deep").root == repository


@pytest.mark.requirement("K2")
def test_a_folder_inside_a_folder_stands_for_itself(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"sub/file": "1", "above": "1"})
    ws = open_workspace(tree / "sub")
    ws.snapshot()
    assert ws.root == tree / "sub"
    assert held(ws) == {"file"}


@pytest.mark.requirement("K2", "K10")
@pytest.mark.parametrize("where", [".putback-store", "deep/in/here"])
def test_a_store_inside_the_workspace_is_not_captured_and_not_touched(
    where: str, anywhere: Path, open_workspace: OpenWorkspace
) -> None:
    create(anywhere, {"a": "1", "deep/b": "1"})
    ws = open_workspace(anywhere, store=anywhere / where)
    first = ws.snapshot()
    assert held(ws) - {"deep/in"} == {"a", "deep/b"}
    create(anywhere, {"a": "2", "deep/c": "new"})
    assert [change.path for change in ws.diff("@1").changes] == [b"a", b"deep/c"]
    ws.restore("@1", exact=True)
    assert {p for p in read_back(anywhere) if not p.startswith(where.encode())} >= {b"a", b"deep/b"}
    assert (anywhere / "a").read_text() == "1" and not (anywhere / "deep" / "c").exists()
    ws.undo()
    assert (anywhere / "deep" / "c").read_text() == "new"
    assert [entry.kind for entry in ws.list()] == ["restore", "restore", "snapshot"]
    with pytest.raises(UnsafePath):
        ws.restore(first.id, paths=[anywhere / where / "objects.git" / "config"])


@pytest.mark.requirement("K2")
def test_include_captures_what_is_ignored(anywhere: Path, open_workspace: OpenWorkspace) -> None:
    create(
        anywhere, {".gitignore": ".env\ndata/\n", ".env": "1", "data/db": "1", "data/junk": "1", "sub/.env": "1"}
    )
    ws = open_workspace(anywhere, include=(".env", "/data/db"))
    ws.snapshot()
    assert held(ws) == {".gitignore", ".env", "data/db", "sub/.env"}
    create(anywhere, {".env": "2", "data/db": "2", "data/junk": "2"})
    (anywhere / "sub" / ".env").unlink()
    ws.restore("@1", exact=True)
    found = read_back(anywhere)
    assert found[b".env"] == found[b"data/db"] == found[b"sub/.env"] == File(b"1")
    assert found[b"data/junk"] == File(b"2")


@pytest.mark.requirement("K2")
def test_exclude_leaves_out_and_discloses(anywhere: Path, open_workspace: OpenWorkspace) -> None:
    create(anywhere, {"big/a": "1", "big/b": "1", "x.iso": "1", "in": "1"})
    ws = open_workspace(anywhere, exclude=("big/", "*.iso"))
    for _ in range(2):
        ws.snapshot()
        assert held(ws) == {"in"}
        assert reasons(ws) == {"big": Reason.EXCLUDED, "x.iso": Reason.EXCLUDED}
    create(anywhere, {"big/a": "2", "in": "2"})
    (anywhere / "x.iso").unlink()
    ws.restore("@1", exact=True)
    assert read_back(anywhere).get(b"big/a") == File(b"2") and not (anywhere / "x.iso").exists()


@pytest.mark.requirement("K2", "K13")
def test_what_a_later_exclude_leaves_out_is_not_taken_for_deleted(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"big/a": "1", "in": "1"})
    first = open_workspace(place).snapshot()
    ws = open_workspace(place, exclude=("big/",))
    second = ws.snapshot()
    assert held(ws) == {"in"}
    assert ws.diff(f"{first.id}..{second.id}").changes == []
    ws.restore(second.id, exact=True)
    assert (place / "big" / "a").exists()
    create(place, {"big/a": "2"})
    ws.restore(first.id)
    assert (place / "big" / "a").read_text() == "1"
    ws.undo()
    assert (place / "big" / "a").read_text() == "2"


@pytest.mark.requirement("K2", "K13")
def test_a_file_over_the_ceiling_is_disclosed_and_left_alone(place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"large": b"x" * 101, "fits": b"x" * 100, "grows": "1"})
    ws = open_workspace(place, max_file_bytes=100)
    taken = ws.snapshot()
    (item,) = taken.capture.not_covered
    assert (item.path, item.reason, item.size) == ("large", Reason.TOO_LARGE, 101)
    assert held(ws) == {"fits", "grows"}
    create(place, {"large": b"y" * 101, "large2": b"z" * 500, "fits": "0"})
    ws.restore("@1", exact=True)
    found = read_back(place)
    assert found[b"large"] == File(b"y" * 101) and found[b"large2"] == File(b"z" * 500)
    assert found[b"fits"] == File(b"x" * 100)


@pytest.mark.requirement("K2", "K10")
def test_what_a_restore_replaces_is_kept_though_it_is_over_the_ceiling(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "small"})
    ws = open_workspace(place, max_file_bytes=100)
    ws.snapshot()
    create(place, {"a": File(b"x" * 1000, 0o600)})
    assert reasons(ws, ws.snapshot().id) == {"a": Reason.TOO_LARGE}
    assert statuses(ws.restore("@2")) == {"a": Status.RESTORED}
    same(read_back(place), {"a": "small"})
    ws.undo()
    same(read_back(place), {"a": File(b"x" * 1000, 0o600)})
    ws.redo()
    same(read_back(place), {"a": "small"})


@pytest.mark.requirement("K2", "K13")
def test_special_files_are_disclosed_and_left_alone(anywhere: Path, open_workspace: OpenWorkspace) -> None:
    create(anywhere, {"pipe": Fifo(), "d/pipe": Fifo(), "a": "1"})
    before = os.getcwd()
    os.chdir(anywhere)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("sock")
    os.chdir(before)
    ws = open_workspace(anywhere)
    for _ in range(2):
        ws.snapshot()
        assert reasons(ws) == dict.fromkeys(("pipe", "d/pipe", "sock"), Reason.SPECIAL_FILE)
        assert "a" in held(ws) and "pipe" not in held(ws)
    create(anywhere, {"a": "2", "later": Fifo()})
    ws.restore("@1", exact=True)
    listener.close()
    found = read_back(anywhere)
    assert found[b"a"] == File(b"1")
    assert found[b"later"] == found[b"d/pipe"] == Fifo()


@pytest.mark.requirement("K12")
def test_a_pipe_where_a_file_has_to_be_is_refused_and_the_rest_goes_on(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1", "b": "1", "c/d": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    destroy(place)
    create(place, {"a": Fifo(), "c": Fifo()})
    result = ws.restore("@1")
    found = statuses(result)
    assert found["a"] is Status.REFUSED and found["b"] is Status.RECREATED and found["c/d"] is Status.REFUSED
    assert result.failed
    same(read_back(place), {"a": Fifo(), "b": "1", "c": Fifo()})


@pytest.mark.requirement("K10", "K13")
def test_a_directory_with_something_uncaptured_in_it_does_not_give_way(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"x": "file", ".gitignore": "*.log\n"})
    ws = open_workspace(place)
    ws.snapshot()
    (place / "x").unlink()
    create(place, {"x/inside": "i", "x/a.log": "ignored"})
    result = ws.restore("@1", exact=True)
    assert statuses(result)["x"] is Status.REFUSED
    assert (place / "x" / "a.log").read_text() == "ignored"


@pytest.mark.requirement("K10", "K13")
def test_a_directory_that_holds_an_ignored_file_is_not_removed(place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {".gitignore": "*.log\n", "a": "1"})
    ws = open_workspace(place)
    first = ws.snapshot()
    create(place, {"d/b": "1", "d/e/c": "1", "d/x.log": "ignored"})
    ws.snapshot()
    ws.restore(first.id)
    same(read_back(place), {".gitignore": "*.log\n", "a": "1", "d/x.log": "ignored"})
    ws.undo()
    same(read_back(place), {".gitignore": "*.log\n", "a": "1", "d/b": "1", "d/e/c": "1", "d/x.log": "ignored"})


def denied(real: Callable[..., object], name: str) -> Callable[..., object]:
    """The real call, which is refused wherever an argument is a path that ends in `name`."""

    def call(*arguments: object, **named: object) -> object:
        for path in arguments:
            if isinstance(path, str | bytes) and os.fsencode(path).rpartition(b"/")[2] == name.encode():
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return real(*arguments, **named)

    return call


@pytest.mark.requirement("K2", "K13")
@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_cannot_be_read_is_disclosed_and_left_alone(
    known: bool, place: Path, monkeypatch: pytest.MonkeyPatch, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1", "b": "1"})
    ws = open_workspace(place)
    if known:
        create(place, {"secret": "1"})
        ws.snapshot()
    create(place, {"secret": "22"})
    with monkeypatch.context() as patch:
        patch.setattr(Root, "open_file", denied(Root.open_file, "secret"))
        ws.snapshot()
    assert held(ws) == {"a", "b"}
    assert reasons(ws) == {"secret": Reason.UNREADABLE}
    ws.restore("@1", exact=True)
    assert (place / "secret").read_text() == "22"
    ws.snapshot()
    assert held(ws) == {"a", "b", "secret"}


@pytest.mark.requirement("K2", "K13")
@pytest.mark.parametrize("known", [False, True])
def test_a_directory_that_cannot_be_read_is_disclosed_and_left_alone(
    known: bool, place: Path, monkeypatch: pytest.MonkeyPatch, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1"})
    ws = open_workspace(place)
    if known:
        create(place, {"shut/file": "1", "shut/deep/file": "1"})
        first = ws.snapshot()
    create(place, {"shut/file": "1", "shut/deep/file": "1", "shut/new": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", denied(os.scandir, "shut"))
        second = ws.snapshot()
    assert reasons(ws)["shut"] is Reason.UNREADABLE
    if known:
        assert [change.status for change in ws.diff(f"{first.id}..{second.id}").changes] == []
    ws.restore(second.id, exact=True)
    assert (place / "shut" / "new").exists() and (place / "shut" / "deep" / "file").exists()
    ws.snapshot()
    assert held(ws) == {"a", "shut/file", "shut/deep/file", "shut/new"}


@pytest.mark.requirement("K2", "K13")
def test_what_is_mounted_below_is_disclosed_and_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1", "mnt/file": "1", "mnt/deep/file": "1"})
    real = os.lstat

    def lstat(path: object, **named: object) -> os.stat_result:
        found = real(path, **named)  # type: ignore[arg-type]
        if isinstance(path, str | bytes) and b"/mnt" in os.fsencode(path):
            fields = list(found)
            fields[2] += 1
            return os.stat_result(fields, {"st_mtime_ns": found.st_mtime_ns, "st_ctime_ns": found.st_ctime_ns})
        return found

    ws = open_workspace(place)
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lstat)
        ws.snapshot()
        assert held(ws) == {"a"}
        assert reasons(ws) == {"mnt": Reason.MOUNT_POINT}
        create(place, {"mnt/file": "2", "a": "2"})
        ws.restore("@1", exact=True)
    same(read_back(place), {"a": "1", "mnt/file": "2", "mnt/deep/file": "1"})


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("name", [".GIT", ".Git", "sub/.gIt"])
def test_a_name_that_git_cannot_hold_is_disclosed(name: str, place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {f"{name}/x": "1", "a": "1"})
    ws = open_workspace(place)
    for _ in range(2):
        ws.snapshot()
        assert reasons(ws) == {name: Reason.RESERVED_NAME} or name in ".Git.GIT"
        assert not any(path.lower().startswith(name.lower()) for path in held(ws))
        assert [item.path for item in ws.show("@1").capture.not_covered] != []
    (place / "a").unlink()
    ws.restore("@1", exact=True)
    assert (place / name / "x").exists() and (place / "a").exists()


@pytest.mark.requirement("K10", "K13")
def test_a_partial_snapshot_bounds_what_its_restore_touches(anywhere: Path, open_workspace: OpenWorkspace) -> None:
    create(anywhere, {"in/a": "1", "in/b": "1", "in/empty": Dir(0o700), "out/a": "1", "file": "1"})
    ws = open_workspace(anywhere)
    taken = ws.snapshot("part", paths=["in", "file"])
    assert held(ws) == {"in/a", "in/b", "in/empty", "file"}
    assert {item.path for item in taken.capture.scope} == {"in", "file"}
    assert (taken.capture.files, taken.capture.bytes) == (3, 3)
    create(anywhere, {"in/a": "2", "in/new": "n", "out/a": "2", "out/new": "n", "file": "2", "top": "t"})
    (anywhere / "in" / "b").unlink()
    (anywhere / "in" / "empty").rmdir()
    assert {c.path for c in ws.diff("@1").changes} == {b"file", b"in/a", b"in/b", b"in/empty", b"in/new"}
    ws.restore("@1", exact=True)
    same(
        read_back(anywhere),
        {"in/a": "1", "in/b": "1", "in/empty": Dir(0o700), "file": "1", "out/a": "2", "out/new": "n", "top": "t"},
    )
    ws.undo()
    same(
        read_back(anywhere),
        {"in/a": "2", "in/new": "n", "out/a": "2", "out/new": "n", "file": "2", "top": "t"},
    )


@pytest.mark.requirement("K10")
def test_a_partial_snapshot_of_something_absent_removes_it_later(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1"})
    ws = open_workspace(place)
    ws.snapshot(paths=["later"])
    assert held(ws) == set()
    create(place, {"later": "l"})
    result = ws.restore("@1")
    assert (place / "later").exists() and result.plan.left[0].code == "never_captured"
    ws.restore("@1", exact=True)
    same(read_back(place), {"a": "1"})


def test_a_partial_snapshot_does_not_hide_other_changes_from_the_next_one(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1", "b": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    create(place, {"a": "2", "b": "2", "new": "n"})
    ws.snapshot(paths=["a"])
    ws.snapshot()
    assert {change.path for change in ws.diff("@3..@1").changes} == {b"a", b"b", b"new"}
    (place / "b").unlink()
    ws.snapshot(paths=["a"])
    ws.snapshot()
    assert held(ws) == {"a", "new"}


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "", ".git/config", "a/../../x"])
def test_a_path_outside_the_workspace_is_refused(path: str, place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"a": "1"})
    ws = open_workspace(place)
    with pytest.raises(UnsafePath):
        ws.snapshot(paths=[path])
    ws.snapshot()
    with pytest.raises(UnsafePath):
        ws.restore("@1", paths=[path])


@pytest.mark.requirement("K10")
def test_restoring_selected_paths_touches_nothing_else(place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"a": "1", "d/b": "1", "d/c": "1", "e/f": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    destroy(place)
    create(place, {"a": "2", "d/new": "n"})
    ws.restore("@1", paths=["d/b", place / "e"])
    same(read_back(place), {"a": "2", "d/new": "n", "d/b": "1", "e/f": "1"})
    ws.undo()
    same(read_back(place), {"a": "2", "d/new": "n"})
    with pytest.raises(UnsafePath):
        ws.restore("@1", paths=["no/such/path"])


@pytest.mark.requirement("K12", "K13")
def test_a_file_never_captured_is_left_and_counted(place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"a": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    create(place, {"a": "2", "new": "n", "dir/new": "n", "empty": Dir()})
    result = ws.restore("@1")
    same(read_back(place), {"a": "1", "new": "n", "dir/new": "n", "empty": Dir()})
    assert {item.path for item in result.plan.left} >= {"new", "dir/new"}
    assert statuses(result) == {"a": Status.RESTORED}


@pytest.mark.requirement("K12", "K13")
def test_exact_removes_what_was_never_captured_and_undo_brings_it_back(
    anywhere: Path, open_workspace: OpenWorkspace
) -> None:
    create(anywhere, {"a": "1"})
    ws = open_workspace(anywhere)
    ws.snapshot()
    create(anywhere, {"new": File(b"n", 0o600), "dir/new": "n", "empty": Dir(0o700), "link": Link("new")})
    later = read_back(anywhere)
    result = ws.restore("@1", exact=True)
    same(read_back(anywhere), {"a": "1"})
    assert set(statuses(result).values()) == {Status.REMOVED}
    ws.undo()
    same(read_back(anywhere), later)
    ws.redo()
    same(read_back(anywhere), {"a": "1"})


@pytest.mark.requirement("K11", "K12", "K13")
def test_a_file_that_some_capture_held_is_removed_by_the_restore_of_an_older_one(
    anywhere: Path, open_workspace: OpenWorkspace
) -> None:
    create(anywhere, {"a": "1"})
    ws = open_workspace(anywhere)
    first = ws.snapshot()
    create(anywhere, {"b": "1", "d/c": "1", "empty": Dir()})
    second = ws.snapshot()
    create(anywhere, {"b": "changed since", "never": "n"})
    result = ws.restore(first.id)
    same(read_back(anywhere), {"a": "1", "never": "n"})
    assert statuses(result) == dict.fromkeys(("b", "d", "d/c", "empty"), Status.REMOVED)
    ws.restore(second.id)
    same(read_back(anywhere), {"a": "1", "b": "1", "d/c": "1", "empty": Dir(), "never": "n"})
    ws.undo()
    ws.undo()
    same(read_back(anywhere), {"a": "1", "b": "changed since", "d/c": "1", "empty": Dir(), "never": "n"})


@pytest.mark.requirement("K13")
def test_a_safety_capture_does_not_make_a_file_known(place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"a": "1"})
    ws = open_workspace(place)
    ws.snapshot()
    create(place, {"a": "2", "new": "n"})
    ws.restore("@1")
    create(place, {"a": "3"})
    ws.restore("@1")
    same(read_back(place), {"a": "1", "new": "n"})


@pytest.mark.requirement("K3", "K4", "K8")
def test_messages_are_kept_and_empty_ones_become_the_time(place: Path, open_workspace: OpenWorkspace) -> None:
    create(place, {"a": "1"})
    ws = open_workspace(place)
    assert ws.list() == []
    said = "first \u00e9\nsecond line\x1b[2J"
    ids = [ws.snapshot(said).id, ws.snapshot("").id, ws.snapshot("again").id]
    listed = ws.list()
    assert [entry.id for entry in listed] == ids[::-1]
    assert listed[2].message == said
    assert len(listed[1].message) == len("2026-01-01 00:00:00") and listed[1].message[:2] == "20"
    (place / "a").write_text("2")
    ws.restore(ids[0])
    assert [entry.id for entry in ws.list() if entry.kind == "snapshot"] == ids[::-1]
    assert ws.list()[0].kind == "restore"


@pytest.mark.requirement("K1")
def test_opening_a_workspace_touches_no_disk(repository: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    before = read_back(repository.parent)
    with unmoved(repository):
        ws = open_workspace(repository)
        assert ws.list() == []
        assert ws.interrupted() is None
    same(read_back(repository.parent), before)
    assert not store.exists()


@pytest.mark.requirement("K9")
def test_diff_shows_what_restoring_would_change_and_changes_nothing(
    place: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "one\ntwo\n", "gone": "g\n", "mode": File(b"m", 0o644), "bin": b"\0\1"})
    ws = open_workspace(place)
    ws.snapshot()
    assert ws.diff("@1").changes == [] and ws.diff("@1").patch == b""
    create(place, {"a": "one\n2\n", "new": "n\n", "mode": File(b"m", 0o600), "bin": b"\0\2"})
    (place / "gone").unlink()
    before = read_back(place)
    found = ws.diff("@1")
    assert {(change.path, change.status) for change in found.changes} == {
        (b"a", "modified"),
        (b"bin", "modified"),
        (b"gone", "created"),
        (b"mode", "modified"),
        (b"new", "deleted"),
    }
    for line in (b"-2\n", b"+two\n", b"+g\n", b"-n\n", b"old mode", b"Binary files"):
        assert line in found.patch, line
    same(read_back(place), before)
    assert len(ws.list()) == 1


@pytest.mark.parametrize("name", ["", "work"])
def test_a_home_directory_is_refused_unless_the_user_insists(
    name: str, home: Path, open_workspace: OpenWorkspace
) -> None:
    create(home, {"work/a": "1"})
    ws = open_workspace(home / name, store=home.parent / "store-of-home")
    if name:
        ws.snapshot()
        return
    with pytest.raises(UnsuitableRoot):
        ws.snapshot()
    assert not (home.parent / "store-of-home").exists()
    open_workspace(home, store=home.parent / "store-of-home", anywhere=True).snapshot()


@pytest.mark.parametrize(
    ("key", "chosen"),
    [
        ("capture.max_files", {"max_files": 2}),
        ("capture.max_new_bytes", {"max_new_bytes": 2}),
        ("store.max_bytes", {"max_bytes": 2}),
        ("store.min_free_bytes", {"min_free_bytes": 1 << 60}),
    ],
)
def test_over_budget_refuses_before_anything_is_captured(
    key: str, chosen: dict[str, int], place: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(place, {"a": "1", "b": "1", "c": "1"})
    with pytest.raises(OverBudget) as caught:
        open_workspace(place, **chosen).snapshot()
    assert caught.value.key == key and f"{caught.value.limit:,}" in caught.value.message
    assert open_workspace(place).list() == []
    assert not [path for path in (store / "objects.git" / "objects").rglob("*") if path.is_file()]
    ws = open_workspace(place)
    ws.snapshot()
    assert held(ws) == {"a", "b", "c"}


def test_settings_are_what_open_was_given(tree: Path, store: Path) -> None:
    create(tree, {".putback.toml": "[capture]\nexclude = ['a']\n", "a": "1"})
    ws = Workspace.open(tree, store=store, settings=Settings())
    assert ws.root == tree
