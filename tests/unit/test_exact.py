"""Whatever a tree can hold comes back as it was, whatever the user has told their git to do to content."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from putback.records.plan import Status
from support.hermetic import OpenWorkspace, git, make_repository, unmoved
from support.trees import Dir, Entry, File, Link, Tree, create, destroy, read_back, same

CONTENTS: dict[str, Entry] = {
    "empty": b"",
    "text": "plain\n",
    "no-newline": "x",
    "crlf": b"a\r\nb\r\n",
    "mixed-ends": b"a\r\nb\nc\r",
    "binary": bytes(range(256)) * 9,
    "nul": b"\0",
    "utf-16": "\ufeffh\u00e9llo\r\n".encode("utf-16-le"),
    "ident": b"$Id$ $Id: 0123456789 $\n",
    "lfs-pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "conflict": b"<<<<<<< ours\n=======\n>>>>>>> theirs\n",
    "trailing": b"x  \t\n\n\n",
}
MODES: dict[str, Entry] = {
    f"mode-{mode:04o}": File(b"%o\n" % mode, mode)
    for mode in (0o600, 0o640, 0o644, 0o664, 0o666, 0o444, 0o400, 0o755, 0o700, 0o775, 0o777, 0o500, 0o654, 0o000)
}
LINKS: dict[str, Entry] = {
    "dangling": Link("nowhere"),
    "loop-a": Link("loop-b"),
    "loop-b": Link("loop-a"),
    "itself": Link("itself"),
    "to-directory": Link("links-here"),
    "links-here/up": Link("../text"),
    "to-git": Link(".git/config"),
    "outside": Link("/etc/hostname"),
    "above": Link("../../.."),
    "odd-target": Link(b"new\nline \xff\\"),
    "long-target": Link("x" * 1000),
    "trailing-slash": Link("links-here/"),
}
DIRECTORIES: dict[str, Entry] = {
    "empty-dir": Dir(),
    "private-empty": Dir(0o700),
    "open-empty": Dir(0o777),
    "readonly-empty": Dir(0o555),
    "shut-empty": Dir(0o000),
    "nest": Dir(0o750),
    "nest/of": Dir(0o711),
    "nest/of/empty": Dir(0o770),
    "readonly-full": Dir(0o555),
    "readonly-full/file": File(b"in\n", 0o444),
    "readonly-full/below": Dir(0o500),
    "readonly-full/below/file": "deep\n",
    "half": Dir(0o700),
    "half/empty": Dir(),
    "half/file": "f\n",
}
NAMES: dict[bytes, Entry] = {
    name: b"content of " + name
    for name in (
        b"new\nline",
        b"carriage\rreturn",
        b"tab\there",
        b"-leading-dash",
        b"--",
        b"--help",
        b"back\\slash",
        b"c:\\windows",
        b'quo"te',
        b"apo'strophe",
        b"git~1",
        b"GIT~1",
        b".gitmodules",
        b".git-not",
        b".gitx",
        b"a.git",
        b"sub.git/HEAD",
        b":(exclude)a",
        b":(top)b",
        b":(glob)/slash",
        b":",
        b"!bang",
        b"#hash",
        b"*",
        b"?",
        b"[a]",
        b"{a,b}",
        b"trailing blank ",
        b" leading blank",
        b" ",
        b"trailing dot.",
        b"...",
        b"not-utf8-\xff\xfe",
        b"\x80/\x81",
        b"escape\x1b[2J",
        b"bell\x07",
        b"~",
        b"$HOME",
        b"`id`",
        b"@1",
        b"HEAD",
        b"con",
        b"aux.txt",
        b"Case/file",
        b"case/file",
        "caf\u00e9".encode(),
        "cafe\u0301".encode(),
        b"n" * 250,
        b"/".join([b"d%d" % depth for depth in range(60)]) + b"/leaf",
        b"/".join([b"l" * 250] * 11) + b"/long",
        b"sub/file",
        b"sub.file",
        b"sub-dir/a",
        b"sub0",
    )
}
EVERYTHING: dict[bytes, Entry] = {
    os.fsencode(name): entry
    for part in (CONTENTS, MODES, LINKS, DIRECTORIES, NAMES)
    for name, entry in part.items()
}


@pytest.mark.requirement("K2", "K5", "K10")
@pytest.mark.parametrize("kind", ["folder", "repository"])
def test_everything_comes_back_after_total_destruction(
    kind: str, tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, EVERYTHING)
    if kind == "repository":
        git(tree, "init", "-q")
    before = read_back(tree)
    ws = open_workspace(tree)
    with unmoved(tree):
        taken = ws.snapshot("all")
        assert taken.capture.not_covered == ()
        destroy(tree)
        result = ws.restore(taken.id)
        assert not result.failed
        same(read_back(tree), before)
        ws.undo()
        same(read_back(tree), {})
        ws.redo()
        same(read_back(tree), before)


@pytest.mark.requirement("K10", "K12")
def test_everything_comes_back_after_every_file_was_overwritten(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, EVERYTHING)
    before = read_back(tree)
    ws = open_workspace(tree)
    ws.snapshot()
    for path, entry in before.items():
        full = os.path.join(os.fsencode(tree), path)
        if isinstance(entry, File):
            Path(os.fsdecode(full)).write_bytes(b"overwritten")
            os.chmod(full, 0o751)
        elif isinstance(entry, Link):
            os.unlink(full)
            os.symlink(b"elsewhere", full)
        else:
            os.chmod(full, 0o751)
    changed = read_back(tree)
    result = ws.restore("@1")
    assert {outcome.status for outcome in result.outcomes} == {Status.RESTORED}
    assert {outcome.raw for outcome in result.outcomes} == before.keys()
    same(read_back(tree), before)
    ws.undo()
    same(read_back(tree), changed)


@pytest.mark.slow
@pytest.mark.requirement("K10")
def test_content_larger_than_what_is_read_at_once_comes_back(tree: Path, open_workspace: OpenWorkspace) -> None:
    large = os.urandom(1 << 20) * 9
    sparse = b"\0" * (9 << 20) + b"end"
    create(tree, {"large": large, "sparse": File(sparse, 0o600), "zeros": b"\0" * (3 << 20)})
    before = read_back(tree)
    ws = open_workspace(tree)
    ws.snapshot()
    (tree / "large").write_bytes(large[:-1] + bytes([large[-1] ^ 1]))
    (tree / "sparse").unlink()
    (tree / "zeros").write_bytes(b"\0" * (3 << 20) + b"\0")
    changed = read_back(tree)
    ws.restore("@1")
    same(read_back(tree), before)
    ws.undo()
    same(read_back(tree), changed)


@pytest.mark.parametrize("bit", [0o4000, 0o2000, 0o1000, 0o7000])
@pytest.mark.requirement("K10", "D11")
def test_special_bits_are_disclosed_and_do_not_come_back(
    bit: int, tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"tool": File(b"x", 0o755), "plain": "p"})
    os.chmod(tree / "tool", bit | 0o755)
    ws = open_workspace(tree)
    taken = ws.snapshot()
    assert [item.path for item in taken.capture.privileged] == ["tool"]
    destroy(tree)
    ws.restore(taken.id)
    same(read_back(tree), {"tool": File(b"x", 0o755), "plain": "p"})


def test_a_file_that_loses_its_special_bits_is_not_disclosed_any_more(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"tool": File(b"x", 0o755)})
    os.chmod(tree / "tool", 0o4755)
    ws = open_workspace(tree)
    assert ws.snapshot().capture.privileged
    os.chmod(tree / "tool", 0o755)
    assert not ws.snapshot().capture.privileged


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o664, 0o700, 0o755, 0o777, 0o000])
@pytest.mark.requirement("K10")
def test_a_change_of_the_mode_alone_is_noticed_and_taken_back(
    mode: int, tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"file": "same\n", "dir/empty": Dir()})
    ws = open_workspace(tree)
    first = ws.snapshot()
    os.chmod(tree / "file", mode)
    os.chmod(tree / "dir", mode | 0o100)
    os.chmod(tree / "dir" / "empty", mode)
    changed = read_back(tree)
    second = ws.snapshot()
    ws.restore(first.id)
    same(read_back(tree), {"file": "same\n", "dir/empty": Dir()})
    ws.restore(second.id)
    same(read_back(tree), changed)
    ws.undo()
    same(read_back(tree), {"file": "same\n", "dir/empty": Dir()})


@pytest.mark.requirement("K10")
def test_edits_of_the_same_size_within_one_tick_are_noticed(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"file": "0000"})
    ws = open_workspace(tree)
    ids = []
    for number in range(8):
        (tree / "file").write_text(f"{number:04d}")
        os.utime(tree / "file", ns=(10**18, 10**18))
        ids.append(ws.snapshot().id)
    for number, snapshot in enumerate(ids):
        ws.restore(snapshot)
        assert (tree / "file").read_text() == f"{number:04d}"


@pytest.mark.requirement("K10")
def test_a_file_replaced_by_another_of_the_same_size_and_time_is_noticed(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"file": "old", "new": "new"})
    for name in ("file", "new"):
        os.utime(tree / name, ns=(10**18, 10**18))
    ws = open_workspace(tree)
    first = ws.snapshot()
    os.rename(tree / "new", tree / "file")
    assert ws.restore(first.id).applied == 2
    same(read_back(tree), {"file": "old", "new": "new"})


def test_files_that_need_nothing_keep_their_times(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"same": "s", "changed": "c", "dir/same": "s"})
    for name in ("same", "dir/same", "dir"):
        os.utime(tree / name, ns=(10**18, 10**18))
    ws = open_workspace(tree)
    ws.snapshot()
    (tree / "changed").write_text("d")
    ws.restore("@1")
    assert {(tree / name).stat().st_mtime_ns for name in ("same", "dir/same", "dir")} == {10**18}


def test_restoring_what_is_there_already_does_nothing(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, EVERYTHING)
    ws = open_workspace(tree)
    ws.snapshot()
    result = ws.restore("@1")
    assert result.entry is None and result.outcomes == ()
    assert len(ws.list()) == 1


def test_a_hard_linked_file_is_restored_without_writing_through_to_its_twin(
    tree: Path, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"one": "before"})
    ws = open_workspace(tree)
    ws.snapshot()
    (tree / "one").write_text("after")
    os.link(tree / "one", tmp_path / "twin")
    ws.restore("@1")
    assert (tree / "one").read_text() == "before"
    assert (tmp_path / "twin").read_text() == "after"


def test_an_empty_workspace_is_captured_and_restored(tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = open_workspace(tree)
    empty = ws.snapshot()
    assert (empty.capture.files, empty.capture.bytes) == (0, 0)
    create(tree, {"a/b": "x"})
    ws.snapshot()
    ws.restore(empty.id)
    same(read_back(tree), {})
    ws.undo()
    same(read_back(tree), {"a/b": "x"})


@pytest.mark.slow
@pytest.mark.requirement("K10")
def test_many_files_come_back(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {f"d{n % 37}/e{n % 5}/f{n}": f"{n}\n" for n in range(2000)})
    before = read_back(tree)
    ws = open_workspace(tree)
    ws.snapshot()
    destroy(tree)
    ws.restore("@1")
    same(read_back(tree), before)
    ws.undo()
    same(read_back(tree), {})


SHAPES: dict[str, dict[str, Entry]] = {
    "absent": {},
    "file": {"x": "file\n"},
    "private file": {"x": File(b"file\n", 0o600)},
    "other file": {"x": "other\n"},
    "link": {"x": Link("target")},
    "link to a directory": {"x": Link("keep")},
    "empty directory": {"x": Dir()},
    "private empty directory": {"x": Dir(0o700)},
    "directory": {"x/a": "a\n", "x/b": Link("a")},
    "deep directory": {"x/a/b/c": "c\n", "x/a/empty": Dir(0o711)},
    "directory of empty directories": {"x/a": Dir(), "x/b": Dir(0o500)},
    "read-only directory": {"x": Dir(0o555), "x/a": "read-only\n"},
}


@pytest.mark.slow
@pytest.mark.requirement("K10", "K11", "K12")
@pytest.mark.parametrize("after", SHAPES)
def test_every_swap_of_kinds_is_taken_back_undone_and_redone(
    after: str, tree: Path, open_workspace: OpenWorkspace
) -> None:
    shapes = list(SHAPES.values())
    befores = {f"{at}/{name}": entry for at, shape in enumerate(shapes) for name, entry in shape.items()}
    afters = {f"{at}/{name}": entry for at in range(len(shapes)) for name, entry in SHAPES[after].items()}
    parents: dict[str, Entry] = {str(at): Dir() for at in range(len(shapes))} | {"keep/file": "k"}
    ws = open_workspace(tree)
    create(tree, parents | befores)
    first, before = ws.snapshot(), read_back(tree)
    destroy(tree)
    create(tree, parents | afters)
    second, later = ws.snapshot(), read_back(tree)

    for asked, expected in ((first.id, before), (second.id, later), (first.id, before)):
        assert not ws.restore(asked).failed
        same(read_back(tree), expected)
    for step, expected in ((ws.undo, later), (ws.undo, before), (ws.redo, later), (ws.redo, before)):
        assert not step().failed
        same(read_back(tree), expected)


SWAPS = list(itertools.permutations(["file", "link", "directory", "deep directory"], 2))


@pytest.mark.parametrize(("before", "after"), SWAPS)
def test_a_swap_that_was_never_captured_is_taken_back_undone_and_redone(
    before: str, after: str, tree: Path, open_workspace: OpenWorkspace
) -> None:
    ws = open_workspace(tree)
    create(tree, SHAPES[before])
    ws.snapshot()
    destroy(tree)
    create(tree, SHAPES[after])
    later = read_back(tree)
    assert not ws.restore("@1", exact=True).failed
    same(read_back(tree), SHAPES[before])
    assert not ws.undo().failed
    same(read_back(tree), later)
    assert not ws.redo().failed
    same(read_back(tree), SHAPES[before])


def hostile_home(home: Path) -> None:
    """A user who has told git to change content in every way it knows."""
    (home / "attributes").write_text(
        "* text=auto eol=crlf ident filter=shout\n"
        "*.lfs filter=lfs diff=lfs merge=lfs -text\n"
        "utf-16 working-tree-encoding=UTF-16LE-BOM text\n"
    )
    (home / ".gitconfig").write_text(
        "[core]\n\tautocrlf = true\n\tsafecrlf = true\n\teol = crlf\n\tfileMode = false\n\tsymlinks = false\n"
        "\tignoreCase = true\n\tprecomposeUnicode = true\n\tprotectNTFS = true\n\tprotectHFS = true\n"
        f"\tattributesFile = {home}/attributes\n\tcheckStat = minimal\n\ttrustctime = false\n"
        "\tsparseCheckout = true\n\tquotePath = true\n\tbigFileThreshold = 1\n\tcompression = 0\n"
        '[filter "shout"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired = true\n'
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n'
        "\tprocess = git-lfs filter-process\n\trequired = true\n"
        "[diff]\n\tnoprefix = true\n\tmnemonicPrefix = true\n\trenames = copies\n\texternal = false\n"
        "[color]\n\tui = always\n[status]\n\tshowUntrackedFiles = no\n[index]\n\tversion = 4\n"
        "[feature]\n\tmanyFiles = true\n[submodule]\n\trecurse = true\n[safe]\n\tdirectory =\n"
    )


IN_TREE: dict[str, Entry] = {
    ".gitattributes": "* text=auto eol=crlf ident filter=shout\n*.lfs filter=lfs\n"
    "utf-16 working-tree-encoding=UTF-16\n",
    "deep/.gitattributes": "[attr]odd -diff -merge text ident\n* odd export-ignore export-subst\n",
    "deep/crlf": b"a\r\nb\r\n",
    "deep/lf": b"a\nb\n",
    "deep/ident": b"$Id$\n",
    "data.lfs": os.urandom(200),
}


@pytest.mark.requirement("K5", "K6", "K10")
@pytest.mark.parametrize("kind", ["folder", "repository"])
def test_no_git_setting_changes_content(kind: str, tree: Path, home: Path, open_workspace: OpenWorkspace) -> None:
    if kind == "repository":
        make_repository(tree, {"committed": b"1\r\n"})
        (tree / ".git" / "config").write_bytes(
            (tree / ".git" / "config").read_bytes() + b"[core]\n\tautocrlf = true\n\tfileMode = false\n"
        )
        (tree / ".git" / "info").mkdir(exist_ok=True)
        (tree / ".git" / "info" / "attributes").write_text("* text eol=crlf ident filter=shout\n")
    hostile_home(home)
    create(tree, CONTENTS | MODES | LINKS | DIRECTORIES | IN_TREE)
    before = read_back(tree)
    ws = open_workspace(tree)
    with unmoved(tree):
        taken = ws.snapshot()
        assert taken.capture.not_covered == ()
        destroy(tree)
        ws.restore(taken.id)
        same(read_back(tree), before)
        for path in ("crlf", "deep/ident", "deep/lf"):
            (tree / path).write_bytes(b"changed\r\n$Id: x $\n")
        assert b"+changed" not in ws.diff(taken.id).patch
        assert b"-changed\r\n" in ws.diff(taken.id).patch
        ws.restore(taken.id)
        same(read_back(tree), before)


@pytest.mark.requirement("K10")
def test_attributes_files_themselves_are_ordinary_content(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(
        tree, {".gitattributes": b"* text\r\n", "a.txt": b"1\r\n", ".gitmodules": "[submodule]\n", ".mailmap": "x"}
    )
    before: Tree = read_back(tree)
    ws = open_workspace(tree)
    ws.snapshot()
    destroy(tree)
    ws.restore("@1")
    same(read_back(tree), before)
