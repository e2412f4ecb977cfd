"""What is staged at the paths of a turn: read without a trace, judged, and put back into the user's objects."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from putback.errors import IntegrityError, StorageError, UnsupportedPath
from putback.git import command
from putback.git.user_repo import UserRepository, open_at
from putback.turns import staged
from putback.turns.staged import Blob, Fault, Staged, faults, judge
from support.hermetic import git, make_repository, unmoved
from support.indexes import FORMATS, TREE, make, read

BINARY = bytes(range(256)) * 300 + b"\r\n\0"


def opened(root: Path) -> Staged:
    found = open_at(command.find(), os.fsencode(root))
    assert isinstance(found, UserRepository)
    return staged.open_at(found)


@pytest.fixture(params=FORMATS)
def rich(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / "tree", request.param, 3)


def oid_at(root: Path, path: str) -> str:
    return git(root, "rev-parse", f":{path}").strip().decode()


def object_file(root: Path, oid: str) -> Path:
    return root / ".git" / "objects" / oid[:2] / oid[2:]


def touched(path: Path) -> tuple[int, int, int]:
    """What changes when somebody writes or replaces a file."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def files_of(root: Path) -> set[Path]:
    return {path for path in (root / ".git" / "objects").rglob("*") if path.is_file()}


# --- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("H6", "H14")
def test_reading_leaves_no_trace(rich: Path) -> None:
    """Not refreshed, although the stat data of a file no longer tell."""
    os.utime(rich / "changed", (1, 1))
    with unmoved(rich):
        found = opened(rich)
        index = found.read()
        entries = judge(index, [b"changed", b"run", b"no"])
        blobs = {path: item.oid for path, item in entries.items() if item}
        sizes = found.sizes(blobs)
        contents = found.contents({path: Blob(oid, sizes[path]) for path, oid in blobs.items()})
    assert contents == {b"changed": b"A\n", b"run": b"#!/bin/sh\n"}
    assert index.data == (rich / ".git" / "index").read_bytes()
    item = entries[b"run"]
    assert entries[b"no"] is None and item is not None
    assert (item.mode, item.oid) == (0o100755, oid_at(rich, "run"))


@pytest.mark.requirement("H6")
def test_what_is_staged_is_read_not_what_stands_in_the_work_tree(repository: Path) -> None:
    (repository / "committed").write_bytes(BINARY)
    git(repository, "add", "committed")
    (repository / "committed").write_bytes(b"unstaged B\n")
    found = opened(repository)
    oid = oid_at(repository, "committed")
    assert found.sizes({b"committed": oid}) == {b"committed": len(BINARY)}
    assert found.contents({b"committed": Blob(oid, len(BINARY))}) == {b"committed": BINARY}


def test_a_repository_without_index_and_commits(tree: Path) -> None:
    git(tree, "init", "-q", "--template=")
    index = opened(tree).read()
    assert index.data is None and index.names == []
    assert judge(index, [b"a", b"b/c"]) == {b"a": None, b"b/c": None}
    assert not (tree / ".git" / "index").exists()


