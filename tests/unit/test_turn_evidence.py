"""The documents of a turn: believed together or not at all, and never more than the store bears out."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from putback.errors import IntegrityError, OutOfOrder, PutbackError, StorageError
from putback.fs import lock
from putback.progress import SILENT
from putback.records import document
from putback.records.turn import (
    TurnCapture,
    TurnIdentity,
    TurnPending,
    TurnReceipt,
    TurnResolution,
    TurnSnapshot,
    TurnStarted,
    TurnState,
)
from support.turns import Turning, records

replace = msgspec.structs.replace
KINDS: dict[str, type[msgspec.Struct]] = {
    "pending": TurnPending,
    "begun": TurnCapture,
    "sealing": TurnPending,
    "sealed": TurnCapture,
    "started": TurnStarted,
    "receipt": TurnReceipt,
    "resolution": TurnResolution,
}
# What the turn is said to be without that document; None where the others make no sense then.
WITHOUT = {
    "pending": None,
    "begun": None,
    "sealing": None,
    "sealed": None,
    "started": None,
    "receipt": TurnState.UNKNOWN,
}


def act(turning: Turning) -> None:
    turning.write("a", "by the turn\n")
    turning.stage("a")
    turning.write("private", "by the turn\n")
    turning.write("made", "made\n")


@pytest.fixture
def sealed(turning: Turning) -> TurnCapture:
    return turning.over("a", "loose", "made", "never", "private", act=lambda: act(turning))


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Put the folder back as it was, whatever is done to it."""
    aside = folder.parent.parent / "aside"
    shutil.copytree(folder, aside, symlinks=True)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        aside.rename(folder)


def load(folder: Path, name: str) -> Any:
    return document.decode((folder / f"{name}.json").read_bytes()[:-1], KINDS[name], name)


def store(folder: Path, name: str, record: msgspec.Struct) -> None:
    (folder / f"{name}.json").write_bytes(document.encode(record) + b"\n")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "garbled": lambda data: b"garbage\n",
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "extra field": lambda data: data.replace(b'{"', b'{"a":1,"', 1),
    "extra field inside": lambda data: data.replace(b'"path":"a"', b'"path":"a","q":1'),
    "spaces": lambda data: data.replace(b":", b": ", 1),
    "of another kind": lambda data: data.replace(b"putback/turn", b"putback/burn", 1),
}


@pytest.mark.requirement("H33", "H34", "H37")
def test_every_document_is_needed_and_has_to_be_whole(turning: Turning, sealed: TurnCapture) -> None:
    plan = turning.prepare(sealed)
    turning.apply(plan)
    second = turning.over("a", act=lambda: turning.write("a", "second\n"))
    turning.apply(second)
    folder, other = turning.folder(second).path, turning.folder(sealed).path
    plan = turning.prepare(second)

    def inspect() -> TurnState:
        return turning.turns.inspect(turning.binding, second.id).state

    before = records(turning.store)
    for name, state in WITHOUT.items():
        file = folder / f"{name}.json"
        data = file.read_bytes()
        file.unlink()
        if state is None:
            with pytest.raises(IntegrityError, match=r"damaged turn document .*is (missing|not that of the turn)"):
                inspect()
        else:
            assert inspect() is state
            with pytest.raises(OutOfOrder, match="there is no receipt"):
                turning.apply(plan)
        for way, damage in DAMAGE.items():
            if damage(data) == data:
                continue
            file.write_bytes(damage(data))
            with pytest.raises(IntegrityError, match=re.escape(f"{name}.json")):
                inspect()
            assert way
        file.write_bytes((other / f"{name}.json").read_bytes())
        with pytest.raises(IntegrityError, match=re.escape(f"{name}.json") + ".* is not that of the turn"):
            inspect()
        with pytest.raises(IntegrityError), turning.untouched_files():
            turning.apply(plan)
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(PutbackError):
            inspect()
        file.unlink()
        file.symlink_to(other / f"{name}.json")
        with pytest.raises(StorageError, match="cannot read"):
            inspect()
        file.unlink()
        file.mkdir()
        with pytest.raises(StorageError, match="cannot read"):
            inspect()
        file.rmdir()
        file.write_bytes(data)
    assert records(turning.store) == before
    assert turning.apply(plan).already


