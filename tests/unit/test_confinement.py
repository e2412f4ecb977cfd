"""Nothing that the store says leads out of the workspace, into a `.git`, or to a bit beyond permissions.

The captures here are forged with stock git's plumbing, as somebody could who can write to the store.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crash.killing import World, undecided
from putback.errors import IntegrityError, PutbackError, StorageError, UnknownStateError, UnsafePath
from putback.fs.root import Root, store_inside
from putback.ops.recover import Choice
from putback.paths import RelPath
from putback.records import document
from putback.records.capture import Capture
from putback.records.change import Kind, Node
from putback.records.document import AtPath
from putback.records.history import Cause, Entry, EntryKind
from putback.records.journal import Published, Started
from putback.records.plan import Action, Outcomes, Plan, Step
from support.hermetic import make_repository, unmoved
from support.trees import Dir, File, Link, create, read_back, same

BASE = {"a": "1\n", "d/b": "2\n", "keep": File(b"k\n", 0o640), "never-captured": "n\n", ".putback-notes": "mine\n"}
VICTIMS = {
    "x": "victim\n",
    "victim": File(b"victim\n", 0o600),
    "dir/x": "victim\n",
    "dir/b": "victim\n",
    "runs": File(b"v\n", 0o700),
}
GONE_ID = "0123456789abcdef" * 4
REFUSED = (IntegrityError, UnsafePath)


@dataclass
class Forge:
    """A workspace that is a git repository too, victims beside it, and stock git on its store."""

    world: World

    @property
    def root(self) -> Path:
        return self.world.root

    @property
    def name(self) -> str:
        return self.world.workspace.paths.name

    def git(self, *arguments: str, given: bytes = b"") -> str:
        done = subprocess.run(
            ["git", f"--git-dir={self.world.store}/objects.git", *arguments],
            input=given,
            capture_output=True,
            check=True,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"},
        )
        return done.stdout.decode().strip()

    def blob(self, data: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", given=data)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        """A tree object of just these (mode, name, id), well formed or not."""
        data = b"".join(
            mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid)
            for mode, name, oid in sorted(entries, key=lambda e: e[1] + (b"/" if e[0] == "40000" else b""))
        )
        return self.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", given=data)

    def below(self, path: bytes, mode: str, oid: str) -> str:
        """A tree that holds one path, its components as they come, beside the file `a`."""
        *above, name = path.split(b"/")
        made = self.tree((mode, name, oid), *([] if above else [("100644", b"a", self.blob(b"1\n"))]))
        for number, component in reversed(list(enumerate(above))):
            beside = [] if number else [("100644", b"a", self.blob(b"1\n"))]
            made = self.tree(("40000", component, made), *beside)
        return made

    def record(self, **fields: object) -> bytes:
        chosen = {"workspace": self.name, "root": str(self.root), "created_ns": time.time_ns(), **fields}
        return document.encode(Capture(**chosen))

    def capture(
        self,
        files: str = "",
        *,
        record: bytes | None = None,
        directories: bytes = b"",
        modes: bytes = b"",
        ignored: bytes = b"",
        outcomes: bytes | None = None,
        leave_out: str = "",
        kind: str = "40000",
    ) -> str:
        """A capture with a ref of its own, as `store.captures` would have written it."""
        parts = {
            b"capture.json": self.record() if record is None else record,
            b"directories": directories,
            b"modes": modes,
            b"ignored": ignored,
        }
        if outcomes is not None:
            parts[b"outcomes.json"] = outcomes
        entries = [("100644", name, self.blob(data)) for name, data in parts.items()]
        entries.append((kind, b"files", files or self.below(b"a", "100644", self.blob(b"forged\n"))))
        whole = self.tree(*(entry for entry in entries if entry[1] != leave_out.encode()))
        return self.commit(f"tree {whole}\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\nforged\n".encode())

    def commit(self, data: bytes) -> str:
        oid = self.git("hash-object", "-w", "-t", "commit", "--literally", "--stdin", given=data)
        self.git("update-ref", f"refs/putback/{self.name}/{oid}", oid)
        return oid

    def entry(self, **fields: object) -> Path:
        """One more record in the history; of a restore unless told otherwise."""
        history = self.world.workspace.paths.history
        chosen = {
            "seq": len(list(history.iterdir())) + 1,
            "id": GONE_ID,
            "kind": EntryKind.RESTORE,
            "created_ns": time.time_ns(),
            "before": self.world.workspace.list()[0].after,
            "after": self.world.workspace.list()[0].after,
            "changed": 1,
            **fields,
        }
        made = Entry(**chosen)
        place = history / f"{made.seq:010d}-{made.kind}-{made.id}.json"
        place.write_bytes(document.encode(made))
        return place

    def journal(self, *lines: bytes) -> Path:
        place = self.world.workspace.paths.journal
        place.write_bytes(b"".join(line + b"\n" for line in lines))
        return place

    def started(self, *steps: Step, staged: tuple[str, ...] = (), before: str = "") -> bytes:
        return document.encode(
            Started(
                before=before or self.world.workspace.list()[0].after,
                of="x",
                cause=Cause.RESTORE,
                plan=Plan(steps=steps),
                created_ns=1,
                staged=tuple(AtPath(path=path) for path in staged),
            )
        )


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    """Whatever a test does: what lies beside the workspace, and every `.git`, are as before."""
    world = World(tmp_path / "world")
    create(world.base, VICTIMS)
    create(world.base / "outside", VICTIMS)
    make_repository(world.root, BASE)
    create(world.root, {"nested/file": "n\n"})
    make_repository(world.root / "nested", {"in": "i\n"})
    (world.root / "never-captured").unlink()
    world.workspace.snapshot("real")
    create(world.root, {"never-captured": "n\n", "a": "now\n"})
    before = beside(world)
    with unmoved(world.root):
        yield Forge(world)
    assert beside(world) == before, "something outside the workspace has changed"
    assert not [path for path in world.root.rglob("*") if path.lstat().st_mode & 0o7000], "a special bit came back"


def beside(world: World) -> object:
    found = {
        name: entry for name, entry in read_back(world.base).items() if not name.startswith((b"tree", b"store"))
    }
    times = {name: (world.base / os.fsdecode(name)).lstat().st_mtime_ns for name in found if b"/" not in name}
    return found, {name: time for name, time in times.items() if not isinstance(found[name], Dir)}


def refused_everywhere(forge: Forge, oid: str) -> None:
    """Every way to put this capture back is refused, for any part of it, and nothing at all is written."""
    before, entries, workspace = forge.world.tree, len(forge.world.workspace.list()), forge.world.workspace
    real = workspace.list()[-1].id
    ways: dict[str, Callable[[], object]] = {
        "restore": lambda: workspace.restore(oid),
        "exact": lambda: workspace.restore(oid, exact=True, force=True),
        "part": lambda: workspace.restore(oid, paths=[forge.root / "a"]),
        "dry run": lambda: workspace.restore(oid, dry_run=True),
        "back from": lambda: workspace.restore(f"{real}..{oid}", force=True),
        "back to": lambda: workspace.restore(f"{oid}..{real}", force=True),
    }
    for name, way in ways.items():
        with pytest.raises(REFUSED) as caught:
            way()
            pytest.fail(f"{name} was not refused")
        assert caught.value.exit_code in (46, 2), name
        same(forge.world.tree, before)
    assert len(workspace.list()) == entries and undecided(forge.world) is None


UNSAFE = [
    b"../x",
    b"d/../../x",
    b"..",
    b".",
    b"./a",
    b"d/./b",
    b".git/hooks/x",
    b".GIT/config",
    b".Git",
    b"d/.git/config",
    b"nested/.git/config",
    b"nested/.git/hooks/post-checkout",
]
LITERAL = [b"/etc/x", b"a//b", b"../x", b"d/../../x", b".git/config", b"d/", b"/", b"a/../../../victim"]


@pytest.mark.requirement("D9", "K5", "K16")
@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_path_in_a_tree_refuses_the_whole_restore(path: bytes, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(forge.below(path, "100755", forge.blob(b"evil\n"))))


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("name", LITERAL)
def test_name_with_slashes_in_one_tree_entry_is_refused(name: bytes, forge: Forge) -> None:
    entries = [("100644", name, forge.blob(b"evil\n")), ("100644", b"a", forge.blob(b"1\n"))]
    refused_everywhere(forge, forge.capture(forge.tree(*entries)))


def test_empty_name_in_a_tree_is_refused(forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(forge.tree(("100644", b"", forge.blob(b"evil\n")))))


@pytest.mark.parametrize("path", [b"sub", b"d/sub"])
def test_gitlink_is_refused(path: bytes, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(forge.below(path, "160000", GONE_ID)))


@pytest.mark.parametrize("path", UNSAFE[:3] + UNSAFE[6:8])
def test_unsafe_link_in_a_tree_is_refused(path: bytes, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(forge.below(path, "120000", forge.blob(b"/etc/passwd"))))


def test_link_and_a_path_through_it_does_not_lead_out(forge: Forge) -> None:
    """The classic: a link to outside, and a file below that link, in one tree."""
    link = forge.blob(os.fsencode(forge.world.base / "outside"))
    inner = forge.tree(("100644", b"x", forge.blob(b"evil\n")), ("100644", b"runs", forge.blob(b"evil\n")))
    oid = forge.capture(
        forge.tree(("120000", b"l", link), ("40000", b"l", inner), ("100644", b"a", forge.blob(b"1\n"))),
        directories=b"777 l\0",
    )
    for target in (oid, f"{oid}..{forge.world.workspace.list()[-1].id}"):
        try:
            done = forge.world.workspace.restore(target, force=True)
        except REFUSED:
            continue
        assert done.failed


def test_link_that_stands_in_the_workspace_does_not_lead_out(forge: Forge) -> None:
    (forge.root / "d").rename(forge.world.base / "outside" / "was-d")
    try:
        (forge.root / "d").symlink_to(forge.world.base / "outside" / "dir")
        forge.world.workspace.restore("@1")
        same({k: v for k, v in forge.world.tree.items() if k.startswith(b"d")}, {"d/b": "2\n"})
    finally:
        (forge.world.base / "outside" / "was-d" / "b").unlink()
        (forge.world.base / "outside" / "was-d").rmdir()


@pytest.mark.requirement("D11")
@pytest.mark.parametrize("mode", ["104755", "102755", "101777", "107777", "104644"])
def test_special_bits_in_a_tree_are_refused_or_masked(mode: str, forge: Forge) -> None:
    oid = forge.capture(forge.below(b"runs", mode, forge.blob(b"#!/bin/sh\n")))
    try:
        forge.world.workspace.restore(oid)
    except REFUSED:
        return
    assert stat.S_IMODE((forge.root / "runs").lstat().st_mode) in (0o755, 0o644)


@pytest.mark.requirement("D11")
@pytest.mark.parametrize("mode", [b"4755", b"2755", b"1777", b"7777", b"107777", b"-1", b"0o6755"])
def test_special_bits_in_a_list_are_refused_or_masked(mode: bytes, forge: Forge) -> None:
    files = forge.below(b"runs/it", "100755", forge.blob(b"#!/bin/sh\n"))
    lists = {"modes": b"%b runs/it\0" % mode, "directories": b"%b runs\0%b empty\0" % (mode, mode)}
    oid = forge.capture(files, **lists)
    try:
        shown = forge.world.workspace.files(oid)
        assert not [path for path, node in shown.items() if node.mode & ~0o777], "a mode is more than it may be"
        forge.world.workspace.restore(oid, exact=True)
    except REFUSED:
        return
    for path in ("runs", "runs/it", "empty"):
        assert not (forge.root / path).lstat().st_mode & 0o7000


@pytest.mark.requirement("D11")
def test_special_bits_that_stand_are_not_set_by_a_step_of_a_journal(forge: Forge) -> None:
    goal = Node(Kind.FILE, 0o6755, forge.git("hash-object", "-w", "--stdin", given=b"now\n"))
    here = Node(Kind.FILE, 0o644, goal.digest)
    step = Step.at(b"a", action=Action.RESTORE, now=here, goal=goal)
    forge.journal(forge.started(step), document.encode(Published()))
    forge.world.workspace.recover(Choice.FORWARD)
    assert not (forge.root / "a").lstat().st_mode & 0o7000


BAD_NAMES = [b"../x", b"/etc", b"/", b"d//b", b"d/", b".", b"..", b"d/.git/hooks", b".GIT", b"n" * 300, b"./d"]


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("part", ["directories", "modes", "ignored"])
def test_unsafe_path_in_a_list_refuses_the_whole_restore(part: str, name: bytes, forge: Forge) -> None:
    line = name if part == "ignored" else b"755 " + name
    refused_everywhere(forge, forge.capture(**{part: line + b"\0"}))


@pytest.mark.parametrize("line", [b"rwx d", b"d", b"9 d", b" d", b"755", b"\xff d"])
@pytest.mark.parametrize("part", ["directories", "modes"])
def test_malformed_line_in_a_list_is_refused(part: str, line: bytes, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(**{part: line + b"\0"}))


RECORDS = {
    "empty": b"",
    "no json": b"not json",
    "no object": b"[]",
    "other format": b'{"format":"putback/capture/v9"}',
    "cut": b'{"format":"putback/capture/v1","workspace":"x"',
    "wrong type": b'{"format":"putback/capture/v1","workspace":1,"root":"x","created_ns":1}',
    "not utf-8": b'{"format":"putback/capture/v1","workspace":"\xff","root":"x","created_ns":1}',
    "huge number": b'{"format":"putback/capture/v1","workspace":"x","root":"x","created_ns":1e999}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("data", RECORDS.values(), ids=RECORDS.keys())
def test_undecodable_record_is_refused(data: bytes, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(record=data))


@pytest.mark.parametrize("part", ["files", "capture.json", "directories", "modes", "ignored"])
def test_capture_that_lacks_a_part_is_refused(part: str, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(leave_out=part))


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config", "a//b", ""])
@pytest.mark.parametrize("part", ["scope", "examined", "not_covered", "nested_repositories", "privileged"])
def test_hostile_path_in_a_record_leads_nowhere(part: str, path: str, forge: Forge) -> None:
    """`not_covered` may name what no capture can hold, and paths that bound nothing may be passed over."""
    item: dict[str, str] = {"path": path, **({"reason": "too_large"} if part == "not_covered" else {})}
    record = json.loads(forge.record())
    oid = forge.capture(record=json.dumps({**record, part: [item]}).encode(), directories=b"755 made\0")
    for way in (
        lambda: forge.world.workspace.restore(oid, exact=True),
        lambda: forge.world.workspace.restore(f"@1..{oid}", force=True),
        lambda: forge.world.workspace.diff(oid),
        lambda: forge.world.workspace.files(oid),
        lambda: forge.world.workspace.show(oid),
    ):
        try:
            way()
        except REFUSED:
            assert part in ("scope", "examined", "nested_repositories")


@pytest.mark.parametrize("encoded", ["Li4veA==", "L2V0Yw==", "!!!", "LmdpdC94"])
def test_encoded_path_counts_and_is_checked(encoded: str, forge: Forge) -> None:
    record = json.loads(forge.record())
    item = {"path": "harmless", "path_b64": encoded}
    refused_everywhere(forge, forge.capture(record=json.dumps({**record, "scope": [item]}).encode()))


COMMITS = {
    "no tree": b"author x <x> 1 +0000\n\nx\n",
    "no object": b"tree " + b"0" * 64 + b"\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\nx\n",
    "short id": b"tree 1234\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\nx\n",
    "other words": b"tree " + b"HEAD" * 16 + b"\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\nx\n",
    "empty": b"",
}


@pytest.mark.parametrize("data", COMMITS.values(), ids=COMMITS.keys())
def test_commit_of_another_make_is_refused(data: bytes, forge: Forge) -> None:
    oid = forge.git("hash-object", "-w", "-t", "commit", "--literally", "--stdin", given=data)
    refs = forge.world.store / "objects.git" / "refs" / "putback" / forge.name
    (refs / oid).write_text(oid + "\n")  # git itself would not give such a commit a name
    refused_everywhere(forge, oid)


@pytest.mark.parametrize("kind", ["100644", "120000", "160000"])
def test_files_that_are_no_tree_are_refused(kind: str, forge: Forge) -> None:
    refused_everywhere(forge, forge.capture(forge.blob(b"no tree\n"), kind=kind))


def test_content_that_is_not_in_the_store_is_refused_before_anything_is_touched(forge: Forge) -> None:
    oid = forge.capture(forge.tree(("100644", b"a", GONE_ID), ("100644", b"b", forge.blob(b"b\n"))))
    before = forge.world.tree
    with pytest.raises(IntegrityError):
        forge.world.workspace.restore(oid)
    same(forge.world.tree, before)


def test_content_that_is_not_what_its_id_says_is_refused(forge: Forge) -> None:
    """Whole and readable, but of another content: only a digest can tell."""
    good, evil = forge.blob(b"good\n"), forge.blob(b"evil\n")
    objects = forge.world.store / "objects.git" / "objects"
    target = objects / good[:2] / good[2:]
    target.chmod(0o600)
    target.write_bytes((objects / evil[:2] / evil[2:]).read_bytes())
    before = forge.world.tree
    with pytest.raises(IntegrityError):
        forge.world.workspace.restore(forge.capture(forge.tree(("100644", b"a", good))))
    same(forge.world.tree, before)


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config"])
def test_hostile_outcomes_do_not_lead_out(path: str, forge: Forge) -> None:
    outcomes = json.dumps({"format": "putback/outcomes/v1", "touched": [{"path": path}]}).encode()
    forge.entry(after=forge.capture(outcomes=outcomes))
    before = forge.world.tree
    for way in (forge.world.workspace.undo, lambda: forge.world.workspace.restore(GONE_ID, force=True)):
        with pytest.raises(REFUSED):
            way()
        same(forge.world.tree, before)


def test_outcomes_do_not_widen_an_undo(forge: Forge) -> None:
    """They choose among what the two captures say; `never-captured` is in neither."""
    outcomes = document.encode(Outcomes(touched=(AtPath(path="never-captured"), AtPath(path="keep"))))
    real = forge.world.workspace.list()[0].after
    files, lists = forge.git("rev-parse", f"{real}:files"), forge.git("cat-file", "-p", f"{real}:directories")
    forge.entry(after=forge.capture(files, directories=lists.encode(), modes=b"640 keep\0", outcomes=outcomes))
    before = forge.world.tree
    done = forge.world.workspace.undo()
    assert not done.applied
    same(forge.world.tree, before)


# --- the history -----------------------------------------------------------------------------------------------

IDS = [
    "",
    "../../x",
    "HEAD",
    "@",
    "-p",
    "--batch",
    "a" * 63,
    "A" * 64,
    GONE_ID,
    GONE_ID + "\n" + GONE_ID,
    "é" * 64,
]


@pytest.mark.requirement("K7")
@pytest.mark.parametrize("which", ["before", "after"])
@pytest.mark.parametrize("oid", IDS)
def test_entry_that_names_no_capture_is_refused(oid: str, which: str, forge: Forge) -> None:
    forge.entry(**{which: oid})
    before = forge.world.tree
    for way in (
        forge.world.workspace.undo,
        lambda: forge.world.workspace.restore(GONE_ID, force=True),
        lambda: forge.world.workspace.show(GONE_ID),
        lambda: forge.world.workspace.diff(GONE_ID),
        lambda: forge.world.workspace.files(GONE_ID) if which == "after" else forge.world.workspace.undo(),
    ):
        with pytest.raises(IntegrityError):
            way()
    same(forge.world.tree, before)


def test_entry_that_names_the_users_commit_is_refused(forge: Forge) -> None:
    head = (forge.root / ".git" / "refs" / "heads" / "main").read_text().strip()
    forge.entry(after=head)
    with pytest.raises(IntegrityError):
        forge.world.workspace.undo()


@pytest.mark.requirement("K8")
@pytest.mark.parametrize("data", [b"", b"garbage", b"{}", b"[]", b'{"format":"putback/history/v9"}', b"\xff\xfe"])
def test_damaged_history_record_is_named_and_others_stay_in_reach(data: bytes, forge: Forge) -> None:
    place = forge.entry()
    place.write_bytes(data)
    assert [entry.message for entry in forge.world.workspace.list()] == ["real"]
    assert place.name in forge.world.workspace.status().damaged[0]
    with pytest.raises(IntegrityError):
        forge.world.workspace.undo()
    again = forge.world.workspace.snapshot("goes on")
    (forge.root / "a").write_text("changed\n")
    forge.world.workspace.restore(again.id)
    assert (forge.root / "a").read_text() == "now\n"


def test_renamed_history_record_is_refused(forge: Forge) -> None:
    place = forge.entry()
    place.rename(place.with_name(place.name.replace("0000000002-", "0000000007-")))
    assert len(forge.world.workspace.status().damaged) == 1
    with pytest.raises(IntegrityError):
        forge.world.workspace.restore(GONE_ID)


def test_history_record_under_another_id_is_refused(forge: Forge) -> None:
    place = forge.entry()
    place.rename(place.with_name(place.name.replace(GONE_ID, "f" * 64)))
    with pytest.raises(IntegrityError):
        forge.world.workspace.restore("f" * 64)


@pytest.mark.requirement("K8")
def test_snapshot_after_the_last_number_there_is_does_not_vanish(forge: Forge) -> None:
    """Numbers have ten digits. A record that was renamed to the last of them leaves no room for another."""
    forge.entry(seq=9_999_999_999)
    try:
        taken = forge.world.workspace.snapshot("one more")
    except PutbackError:
        return
    assert taken.id in [entry.id for entry in forge.world.workspace.list()]


def test_foreign_files_in_the_history_are_passed_over(forge: Forge) -> None:
    history = forge.world.workspace.paths.history
    for name in ("README", "0000000001-snapshot-abc.json", "1-snapshot-" + GONE_ID + ".json", ".hidden.json"):
        (history / name).write_text("{}")
    (history / "directory").mkdir()
    assert len(forge.world.workspace.list()) == 1


def test_history_record_that_is_a_directory_is_an_error_of_ours(forge: Forge) -> None:
    (forge.world.workspace.paths.history / f"0000000002-snapshot-{GONE_ID}.json").mkdir()
    assert len(forge.world.workspace.status().damaged) == 1
    with pytest.raises((StorageError, IntegrityError)):
        forge.world.workspace.show(GONE_ID)


# --- the journal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"garbage\n", b"{}\n", b"[]\n", b'{"type":"putback/journal/v1/publishing"}\n', b"\xff\n", b"\n", b"1\n2\n"],
)
def test_damaged_journal_is_an_integrity_failure_and_stays(data: bytes, forge: Forge) -> None:
    journal = forge.world.workspace.paths.journal
    journal.write_bytes(data)
    before = forge.world.tree
    for way in (
        lambda: forge.world.workspace.restore("@1"),
        forge.world.workspace.undo,
        forge.world.workspace.interrupted,
        lambda: forge.world.workspace.recover(Choice.BACK),
    ):
        with pytest.raises(IntegrityError) as caught:
            way()
        assert "journal" in caught.value.message
    same(forge.world.tree, before)
    assert journal.read_bytes() == data


@pytest.mark.parametrize("data", [b"", b'{"type":"putback/journal/v1/star'])
def test_torn_journal_is_no_journal(data: bytes, forge: Forge) -> None:
    forge.world.workspace.paths.journal.write_bytes(data)
    assert undecided(forge.world) is None
    forge.world.workspace.restore("@1")


STAGED = [
    "../x",
    "../victim",
    "../outside/.putback-01234567-0",
    "/tmp/.putback-01234567-0",
    ".git/.putback-01234567-0",
    ".git/config",
    "nested/.git/HEAD",
    "d/../../victim",
]
OWN = [".putback-notes", "a", "keep", "d/b", ".putback-0123456-0", ".putback-01234567-", "d"]


@pytest.mark.parametrize("publishing", [False, True])
@pytest.mark.parametrize("path", STAGED)
def test_journal_that_names_a_staged_file_outside_takes_nothing_away(
    path: str, publishing: bool, forge: Forge
) -> None:
    lure = forge.world.base / "outside" / ".putback-01234567-0"
    lure.write_text("somebody's\n")
    lines = [forge.started(staged=(path,)), *([document.encode(Published())] if publishing else [])]
    forge.journal(*lines)
    before = forge.world.tree
    with pytest.raises(IntegrityError):
        forge.world.workspace.restore("@1")
    same(forge.world.tree, before)
    assert lure.read_text() == "somebody's\n"
    lure.unlink()


@pytest.mark.parametrize("path", OWN)
def test_journal_that_names_a_file_of_the_users_takes_nothing_away(path: str, forge: Forge) -> None:
    create(forge.root, {".putback-0123456-0": "mine\n", ".putback-01234567-": "mine\n"})
    before = forge.world.tree
    forge.journal(forge.started(staged=(path,)))
    forge.world.workspace.snapshot("clears")
    same(forge.world.tree, before)


def test_journal_does_not_reach_through_a_link(forge: Forge) -> None:
    lure = forge.world.base / "outside" / ".putback-01234567-0"
    lure.write_text("somebody's\n")
    (forge.root / "way-out").symlink_to(lure.parent)
    forge.journal(forge.started(staged=("way-out/.putback-01234567-0",)))
    forge.world.workspace.snapshot("clears")
    assert lure.read_text() == "somebody's\n"
    lure.unlink()


def test_journal_removes_no_directory(forge: Forge) -> None:
    (forge.root / ".putback-01234567-0").mkdir()
    forge.journal(forge.started(staged=(".putback-01234567-0",)))
    forge.world.workspace.snapshot("clears")
    assert (forge.root / ".putback-01234567-0").is_dir()


@pytest.mark.parametrize("choice", list(Choice))
@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config", "nested/.git/config", "d/../../victim"])
def test_journal_with_a_step_outside_is_refused(path: str, choice: Choice, forge: Forge) -> None:
    goal = Node(Kind.FILE, 0o644, forge.blob(b"evil\n"))
    step = Step(path=path, action=Action.RESTORE, now=None, goal=goal)
    forge.journal(forge.started(step), document.encode(Published()))
    before, entries = forge.world.tree, len(forge.world.workspace.list())
    for way in (forge.world.workspace.interrupted, forge.world.workspace.undo):
        with pytest.raises(IntegrityError):
            way()
    if choice is Choice.KEEP:
        forge.world.workspace.recover(choice)
        assert forge.world.workspace.interrupted() is None
    else:
        with pytest.raises(IntegrityError):
            forge.world.workspace.recover(choice)
    same(forge.world.tree, before)
    assert len(forge.world.workspace.list()) == entries


@pytest.mark.parametrize("choice", list(Choice))
@pytest.mark.parametrize("before", [GONE_ID, "", "HEAD", "../../x"])
def test_journal_that_names_no_capture_does_not_spoil_the_history(
    before: str, choice: Choice, forge: Forge
) -> None:
    """Whether it is refused or not: what could be undone before can be undone still."""
    forge.world.workspace.restore("@1")
    entries = forge.world.workspace.list()
    digest = forge.git("hash-object", "--stdin", given=b"1\n")
    step = Step.at(
        b"a", action=Action.RESTORE, now=Node(Kind.FILE, 0o600, digest), goal=Node(Kind.FILE, 0o644, digest)
    )
    journal = forge.started(step).replace(
        b'"before":"' + entries[0].after.encode(), b'"before":"' + before.encode()
    )
    forge.journal(journal, document.encode(Published()))
    with pytest.raises(IntegrityError):
        forge.world.workspace.recover(choice)
    assert forge.world.workspace.list() == entries, "an entry that can never be undone was recorded"


def test_journal_step_takes_content_from_the_store_alone(forge: Forge) -> None:
    goal = Node(Kind.FILE, 0o644, "../../../victim")
    forge.journal(
        forge.started(Step(path="a", action=Action.RESTORE, now=None, goal=goal)), document.encode(Published())
    )
    before = forge.world.tree
    with pytest.raises(UnknownStateError):
        forge.world.workspace.undo()
    try:
        forge.world.workspace.recover(Choice.FORWARD)
    except IntegrityError:
        pass
    same(forge.world.tree, before)


# --- the confined handle ---------------------------------------------------------------------------------------

Method = Callable[[Root, RelPath], object]
METHODS: dict[str, Method] = {
    "parent": lambda root, path: root.parent(path).__exit__(),
    "lstat": lambda root, path: root.lstat(path),
    "look": lambda root, path: root.look(path),
    "open_file": lambda root, path: os.close(root.open_file(path)),
    "read_link": lambda root, path: root.read_link(path),
    "measure": lambda root, path: root.measure(path),
    "examine": lambda root, path: root.examine(path),
    "names": lambda root, path: root.names(path),
    "stage_file": lambda root, path: root.stage_file(path, [b"evil\n"], 0o644),
    "stage_link": lambda root, path: root.stage_link(path, b"evil"),
    "sync_file": lambda root, path: root.sync_file(path),
    "sync_directory": lambda root, path: root.sync_directory(path),
    "publish from": lambda root, path: root.publish(path, RelPath(b"a")),
    "publish to": lambda root, path: root.publish(RelPath(b"a"), path),
    "chmod": lambda root, path: root.chmod(path, 0o777),
    "make_directory": lambda root, path: root.make_directory(path, 0o777),
    "remove": lambda root, path: root.remove(path),
    "remove_directory": lambda root, path: root.remove_directory(path),
}
NEVER_PATHS = [
    b"",
    b".",
    b"..",
    b"../x",
    b"../empty",
    b"d/..",
    b"d/../../x",
    b"/etc/passwd",
    b"/",
    b"d//b",
    b"d/",
    b"//",
    b"./a",
    b"a\0b",
    b"d\0/b",
    b"\0",
    b".git",
    b".git/config",
    b".GIT/config",
    b".Git",
    b"d/.git/x",
    b"d/.giT",
    b"store",
    b"store/lock",
    b"store/objects.git/config",
]


@dataclass
class Place:
    """A root with a store inside, something outside, and links that lead there."""

    base: Path
    root: Root

    @property
    def path(self) -> Path:
        return self.base / "root"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    create(
        tmp_path,
        {
            "x": File(b"victim\n", 0o600),
            "empty": Dir(0o700),
            "outside/b": File(b"victim\n", 0o600),
            "outside/sub": Dir(0o700),
            "root/a": "1\n",
            "root/d/b": "2\n",
            "root/.git/config": "c\n",
            "root/d/.git/x": "c\n",
            "root/store/lock": "l\n",
            "root/store/objects.git/config": "c\n",
            "root/to-file": Link("../x"),
            "root/to-nothing": Link("../nothing"),
            "root/to-dir": Link("../outside"),
            "root/d/to-dir": Link("../../outside"),
            "root/inner": Link("d"),
        },
    )
    with Root(os.fsencode(tmp_path / "root"), store_inside(tmp_path / "root", tmp_path / "root/store")) as root:
        yield Place(tmp_path, root)


def whole(place: Place) -> dict:
    return {path: path.lstat()[:10] for path in sorted(place.base.rglob("*"))}


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("path", NEVER_PATHS)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_method_refuses_what_can_be_no_path(method: Method, path: bytes, place: Place) -> None:
    before = whole(place)
    with pytest.raises(UnsafePath):
        method(place.root, RelPath(path))
    assert whole(place) == before


READS = ("lstat", "look", "read_link", "measure", "examine")


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("link", [b"to-file", b"to-dir", b"to-nothing", b"inner"])
@pytest.mark.parametrize("name", METHODS.keys())
def test_method_does_not_follow_a_link_at_the_end(name: str, link: bytes, place: Place) -> None:
    outside = read_back(place.base / "outside"), (place.base / "x").lstat()[:10]
    inner = (place.path / "d").lstat().st_mode, read_back(place.path / "d")
    try:
        answer = METHODS[name](place.root, RelPath(link))
    except OSError:
        assert name not in READS
    else:
        assert name in (*READS, "parent", "publish from", "publish to", "remove")
        if name in ("measure", "examine"):
            node = answer if name == "measure" else answer[0]
            assert node.kind is Kind.SYMLINK
    assert (read_back(place.base / "outside"), (place.base / "x").lstat()[:10]) == outside
    assert not (place.base / "nothing").exists()
    assert ((place.path / "d").lstat().st_mode, read_back(place.path / "d")) == inner


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("path", [b"to-dir/b", b"to-dir/new", b"to-dir/sub", b"d/to-dir/b", b"inner/b", b"a/b"])
@pytest.mark.parametrize("name", METHODS.keys())
def test_method_does_not_go_through_a_link(name: str, path: bytes, place: Place) -> None:
    before = whole(place)
    if name in ("look", "measure", "examine"):
        assert METHODS[name](place.root, RelPath(path)) in (None, (None, None))
    else:
        with pytest.raises(OSError):
            METHODS[name](place.root, RelPath(path))
    assert whole(place) == before


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o7777])
def test_modes_are_masked(mode: int, place: Place) -> None:
    place.root.stage_file(RelPath(b"new"), [b"n"], mode)
    place.root.make_directory(RelPath(b"made"), mode)
    place.root.chmod(RelPath(b"a"), mode)
    place.root.chmod(RelPath(b"d"), mode)
    for name in ("new", "made", "a", "d"):
        assert stat.S_IMODE((place.path / name).lstat().st_mode) == mode & 0o777, name


def test_open_file_does_not_wait_for_a_pipe(place: Place) -> None:
    os.mkfifo(place.path / "pipe")
    with pytest.raises(OSError):
        place.root.open_file(b"pipe")


def test_a_failing_content_leaves_nothing_staged(place: Place) -> None:
    def content() -> Iterator[bytes]:
        yield b"some"
        raise IntegrityError("damaged")

    with pytest.raises(IntegrityError):
        place.root.stage_file(RelPath(b"new"), content(), 0o644)
    assert not (place.path / "new").exists()


def test_staging_never_takes_the_place_of_something(place: Place) -> None:
    for name in (b"a", b"d", b"to-file", b"to-nothing"):
        for stage in (place.root.stage_link, lambda path, data: place.root.stage_file(path, [data], 0o644)):
            with pytest.raises(FileExistsError):
                stage(RelPath(name), b"evil")
    assert (place.path / "a").read_text() == "1\n" and not (place.base / "nothing").exists()


def test_descriptors_are_closed_again(place: Place) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (b"a", b"d", b"d/b", b"to-file", b"to-dir/b", b"../x", b"no/such", b"d/.git/x", b"store/lock"):
        for name in ("parent", *READS, "names", "sync_file", "sync_directory", "chmod", "open_file"):
            try:
                METHODS[name](place.root, RelPath(path))
            except (OSError, UnsafePath):
                pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("store", "inside"),
    [("/w/.store", b".store"), ("/w/a/b", b"a/b"), ("/w", None), ("/elsewhere", None), ("/", None), ("/ww", None)],
)
def test_where_the_store_lies(store: str, inside: bytes | None) -> None:
    assert store_inside(Path("/w"), Path(store)) == inside


@pytest.mark.requirement("K6")
@pytest.mark.parametrize("path", [b"own/lock", b"own/objects.git/config", b"own/store.json", b"own/new"])
def test_capture_that_holds_the_store_is_refused(path: bytes, tmp_path: Path) -> None:
    """The store lies inside the workspace, and a forged capture holds a file in it."""

    class Inside(World):
        @property
        def store(self) -> Path:
            return self.root / "own"

    world = Inside(tmp_path / "world")
    create(world.root, {"a": "1\n"})
    world.workspace.snapshot("real")
    forge = Forge(world)
    oid = forge.capture(forge.below(path, "100644", forge.blob(b"evil\n")))
    (world.root / "a").write_text("now\n")
    before = {
        name: entry for name, entry in world.tree.items() if name.startswith(b"own/") and name != b"own/lock"
    }
    for way in (
        lambda: world.workspace.restore(oid),
        lambda: world.workspace.restore(oid, exact=True, force=True),
    ):
        try:
            done = way()
        except REFUSED:
            continue
        touched = [outcome.path for outcome in done.outcomes if outcome.status.applied]
        assert not [path for path in touched if path.startswith("own")] and done.failed
    for name in (b"own/store.json", b"own/objects.git/config"):
        assert world.tree[name] == before[name]
    assert not (world.root / "own" / "new").exists()
    assert b"evil" not in (world.root / "own" / "lock").read_bytes()
