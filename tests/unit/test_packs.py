"""Packs written without git, read by git."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from putback.git import packs
from putback.git.objectid import deflate, object_id
from putback.git.packs import PackWriter
from support.plumbing import Bare, make_bare


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return make_bare(tmp_path)


def add_blob(writer: PackWriter, data: bytes) -> bytes:
    oid = object_id("blob", data)
    writer.add("blob", oid, len(data), deflate(data))
    return oid


def blocks_of(data: bytes, length: int) -> Iterator[bytes]:
    for start in range(0, len(data), length):
        yield data[start : start + length]


def leftovers(bare: Bare) -> list[str]:
    return os.listdir(bare.scratch)


def test_git_reads_every_object(bare: Bare) -> None:
    chance = random.Random(1)
    sizes = [0, 1, 15, 16, 17, 2047, 2048, 70_000, 3 << 20]
    contents = {object_id("blob", data): data for data in (chance.randbytes(size) for size in sizes)}
    with PackWriter(bare.scratch) as writer:
        for data in contents.values():
            add_blob(writer, data)
        assert writer.count == len(sizes)
        pack = writer.finish(bare.packs)
    assert pack is not None
    verified = bare.git("verify-pack", "-v", str(pack.with_suffix(".idx")))
    for oid, data in contents.items():
        assert b"%b blob   %d " % (oid.hex().encode(), len(data)) in verified
        assert bare.git("cat-file", "blob", oid.hex()) == data
    bare.fsck()
    assert leftovers(bare) == []


def test_the_index_is_byte_for_byte_gits(bare: Bare) -> None:
    with PackWriter(bare.scratch) as writer:
        for number in range(700):
            add_blob(writer, b"content %d" % number)
        pack = writer.finish(bare.packs)
    assert pack is not None
    by_git = bare.base / "by-git.idx"
    named = bare.git("index-pack", "--object-format=sha256", "-o", str(by_git), str(pack)).decode().strip()
    assert pack.name == f"pack-{named.split()[-1]}.pack"
    assert by_git.read_bytes() == pack.with_suffix(".idx").read_bytes()


def test_commits_and_trees_go_in_too(bare: Bare) -> None:
    with PackWriter(bare.scratch) as writer:
        blob = add_blob(writer, b"hello")
        tree_data = b"100644 f\0" + blob
        tree = object_id("tree", tree_data)
        writer.add("tree", tree, len(tree_data), deflate(tree_data))
        commit_data = b"tree %b\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nm\n" % tree.hex().encode()
        commit = object_id("commit", commit_data)
        writer.add("commit", commit, len(commit_data), deflate(commit_data))
        writer.finish(bare.packs)
    bare.git("update-ref", "refs/putback/x", commit.hex())
    bare.fsck()
    assert bare.git("show", "refs/putback/x:f") == b"hello"


def test_an_object_added_twice_is_there_once(bare: Bare) -> None:
    with PackWriter(bare.scratch) as writer:
        oid = add_blob(writer, b"same")
        end = writer.size
        add_blob(writer, b"same")
        assert writer.add_stream("blob", oid, 4, iter([b"same"]))
        assert (writer.count, writer.size) == (1, end)
        assert oid in writer
        writer.finish(bare.packs)
    bare.fsck()


def test_files_are_private_and_read_only(bare: Bare) -> None:
    with PackWriter(bare.scratch) as writer:
        add_blob(writer, b"secret")
        (part,) = bare.scratch.iterdir()
        assert stat.S_IMODE(part.stat().st_mode) == 0o600
        assert part.name.startswith(f"pack-{os.getpid()}-")
        assert part.name.endswith(".pack.part")
        pack = writer.finish(bare.packs)
    assert pack is not None
    for path in (pack, pack.with_suffix(".idx")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o400


def test_an_empty_writer_leaves_nothing(bare: Bare) -> None:
    with PackWriter(bare.scratch) as writer:
        assert writer.finish(bare.packs) is None
    assert leftovers(bare) == []
    assert os.listdir(bare.packs) == []


def test_leaving_without_finish_leaves_nothing(bare: Bare) -> None:
    with pytest.raises(KeyError), PackWriter(bare.scratch) as writer:
        add_blob(writer, b"x")
        raise KeyError
    writer.abort()
    assert leftovers(bare) == []
    assert os.listdir(bare.packs) == []
    with pytest.raises(ValueError, match="finished"):
        add_blob(writer, b"y")


def test_the_same_objects_published_twice_are_one_pack(bare: Bare) -> None:
    names = set()
    for _ in range(2):
        with PackWriter(bare.scratch) as writer:
            add_blob(writer, b"again")
            names.add(writer.finish(bare.packs))
    assert len(names) == 1
    bare.fsck()


@pytest.mark.parametrize("length", [1, 1000, 1 << 20, 5 << 20])
def test_a_streamed_object_is_as_good_as_a_whole_one(bare: Bare, length: int) -> None:
    data = random.Random(2).randbytes(1500) * (2 if length == 1 else 1200)
    oid = object_id("blob", data)
    with PackWriter(bare.scratch) as writer:
        before = add_blob(writer, b"before")
        assert writer.add_stream("blob", oid, len(data), blocks_of(data, length))
        after = add_blob(writer, b"after")
        writer.finish(bare.packs)
    assert bare.git("cat-file", "blob", oid.hex()) == data
    assert bare.git("cat-file", "blob", before.hex()) == b"before"
    assert bare.git("cat-file", "blob", after.hex()) == b"after"
    bare.fsck()


def other_content(data: bytes) -> Iterator[bytes]:
    yield from blocks_of(data[:-1] + b"\0", 1 << 20)


def shorter(data: bytes) -> Iterator[bytes]:
    yield from blocks_of(data[:-1], 1 << 20)


def longer(data: bytes) -> Iterator[bytes]:
    yield from blocks_of(data + b"x", 1 << 20)


@pytest.mark.parametrize("content", [other_content, shorter, longer])
def test_a_stream_of_something_else_is_rolled_back(bare: Bare, content: object) -> None:
    data = random.Random(3).randbytes(3 << 20)
    oid = object_id("blob", data)
    with PackWriter(bare.scratch) as writer:
        add_blob(writer, b"before")
        end = writer.size
        assert not writer.add_stream("blob", oid, len(data), content(data))  # type: ignore[operator]
        assert writer.size == end
        assert oid not in writer
        add_blob(writer, b"after")
        writer.finish(bare.packs)
    bare.fsck()


def test_a_stream_that_breaks_off_is_rolled_back(bare: Bare) -> None:
    data = random.Random(4).randbytes(3 << 20)

    def broken() -> Iterator[bytes]:
        yield data[: 2 << 20]
        raise TimeoutError

    with PackWriter(bare.scratch) as writer:
        add_blob(writer, b"before")
        with pytest.raises(TimeoutError):
            writer.add_stream("blob", object_id("blob", data), len(data), broken())
        assert writer.count == 1
        add_blob(writer, b"after")
        writer.finish(bare.packs)
    bare.fsck()


@pytest.mark.parametrize("call", ["write", "fsync", "pwrite"])
def test_a_full_disk_is_told_and_leaves_nothing(bare: Bare, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"), PackWriter(bare.scratch) as writer:
        add_blob(writer, b"x")
        monkeypatch.setattr(os, call, full)
        writer.finish(bare.packs)
    monkeypatch.undo()
    assert leftovers(bare) == []
    assert os.listdir(bare.packs) == []


def test_a_failed_write_while_streaming_is_not_taken_for_changed_content(
    bare: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(5).randbytes(3 << 20)

    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with PackWriter(bare.scratch) as writer:
        add_blob(writer, b"x")
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            writer.add_stream("blob", object_id("blob", data), len(data), blocks_of(data, 1 << 20))
        assert leftovers(bare) == []


def test_the_pack_has_its_name_before_the_index(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[str] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        renamed.append(target.suffix)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    with PackWriter(bare.scratch) as writer:
        add_blob(writer, b"x")
        writer.finish(bare.packs)
    assert renamed == [".pack", ".idx"]


def test_offsets_beyond_two_gigabytes_go_through_the_second_table() -> None:
    near, far = packs._split_offsets([12, 0x7FFFFFFF, 0x80000000, 5 << 32])
    assert near == [12, 0x7FFFFFFF, 0x80000000, 0x80000001]
    assert far == [0x80000000, 5 << 32]
