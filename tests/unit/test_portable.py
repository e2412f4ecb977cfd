"""Planning from a run's documents alone: what becomes of each path, and that no document can do harm."""

from __future__ import annotations

import base64
import builtins
import os
import random
import socket
import subprocess
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from putback import paths
from putback.records import document
from putback.records.capture import NotCovered, Reason
from putback.records.change import Kind, Node, State
from putback.records.document import AtPath
from putback.records.ledger import Changed
from putback.records.manifest import Listed, ListedDirectory, Manifest
from putback.records.plan import Action, Plan
from putback.records.run import Discipline
from putback.runs.portable import Agreed, Disagreement, plan_restore, root_of
from support.runs import Run, changed, directory, file, link, manifest_of, node

OLD, NEW, OTHER = file(b"old"), file(b"new"), file(b"other")
RUNNABLE = file(b"old", 0o755)
LINK = link(b"target")
D, CLOSED = directory(), directory(0o500)


def brief(plan: Plan) -> dict[str, str]:
    words = {step.path: str(step.action) for step in plan.steps}
    return words | {item.path: item.code for item in plan.refused}


def plan(before: dict[str, State], *changes: Changed, **fields: Any) -> Plan:
    held = {path.encode(): state for path, state in before.items()}
    return plan_restore(manifest_of(held, tree="0" * 64, **fields), changes)


@dataclass(frozen=True)
class Row:
    """One changed path `p`, which the manifest holds as `before` unless `listed` says otherwise."""

    name: str
    before: State | None
    after: State | None
    becomes: str
    listed: dict[str, State] | None = None
    reason: str = ""


ROWS = [
    Row("content", OLD, NEW, "restore"),
    Row("mode", OLD, RUNNABLE, "restore"),
    Row("no permission at all", file(b"old", 0), NEW, "restore"),
    Row("link for a file", OLD, LINK, "restore"),
    Row("file for a link", LINK, OLD, "restore"),
    Row("directory for a file", OLD, D, "restore"),
    Row("file for a directory", D, OLD, "restore"),
    Row("mode of a directory", D, CLOSED, "restore"),
    Row("deleted file", OLD, None, "recreate"),
    Row("deleted link", LINK, None, "recreate"),
    Row("deleted directory", D, None, "recreate"),
    Row("created file", None, NEW, "remove", {}),
    Row("created link", None, LINK, "remove", {}),
    Row("created directory", None, D, "remove", {}),
    # What the manifest says.
    Row("not listed", OLD, NEW, "not_covered", {}, "not in the manifest"),
    Row("listed with another content", OLD, NEW, "contradiction", {"p": OTHER}, OTHER.digest),
    Row("listed with another mode", OLD, NEW, "contradiction", {"p": RUNNABLE}, "file 0755"),
    Row("listed with another kind", OLD, NEW, "contradiction", {"p": D}, "directory 0755"),
    Row("listed with another size", OLD, NEW, "contradiction", {"p": msgspec.structs.replace(OLD, size=9)}),
    Row("created, and listed", None, NEW, "contradiction", {"p": OLD}, "the manifest lists it"),
    # What cannot be.
    Row("neither before nor after", None, None, "malformed", {}, "nothing changed"),
    Row("no difference", OLD, OLD, "malformed", None, "nothing changed"),
]
for digest in ("", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "../" + "a" * 61, "a" * 64 + "\n", "\u0661" * 64):
    bad = State(kind=Kind.FILE, mode=0o644, digest=digest)
    ROWS += [
        Row(f"digest {digest!r} before", bad, NEW, "malformed", None, "digest"),
        Row(f"digest {digest!r} after", OLD, bad, "malformed", None, "digest"),
        Row(f"digest {digest!r} created", None, bad, "malformed", {}, "digest"),
    ]