def changed_end(change: Callable[[TurnSnapshot], TurnSnapshot]) -> Callable[[Any], Any]:
    return lambda capture: replace(capture, end=change(capture.end))


def shorter(end: TurnSnapshot) -> TurnSnapshot:
    """Without a path that is absent on both sides, and so in no tree."""
    return replace(end, selected=tuple(item for item in end.selected if item.path != "never"))


def renamed(end: TurnSnapshot) -> TurnSnapshot:
    chosen = (replace(item, path="other") if item.path == "never" else item for item in end.selected)
    return replace(end, selected=tuple(chosen))


# Document, the field that the refusal names, and the lie.
LIES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("pending", "digest", lambda it: replace(it, reserved_bytes=0)),
    ("begun", "id", lambda it: replace(it, id="0" * 64)),
    ("begun", "turn", lambda it: replace(it, turn=TurnIdentity(turn_id="t", generation=2))),
    ("begun", "turn", lambda it: replace(it, binding="0" * 64)),
    ("begun", "turn", lambda it: replace(it, binding_id="other")),
    ("begun", "turn", lambda it: replace(it, binding_generation=2)),
    ("begun", "turn", lambda it: replace(it, paths=it.paths[1:])),
    ("begun", "end", lambda it: replace(it, end=it.begin)),
    ("begun", "paths", lambda it: replace(it, begin=shorter(it.begin))),
    ("sealing", "capture_id", lambda it: replace(it, capture_id="0" * 64)),
    ("sealing", "turn", lambda it: replace(it, paths=it.paths[1:])),
    ("sealed", "id", lambda it: replace(it, id="0" * 64)),
    ("sealed", "turn", lambda it: replace(it, paths=it.paths[1:])),
    ("sealed", "beginning", lambda it: replace(it, begin=it.end)),
    ("sealed", "end", lambda it: replace(it, end=None)),
    ("sealed", "paths", changed_end(shorter)),
    ("sealed", "paths", changed_end(renamed)),
    ("started", "capture_id", lambda it: replace(it, capture_id="0" * 64)),
    ("receipt", "capture_id", lambda it: replace(it, capture_id="0" * 64)),
    ("receipt", "proposal", lambda it: replace(it, proposal="0" * 64)),
    ("receipt", "started", lambda it: replace(it, started="0" * 64)),
    ("receipt", "capture", lambda it: replace(it, capture="0" * 64)),
]


@pytest.mark.requirement("H16", "H35", "H37")
def test_documents_that_contradict_each_other(turning: Turning, sealed: TurnCapture) -> None:
    turning.apply(sealed)
    folder = turning.folder(sealed).path
    for name, field, lie in LIES:
        with kept(folder):
            truth = load(folder, name)
            store(folder, name, lie(truth))
            said = re.escape(f"{name}.json") + f"': {field} is not that of the turn"
            with pytest.raises(IntegrityError, match=said):
                turning.turns.inspect(turning.binding, sealed.id)
    with kept(folder):
        person = {"actor": "ann", "reason": "why", "was": "unknown", "created_ns": 1}
        store(folder, "resolution", TurnResolution(capture_id="0" * 64, **person))
        with pytest.raises(IntegrityError, match=r"resolution\.json.*capture_id"):
            turning.turns.inspect(turning.binding, sealed.id)
    # A beginning without which the seal means nothing; and a start without an end to start from.
    bare = ("begun", "sealed", "started", "receipt")
    for missing, said in (
        (bare, "sealing.json': beginning"),
        (("begun",), "beginning"),
        (("sealed", "receipt"), "end"),
        (("sealing",), "seal"),
    ):
        with kept(folder):
            for name in missing:
                (folder / f"{name}.json").unlink()
            with pytest.raises(IntegrityError, match=f"{said} is not that of the turn"):
                turning.turns.inspect(turning.binding, sealed.id)


