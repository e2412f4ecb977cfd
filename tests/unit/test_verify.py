"""Verification: what each check finds, that no byte of a run's documents changes unseen, what is never claimed."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest

from putback.errors import IntegrityError, StorageError
from putback.records import document
from putback.records.capture import NotCovered, Reason
from putback.records.change import Change, Kind, Node, State
from putback.records.document import AtPath
from putback.records.ledger import RollbackRefused
from putback.records.receipt import Receipt, RollbackPart
from putback.records.run import Discipline, EndedBy, Exit, RunStatus
from putback.runs import evidence
from putback.runs.evidence import Documents, Evidence, receipt_digest
from putback.runs.facts import tree_id
from putback.runs.faults import Code
from putback.runs.verify import Check, Result, verify
from support.plumbing import ODD_NAMES, make_bare
from support.runs import CAPTURES, RUN, FakeStore, Files, Run, changed, directory, file, link, listing

STORE_CHECKS = [
    "captures in the store",
    "changes against captures",
    "contents in the store",
    "ledger against the history",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Run().build(tmp_path_factory.mktemp("run"))


def results(checks: list[Check]) -> dict[str, Result]:
    found = {check.name: check.result for check in checks}
    assert len(found) == len(checks)
    return found


def failed(documents: Documents, store: FakeStore | None = None) -> dict[str, str]:
    return {check.name: check.detail for check in verify(documents, store) if check.result is Result.FAIL}


def edited(record: Any, place: str, value: Any) -> Any:
    """A deep copy with one field, named with dots, replaced; a callable makes the new value of the old."""
    first, _, rest = place.partition(".")
    if isinstance(record, list | tuple):
        items = list(record)
        items[int(first)] = edited(items[int(first)], rest, value) if rest else _new(items[int(first)], value)
        return type(record)(items)
    old = getattr(record, first)
    new = edited(old, rest, value) if rest else _new(old, value)
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **{first: new})
    return msgspec.structs.replace(record, **{first: new})


def _new(old: Any, value: Any) -> Any:
    return value(old) if callable(value) else value


# What passes, and what is skipped.


@pytest.mark.requirement("D24")
def test_a_good_run_passes_every_check_and_never_claims_authorship(files: Files) -> None:
    checks = verify(files.load(), FakeStore.of(files))
    assert [check for check in checks if check.result is not Result.PASS] == checks[-1:]
    assert checks[-1].name == "authorship" and checks[-1].result is Result.SKIP
    assert "no check can show who wrote these documents" in checks[-1].detail


def test_without_a_store_its_checks_are_skipped(files: Files) -> None:
    found = results(verify(files.load()))
    assert [name for name, result in found.items() if result is Result.SKIP] == [*STORE_CHECKS, "authorship"]


@pytest.mark.parametrize("absent", ["manifest", "receipt", "ledger"])
def test_what_is_absent_is_skipped_and_never_passed(files: Files, absent: str) -> None:
    whole = verify(files.load(), FakeStore.of(files))
    found = results(verify(files.with_(**{absent: None}).load(), FakeStore.of(files)))
    assert list(found) == [check.name for check in whole] and Result.FAIL not in found.values()
    needing = {
        "manifest": ("manifest.json", "tree before", "tree after", "changes against manifest", "root"),
        "receipt": ("receipt.json", "ledger head in receipt", "counts of changes", "limits disclosure", "root"),
        "ledger": ("ledger.jsonl", "ledger chain", "ledger complete", "tree before", "changes", "run id", "root"),
    }
    assert all(found[name] is Result.SKIP for name in needing[absent])
    left = {"run id", "discipline"} if absent != "ledger" else {"tree of the manifest", "limits disclosure"}
    assert all(found[name] is Result.PASS for name in left), "what is there is checked all the same"


def test_a_check_that_is_skipped_says_why(files: Files) -> None:
    def why(manifest: bytes | None) -> str:
        checks = verify(files.with_(manifest=manifest).load())
        return next(check.detail for check in checks if check.name == "tree before")

    assert why(None) == "no manifest.json" and why(b"{}") == "manifest.json was not taken"


def test_the_manifest_of_a_run_that_goes_on_is_checked(files: Files) -> None:
    assert files.ledger
    begun = files.with_(ledger=b"".join(files.ledger.splitlines(keepends=True)[:2]), receipt=None)
    assert results(verify(begun.load()))["manifest digest in fs.snapshot"] is Result.PASS


def test_nothing_at_all_is_skipped() -> None:
    assert set(results(verify(Documents())).values()) == {Result.SKIP}


def test_digests_only_has_nothing_in_the_store(tmp_path: Path) -> None:
    files = Run(discipline=Discipline.DIGESTS, rolled_back=False).build(tmp_path)
    found = results(verify(files.load(), FakeStore({}, [], {})))
    assert Result.FAIL not in found.values() and all(found[name] is Result.SKIP for name in STORE_CHECKS)


def test_a_killed_run_is_not_complete_and_otherwise_sound(files: Files) -> None:
    assert files.ledger is not None
    lines = files.ledger.splitlines(keepends=True)
    for length in range(len(lines)):
        cut = files.with_(ledger=b"".join(lines[:length]), receipt=None)
        store = FakeStore.of(files)
        store.heads.clear()
        assert set(failed(cut.load(), store)) == {"ledger complete"}, length


def test_an_interrupted_run_need_not_tell_every_change(files: Files) -> None:
    """But what it tells has to be so, and a run that calls itself finished has to tell all."""
    documents = edited(files.load(), "ledger.changes", lambda old: old[:3])
    store = FakeStore.of(files)
    needing = {"tree after", "files after", "changes against captures"}
    assert needing <= set(failed(documents, store))
    interrupted = edited(documents, "ledger.ended.status", RunStatus.INTERRUPTED)
    found = results(verify(interrupted, store))
    assert found["tree after"] is found["files after"] is Result.SKIP
    assert found["changes against captures"] is Result.PASS
    whole = edited(files.load(), "ledger.ended.status", RunStatus.INTERRUPTED)
    assert results(verify(whole, store))["tree after"] is Result.PASS
    other = edited(interrupted, "ledger.changes.0.after.mode", 0o600)
    assert "changes against captures" in failed(other, store)


def test_a_rollback_that_was_refused(tmp_path: Path) -> None:
    part = RollbackPart(applied=0, trigger="files", reason="every path drifted")

    def refused(receipt: Receipt) -> Receipt:
        return edited(receipt, "ops.rollback", part)

    def events(listed: list[Any]) -> list[Any]:
        return [*listed[:-2], RollbackRefused(trigger="files", reason="every path drifted"), listed[-1]]

    documents = Run(edit_receipt=refused, edit_events=events).build(tmp_path).load()
    assert failed(documents) == {}
    other = edited(documents, "receipt.ops.rollback.reason", "another")
    assert "rollback in receipt" in failed(other)
    assert "rollback in receipt" in failed(edited(documents, "receipt.ops.rollback.applied", 1))


# What each check finds: one thing changed in documents that have been read, so that no other guard is in the way.

CHANGES = [
    ("ledger head in receipt", "receipt.ledger.head", "0" * 64),
    ("ledger head in receipt", "receipt.ledger.events", 3),
    ("receipt digest in run.end", "ledger.ended.receipt", ""),
    ("receipt digest in run.end", "receipt.session.tool", "other"),
    ("manifest digest in fs.snapshot", "ledger.before.manifest", "0" * 64),
    ("manifest digest in fs.snapshot", "ledger.after.manifest", "0" * 64),
    ("manifest digest in fs.snapshot", "manifest.ignored", 3),
    ("manifest entries", "manifest.files", lambda old: old[::-1]),
    ("manifest entries", "manifest.files", lambda old: (*old, old[-1])),
    ("manifest entries", "manifest.directories", lambda old: (*old, old[0])),
    ("manifest entries", "manifest.directories.0.path", "keep"),
    ("manifest entries", "manifest.directories.0.path", "../up"),
    ("manifest entries", "manifest.directories.0.mode", 0o1777),
    ("manifest entries", "manifest.files.0.mode", 0o4644),
    ("manifest entries", "manifest.files.0.digest", "A" * 64),
    ("manifest entries", "manifest.files.0.kind", Kind.DIRECTORY),
    ("tree of the manifest", "manifest.tree", "0" * 64),
    ("tree of the manifest", "manifest.files.0.digest", "0" * 64),
    ("tree of the manifest", "manifest.files.0.digest", "00"),
    ("tree of the manifest", "manifest.files.0.digest", "no"),
    ("tree of the manifest", "manifest.files.0.kind", Kind.SYMLINK),
    ("tree of the manifest", "manifest.files.0.kind", Kind.DIRECTORY),
    ("tree of the manifest", "manifest.files.0.mode", 0o755),
    ("tree of the manifest", "manifest.files.1.path", "dir"),
    ("tree before", "ledger.before.tree", "0" * 64),
    ("files before", "ledger.before.files", 99),
    ("files before", "ledger.before.bytes", 99),
    ("files before", "ledger.before.not_covered", 0),
    ("changes", "ledger.changes.4.after", lambda old: None),
    ("changes", "ledger.changes.0.after.digest", ""),
    ("changes", "ledger.changes.0.after.mode", 0o1644),
    ("changes", "ledger.changes.0.before.mode", -1),
    ("changes", "ledger.changes.0.path", "/etc/passwd"),
    ("changes against manifest", "ledger.changes.0.before.mode", 0o600),
    ("changes against manifest", "ledger.changes.1.before.mode", 0o711),
    ("changes against manifest", "ledger.changes.0.before", None),
    ("changes against manifest", "ledger.changes.4.before", file(b"never was")),
    ("tree after", "ledger.after.tree", "0" * 64),
    ("tree after", "ledger.changes.0.after.digest", "0" * 64),
    ("tree after", "ledger.changes.5.after.mode", 0o644),
    ("tree after", "ledger.changes", lambda old: old[1:]),
    ("tree after", "ledger.changes", lambda old: [*old, changed("other", None, file(b""))]),
    ("files after", "ledger.after.files", 99),
    ("files after", "ledger.after.bytes", 99),
    ("counts of changes", "ledger.ended.created", 9),
    ("counts of changes", "ledger.ended.modified", 9),
    ("counts of changes", "ledger.ended.deleted", 9),
    ("counts of changes", "receipt.changes.created", 9),
    ("snapshot in receipt", "receipt.ops.snapshot.taken", 1),
    ("snapshot in receipt", "receipt.ops.snapshot.files", 1),
    ("snapshot in receipt", "receipt.ops.snapshot.bytes_stored", 1),
    ("snapshot in receipt", "receipt.ops.snapshot.manifest", ""),
    ("snapshot in receipt", "receipt.ops.snapshot.not_covered", ()),
    ("breaches in receipt", "receipt.breaches", ()),
    ("breaches in receipt", "receipt.breaches.0.measured", "9"),
    ("breaches in receipt", "receipt.session.status", RunStatus.FINISHED),
    ("breaches in receipt", "receipt.session.status", RunStatus.INTERRUPTED),
    ("rollback in receipt", "receipt.ops.rollback", None),
    ("rollback in receipt", "ledger.rollback", None),
    ("rollback in receipt", "receipt.ops.rollback.applied", 3),
    ("rollback in receipt", "receipt.ops.rollback.paths", ()),
    ("rollback in receipt", "receipt.ops.rollback.refusals", ()),
    ("exit in receipt", "receipt.session.exit", Exit(by=EndedBy.EXIT, code=0)),
    ("session in receipt", "receipt.session.command", ("rm",)),
    ("session in receipt", "receipt.session.tool", "other"),
    ("session in receipt", "receipt.limits.max_files", 9),
    ("run id", "manifest.run", "6" * 64),
    ("run id", "receipt.session.id", "6" * 64),
    ("run id", "ledger.started.run", "6" * 64),
    ("root", "manifest.root", AtPath(path="/elsewhere")),
    ("root", "receipt.session.cwd", "/elsewhere"),
    ("discipline", "manifest.discipline", Discipline.DIGESTS),
    ("discipline", "receipt.session.discipline", Discipline.DIGESTS),
    ("discipline", "ledger.before.capture", ""),
    ("discipline", "ledger.after.capture", ""),
    ("limits disclosure", "receipt.limits_disclosure", ()),
    ("limits disclosure", "receipt.limits_disclosure", ("", " ")),
    ("ledger complete", "ledger.complete", False),
]


@pytest.mark.requirement("D24")
@pytest.mark.parametrize(
    ("name", "place", "value"), CHANGES, ids=[f"{name}-{place}" for name, place, _ in CHANGES]
)
def test_each_check_finds_what_it_is_for(files: Files, name: str, place: str, value: Any) -> None:
    found = failed(edited(files.load(), place, value))
    assert found.get(name), found
    assert found[name].isprintable()


def consistent(documents: Documents, *edits: tuple[str, Any]) -> dict[str, str]:
    """What fails after several edits that agree with each other."""
    for place, value in edits:
        documents = edited(documents, place, value)
    return failed(documents)


def test_a_run_id_of_another_form_is_found_though_all_agree(files: Files) -> None:
    places = ("manifest.run", "receipt.session.id", "ledger.started.run")
    for wrong in ("5" * 63, "A" * 64, "../" + "5" * 61):
        assert "run id" in consistent(files.load(), *((place, wrong) for place in places))


def test_a_rollback_that_did_nothing_is_none(files: Files) -> None:
    """`applied` never speaks of a tree that did not change."""
    nothing = [
        (f"{place}.{name}", value)
        for place in ("ledger.rollback", "receipt.ops.rollback")
        for name, value in {"applied": 0, "restored": 0, "removed": 0, "paths": ()}.items()
    ]
    assert "nothing went back" in consistent(files.load(), *nothing)["rollback in receipt"]


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"restored": 2}, "applied: 2 against 3"),
        ({"paths": (AtPath(path="new"),)}, "applied: 2 against 1"),
        ({"paths": (AtPath(path="new"), AtPath(path="keep"))}, "that the run had not changed"),
    ],
)
def test_a_rollback_counts_what_went_back(files: Files, edits: dict[str, Any], words: str) -> None:
    places = ("ledger.rollback", "receipt.ops.rollback")
    both = [(f"{place}.{name}", value) for place in places for name, value in edits.items()]
    assert words in consistent(files.load(), *both)["rollback in receipt"]


def test_a_run_that_breached_is_called_so(files: Files) -> None:
    status = [("receipt.session.status", RunStatus.FINISHED), ("ledger.ended.status", RunStatus.FINISHED)]
    assert "called finished with 1 breaches" in consistent(files.load(), *status)["breaches in receipt"]
    none = [("receipt.breaches", ()), ("ledger.breaches", [])]
    assert "called breached with 0 breaches" in consistent(files.load(), *none)["breaches in receipt"]
    interrupted = [(place, RunStatus.INTERRUPTED) for place, _ in status]
    assert "breaches in receipt" not in consistent(files.load(), *interrupted)


def test_contents_and_digests_are_not_the_same_thing(files: Files) -> None:
    places = ("manifest.discipline", "receipt.session.discipline", "ledger.started.discipline")
    found = consistent(files.load(), *((place, Discipline.DIGESTS) for place in places))
    assert "the capture before is named" in found["discipline"]


# Against the store.


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("captures in the store", lambda store: store.trees.pop(CAPTURES[0])),
        ("captures in the store", lambda store: store.trees.update({CAPTURES[1]: "0" * 64})),
        ("changes against captures", lambda store: store.differences.pop()),
        (
            "changes against captures",
            lambda store: store.differences.append(Change(b"z", None, Node(Kind.FILE, 1))),
        ),
        ("changes against captures", lambda store: store.differences.reverse() or store.differences.pop()),
        ("contents in the store", lambda store: store.gone.add(file(b"the same\n").digest)),
        ("contents in the store", lambda store: store.gone.add(file(b"deleted by the run\n").digest)),
        ("contents in the store", lambda store: store.gone.add(file(b"created\n").digest)),
        ("ledger against the history", lambda store: store.heads.update({RUN: "0" * 64})),
    ],
)
def test_each_check_against_the_store(files: Files, name: str, change: Callable[[Any], object]) -> None:
    store = FakeStore.of(files)
    change(store)
    assert set(failed(files.load(), store)) == {name}


def test_a_changed_change_differs_from_the_captures(files: Files) -> None:
    for place, value in (("after.mode", 0o600), ("before.digest", "0" * 64), ("path", "other")):
        number = 4 if place == "path" else 0
        documents = edited(files.load(), f"ledger.changes.{number}.{place}", value)
        assert "changes against captures" in failed(documents, FakeStore.of(files))


def test_what_was_found_counts_though_the_rest_is_absent(files: Files) -> None:
    store = FakeStore.of(files)
    store.trees[CAPTURES[0]] = "0" * 64
    assert "captures in the store" in failed(edited(files.load(), "ledger.after.capture", ""), store)


def test_a_run_that_the_history_does_not_have_is_skipped(files: Files) -> None:
    store = FakeStore.of(files)
    store.heads.clear()
    assert results(verify(files.load(), store))["ledger against the history"] is Result.SKIP


@pytest.mark.parametrize("hostile", ["--upload-pack=x", "HEAD", "A" * 64, "../x", "b" * 63, "b" * 64 + "\n"])
def test_nothing_but_an_id_reaches_the_store(files: Files, hostile: str) -> None:
    class Strict(FakeStore):
        def files_tree(self, capture: str) -> str | None:
            assert capture in CAPTURES
            return super().files_tree(capture)

        def damaged(self, digests: Any) -> Iterator[str]:
            given = list(digests)
            assert all(len(each) == 64 and set(each) <= set("0123456789abcdef") for each in given)
            return super().damaged(given)

        def told(self, run: str) -> str | None:
            assert run == RUN
            return super().told(run)

    store = Strict(**vars(FakeStore.of(files)))
    for place, name in {
        "ledger.before.capture": "captures in the store",
        "ledger.after.capture": "changes against captures",
        "manifest.files.0.digest": "contents in the store",
        "ledger.changes.0.after.digest": "contents in the store",
        "ledger.started.run": "ledger against the history",
    }.items():
        assert name in failed(edited(files.load(), place, hostile), store)


# Every byte.


MASKS = (0x01, 0x02, 0x10, 0x20, 0x80, 0xFF)


def flips(data: bytes, masks: int = 1) -> Iterator[tuple[str, bytes]]:
    for place, byte in enumerate(data):
        for number in range(masks):
            mask = MASKS[(place + number) % len(MASKS)]
            yield f"byte {place} ^ {mask:#x}", data[:place] + bytes([byte ^ mask]) + data[place + 1 :]


def all_flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    return flips(data, len(MASKS))


def cuts(data: bytes) -> Iterator[tuple[str, bytes]]:
    for place in range(len(data)):
        yield f"byte {place} deleted", data[:place] + data[place + 1 :]
    for place in range(0, len(data) + 1, 3):
        yield f"inserted at {place}", data[:place] + b" 0\n"[place % 3 : place % 3 + 1] + data[place:]
    for length in range(0, len(data), 5):
        yield f"cut to {length}", data[:length]
    for more in (b"\n", b" ", b"{}", data):
        yield f"{more[:4]!r} appended", data + more


def swaps(data: bytes) -> Iterator[tuple[str, bytes]]:
    lines = data.splitlines(keepends=True)
    for one in range(len(lines)):
        yield f"line {one} deleted", b"".join(lines[:one] + lines[one + 1 :])
        yield f"line {one} doubled", b"".join(lines[: one + 1] + lines[one:])
        for other in range(one):
            swapped = list(lines)
            swapped[one], swapped[other] = lines[other], lines[one]
            yield f"lines {other} and {one} swapped", b"".join(swapped)


@pytest.mark.requirement("D24")
@pytest.mark.parametrize("how", [flips, cuts, swaps, pytest.param(all_flips, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", ["manifest", "receipt", "ledger"])
def test_no_byte_changes_unseen(
    files: Files, which: str, how: Callable[[bytes], Iterator[tuple[str, bytes]]]
) -> None:
    """Each change is found, or what is read is the same as before, in all of its fields."""
    if how is all_flips and hypothesis.settings.default != hypothesis.settings.get_profile("long"):
        pytest.skip("one flip of each byte is enough of every day; the profile `long` has them all")
    data = getattr(files, which)
    original = files.load()
    for words, other in how(data):
        if other == data:
            continue
        documents = files.with_(**{which: other}).load()
        if not failed(documents):
            assert documents == original, f"{which}: {words} changes what is read, and no check finds it"
            raise AssertionError(f"{which}: {words} has no effect, but the one form should be the only one")


def test_any_two_documents_of_different_runs_disagree(files: Files, tmp_path: Path) -> None:
    other = Run(after={b"keep": file(b"else")}).build(tmp_path)
    for which in ("manifest", "receipt", "ledger"):
        mixed = files.with_(**{which: getattr(other, which)})
        assert (mixed == files) or failed(mixed.load()), which


HOSTILE: list[Any] = [
    "",
    "../x",
    "\x1b[2J",
    "é" * 200,
    -1,
    0,
    1 << 62,
    1 << 64,
    10**4000,
    None,
    [],
    {},
    True,
    0.5,
    [[]],
    {"a": 1},
]


def wrecked(value: Any, chance: random.Random) -> Any:
    """The JSON value with one part of it replaced, dropped, doubled or added."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        match chance.randrange(8):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return value | {chance.choice(["x", "path", "path_b64", "before"]): chance.choice(HOSTILE)}
        return value | {key: wrecked(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        match chance.randrange(6):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value[: place + 1] + value[place:]
        return [*value[:place], wrecked(value[place], chance), *value[place + 1 :]]
    return chance.choice(HOSTILE)


@pytest.mark.requirement("D19")
def test_wrecked_documents_end_in_checks_and_never_in_an_error(files: Files) -> None:
    """JSON that is well formed and canonical but says anything, also with the ledger's hashes made right."""
    from unit.test_ledger import chain

    assert files.manifest and files.receipt and files.ledger
    chance = random.Random(5)
    events = [msgspec.json.decode(line) for line in files.ledger.splitlines()]
    pairs = [(event["type"], event["data"]) for event in events]
    store = FakeStore.of(files)
    for number in range(3000):
        match number % 3:
            case 0:
                data = msgspec.json.encode(wrecked(msgspec.json.decode(files.manifest), chance), order="sorted")
                other = files.with_(manifest=data)
            case 1:
                data = msgspec.json.encode(wrecked(msgspec.json.decode(files.receipt), chance), order="sorted")
                other = files.with_(receipt=data)
            case _:
                place = chance.randrange(len(pairs))
                kind, old = pairs[place]
                wreck = [*pairs[:place], (kind, wrecked(copy.deepcopy(old), chance)), *pairs[place + 1 :]]
                other = files.with_(ledger=chain(*wreck))
        if other != files:
            found = failed(other.load(), store)
            assert found and all(detail.isprintable() for detail in found.values())


# The tree's id is git's.


def test_the_id_of_a_tree_is_the_one_that_git_gives(tmp_path: Path) -> None:
    bare = make_bare(tmp_path)
    states: dict[Any, State] = {}
    for number, name in enumerate(ODD_NAMES):
        bare.write(name, b"%d" % number, executable=number % 3 == 0)
        states[name] = file(b"%d" % number, 0o755 if number % 3 == 0 else 0o640)
    bare.link(b"a link", b"to nowhere")
    states[b"a link"] = link(b"to nowhere")
    bare.add_with_git(list(states))
    assert tree_id(states) == bare.git("write-tree").decode().strip()


def test_a_tree_has_ids_of_sha256() -> None:
    with pytest.raises(ValueError, match="no sha256"):
        tree_id({b"a": State(kind=Kind.FILE, mode=0o644, digest="00" * 20)})  # type: ignore[dict-item]


def test_a_tree_of_directories_is_none() -> None:
    with pytest.raises(ValueError, match="a directory among the files"):
        tree_id({b"d": directory()})  # type: ignore[dict-item]


# Files.


def test_what_is_written_is_what_is_loaded(files: Files, tmp_path: Path) -> None:
    held, documents = Evidence(tmp_path), files.load()
    assert documents.manifest and documents.receipt
    assert held.load() == Documents()
    assert held.write_manifest(documents.manifest) == document.digest(documents.manifest)
    assert held.write_receipt(documents.receipt) == document.digest(documents.receipt)
    assert held.manifest.read_bytes() == files.manifest and held.receipt.read_bytes() == files.receipt
    held.ledger.write_bytes(files.ledger or b"")
    assert held.load() == documents and not documents.faults
    assert {os.stat(path).st_mode & 0o777 for path in (held.manifest, held.receipt)} == {0o600}
    assert sorted(os.listdir(tmp_path)) == ["ledger.jsonl", "manifest.json", "receipt.json"]


def test_a_document_is_never_replaced_by_another(files: Files, tmp_path: Path) -> None:
    held, documents = Evidence(tmp_path), files.load()
    assert documents.manifest
    digest = held.write_manifest(documents.manifest)
    inode = held.manifest.stat().st_ino
    assert held.write_manifest(documents.manifest) == digest and held.manifest.stat().st_ino == inode
    with pytest.raises(IntegrityError, match=r"another manifest\.json is there already"):
        held.write_manifest(edited(documents.manifest, "ignored", 9))
    assert held.manifest.read_bytes() == files.manifest
    held.manifest.unlink()
    (tmp_path / "same").write_bytes(files.manifest or b"")
    held.manifest.symlink_to("same")
    with pytest.raises(StorageError):
        held.write_manifest(documents.manifest)


def test_a_document_that_no_reader_takes_is_not_written(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = files.load().receipt
    assert receipt
    monkeypatch.setattr(evidence, "MAX_RECEIPT_BYTES", 100)
    with pytest.raises(StorageError, match="readers take 100"):
        Evidence(tmp_path).write_receipt(receipt)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["manifest.json", "receipt.json", "ledger.jsonl"])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "socket", "loop"])