for words, wrong in {
    "directory with a digest": State(kind=Kind.DIRECTORY, mode=0o755, digest="a" * 64),
    "directory with a size": State(kind=Kind.DIRECTORY, mode=0o755, size=1),
    "negative mode": State(kind=Kind.FILE, mode=-1, digest="a" * 64),
    "negative size": State(kind=Kind.FILE, mode=0o644, size=-1, digest="a" * 64),
    "link with a mode": State(kind=Kind.SYMLINK, mode=0o644, digest="a" * 64),
}.items():
    ROWS += [Row(f"{words} before", wrong, NEW, "malformed"), Row(f"{words} after", OLD, wrong, "malformed")]


@pytest.mark.requirement("D7")
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.name}-{row.becomes}" for row in ROWS])
def test_one_path(row: Row) -> None:
    listed = row.listed if row.listed is not None else {"p": row.before} if row.before else {}
    made = plan(listed, changed("p", row.before, row.after), changed("q", None, NEW))
    assert brief(made) == {"p": row.becomes, "q": "remove"}, "the other path goes on"
    for step in made.steps[:-1]:
        assert (step.now, step.goal) == (node(row.after), node(row.before))
    assert all(row.reason in item.reason and item.reason for item in made.refused)


@pytest.mark.requirement("D7")
def test_a_run_with_one_of_everything(tmp_path: Any) -> None:
    files = Run().build(tmp_path)
    documents = files.load()
    assert documents.manifest and documents.ledger
    made = plan_restore(documents.manifest, documents.ledger.changes)
    assert [(step.raw, step.action) for step in made.steps] == [
        (b"caf\xe9", Action.RESTORE),
        (b"dir", Action.RESTORE),
        (b"dir/gone", Action.RECREATE),
        (b"link", Action.RESTORE),
        (b"new", Action.REMOVE),
        (b"run.sh", Action.RESTORE),
    ]
    assert not made.refused
    assert document.decode(document.encode(made), Plan, "plan") == made


@pytest.mark.requirement("D8")
def test_a_plan_needs_neither_disk_nor_store_nor_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    documents = Run().build(tmp_path).load()

    def no(*args: object, **kwargs: object) -> None:
        raise AssertionError("a plan looked at the machine")

    for module, names in {
        os: ("open", "stat", "lstat", "scandir", "listdir", "readlink", "getcwd", "access"),
        builtins: ("open",),
        subprocess: ("Popen", "run"),
        socket: ("socket",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, no)
    assert documents.manifest and documents.ledger
    made = plan_restore(documents.manifest, documents.ledger.changes)
    printed = document.encode(made)
    monkeypatch.undo()
    assert len(made.steps) == 6 and len(made.digest) == 64 and b'"action":"recreate"' in printed


def test_without_contents_no_path_is_put_back() -> None:
    """Nor is anything removed: what a run moved would be lost from the tree."""
    changes = [changed("moved", OLD, None), changed("to", None, OLD), changed("d", D, CLOSED)]
    made = plan({"moved": OLD, "d": D}, *changes, discipline=Discipline.DIGESTS)
    assert brief(made) == dict.fromkeys(("moved", "to", "d"), "not_covered")
    assert {item.reason for item in made.refused} == {"the run kept digests only, no contents"}


def test_what_the_manifest_does_not_cover_is_named_with_its_reason() -> None:
    uncovered = (
        NotCovered.at(b"big", reason=Reason.TOO_LARGE, size=1),
        NotCovered.at(b"mnt", reason=Reason.MOUNT_POINT),
    )
    changes = [
        changed("big", OLD, NEW),
        changed("mnt", None, D),
        changed("mnt/x", None, NEW),
        changed("ok", OLD, NEW),
    ]
    made = plan({"ok": OLD}, *changes, not_covered=uncovered)
    assert brief(made) == {"ok": "restore", "big": "not_covered", "mnt": "not_covered", "mnt/x": "not_covered"}
    assert [item.reason.rpartition(": ")[2] for item in made.refused] == [
        "too_large",
        "mount_point",
        "mount_point",
    ]


HOSTILE = [
    *[("/etc/passwd", ""), ("../up", ""), ("a/../../b", ""), ("..", ""), (".", ""), ("./a", ""), ("a/.", "")],
    *[("", ""), ("a//b", ""), ("a/", ""), (".git", ""), (".git/hooks/post-checkout", ""), ("sub/.GIT/config", "")],
    *[("nul\0byte", ""), ("x" * 256, ""), ("/".join(["abcdefgh"] * 500), ""), ("lone\ud800", "")],
    *[("a", "not base64!"), ("a", "YQ"), ("a", "YQ=="), ("a", "Yg=="), ("a", "/w="), ("a", "YR=="), ("a", "/w==")],
    ("safe", base64.b64encode(b"../\xff").decode()),
    ("..\\/\\xff", base64.b64encode(b"../\xff").decode()),
    ("../\\xff", base64.b64encode(b"../\xff").decode()),
    ("shown\\xff", base64.b64encode(b"meant\xff").decode()),
]


@pytest.mark.requirement("D9")
@pytest.mark.parametrize(("path", "b64"), HOSTILE, ids=[repr(each)[:40] for each in HOSTILE])
@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (OLD, None), (None, NEW)])
def test_a_hostile_path_is_refused_and_the_others_go_on(
    path: str, b64: str, before: State | None, after: State | None
) -> None:
    """Also where the manifest agrees with it."""
    manifest = manifest_of({b"good": OLD})
    if before is not None:
        entry = Listed(path=path, path_b64=b64, kind=before.kind, mode=before.mode, digest=before.digest, size=3)
        manifest = msgspec.structs.replace(manifest, files=(entry, *manifest.files))
    hostile = Changed(path=path, path_b64=b64, before=before, after=after)
    made = plan_restore(manifest, [hostile, changed("good", OLD, NEW)])
    assert [(step.path, step.action) for step in made.steps] == [("good", Action.RESTORE)]
    (refused,) = made.refused
    assert refused.code == "unsafe_path" and refused.reason and refused.reason.isprintable()
    assert refused.raw is not None and document.encode(made)