@pytest.mark.requirement("H3", "H37")
def test_folders_that_are_no_turns(turning: Turning, sealed: TurnCapture) -> None:
    folder = turning.folder(sealed).path

    def refuses(said: str) -> None:
        with pytest.raises(IntegrityError, match=said):
            turning.turns.list(turning.binding)

    for name in ("x", f"1-{sealed.id}", f"{1:016d}-{sealed.id}x"):
        (folder.parent / name).mkdir()
        refuses("no turn")
        (folder.parent / name).rmdir()
    (folder.parent / "x.part").mkdir()
    assert turning.turns.list(turning.binding)
    later = folder.with_name(f"{2:016d}-{sealed.id}")
    folder.rename(later)
    refuses("generation is not that of the turn")
    later.rename(folder.with_name(f"{1:016d}-{'0' * 64}"))
    refuses("digest is not that of the turn")
    folder.with_name(f"{1:016d}-{'0' * 64}").rename(folder)
    alien = replace(load(folder, "pending"), binding="0" * 64)
    made = folder.with_name(f"{1:016d}-{document.digest(alien)}")
    made.mkdir()
    store(made, "pending", alien)
    refuses("a turn of another binding")
    shutil.rmtree(made)
    shutil.move(folder.parent, folder.parent.with_name("away"))
    folder.parent.write_bytes(b"")
    with pytest.raises(StorageError):
        turning.turns.list(turning.binding)
    folder.parent.unlink()
    assert turning.turns.list(turning.binding) == []


def object_file(turning: Turning, oid: str) -> Path:
    return turning.store / "objects.git" / "objects" / oid[:2] / oid[2:]


@pytest.mark.requirement("H16", "H23", "H26")
def test_what_the_store_has_lost_is_not_put_back(turning: Turning, sealed: TurnCapture) -> None:
    """Each object of both ends, gone or garbled: refused, before any effect."""
    plan = turning.prepare(sealed)
    assert sealed.end is not None
    needed = set()
    for end in (sealed.begin, sealed.end):
        needed |= {end.capture, end.untracked}
        for item in end.selected:
            needed |= {item.worktree.digest} if item.worktree else set()
            needed |= {item.index.content} if item.index else set()
    assert len(needed) > 8
    for number, oid in enumerate(sorted(needed)):
        file = object_file(turning, oid)
        data = file.read_bytes()
        file.unlink()
        if number % 2:
            file.write_bytes(b"garbled")
        with turning.untouched_files(), pytest.raises(IntegrityError):
            turning.apply(plan)
        file.unlink(missing_ok=True)
        file.write_bytes(data)
    assert turning.state(sealed) is TurnState.SEALED
    turning.apply(plan)


def in_selected(path: str, change: Callable[[Any], Any]) -> Callable[[TurnSnapshot], TurnSnapshot]:
    def changed(end: TurnSnapshot) -> TurnSnapshot:
        return replace(end, selected=tuple(change(item) if item.path == path else item for item in end.selected))

    return changed


def with_mode(mode: int) -> Callable[[Any], Any]:
    return lambda item: replace(item, worktree=replace(item.worktree, mode=mode))


