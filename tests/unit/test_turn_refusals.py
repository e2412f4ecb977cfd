"""What an exact-path turn does not take: told at once, by every path's name, and nothing is written for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from putback.errors import OverBudget, StorageError, UnsafePath, UnsupportedPath
from putback.fs.root import Root
from putback.paths import RelPath
from putback.turns import selection, snapshot, turn
from support.hermetic import OpenWorkspace, git, make_repository
from support.trees import Fifo, File, Link, put
from support.turns import Turning, records


def place(turning: Turning, name: str) -> bytes:
    return os.fsencode(turning.root / name)


def conflict(turning: Turning) -> None:
    blob = turning.git("rev-parse", "HEAD:a").decode().strip()
    lines = [f"100644 {blob} {stage}\tconflict\n" for stage in (1, 2, 3)]
    turning.git("update-index", "--index-info", given="".join(lines).encode())
    turning.write("conflict", "<<<<<<<\n")


def entry(turning: Turning, mode: str, oid: str, name: str) -> None:
    turning.git("update-index", "--add", "--cacheinfo", f"{mode},{oid},{name}")


def link_in_the_index(turning: Turning) -> None:
    entry(turning, "120000", turning.git("rev-parse", "HEAD:a").decode().strip(), "was-link")
    turning.write("was-link", "a file\n")


def submodule(turning: Turning) -> None:
    (turning.root / "module").mkdir()
    entry(turning, "160000", turning.git("rev-parse", "HEAD").decode().strip(), "module")


def file_with_bits(turning: Turning) -> None:
    turning.write("set-id", "x\n")
    os.chmod(turning.root / "set-id", 0o4755)


def hard_link(turning: Turning) -> None:
    turning.write("twice", "x\n")
    os.link(turning.root / "twice", turning.root / "again")


# By path: how it comes to be, and what is said of it.
REFUSED: dict[str, tuple[Callable[[Turning], object], str]] = {
    "a-link": (lambda t: put(place(t, "a-link"), Link("a")), "is a symbolic link"),
    "dangling": (lambda t: put(place(t, "dangling"), Link("nowhere")), "is a symbolic link"),
    "by/link/x": (
        lambda t: ((t.root / "by").mkdir(), put(place(t, "by/link"), Link("../sub"))),
        "lies behind a symbolic link: 'by/link'",
    ),
    "sub": (lambda t: None, "is a directory"),
    "pipe": (lambda t: put(place(t, "pipe"), Fifo()), "is a special file"),
    "again": (hard_link, "is a hard link"),
    "set-id": (file_with_bits, "has set-id or sticky bits"),
    "no/such/parent": (lambda t: None, "lies in a directory that is not there: 'no'"),
    "a/below": (lambda t: None, "lies below something that is no directory: 'a'"),
    "nested/x": (
        lambda t: make_repository(t.root / "nested", {"x": "x\n"}),
        "lies in a nested repository: 'nested'",
    ),
    "nested-file/deep/x": (
        lambda t: (
            (t.root / "nested-file" / "deep").mkdir(parents=True),
            t.write("nested-file/.git", "gitdir: x"),
        ),
        "lies in a nested repository: 'nested-file'",
    ),
    "z.log": (lambda t: t.write("z.log", "x\n"), "is ignored"),
    "new.log": (lambda t: None, "is ignored"),
    "ignored/x": (lambda t: (t.root / "ignored").mkdir(), "is ignored"),
    "mine-alone": (
        lambda t: (t.root / ".git" / "info").mkdir(exist_ok=True) or t.write(".git/info/exclude", "mine-alone\n"),
        "is ignored",
    ),
    "*.py": (lambda t: None, "names no file, and globs are not expanded"),
    "sub/?": (lambda t: None, "names no file, and globs are not expanded"),
    "conflict": (conflict, "is in the index as unmerged"),
    "added-only": (lambda t: None, "is in the index as intent_to_add"),
    "assumed": (lambda t: None, "is in the index as assume_unchanged"),
    "skipped": (lambda t: None, "is in the index as skip_worktree"),
    "was-link": (link_in_the_index, "is in the index as symlink"),
    "module": (submodule, "is a directory"),
    "module/x": (lambda t: None, "is in the index as below_submodule"),
}


@pytest.mark.requirement("H11", "H12", "H14", "H15", "H29", "H31")
def test_whatever_cannot_go_back_is_refused_all_at_once(turning: Turning) -> None:
    for make, _ in REFUSED.values():
        make(turning)
    with turning.unrecorded(), pytest.raises(UnsupportedPath) as caught:
        turning.begin("a", *REFUSED)
    head, _, said = caught.value.message.partition(": ")
    assert head == "an exact-path turn does not take"
    assert said.split("; ") == sorted(f"'{name}' {reason}" for name, (_, reason) in REFUSED.items())
    assert "nothing was captured" in (caught.value.hint or "")
    with turning.unrecorded(), pytest.raises(UnsupportedPath, match=r"^[^;]*'z\.log' is ignored$"):
        turning.begin("z.log", "a")


@pytest.mark.requirement("H9")
def test_what_is_tracked_is_taken_though_a_rule_would_ignore_it(turning: Turning) -> None:
    turning.write("kept.log", "x\n")
    turning.stage("kept.log")
    assert turning.begin("kept.log").begin.selected[0].index is not None


@pytest.mark.requirement("H2", "H11", "H12")
def test_names_that_are_no_paths_are_told_all_at_once(turning: Turning) -> None:
    wrong = {
        b"": "empty path: ''",
        b"/etc/passwd": "absolute path",
        b"../x": "component '..' in path",
        b"sub/../../x": "component '..' in path: 'sub/",
        b"./a": "component '.' in path",
        b"sub//x": "component '' in path",
        b"a\0b": "NUL byte in path",
        b".git/config": "component '.git' in path: '.git/config'",
        b"sub/.GIT/x": "component '.git' in path: 'sub/.GIT/x'",
        b"n" * 256: "component too long",
        b"n/" * 3000: "path too long",
    }
    with turning.unrecorded(), pytest.raises(UnsafePath) as caught:
        turning.begin("a", *wrong)
    assert len(caught.value.message.split("; ")) == len(wrong)
    for said in wrong.values():
        assert said in caught.value.message


@pytest.mark.requirement("H12")
def test_the_places_of_git_and_of_putback_hold_no_source(tree: Path, open_workspace: OpenWorkspace) -> None:
    """A git directory and a store that lie in the tree, by the names that somebody gave them."""
    git(tree, "init", "-q", "--template=", f"--separate-git-dir={tree / 'admin'}")
    workspace = open_workspace(tree, store=tree / "kept" / "store")
    turning = Turning(tree, workspace, workspace.turns.bind().binding)
    names = {
        "admin/HEAD": "lies in an administrative directory: 'admin'",
        "admin/objects/new": "lies in an administrative directory: 'admin'",
        "kept/store/store.json": "inside putback's own store",
        "kept/store": "inside putback's own store",
        "kept/store/new": "inside putback's own store",
    }
    before = records(turning.store)
    for name, said in names.items():
        with pytest.raises(UnsupportedPath) as caught:
            turning.begin(name)
        assert said in caught.value.message, name
    assert records(turning.store) == before
    assert turning.begin("kept/beside")


@contextmanager
def file_system_at(point: Path) -> Iterator[None]:
    """Another file system at `point`; skips where mounting is not permitted."""
    point.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", point], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("no mounts here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


@pytest.mark.requirement("H29")
def test_another_file_system_is_refused(turning: Turning) -> None:
    said = "'mounted/x' lies on another file system: 'mounted'"
    with file_system_at(turning.root / "mounted"), pytest.raises(UnsupportedPath, match=said):
        turning.begin("mounted/x")


class CaseBlind(Root):
    """A root on a file system that takes `A` and `a` for one name."""

    def look(self, path: bytes) -> os.stat_result | None:
        return super().look(path.lower())


@pytest.mark.requirement("H11")
def test_one_file_by_two_names_is_refused(turning: Turning) -> None:
    with CaseBlind(os.fsencode(turning.root)) as root:
        _, faults = selection.look(root, [RelPath(b"A"), RelPath(b"a"), RelPath(b"b")], ())
    assert faults == {b"a": "is the same file as 'A'"}


INDEXES: dict[str, tuple[Callable[[Turning], object], str]] = {
    "split": (lambda t: t.git("update-index", "--split-index"), "split"),
    "sparse": (
        lambda t: (
            t.git("config", "index.sparse", "true"),
            t.git("reset", "-q", "--hard"),
            t.git("sparse-checkout", "set", "--cone", "--sparse-index", "zz"),
        ),
        "sparse",
    ),
    "damaged": (lambda t: (t.root / ".git" / "index").write_bytes(b"DIRC"), "index"),
}


@pytest.mark.requirement("H31")
@pytest.mark.parametrize("way", INDEXES)
def test_indexes_that_no_turn_takes(turning: Turning, way: str) -> None:
    make, said = INDEXES[way]
    make(turning)
    with turning.unrecorded(), pytest.raises(UnsupportedPath, match=said):
        turning.begin("a")


@pytest.mark.requirement("H11")
def test_a_turn_that_ends_in_what_cannot_go_back_is_not_sealed(turning: Turning) -> None:
    """And stays open: the turn can be sealed once that is gone."""
    begun = turning.begin("a", "made")
    turning.remove("a")
    put(place(turning, "a"), Link("b"))
    (turning.root / "made").mkdir()
    with turning.unrecorded(), pytest.raises(UnsupportedPath) as caught:
        turning.seal(begun)
    assert "'a' is a symbolic link; 'made' is a directory" in caught.value.message
    assert "putback turn resolve" in (caught.value.hint or "")
    (turning.root / "made").rmdir()
    turning.remove("a")
    turning.seal(begun)


@pytest.mark.requirement("H2", "H10")
def test_a_path_is_literal_also_where_it_looks_like_a_pattern(turning: Turning) -> None:
    """It names a file at the beginning; that the turn removes it does not make it a pattern."""
    turning.write("what?*", "literal\n")
    begun = turning.begin("what?*")
    turning.remove("what?*")
    turning.apply(turning.seal(begun))
    assert turning.tree[b"what?*"] == File(b"literal\n")


@pytest.mark.requirement("H33")
def test_a_rule_that_came_with_the_turn_does_not_hide_that_it_went_back(turning: Turning) -> None:
    """The file is tracked at the end of the turn, and gone after it: a rule for its name changes nothing then."""

    def act() -> None:
        turning.write("made", "made\n")
        turning.stage("made")
        turning.write(".gitignore", "made\n")

    sealed = turning.over("made", act=act)
    turning.apply(sealed)
    assert b"made" not in turning.tree and turning.staged("made") is None
    assert turning.apply(sealed).already


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("H15")
def test_eight_mebibytes_of_both_copies_and_not_one_more(turning: Turning) -> None:
    half = bytes(4 << 20)
    turning.write("a", half)
    turning.stage("a")
    turning.write("b", b"x")
    with turning.unrecorded(), pytest.raises(OverBudget) as caught:
        turning.begin("a", "b", "made")
    # "b" counts twice: one byte here, two in the index.
    assert (caught.value.limit, caught.value.measured) == (8 << 20, (8 << 20) + 3)
    assert str(8 << 20) in caught.value.message and str((8 << 20) + 3) in caught.value.message
    begun = turning.begin("a", "made")
    assert begun.begin.bytes == 8 << 20
    turning.write("made", b"x")
    with turning.unrecorded(), pytest.raises(OverBudget):
        turning.seal(begun)


@pytest.mark.requirement("H15", "H17")
def test_the_caps_of_a_binding(turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was ever begun counts, also what was cut short, and nothing makes room."""
    monkeypatch.setattr(turn, "MOST_BINDING_BYTES", 12)

    def fails(step: str) -> None:
        raise RuntimeError(step)

    with pytest.raises(RuntimeError, match="content_persisted"):
        turning.begin("a", on_snapshot_step=fails)
    (cut,) = turning.turns.list(turning.binding)
    assert cut.reserved_bytes == 4
    turning.resolve(cut.capture_id)
    begun = turning.begin("a")
    turning.write("a", "longer\n")
    with turning.unrecorded(), pytest.raises(OverBudget) as caught:
        turning.seal(begun)
    assert (caught.value.key, caught.value.limit, caught.value.measured) == ("turn.binding_bytes", 12, 8 + 9)
    assert "8 bytes captured of this binding, and 9 more; at most 12" in caught.value.message
    turning.write("a", "a\n")
    turning.seal(begun)
    with turning.unrecorded(), pytest.raises(OverBudget, match="12 bytes captured of this binding, and 4 more"):
        turning.begin("a")
    monkeypatch.setattr(turn, "MOST_CAPTURES", 2)
    with turning.unrecorded(), pytest.raises(OverBudget) as caught:
        turning.begin("made")
    assert (caught.value.key, caught.value.limit, caught.value.measured) == ("turn.captures", 2, 3)
    monkeypatch.setattr(turn, "MOST_CAPTURES", 3)
    turning.begin("made")