@pytest.mark.requirement("D11")
@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o7777, 0o100644, 1 << 40])
def test_modes_are_masked_and_that_is_said(mode: int) -> None:
    high = State(kind=Kind.FILE, mode=mode, size=3, digest=OLD.digest)
    made = plan({"p": high}, changed("p", high, NEW), changed("q", None, high))
    put, removed = made.steps
    assert put.goal == Node(Kind.FILE, mode & 0o777, OLD.digest) and removed.now == put.goal
    assert put.note == removed.note == "the documents have more than permission bits"
    assert plan({"p": OLD}, changed("p", OLD, NEW)).steps[0].note == ""


def test_a_path_twice_is_refused_both_times() -> None:
    plain = [changed("p", OLD, NEW), changed("q", None, NEW), changed("p", OLD, None)]
    made = plan({"p": OLD}, *plain)
    assert [(item.path, item.code) for item in made.refused] == [("p", "duplicate")] * 2
    assert [step.path for step in made.steps] == ["q"]


def test_a_path_that_the_manifest_lists_twice_is_refused() -> None:
    manifest = manifest_of({b"p": OLD})
    twice = msgspec.structs.replace(manifest, files=manifest.files * 2)
    both = msgspec.structs.replace(manifest, directories=(ListedDirectory.at(b"p", mode=0o755),))
    for each in (twice, both):
        assert brief(plan_restore(each, [changed("p", OLD, NEW)])) == {"p": "contradiction"}


def test_a_directory_among_the_files_of_a_manifest_says_nothing() -> None:
    manifest = manifest_of({})
    entry = Listed.at(b"p", kind=Kind.DIRECTORY, mode=0o755, digest="")
    made = plan_restore(msgspec.structs.replace(manifest, files=(entry,)), [changed("p", D, None)])
    assert brief(made) == {"p": "not_covered"}


