"""Three-way merges: all combinations of nodes as a table, texts byte for byte, random edits against a model."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from crash.killing import scratch_files
from putback import seams
from putback.errors import IntegrityError, OverBudget, UsageError
from putback.git.objectid import object_id
from putback.ops import merge
from putback.ops.merge import Unmergeable, three_way
from putback.ops.restore import Restored
from putback.records.change import Kind, Node
from putback.records.plan import Action, Status
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, make_repository, unmoved
from support.hermetic import settings as chosen
from support.trees import Dir, Entry, File, Link, create, destroy, normal, read_back, same

A, B, C, M = (letter * 64 for letter in "abcd")


def file(digest: str, mode: int = 0o644) -> Node:
    return Node(Kind.FILE, mode, digest)


def link(digest: str) -> Node:
    return Node(Kind.SYMLINK, 0o777, digest)


def folder(mode: int) -> Node:
    return Node(Kind.DIRECTORY, mode)


# What the span left, what was before it, what is there now, and what becomes of that.
NODES: dict[str, tuple[Node | None, Node | None, Node | None, Node | str]] = {
    "content by both": (file(B), file(A), file(C), file(M)),
    "content by the span, mode since": (file(B), file(A), file(B, 0o755), file(A, 0o755)),
    "mode by the span, content since": (file(A, 0o755), file(A), file(C, 0o755), file(C)),
    "both by the span, mode since": (file(B, 0o755), file(A), file(B, 0o600), merge.MODE),
    "both by the span, content since": (file(B, 0o755), file(A), file(C, 0o755), file(M)),
    "both by the span, both since": (file(B, 0o755), file(A), file(C, 0o600), merge.MODE),
    "content by the span, both since": (file(B), file(A), file(C, 0o600), file(M, 0o600)),
    "mode by the span, both since": (file(A, 0o755), file(A), file(C, 0o600), merge.MODE),
    "mode by the span, another since": (file(A, 0o755), file(A), file(A, 0o600), merge.MODE),
    "content back already, mode since": (file(B), file(A), file(A, 0o600), file(A, 0o600)),
    "mode back already, content since": (file(B, 0o755), file(A), file(C), file(M)),
    "mode back already, content left": (file(B, 0o755), file(A), file(B), file(A)),
    "deleted, made anew": (None, file(A), file(C), merge.MADE_ANEW),
    "deleted, made anew with another mode": (None, file(A), file(A, 0o755), merge.MADE_ANEW),
    "created, changed since": (file(B), None, file(C), merge.NOT_BEFORE),
    "changed, removed since": (file(B), file(A), None, merge.REMOVED),
    "changed, a link since": (file(B), file(A), link(C), merge.KIND),
    "changed, a directory since": (file(B), file(A), folder(0o755), merge.KIND),
    "became a link, a file since": (link(B), file(A), file(C), merge.KIND),
    "became a file, changed since": (file(B), link(A), file(C), merge.KIND),
    "a directory before, a file changed since": (file(B), folder(0o755), file(C), merge.KIND),
    "three links": (link(B), link(A), link(C), merge.LINK),
    "three modes of a directory": (folder(0o755), folder(0o700), folder(0o750), merge.MODE),
    "a link made anew": (None, link(A), link(C), merge.MADE_ANEW),
}


@pytest.mark.parametrize(("base", "theirs", "ours", "becomes"), NODES.values(), ids=NODES.keys())
def test_one_path(base: Node | None, theirs: Node | None, ours: Node | None, becomes: Node | str) -> None:
    asked: list[tuple[str, str, str]] = []

    def contents(*digests: str) -> str:
        asked.append(digests)  # type: ignore[arg-type]
        return M

    assert three_way(base, theirs, ours, contents) == becomes
    assert len(asked) == (isinstance(becomes, Node) and becomes.digest == M)


def test_a_reason_of_the_contents_is_the_reason_of_the_path() -> None:
    def contents(*_: str) -> str:
        raise Unmergeable("why")

    assert three_way(file(B), file(A), file(C), contents) == "why"
    assert three_way(file(B), file(A), file(B, 0o755), contents) == file(A, 0o755)


def test_of_all_combinations_only_files_are_merged_and_each_attribute_follows_the_side_that_changed_it() -> None:
    files = [file(digest, mode) for digest in (A, B, C) for mode in (0o644, 0o755, 0o600)]
    nodes: list[Node | None] = [None, link(A), link(B), folder(0o755), folder(0o700), *files]
    for base, theirs, ours in itertools.product(nodes, repeat=3):
        made = three_way(base, theirs, ours, lambda *_: M)
        if not all(node in files for node in (base, theirs, ours)):
            assert isinstance(made, str)
            continue
        assert base is not None and theirs is not None and ours is not None
        both = ours.mode not in (base.mode, theirs.mode) and base.mode != theirs.mode
        assert isinstance(made, str) == both
        if isinstance(made, Node):
            for name in ("mode", "digest"):
                old, back, now = (getattr(node, name) for node in (base, theirs, ours))
                expected = back if now == old else now if back in (old, now) else M
                assert getattr(made, name) == expected


LINES = b"".join(b"%d\n" % number for number in range(1, 13))


def edit(text: bytes, *edits: tuple[bytes, bytes]) -> bytes:
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


SPAN, SINCE = (b"\n3\n", b"\nby the span\n"), (b"\n9\n", b"\nsince\n")
CRLF = LINES.replace(b"\n", b"\r\n")
SPAN_CR, SINCE_CR = (b"\n3\r", b"\nx\r"), (b"\n9\r", b"\ny\r")
OPEN = LINES[:-1]
ODD = LINES.replace(b"5\n", b"\xff\xfe\r5\n\n\n")
LATE_NUL = b"x" * 8000 + b"\n\0\n" + LINES

# Before the span, after it, now, and what becomes of that.
TEXTS: dict[str, tuple[bytes, bytes, bytes, bytes | str]] = {
    "other lines": (LINES, edit(LINES, SPAN), edit(LINES, SPAN, SINCE), edit(LINES, SINCE)),
    "the same line": (LINES, edit(LINES, SPAN), edit(LINES, (b"\n3\n", b"\nsince\n")), merge.SAME_LINES),
    "the line beside it": (LINES, edit(LINES, SPAN), edit(LINES, SPAN, (b"\n4\n", b"\nx\n")), merge.SAME_LINES),
    "the same done since": (LINES, edit(LINES, SPAN), edit(LINES, SINCE), edit(LINES, SINCE)),
    "lines added": (LINES, LINES + b"13\n", b"0\n" + LINES + b"13\n", b"0\n" + LINES),
    "lines removed": (LINES, LINES[4:], edit(LINES[4:], SINCE), edit(LINES, SINCE)),
    "emptied since": (LINES, edit(LINES, SPAN), b"", merge.SAME_LINES),
    "was empty": (b"", b"x\n", b"x\ny\n", merge.SAME_LINES),
    "carriage returns": (CRLF, edit(CRLF, SPAN_CR), edit(CRLF, SPAN_CR, SINCE_CR), edit(CRLF, SINCE_CR)),
    "line ends changed since": (LINES, edit(LINES, SPAN), edit(LINES, SPAN).replace(b"\n", b"\r\n"),
                                merge.SAME_LINES),
    "no newline at the end": (OPEN, edit(OPEN, SPAN), edit(OPEN, SPAN, SINCE), edit(OPEN, SINCE)),
    "the span took the newline": (LINES, OPEN, edit(OPEN, SPAN), edit(LINES, SPAN)),
    "the span gave the newline": (OPEN, LINES, edit(LINES, SPAN), edit(OPEN, SPAN)),
    "the newline went since": (LINES, edit(LINES, SPAN), edit(OPEN, SPAN), OPEN),
    "the newline came since": (OPEN, edit(OPEN, SPAN), edit(LINES, SPAN), LINES),
    "appended to an open line": (OPEN, edit(OPEN, SPAN), edit(OPEN, SPAN) + b"\n13", OPEN + b"\n13"),
    "no utf-8": (ODD, edit(ODD, SPAN), edit(ODD, SPAN, SINCE), edit(ODD, SINCE)),
    "marks of conflicts in it": (b"<<<<<<< a\n=======\n>>>>>>> b\n" + LINES,
                                 b"<<<<<<< a\n=======\n>>>>>>> b\n" + edit(LINES, SPAN),
                                 b"<<<<<<< a\n=======\n>>>>>>> b\n" + edit(LINES, SPAN, SINCE),
                                 b"<<<<<<< a\n=======\n>>>>>>> b\n" + edit(LINES, SINCE)),
    "binary now": (LINES, edit(LINES, SPAN), edit(LINES, SPAN) + b"\0\n", merge.BINARY),
    "binary before": (LINES + b"\0\n", edit(LINES, SPAN), edit(LINES, SPAN, SINCE), merge.BINARY),
    "binary between": (LINES, edit(LINES, SPAN) + b"\0\n", edit(LINES, SPAN, SINCE), merge.BINARY),
    "a NUL where git does not look": (LATE_NUL, edit(LATE_NUL, SPAN), edit(LATE_NUL, SPAN, SINCE),
                                      edit(LATE_NUL, SINCE)),
    "more conflicts than a code can count": (
        b"".join(b"%d\n\n\n\n\n" % n for n in range(300)),
        b"".join(b"a%d\n\n\n\n\n" % n for n in range(300)),
        b"".join(b"b%d\n\n\n\n\n" % n for n in range(300)),
        merge.SAME_LINES,
    ),
}  # fmt: skip


@pytest.fixture
def workspace(tree: Path, open_workspace: OpenWorkspace) -> Workspace:
    return open_workspace(tree)


def three(workspace: Workspace, before: dict, after: dict, now: dict) -> None:
    """Two snapshots, and what came since."""
    for content in (before, after):
        become(workspace.root, content)
        workspace.snapshot()
    become(workspace.root, now)


def become(root: Path, content: dict[str, Entry]) -> None:
    destroy(root)
    create(root, content)


def reasons(result: Restored) -> dict[str, str]:
    """Of each path that was refused, why it was not merged."""
    refused = [outcome for outcome in result.outcomes if outcome.status is Status.REFUSED]
    return {outcome.path: outcome.reason.partition("; not merged: ")[2] for outcome in refused}


def test_texts_are_merged_byte_for_byte_or_left_as_they_are(tree: Path, workspace: Workspace) -> None:
    sides = [{name: row[side] for name, row in TEXTS.items()} for side in range(3)]
    make_repository(tree)
    # Nothing of the user's own git has a say in it.
    (tree / ".git" / "config").write_text("[merge]\nconflictStyle = diff3\n")
    three(workspace, *({**side, ".gitattributes": b"* text eol=crlf merge=union\n"} for side in sides))
    before = read_back(tree)
    with unmoved(tree):
        result = workspace.restore("@2..@1", merge=True)
    expected = {name: row[2] if isinstance(row[3], str) else row[3] for name, row in TEXTS.items()}
    found = {name: (tree / name).read_bytes() for name in TEXTS}
    assert found == expected
    assert reasons(result) == {name: row[3] for name, row in TEXTS.items() if isinstance(row[3], str)}
    settled = {outcome.path for outcome in result.outcomes if outcome.status is Status.SKIPPED}
    merged = {name for name, row in TEXTS.items() if isinstance(row[3], bytes)} - {"the same done since"}
    assert settled == {"the same done since"}
    assert {outcome.path for outcome in result.outcomes if outcome.status is Status.MERGED} == merged
    assert (result.merged, result.applied, result.failed) == (len(merged), len(merged), True)
    assert result.entry is not None and {one.path for one in result.entry.declined} == set(reasons(result))
    assert not scratch_files(workspace.paths.store.root)
    # What was made is held like anything else that a capture holds.
    held = workspace.files(result.entry.after)
    assert {held[name.encode()].digest for name in merged} == {
        object_id("blob", expected[name]).hex() for name in merged
    }
    workspace.undo()
    same(read_back(tree), before)
    workspace.redo()
    assert {name: (tree / name).read_bytes() for name in TEXTS} == expected


def test_nodes_are_merged_on_disk_as_in_the_table(tree: Path, workspace: Workspace) -> None:
    text, span, since, both = LINES, edit(LINES, SPAN), edit(LINES, SINCE), edit(LINES, SPAN, SINCE)
    three(
        workspace,
        {"mode": File(text), "content": File(text), "all": File(text, 0o600), "clash": File(text), "gone": text,
         "link": Link("a"), "dir": Dir(0o700), "odd": File(text, 0o640), "lost": text, "plain": text},
        {"mode": File(text, 0o755), "content": File(span), "all": File(span, 0o700), "clash": File(text, 0o755),
         "link": Link("b"), "dir": Dir(0o755), "odd": File(span, 0o640), "new": span, "lost": span, "plain": span},
        {"mode": File(since, 0o755), "content": File(span, 0o755), "all": File(both, 0o700),
         "clash": File(text, 0o600), "gone": since, "link": Link("c"), "dir": Dir(0o750), "odd": File(both, 0o640),
         "new": both, "plain": span},
    )  # fmt: skip
    now = read_back(tree)
    result = workspace.restore("@2..@1", merge=True)
    merged = {
        "mode": File(since),
        "content": File(text, 0o755),
        "all": File(since, 0o600),
        "odd": File(since, 0o640),
    }
    same(read_back(tree), {**now, **normal({**merged, "plain": text})})
    assert reasons(result) == {
        "clash": merge.MODE,
        "gone": merge.MADE_ANEW,
        "link": merge.LINK,
        "dir": merge.MODE,
        "new": merge.NOT_BEFORE,
        "lost": merge.REMOVED,
    }
    assert {outcome.path: outcome.status for outcome in result.outcomes if outcome.status.applied} == {
        **dict.fromkeys(merged, Status.MERGED),
        "plain": Status.RESTORED,
    }
    workspace.undo()
    same(read_back(tree), now)


def conflict_free(tree: Path, workspace: Workspace) -> None:
    three(
        workspace,
        {"a": LINES, "b": b"0\n" + LINES},
        {"a": edit(LINES, SPAN), "b": b"0\n" + edit(LINES, SPAN)},
        {"a": edit(LINES, SPAN, SINCE), "b": b"0\n" + edit(LINES, SPAN, SINCE)},
    )


def test_a_preview_says_what_would_be_merged_and_touches_nothing(tree: Path, workspace: Workspace) -> None:
    conflict_free(tree, workspace)
    before = read_back(tree)
    shown = workspace.restore("@2..@1", merge=True, dry_run=True).plan
    assert [(step.path, step.action) for step in shown.steps] == [("a", Action.MERGE), ("b", Action.MERGE)]
    reviewed: list[str] = []
    declined = workspace.restore("@2..@1", merge=True, confirm=lambda plan: bool(reviewed.append(plan.digest)))
    assert reviewed == [shown.digest] and declined.entry is None
    same(read_back(tree), before)
    assert len(workspace.list()) == 2
    # Whatever is written after the review makes it another plan.
    (tree / "b").write_bytes(edit(LINES, SPAN) + b"more\n")
    assert workspace.restore("@2..@1", merge=True, dry_run=True).plan.digest != shown.digest


def test_what_git_reads_is_nobody_elses_to_read(tree: Path, workspace: Workspace) -> None:
    conflict_free(tree, workspace)
    found: list[dict[str, int]] = []

    def observer(name: str) -> None:
        if name == "restore.merging":
            files = scratch_files(workspace.paths.store.root)
            found.append({file.name: file.stat().st_mode & 0o777 for file in files})

    seams.observe(observer)
    try:
        workspace.restore("@2..@1", merge=True)
    finally:
        seams.observe(None)
    assert found == [dict.fromkeys(["merge-base", "merge-ours", "merge-theirs"], 0o600)] * 2


def test_paths_bound_a_merge(tree: Path, workspace: Workspace) -> None:
    conflict_free(tree, workspace)
    result = workspace.restore("@2..@1", paths=[tree / "a"], merge=True)
    assert not result.failed and result.merged == 1
    assert (tree / "a").read_bytes() == edit(LINES, SINCE)
    assert (tree / "b").read_bytes() == b"0\n" + edit(LINES, SPAN, SINCE)


def test_a_run_is_merged_by_its_documents(tree: Path, workspace: Workspace) -> None:
    create(tree, {"a": LINES, "b": LINES})
    run = workspace.run(["sed", "-i", "s/^3$/by the run/", "a", "b"], snapshot=True)
    for name in ("a", "b"):
        (tree / name).write_bytes(edit((tree / name).read_bytes(), SINCE))
    folder = workspace.runs.folder(run.entry.id)
    assert workspace.restore_documents(folder, paths=[tree / "b"], merge=True).merged == 1
    assert workspace.restore(run.entry.id, paths=[tree / "a"], merge=True).merged == 1
    same(read_back(tree), normal({"a": edit(LINES, SINCE), "b": edit(LINES, SINCE)}))


def test_a_file_that_rules_leave_out_by_now_is_merged_and_held_first(tree: Path, workspace: Workspace) -> None:
    conflict_free(tree, workspace)
    (tree / ".gitignore").write_text("a\nb\n")
    before = read_back(tree)
    assert workspace.restore("@2..@1", merge=True).merged == 2
    assert (tree / "a").read_bytes() == edit(LINES, SINCE)
    workspace.undo()
    same(read_back(tree), before)


def test_what_is_too_large_is_refused_and_what_is_made_never_piles_up(
    tree: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflict_free(tree, workspace)
    monkeypatch.setattr(merge, "MOST_BYTES", len(edit(LINES, SPAN, SINCE)))
    monkeypatch.setattr(merge, "MOST_HELD", 1)
    result = workspace.restore("@2..@1", merge=True)
    assert reasons(result) == {"b": merge.TOO_LARGE} and result.merged == 1
    assert (tree / "a").read_bytes() == edit(LINES, SINCE)


def test_content_that_the_store_has_lost_is_refused_by_path(tree: Path, store: Path, workspace: Workspace) -> None:
    conflict_free(tree, workspace)
    lost = object_id("blob", edit(LINES, SPAN)).hex()
    (store / "objects.git" / "objects" / lost[:2] / lost[2:]).unlink()
    result = workspace.restore("@2..@1", merge=True)
    assert reasons(result) == {"a": f"object {lost[:12]} is missing from the store"} and result.merged == 1
    same(read_back(tree), normal({"a": edit(LINES, SPAN, SINCE), "b": b"0\n" + edit(LINES, SINCE)}))


def test_over_budget_nothing_is_stored_and_nothing_touched(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    conflict_free(tree, open_workspace(tree))
    open_workspace(tree).snapshot("so that the captures store nothing more")
    before = read_back(tree)
    with pytest.raises(OverBudget):
        open_workspace(tree, max_new_bytes=30).restore("@3..@2", merge=True)
    same(read_back(tree), before)
    made = object_id("blob", edit(LINES, SINCE)).hex()
    assert not (store / "objects.git" / "objects" / made[:2] / made[2:]).exists()


def test_what_a_merge_made_is_checked_when_it_is_put_in_place(
    tree: Path, store: Path, workspace: Workspace
) -> None:
    conflict_free(tree, workspace)
    before = read_back(tree)
    made = object_id("blob", edit(LINES, SINCE)).hex()

    def lose(_: object) -> bool:
        (store / "objects.git" / "objects" / made[:2] / made[2:]).unlink()
        return True

    with pytest.raises(IntegrityError, match="missing"):
        workspace.restore("@2..@1", merge=True, confirm=lose)
    same(read_back(tree), before)


def test_what_cannot_be_asked_for_is_said_before_anything_is_done(tree: Path, workspace: Workspace) -> None:
    conflict_free(tree, workspace)
    before = read_back(tree)
    with pytest.raises(UsageError, match="give one of the two"):
        workspace.restore("@2..@1", merge=True, force=True)
    with pytest.raises(UsageError, match="a snapshot is put back as it was"):
        workspace.restore("@2", merge=True)
    same(read_back(tree), before)


EDITS = strategies.sampled_from(["replace", "remove", "insert", "append", "twice"])
WORDS = strategies.sampled_from(["", "x", "}", "\tx", "x\r", "<<<<<<<"])
REGIONS = strategies.lists(
    strategies.tuples(strategies.lists(WORDS, max_size=3), strategies.sampled_from(["", "span", "since"]), EDITS),
    min_size=1,
    max_size=6,
)


def edited(lines: list[str], how: str) -> list[str]:
    return {
        "replace": ["edited", *lines[1:]],
        "remove": lines[1:],
        "insert": ["edited", *lines],
        "append": [*lines, "edited"],
        "twice": lines + lines,
    }[how]


def text(regions: list[tuple[list[str], str, str]], who: tuple[str, ...], newline: bool) -> bytes:
    """The file with the edits of some: regions with lines between them that nobody touches."""
    lines: list[str] = []
    for number, (own, by, how) in enumerate(regions):
        lines += [f"-- {number} {part}" for part in range(3)] + (edited(own, how) if by in who else own)
    return "\n".join([*lines, "-- end", "-- of it"]).encode() + (b"\n" if newline else b"")


@given(strategies.lists(strategies.tuples(REGIONS, strategies.booleans()), min_size=4, max_size=8))
@settings(max_examples=max(6, settings.default.max_examples // 2))
def test_edits_in_different_regions_are_told_apart(tmp_path_factory: pytest.TempPathFactory, files: list) -> None:
    tree = tmp_path_factory.mktemp("merge") / "tree"
    tree.mkdir()
    workspace = Workspace.open(tree, store=tree.with_name("store"), settings=chosen())
    before, after, now, expected = (
        {str(number): text(regions, who, newline) for number, (regions, newline) in enumerate(files)}
        for who in ((), ("span",), ("span", "since"), ("since",))
    )
    three(workspace, before, after, now)
    result = workspace.restore("@2..@1", merge=True)
    assert not result.failed
    same(read_back(tree), normal(expected))
    if result.entry is not None:
        workspace.undo()
    same(read_back(tree), normal(now))