def test_a_linked_worktree_has_an_index_of_its_own(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    (linked / "more").write_text("more\n")
    git(linked, "add", "more")
    assert opened(linked).read().names == [b"committed", b"more"]
    assert opened(repository).read().names == [b"committed"]


@pytest.mark.parametrize("put", ["link", "pipe", "directory"])
def test_an_index_that_is_no_file_is_refused(repository: Path, tmp_path: Path, put: str) -> None:
    index = repository / ".git" / "index"
    found = opened(repository)
    index.rename(tmp_path / "elsewhere")
    if put == "link":
        index.symlink_to(tmp_path / "elsewhere")
    elif put == "pipe":
        os.mkfifo(index)
    else:
        index.mkdir()
    with pytest.raises(UnsupportedPath, match=r"symbolic link|not a regular file"):
        found.read()


def test_a_damaged_index_is_refused(repository: Path) -> None:
    index = repository / ".git" / "index"
    for data in (b"", index.read_bytes()[:-1]):
        index.write_bytes(data)
        with pytest.raises(UnsupportedPath, match=r"your index is truncated|your index checksum"):
            opened(repository).read()


def test_an_unreadable_git_directory_is_an_error_of_the_disk(repository: Path) -> None:
    found = opened(repository)
    (repository / ".git").rename(repository / "moved")
    with pytest.raises(StorageError):
        found.read()


# --- judging ----------------------------------------------------------------------------------------------------

JUDGED = {
    b"conflict": (Fault.UNMERGED,),
    b"added-only": (Fault.INTENT_TO_ADD,),
    b"assumed": (Fault.ASSUME_UNCHANGED,),
    b"skipped": (Fault.SKIP_WORKTREE,),
    b"link": (Fault.SYMLINK,),
    b"module": (Fault.SUBMODULE,),
    b"changed/x": (Fault.BELOW_FILE,),
    b"changed/x/y": (Fault.BELOW_FILE,),
    b"link/x": (Fault.BELOW_SYMLINK,),
    b"module/x": (Fault.BELOW_SUBMODULE,),
    b"zz": (Fault.DIRECTORY,),
    **dict.fromkeys((b"changed", b"run", b"binary", b"new\nline", b"not-utf8-\xff", b"zz/-dash", b"no", b"a"), ()),
    b"a": (Fault.DIRECTORY,),
}


@pytest.mark.requirement("H11", "H31")
def test_every_fault_has_its_word(tmp_path: Path) -> None:
    index = read(make(tmp_path / "tree"))
    assert {path: faults(index, path) for path in JUDGED} == JUDGED
    tried = {fault for found in JUDGED.values() for fault in found}
    assert tried == set(Fault) - {Fault.MODE}


@pytest.mark.requirement("H31")
def test_a_mode_that_git_does_not_write_is_refused(repository: Path) -> None:
    index = repository / ".git" / "index"
    mode = (0o100644).to_bytes(4, "big")
    # Without a checksum, as index.skipHash writes it.
    index.write_bytes(index.read_bytes()[:-20].replace(mode, (0o100664).to_bytes(4, "big"), 1) + bytes(20))
    assert faults(opened(repository).read(), b"committed") == (Fault.MODE,)


@pytest.mark.requirement("H11", "H31")
def test_a_refusal_names_every_path_with_all_its_faults(tmp_path: Path) -> None:
    root = make(tmp_path / "tree")
    git(root, "update-index", "--skip-worktree", "assumed", "link")
    with pytest.raises(UnsupportedPath) as caught:
        judge(read(root), [b"run", *(path for path in JUDGED if path != b"run")])
    for path, found in JUDGED.items():
        assert (f"'{path.decode('utf-8', 'replace')}' (" in caught.value.message) == bool(found), path
    for words in ("'assumed' (assume_unchanged, skip_worktree)", "'link' (skip_worktree, symlink)"):
        assert words in caught.value.message


# --- contents ---------------------------------------------------------------------------------------------------


def replace_object(root: Path, oid: str, content: bytes) -> None:
    """Put another whole object under an id."""
    place = object_file(root, oid)
    place.chmod(0o600)
    place.write_bytes(zlib.compress(b"blob %d\0" % len(content) + content))


@pytest.mark.requirement("H6")
def test_a_missing_content_is_named_by_its_path(rich: Path) -> None:
    found, oid = opened(rich), oid_at(rich, "changed")
    object_file(rich, oid).unlink()
    with pytest.raises(IntegrityError, match=r"content of 'changed' is missing"):
        found.sizes({b"run": oid_at(rich, "run"), b"changed": oid})
    with pytest.raises(IntegrityError, match=r"content of 'changed': .* missing from your repository"):
        found.contents({b"changed": Blob(oid, 2)})


@pytest.mark.requirement("H16")
def test_a_content_that_is_not_what_its_id_says_is_refused(rich: Path) -> None:
    found, oid = opened(rich), oid_at(rich, "changed")
    replace_object(rich, oid, b"B\n")
    with pytest.raises(IntegrityError, match=r"'changed': .* in your repository"):
        found.contents({b"changed": Blob(oid, 2)})


def test_the_id_is_checked_here_as_well(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where git would give the wrong bytes without a word."""
    found, oid, other = opened(rich), oid_at(rich, "changed"), oid_at(rich, "run")
    monkeypatch.setattr("putback.git.objects.ObjectReader._send", lying(other))
    monkeypatch.setattr(
        "putback.git.objects.ObjectReader._answer", lambda self, _, kind: answer(self, other, kind)
    )
    with pytest.raises(IntegrityError, match=r"'changed': .* is damaged in your repository"):
        found.contents({b"changed": Blob(oid, 10)})


def lying(other: str) -> Callable[..., None]:
    from putback.git.objects import ObjectReader

    real = ObjectReader._send

    def send(self: ObjectReader, oids: list[str]) -> None:
        real(self, [other for _ in oids])
        self._sent.clear()
        self._sent += oids

    return send


def answer(reader: object, other: str, kind: str) -> int:
    fields = reader._line(other).split()  # type: ignore[attr-defined]
    assert fields[0].decode() == other and fields[1].decode() == kind
    return int(fields[2])


@pytest.mark.parametrize("said", [0, 1, len(BINARY) - 1, len(BINARY) + 1])
def test_a_content_of_another_size_than_was_said_is_refused(repository: Path, said: int) -> None:
    (repository / "big").write_bytes(BINARY)
    git(repository, "add", "big")
    oid, small = oid_at(repository, "big"), oid_at(repository, "committed")
    found = opened(repository)
    with pytest.raises(IntegrityError, match=rf"'big': .* is not of {said} bytes"):
        found.contents({b"big": Blob(oid, said)})
    contents = found.contents({b"committed": Blob(small, 2), b"big": Blob(oid, len(BINARY))})
    assert contents == {b"committed": b"1\n", b"big": BINARY}


def test_no_more_is_read_than_was_said(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "big").write_bytes(os.urandom(1 << 20))
    git(repository, "add", "big")
    taken: list[int] = []
    stream = staged.ObjectReader.stream

    def counted(self: staged.ObjectReader, oid: str, kind: str):
        for block in stream(self, oid, kind):
            taken.append(len(block))
            yield block

    monkeypatch.setattr(staged.ObjectReader, "stream", counted)
    with pytest.raises(IntegrityError, match="not of 10 bytes"):
        opened(repository).contents({b"big": Blob(oid_at(repository, "big"), 10)})
    assert sum(taken) <= 1 << 16


def test_what_is_no_blob_has_no_size(repository: Path) -> None:
    tree = git(repository, "rev-parse", "HEAD^{tree}").strip().decode()
    with pytest.raises(IntegrityError, match="not a blob"):
        opened(repository).sizes({b"a": tree})
    with pytest.raises(IntegrityError, match=r"'a': .* not a blob"):
        opened(repository).contents({b"a": Blob(tree, 33)})


def partial_clone(repository: Path, tmp_path: Path) -> Path:
    """A clone that lacks the contents of two files and may fetch them."""
    (repository / "other").write_text("other\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "other")
    git(repository, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    url = f"file://{repository}"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", url, str(clone))
    git(clone, "read-tree", "HEAD")
    return clone


def test_nothing_is_fetched_for_a_partial_clone(repository: Path, tmp_path: Path) -> None:
    clone = partial_clone(repository, tmp_path)
    found = opened(clone)
    entries = judge(found.read(), [b"committed", b"other"])
    blobs = {path: item.oid for path, item in entries.items() if item}
    # One that is asked for after those that are missing.
    text = next(text for text in map(b"%d".__mod__, range(999)) if lost(clone, text) > max(blobs.values()))
    here = git(clone, "hash-object", "-w", "--stdin", given=text).strip().decode()
    with unmoved(clone):
        with pytest.raises(IntegrityError, match=r"'committed' is missing") as caught:
            found.sizes(blobs | {b"z": here})
        assert "partial clone" in str(caught.value.hint)
        assert found.sizes({b"z": here}) == {b"z": len(text)}
        with pytest.raises(IntegrityError, match=r"'other'"):
            found.contents({b"other": Blob(blobs[b"other"], 6)})
    missing = {blobs[b"committed"]: b"1\n", blobs[b"other"]: b"other\n", here: text}
    assert set(found.import_blobs(missing)) == set(blobs.values())
    assert found.sizes(blobs) == {b"committed": 2, b"other": 6}


# --- contents that go back --------------------------------------------------------------------------------------


def lost(root: Path, content: bytes) -> str:
    """The id of a content that the repository does not have."""
    return git(root, "hash-object", "--stdin", "--no-filters", given=content).strip().decode()


@pytest.mark.requirement("H28")
def test_only_what_is_missing_is_written(rich: Path) -> None:
    found = opened(rich)
    git(rich, "config", "core.autocrlf", "true")
    present = oid_at(rich, "changed")
    contents = {present: b"A\n", lost(rich, BINARY): BINARY, lost(rich, b"\r\n"): b"\r\n"}
    before, stamp = files_of(rich), touched(object_file(rich, present))
    written = found.import_blobs(contents)
    assert set(written) == contents.keys() - {present}
    assert files_of(rich) - before == {object_file(rich, oid) for oid in written}
    assert touched(object_file(rich, present)) == stamp
    for oid in written:
        assert git(rich, "cat-file", "blob", oid) == contents[oid]
    git(rich, "update-index", "--force-remove", "conflict")
    assert b"error" not in git(rich, "fsck", "--strict")
    with unmoved(rich):
        assert found.import_blobs(contents) == ()
        assert found.import_blobs({}) == ()


@pytest.mark.requirement("H28")
def test_what_a_pack_or_a_lender_has_is_not_missing(repository: Path, tmp_path: Path) -> None:
    oid = oid_at(repository, "committed")
    git(repository, "repack", "-q", "-a", "-d")
    borrower = tmp_path / "borrower"
    git(tmp_path, "clone", "-q", "--shared", str(repository), str(borrower))
    for root in (repository, borrower):
        with unmoved(root):
            assert opened(root).import_blobs({oid: b"1\n"}) == ()


@pytest.mark.requirement("H28")
def test_a_content_under_another_id_is_refused_before_anything_is_written(rich: Path) -> None:
    good, wrong = lost(rich, b"good"), lost(rich, b"wrong")
    with unmoved(rich), pytest.raises(IntegrityError, match=f"not {wrong}"):
        opened(rich).import_blobs({good: b"good", wrong: b"other"})


def test_an_id_that_git_does_not_agree_on_is_refused(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Staged, "_oid", lambda _, __: "1" * len(oid_at(rich, "changed")))
    with pytest.raises(IntegrityError, match="another id"):
        opened(rich).import_blobs({"1" * len(oid_at(rich, "changed")): b"new"})


@pytest.mark.requirement("H28")
def test_a_damaged_object_is_never_taken_for_present(rich: Path) -> None:
    oid = oid_at(rich, "changed")
    replace_object(rich, oid, b"B\n")
    with unmoved(rich), pytest.raises(IntegrityError, match=oid[:12]):
        opened(rich).import_blobs({oid: b"A\n", lost(rich, b"good"): b"good"})


MODES = [
    (None, 0o022, 0o444, 0o755),
    (None, 0o077, 0o400, 0o700),
    ("group", 0o077, 0o440, 0o2770),
    ("0640", 0o022, 0o440, 0o2750),
    ("all", 0o077, 0o444, 0o2775),
]


@pytest.mark.requirement("H13", "H28")
@pytest.mark.parametrize(("shared", "umask", "file", "folder"), MODES)
@pytest.mark.parametrize("where", ["repository", "home"])
def test_objects_have_the_modes_that_the_users_own_git_gives(
    repository: Path, home: Path, shared: str | None, umask: int, file: int, folder: int, where: str
) -> None:
    if shared and where == "repository":
        git(repository, "config", "core.sharedRepository", shared)
    elif shared:
        (home / ".gitconfig").write_text(f"[core]\n\tsharedRepository = {shared}\n")
    oid = lost(repository, b"new\n")
    os.umask(umask)
    assert opened(repository).import_blobs({oid: b"new\n"}) == (oid,)
    place = object_file(repository, oid)
    assert stat.S_IMODE(place.stat().st_mode) == file
    assert stat.S_IMODE(place.parent.stat().st_mode) == folder


def test_objects_are_on_disk_before_the_call_returns(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "config", "core.fsync", "none")
    git(repository, "config", "core.fsyncMethod", "writeout-only")
    synced: list[Path] = []
    monkeypatch.setattr(staged, "sync_directory", synced.append)
    found, oid = opened(repository), lost(repository, b"new\n")
    found.import_blobs({oid: b"new\n"})
    objects = repository / ".git" / "objects"
    assert synced == [objects / oid[:2], objects]
    effective = dict(found._writing().settings)
    assert "loose-object" in effective.get("core.fsync", "") or effective.get("core.fsyncObjectFiles") == "true"
    assert effective["core.fsyncMethod"] == "fsync"


def test_a_linked_worktree_writes_into_the_common_objects(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    oid = lost(repository, b"")
    assert opened(linked).import_blobs({oid: b""}) == (oid,)
    assert object_file(repository, oid).exists()


def test_all_of_the_tree_can_be_read(rich: Path) -> None:
    found = opened(rich)
    names = [os.fsencode(name) for name in TREE]
    taken = [name for name in names if not faults(found.read(), name)]
    blobs = {path: item.oid for path, item in judge(found.read(), taken).items() if item}
    sizes = found.sizes(blobs)
    contents = found.contents({path: Blob(oid, sizes[path]) for path, oid in blobs.items()})
    root = os.fsencode(rich) + b"/"
    for path in taken:
        with open(root + path, "rb") as file:
            assert contents[path] == file.read()


def test_ids_of_an_unknown_kind_are_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository(repository / "other")
    monkeypatch.setattr(staged, "_OID_BYTES", {"sha256": 32})
    with pytest.raises(UnsupportedPath, match="sha1"):
        opened(repository)