BLOCKED: list[tuple[str, dict[str, State], list[Changed], dict[str, str]]] = [
    ("link in the manifest", {"l": LINK}, [changed("l/x", None, NEW)], {"l/x": "blocked"}),
    ("file in the manifest", {"l": OLD}, [changed("l/x", None, NEW)], {"l/x": "blocked"}),
    ("link, and a path below it", {"l": LINK, "l/x": OLD}, [changed("l/x", OLD, NEW)], {"l/x": "blocked"}),
    ("far below a link", {"l": LINK}, [changed("l/a/b/c", None, NEW)], {"l/a/b/c": "blocked"}),
    (
        "link that the run made",
        {},
        [changed("l", None, LINK), changed("l/x", None, NEW)],
        {"l": "remove", "l/x": "blocked"},
    ),
    (
        "becomes a link again",
        {"l": LINK},
        [changed("l", LINK, D), changed("l/x", None, NEW)],
        {"l": "restore", "l/x": "remove"},
    ),
    (
        "becomes a link again, and something in it",
        {"l": LINK, "l/x": OLD},
        [changed("l", LINK, D), changed("l/x", OLD, NEW)],
        {"l": "restore", "l/x": "blocked"},
    ),
    (
        "directory that the run made a link",
        {"d": D, "d/x": OLD},
        [changed("d", D, LINK), changed("d/x", OLD, None)],
        {"d": "restore", "d/x": "recreate"},
    ),
    (
        "the same, and something is said to be in it",
        {"d": D, "d/x": OLD},
        [changed("d", D, LINK), changed("d/x", OLD, NEW)],
        {"d": "restore", "d/x": "blocked"},
    ),
    (
        "the link above is refused",
        {"d": CLOSED, "d/x": OLD},
        [changed("d", D, LINK), changed("d/x", OLD, None)],
        {"d": "contradiction", "d/x": "blocked"},
    ),
    (
        "the directory above is refused",
        {"d": CLOSED, "d/e": D, "d/e/x": OLD},
        [changed("d", D, None), changed("d/e", D, None), changed("d/e/x", OLD, None)],
        {"d": "contradiction", "d/e": "blocked", "d/e/x": "blocked"},
    ),
    (
        "only the mode of the directory above is refused",
        {"d": directory(0o700), "d/x": OLD},
        [changed("d", D, CLOSED), changed("d/x", OLD, None)],
        {"d": "contradiction", "d/x": "recreate"},
    ),
    (
        "the directory above is removed",
        {"d/x": OLD},
        [changed("d", None, D), changed("d/x", OLD, None)],
        {"d": "remove", "d/x": "blocked"},
    ),
    (
        "a link said twice",
        {"d": D},
        [changed("d", D, LINK), changed("d", D, None), changed("d/x", None, NEW)],
        {"d": "duplicate", "d/x": "blocked"},
    ),
    (
        "a name that only begins the same",
        {"l": LINK},
        [changed("l.x", None, NEW), changed("lx/y", None, NEW)],
        {"l.x": "remove", "lx/y": "remove"},
    ),
]


@pytest.mark.requirement("D9")
@pytest.mark.parametrize(("name", "listed", "changes", "becomes"), BLOCKED, ids=[name for name, *_ in BLOCKED])
def test_nothing_below_what_is_no_directory(
    name: str, listed: dict[str, State], changes: list[Changed], becomes: dict[str, str]
) -> None:
    assert brief(plan(listed, *changes)) == becomes
    assert brief(plan(listed, *reversed(changes))) == becomes


@pytest.mark.requirement("D10")
def test_a_step_names_content_by_digest_and_nothing_else() -> None:
    (step,) = plan({"p": OLD}, changed("p", OLD, NEW)).steps
    assert set(msgspec.structs.asdict(step)) == {"path", "path_b64", "action", "now", "goal", "note"}
    assert set(msgspec.structs.asdict(step.goal)) == {"kind", "mode", "digest"}


def test_steps_are_in_path_order_whatever_the_order_of_the_changes() -> None:
    names = [b"a", b"a-b", b"a/b", b"a0", b"\xc3\xa9", b"\xff"]
    changes = [changed(name, None, D if name == b"a" else NEW) for name in names]
    for _ in range(5):
        random.Random(7).shuffle(changes)
        assert [step.raw for step in plan_restore(manifest_of({}), changes).steps] == names


# The root.


@pytest.mark.requirement("D12")
def test_the_root_is_what_all_three_say(tmp_path: Any) -> None:
    found = Run().build(tmp_path).load()
    assert root_of(found.receipt, found.ledger, found.manifest) == Agreed(
        b"/home/u/project", "/home/u/project/dir"
    )