# Documents that agree with each other, and not with what was captured.
FORGERIES: dict[str, tuple[Callable[[TurnSnapshot], TurnSnapshot], str]] = {
    "another tree": (lambda end: replace(end, files_tree="0" * 64), "work tree"),
    "another index": (lambda end: replace(end, index_tree="0" * 64), "index"),
    "another list": (lambda end: replace(end, untracked="0" * 64), "untracked list"),
    "another content": (
        in_selected("a", lambda it: replace(it, worktree=replace(it.worktree, digest="0" * 64))),
        "work tree",
    ),
    "executable": (in_selected("a", with_mode(0o755)), "work tree"),
    "a mode of its own": (in_selected("private", with_mode(0o644)), "modes"),
    "more than permissions": (in_selected("a", with_mode(0o4644)), "modes"),
    "another staged content": (
        in_selected("a", lambda it: replace(it, index=replace(it.index, content="0" * 64))),
        "index",
    ),
    "another id in the repository": (
        in_selected("a", lambda it: replace(it, index=replace(it.index, blob="0" * 40))),
        "is not 0000",
    ),
    "another head": (lambda end: replace(end, head=replace(end.head, branch="side")), "HEAD"),
}


@pytest.mark.requirement("H16", "H26")
@pytest.mark.parametrize("where", ["begin", "end"])
def test_forged_documents_change_nothing(turning: Turning, sealed: TurnCapture, where: str) -> None:
    folder = turning.folder(sealed).path
    for way, (forge, said) in FORGERIES.items():
        with kept(folder):
            for name in ("begun", "sealed") if where == "begin" else ("sealed",):
                truth = load(folder, name)
                store(folder, name, replace(truth, **{where: forge(getattr(truth, where))}))
            with turning.untouched_files(), pytest.raises(IntegrityError) as caught:
                turning.apply(sealed)
            assert said in caught.value.message, way
    assert turning.state(sealed) is TurnState.SEALED


@pytest.mark.requirement("H37")
def test_inspection_takes_no_lock_and_writes_nothing(turning: Turning, sealed: TurnCapture) -> None:
    """While another process holds everything that an operation takes."""
    where = turning.workspace.paths
    held = [where.lock, where.store.lock, where.store.claims / "gate", turning.place.lease]
    everything = {path: path.stat().st_mtime_ns for path in turning.store.rglob("*")}

    def asks() -> None:
        status = turning.turns.inspect(turning.binding, sealed.id)
        assert status.state is TurnState.SEALED and status.latest and status.turn == sealed.turn
        assert status.reserved_bytes == sealed.begin.bytes + sealed.end.bytes  # type: ignore[union-attr]
        assert [found.capture_id for found in turning.turns.list(turning.binding)] == [sealed.id]

    with ExitStack() as stack:
        for file in held:
            stack.enter_context(lock.hold(file, "a test", False, 0.0, SILENT))
        everything = {path: path.stat().st_mtime_ns for path in turning.store.rglob("*")}
        with turning.unrecorded():
            asks()
    assert {path: path.stat().st_mtime_ns for path in turning.store.rglob("*")} == everything


@pytest.mark.requirement("H35")
def test_a_receipt_without_the_documents_before_it_proves_nothing(turning: Turning, sealed: TurnCapture) -> None:
    """A receipt that somebody put there is no application."""
    plan, folder = turning.prepare(sealed), turning.folder(sealed).path
    forged = TurnReceipt(
        capture_id=sealed.id,
        proposal=plan.digest,
        started="0" * 64,
        actor="x",
        reason="x",
        capture=sealed.begin.capture,
        created_ns=1,
    )
    store(folder, "receipt", forged)
    for ask in (lambda: turning.state(sealed), lambda: turning.apply(plan)):
        with turning.untouched_files(), pytest.raises(IntegrityError, match=r"receipt\.json.*started"):
            ask()
    (folder / "receipt.json").unlink()
    started = TurnStarted(capture_id=sealed.id, proposal=plan.digest, lock_device=0, lock_inode=0, created_ns=1)
    store(folder, "started", started)
    store(folder, "receipt", replace(forged, started=document.digest(started)))
    # All of it forged, and the tree says otherwise.
    with turning.untouched_files(), pytest.raises(PutbackError, match="does not stand any more"):
        turning.apply(plan)
