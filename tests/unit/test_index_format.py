"""The index as a file, checked against the real git in both directions."""

from __future__ import annotations

import os
import stat
import struct
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from putback.git.index import (
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    DamagedIndex,
    git_mode,
    make_record,
    read_index,
    record_mode,
    record_oid,
    record_size,
    same_stat,
    write_index,
)
from support.plumbing import ODD_NAMES, Bare, make_bare


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return make_bare(tmp_path)


@pytest.fixture
def filled(bare: Bare) -> Bare:
    for number, name in enumerate(ODD_NAMES):
        bare.write(name, b"" if name == b"empty" else b"text %d\n" % number, executable=number % 3 == 0)
    bare.link(b"link", b"plain")
    # Git compares a link that is racily clean with the object, a file with the id alone.
    bare.git("hash-object", "-w", "--stdin", given=b"plain")
    return bare


NAMES = [*ODD_NAMES, b"link"]


def resealed(body: bytes) -> bytes:
    return body + sha256(body).digest()


def test_git_reads_what_we_write(filled: Bare) -> None:
    entries = filled.records(NAMES)
    write_index(filled.index, entries, None)
    listed = filled.git("ls-files", "-s", "-z").split(b"\0")[:-1]
    expected = [
        b"%06o %b 0\t%b" % (record_mode(record), record_oid(record).hex().encode(), name)
        for name, record in sorted(entries.items())
    ]
    assert listed == expected
    assert filled.git("diff-files", "--raw", "-z") == b""


def test_we_read_what_git_writes_and_agree_on_every_byte(filled: Bare) -> None:
    filled.add_with_git(NAMES)
    entries = read_index(filled.index)
    assert entries == filled.records(NAMES)
    assert list(entries) == sorted(NAMES)
    by_git = filled.index.read_bytes()
    write_index(filled.index, entries, None)
    assert filled.index.read_bytes() == by_git


def test_git_notices_a_change_under_our_index(filled: Bare) -> None:
    write_index(filled.index, filled.records(NAMES), None)
    filled.write(b"plain", b"something else")
    assert filled.git("diff-files", "--name-only", "-z") == b"plain\0"


def test_a_long_path_uses_the_saturated_length(bare: Bare) -> None:
    name = b"/".join([b"x" * 200] * 30)
    assert len(name) > 0xFFF
    bare.write(b"f", b"1")
    record = bare.record(b"f")
    for length in (0xFFD, 0xFFE, 0xFFF, 0x1000):
        entries = {name[:length].rstrip(b"/") + b"y" * 3: record, b"zz": record, name: record}
        write_index(bare.index, entries, None)
        assert read_index(bare.index) == entries
        assert bare.git("ls-files", "-z").split(b"\0")[:-1] == sorted(entries)


def test_version_3_loses_its_flags_and_intent_to_add_is_left_out(filled: Bare) -> None:
    filled.add_with_git([b"plain", b"sub0"])
    filled.git("update-index", "--skip-worktree", "plain")
    filled.git("update-index", "--assume-unchanged", "sub0")
    filled.git("add", "-N", "empty")
    assert filled.index.read_bytes()[4:8] == b"\0\0\0\3"
    assert read_index(filled.index) == filled.records([b"plain", b"sub0"])


def test_a_missing_index_is_empty_and_an_empty_one_is_written(bare: Bare) -> None:
    assert read_index(bare.index) == {}
    write_index(bare.index, {}, None)
    assert read_index(bare.index) == {}
    assert bare.git("ls-files") == b""


def test_the_file_is_private_and_nothing_is_left_beside_it(bare: Bare) -> None:
    lock = bare.index.with_name("index.lock")
    lock.write_bytes(b"left over" * 1000)
    lock.chmod(0o644)
    write_index(bare.index, {}, None)
    assert stat.S_IMODE(bare.index.stat().st_mode) == 0o600
    assert not lock.exists()