@pytest.mark.requirement("D12")
@pytest.mark.parametrize("which", ["receipt", "ledger", "manifest"])
@pytest.mark.parametrize(
    "root", ["/", "/home/v", "/home/u/project/", "/home/u/../u/project", "project", "", "/a\0b", "//home"]
)
def test_roots_that_differ_are_all_told_and_none_is_chosen(tmp_path: Any, which: str, root: str) -> None:
    found = Run().build(tmp_path).load()
    replace = msgspec.structs.replace
    assert found.receipt and found.ledger and found.ledger.started and found.manifest
    if which == "receipt":
        session = replace(found.receipt.session, root=AtPath(path=root))
        found = msgspec.structs.replace(found, receipt=replace(found.receipt, session=session))
    elif which == "ledger":
        found.ledger.started = replace(found.ledger.started, path=root)
    else:
        found = msgspec.structs.replace(found, manifest=replace(found.manifest, root=AtPath(path=root)))
    answer = root_of(found.receipt, found.ledger, found.manifest)
    assert isinstance(answer, Disagreement) and str(answer).count("'/home/u/project'") == 2
    assert [each.document for each in answer.named] == ["receipt", "ledger", "manifest"]
    usable = root in ("/", "/home/v")
    assert ("names no directory" in str(answer)) is not usable and (f"names '{root}'" in str(answer)) is usable


@pytest.mark.requirement("D12")
def test_the_directory_that_the_command_started_in_counts_too(tmp_path: Any) -> None:
    found = Run().build(tmp_path).load()
    assert found.ledger and found.ledger.started
    found.ledger.started = msgspec.structs.replace(found.ledger.started, cwd="/else\x1b")
    answer = root_of(found.receipt, found.ledger, found.manifest)
    assert isinstance(answer, Disagreement)
    assert "started in '/else\\x1b'" in str(answer) and "started in '/home/u/project/dir'" in str(answer)


@pytest.mark.requirement("D12")
@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_document_that_is_absent_agrees_with_nothing(tmp_path: Any, absent: int) -> None:
    found = Run().build(tmp_path).load()
    given: list[Any] = [found.receipt, found.ledger, found.manifest]
    given[absent] = None
    assert isinstance(root_of(*given), Disagreement)


def test_a_relative_root_is_none_even_where_all_agree(tmp_path: Any) -> None:
    found = Run().build(tmp_path).load()
    replace = msgspec.structs.replace
    assert found.receipt and found.ledger and found.ledger.started and found.manifest
    found.ledger.started = replace(found.ledger.started, path="..")
    receipt = replace(found.receipt, session=replace(found.receipt.session, root=AtPath(path="..")))
    answer = root_of(receipt, found.ledger, replace(found.manifest, root=AtPath(path="..")))
    assert isinstance(answer, Disagreement)


# Mutated documents.

NAMES = [
    "a",
    "a/b",
    "a/b/c",
    "d",
    "l",
    "l/x",
    "caf\\xe9",
    "é",
    *[path for path, _ in HOSTILE if "\ud800" not in path],
]
name = st.sampled_from(NAMES) | st.text(max_size=8)
b64 = (
    st.just("")
    | st.sampled_from(["Y2Fm6Q==", "/w==", "Li4vLi4v/w==", "YQ==", "!!"])
    | st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode())
)
digest = (
    st.sampled_from([OLD.digest, NEW.digest])
    | st.sampled_from(["", "A" * 64, "a" * 63, "../x"])
    | st.text(max_size=64)
)
mode = st.sampled_from([0o644, 0o755, 0o777, 0o4755, 0o7777]) | st.integers()
state = st.builds(
    State, kind=st.sampled_from(Kind), mode=mode, size=st.integers(0, 5) | st.integers(), digest=digest
) | st.sampled_from([OLD, NEW, LINK, D])
change = st.builds(Changed, path=name, path_b64=b64, before=st.none() | state, after=st.none() | state)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Manifest, list[Changed]]:
    """A manifest and changes that mostly fit it: what `before` says is listed more often than not."""
    changes = draw(st.lists(change, max_size=8))
    files, directories = [], []
    for each in changes:
        if each.before is None or draw(st.integers(0, 4)) == 0:
            continue
        if each.before.kind is Kind.DIRECTORY:
            directories.append(ListedDirectory(path=each.path, path_b64=each.path_b64, mode=each.before.mode))
        else:
            fields = msgspec.structs.asdict(each.before)
            files.append(Listed(path=each.path, path_b64=each.path_b64, **fields))
    lost = draw(
        st.lists(st.builds(NotCovered, path=name, path_b64=b64, reason=st.sampled_from(Reason)), max_size=2)
    )
    manifest = manifest_of({}, files=tuple(files), directories=tuple(directories), not_covered=tuple(lost))
    return manifest, changes