# --- somebody else is writing -----------------------------------------------------------------------------------


@pytest.mark.requirement("H16")
@pytest.mark.parametrize("moment", ["before", "longer", "after", "made", "index"])
def test_a_path_that_changes_while_it_is_read_ends_the_capture(
    turning: Turning, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Between the look and the reading, while it is read, and after that; and so does the index."""
    read, sizes = selection._read, snapshot.check_size

    def meddle() -> None:
        if moment == "index":
            turning.git("update-index", "--chmod=+x", "a")
        else:
            turning.write("made" if moment == "made" else "a", "meddled\n")

    def looked(measured: int) -> None:
        sizes(measured)
        if moment in ("before", "index"):
            meddle()

    def reading(root: Root, path: RelPath, seen: os.stat_result) -> object:
        if moment == "longer":
            real = os.fstat
            monkeypatch.setattr(selection.os, "fstat", lambda fd: (meddle(), seen)[1])
            try:
                return read(root, path, seen)
            finally:
                monkeypatch.setattr(selection.os, "fstat", real)
        found = read(root, path, seen)
        if moment in ("after", "made"):
            meddle()
        return found

    monkeypatch.setattr(snapshot, "check_size", looked)
    monkeypatch.setattr(selection, "_read", reading)
    before = records(turning.store)
    said = "the index changed while" if moment == "index" else "changed while it was captured"
    with pytest.raises(StorageError, match=said):
        turning.begin("a", "made")
    assert records(turning.store) == before