def test_only_regular_files_are_opened(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """And none that would keep the reader waiting."""
    files.put(tmp_path)
    path = tmp_path / name
    path.rename(tmp_path / "moved")
    if kind == "link":
        path.symlink_to("moved")
    elif kind == "loop":
        path.symlink_to(name)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(tmp_path)
            listener.bind(name)
    documents = Evidence(tmp_path).load()
    assert [fault.code for fault in documents.faults[name]] == [Code.NOT_REGULAR] and len(documents.faults) == 1
    assert name in failed(documents)


def test_documents_are_bounded(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put(tmp_path)
    assert files.manifest and files.receipt
    monkeypatch.setattr(evidence, "MAX_MANIFEST_BYTES", len(files.manifest))
    monkeypatch.setattr(evidence, "MAX_RECEIPT_BYTES", len(files.receipt) - 1)
    faults = Evidence(tmp_path).load().faults
    assert {name: [fault.code for fault in each] for name, each in faults.items()} == {
        "receipt.json": [Code.TOO_LARGE]
    }


@pytest.mark.parametrize("which", ["manifest", "receipt"])
@pytest.mark.parametrize(
    "wrong",
    [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"x":' * 100_000, b'{"format":"putback/x/v9"}'],
)
def test_what_is_no_document_is_a_fault(files: Files, which: str, wrong: bytes) -> None:
    documents = files.with_(**{which: wrong}).load()
    assert [fault.code for fault in documents.faults[f"{which}.json"]] == [Code.DAMAGED]
    assert getattr(documents, which) is None and f"{which}.json" in failed(documents)


@pytest.mark.parametrize("which", ["manifest", "receipt"])
def test_only_the_one_form_is_taken(files: Files, which: str) -> None:
    data: bytes = getattr(files, which)
    loose = msgspec.json.format(data)
    for other in (loose, data + b"\n", b" " + data, data.replace(b"{", b'{"extra":1,', 1)):
        assert getattr(files.with_(**{which: other}).load(), which) is None


def test_the_digest_of_a_receipt_leaves_its_ledger_out(files: Files) -> None:
    receipt = files.load().receipt
    assert receipt
    digest = receipt_digest(receipt)
    assert digest == receipt_digest(edited(receipt, "ledger.head", "other"))
    assert digest != receipt_digest(edited(receipt, "session.cwd", "other"))
    bare = msgspec.json.decode(document.encode(receipt))
    del bare["ledger"]
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest == hashlib.sha256(text.encode()).hexdigest()


def test_details_are_few_and_say_how_many_more(files: Files) -> None:
    documents = files.load()
    for place in range(6):
        documents = edited(documents, f"ledger.changes.{place}.before", file(b"never was"))
    found = failed(documents)["changes against manifest"]
    assert found.count("was not so") == 3 and found.endswith("and 3 more"), found


def test_the_receipt_may_name_more_that_is_not_covered_than_the_manifest(files: Files) -> None:
    more = (NotCovered.at(b"grown", reason=Reason.TOO_LARGE),)
    found = failed(edited(files.load(), "receipt.ops.snapshot.not_covered", lambda old: (*old, *more)))
    assert "snapshot in receipt" not in found


def test_listing_is_what_the_manifest_has(files: Files) -> None:
    manifest = files.load().manifest
    assert manifest and listing({entry.raw: entry.state for entry in manifest.files}) == (manifest.files, ())