def check_harmless(manifest: Manifest, changes: list[Changed]) -> Plan:
    """What must hold of every plan, whatever the documents say."""
    made = plan_restore(manifest, changes)
    assert len(made.steps) + len(made.refused) == len(changes), "one action per changed path"
    assert not made.left and not made.settled
    seen: dict[bytes, Node | None] = {}
    for step in made.steps:
        assert paths.fault(step.raw) is None and step.raw == step.name
        assert step.raw not in seen, "one step per path"
        for each in (step.now, step.goal):
            assert each is None or 0 <= each.mode <= 0o777
            assert each is None or bool(each.digest) is not (each.kind is Kind.DIRECTORY)
            assert each is None or not each.digest or (len(each.digest) == 64 and bytes.fromhex(each.digest))
        for above in paths.parents(step.raw):
            goal = seen.get(above, Node(Kind.DIRECTORY, 0))
            assert step.goal is None or (goal is not None and goal.kind is Kind.DIRECTORY), "below what is a file"
        seen[step.raw] = step.goal
    assert list(seen) == sorted(seen)
    for item in made.refused:
        assert item.reason and item.raw is not None
    return made


@pytest.mark.requirement("D19")
@settings(max_examples=300)
@given(stories())
def test_no_document_makes_a_harmful_plan(story: tuple[Manifest, list[Changed]]) -> None:
    made = check_harmless(*story)
    assert document.decode(document.encode(made), Plan, "plan") == made


@pytest.mark.requirement("D19")
def test_mutations_of_a_run_never_make_a_harmful_plan(tmp_path: Any) -> None:
    """One or two fields of a good run's documents replaced by every hostile value, some thousands of times."""
    documents = Run().build(tmp_path).load()
    assert documents.manifest and documents.ledger
    values: dict[str, list[Any]] = {
        "path": [path for path, _ in HOSTILE],
        "path_b64": [code for _, code in HOSTILE if code],
        "mode": [0o4755, 0o7777, -1, 1 << 70],
        "digest": ["", "x", "A" * 64, "0" * 64],
        "kind": list(Kind),
        "size": [-1, 1 << 70],
    }
    chance = random.Random(20240607)
    planned = 0
    for _ in range(4000):
        changes, files = list(documents.ledger.changes), list(documents.manifest.files)
        for _ in range(chance.randint(1, 2)):
            among: list[Any] = chance.choice([changes, files])
            place = chance.randrange(len(among))
            among[place] = mutated(among[place], values, chance)
        manifest = msgspec.structs.replace(documents.manifest, files=tuple(files))
        planned += len(check_harmless(manifest, changes).steps)
    assert 4 * 4000 < planned < 6 * 4000, "mutations leave most paths planned, and refuse some"


def mutated(record: Any, values: dict[str, list[Any]], chance: random.Random) -> Any:
    """The record with one field, also of a state in it, replaced."""
    fields = msgspec.structs.asdict(record)
    key = chance.choice(sorted(key for key in fields if key in values or isinstance(fields[key], State)))
    inner = fields[key]
    return msgspec.structs.replace(
        record,
        **{key: mutated(inner, values, chance) if isinstance(inner, State) else chance.choice(values[key])},
    )