def test_a_failed_write_keeps_the_old_index(filled: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(filled.index, filled.records([b"plain"]), None)
    before = filled.index.read_bytes()

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write_index(filled.index, filled.records([b"plain", b"sub0"]), None)
    assert filled.index.read_bytes() == before
    assert not filled.index.with_name("index.lock").exists()


def test_every_truncation_is_refused(filled: Bare) -> None:
    write_index(filled.index, filled.records([b"plain", b"sub0"]), b"\x00-1 0\n")
    whole = filled.index.read_bytes()
    for length in range(len(whole)):
        filled.index.write_bytes(whole[:length])
        with pytest.raises(DamagedIndex):
            read_index(filled.index)


def test_every_flipped_byte_is_refused(filled: Bare) -> None:
    write_index(filled.index, filled.records([b"plain"]), None)
    whole = filled.index.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        filled.index.write_bytes(damaged)
        with pytest.raises(DamagedIndex):
            read_index(filled.index)


def entry(name: bytes, flags: int | None = None) -> bytes:
    head = bytes(40) + b"\1" * 32 + struct.pack(">H", len(name) if flags is None else flags)
    return head + name + b"\0" * (8 - (len(head) + len(name)) % 8)


@pytest.mark.parametrize(
    ("version", "count", "rest", "says"),
    [
        (4, 0, b"", "version"),
        (2, 1, entry(b"a", 0x1001), "unmerged"),
        (2, 1, entry(b"a", 0x4001), "extended"),
        (2, 1, entry(b"abc", 2), "does not end"),
        (2, 1, entry(b"abc", 4), "NUL"),
        (2, 2, entry(b"b") + entry(b"a"), "sorted"),
        (2, 2, entry(b"a") + entry(b"a"), "twice"),
        (2, 1, entry(b""), "empty"),
        (2, 1, entry(b"a\0b"), "NUL"),
        (2, 0xFFFFFFFF, entry(b"a"), "malformed|does not end"),
        (2, 2, entry(b"a"), "malformed|checksum|does not end"),
        (2, 0, b"link\0\0\0\0", "not supported"),
        (2, 0, b"TREE\0\0\0\5abc", "checksum"),
        (2, 0, b"TREE\0\0", "truncated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_index_with_a_good_checksum_is_refused(
    tmp_path: Path, version: int, count: int, rest: bytes, says: str
) -> None:
    path = tmp_path / "index"
    path.write_bytes(resealed(struct.pack(">4sII", b"DIRC", version, count) + rest))
    with pytest.raises(DamagedIndex, match=says):
        read_index(path)


def test_an_unmerged_index_of_git_is_refused(filled: Bare) -> None:
    oid = filled.git("hash-object", "-w", "plain").strip()
    lines = b"".join(b"100644 %b %d\tplain\n" % (oid, stage) for stage in (1, 2, 3))
    filled.git("update-index", "--index-info", given=lines)
    with pytest.raises(DamagedIndex, match="unmerged"):
        read_index(filled.index)


def test_a_record_answers_what_it_was_made_of(filled: Bare) -> None:
    record = filled.record(b"plain")
    now = filled.lstat(b"plain")
    assert len(record) == 72
    assert record_mode(record) == EXECUTABLE
    assert record_size(record) == now.st_size
    assert same_stat(record, now)
    os.chmod(filled.tree / "plain", 0o644)
    assert not same_stat(record, filled.lstat(b"plain"))
    assert not same_stat(record, filled.lstat(b"sub"))
    assert not same_stat(record, filled.lstat(b"sub0"))


def test_modes_are_gits() -> None:
    assert git_mode(stat.S_IFREG | 0o611) == REGULAR
    assert git_mode(stat.S_IFREG | 0o100) == EXECUTABLE
    assert git_mode(stat.S_IFLNK | 0o777) == SYMLINK
    assert git_mode(stat.S_IFDIR | 0o755) is None
    assert git_mode(stat.S_IFIFO | 0o600) is None


def test_an_id_of_another_length_makes_no_record(filled: Bare) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        make_record(filled.lstat(b"plain"), REGULAR, b"\1" * 20)


paths = st.binary(min_size=1, max_size=60).filter(lambda name: 0 not in name)


@settings(max_examples=80, deadline=None)
@given(entries=st.dictionaries(paths, st.binary(min_size=72, max_size=72), max_size=12), tree=st.binary())
def test_entries_survive_the_round_trip(
    entries: dict[bytes, bytes], tree: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip-index"
    write_index(path, entries, tree)
    again = read_index(path)
    assert again == entries
    assert list(again) == sorted(entries)
