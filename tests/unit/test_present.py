"""What the store holds is told as git would tell it, and never more than that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from putback.git.loose import LooseWriter
from putback.git.objectid import deflate, object_id
from putback.git.packs import PackWriter
from putback.git.present import Present
from support.plumbing import Bare, make_bare

ABSENT = object_id("blob", b"nobody has this")


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return make_bare(tmp_path)


def packed(bare: Bare, count: int = 300, salt: bytes = b"") -> list[bytes]:
    oids = []
    with PackWriter(bare.scratch) as writer:
        for number in range(count):
            data = b"packed %d %b" % (number, salt)
            oids.append(object_id("blob", data))
            writer.add("blob", oids[-1], len(data), deflate(data))
        writer.finish(bare.packs)
    return oids


def loose(bare: Bare, data: bytes = b"loose") -> bytes:
    with LooseWriter(bare.scratch, bare.packs.parent) as writer:
        oid = bytes.fromhex(writer.add_whole("blob", data))
        writer.finish()
    return oid


def place_of(bare: Bare, oid: bytes) -> Path:
    return bare.packs.parent / oid.hex()[:2] / oid.hex()[2:]


def test_what_is_in_packs_or_loose_is_present(bare: Bare) -> None:
    held = [*packed(bare), *packed(bare, 3, b"more"), loose(bare)]
    assert Present(bare.packs.parent)([*held, ABSENT]) == set(held)
    assert Present(bare.packs.parent)([]) == set()


def test_an_empty_store_holds_nothing(tmp_path: Path) -> None:
    assert Present(tmp_path / "nowhere")([ABSENT]) == set()


def test_a_pack_that_git_itself_made_counts(bare: Bare) -> None:
    held = [loose(bare, b"%d" % number) for number in range(20)]
    bare.git("pack-objects", str(bare.packs / "pack"), given=b"".join(oid.hex().encode() + b"\n" for oid in held))
    for oid in held:
        place_of(bare, oid).unlink()
    assert Present(bare.packs.parent)([*held, ABSENT]) == set(held)


@pytest.mark.parametrize(
    "content", [b"", b"no zlib stream", deflate(b"neither kind nor size"), deflate(b"blob 5")]
)
def test_a_loose_file_that_does_not_begin_as_an_object_is_not_present(bare: Bare, content: bytes) -> None:
    oid = loose(bare)
    place_of(bare, oid).chmod(0o600)
    place_of(bare, oid).write_bytes(content)
    assert Present(bare.packs.parent)([oid]) == set()


def spoil(file: Path, change: Callable[[bytes], bytes]) -> None:
    file.chmod(0o600)
    file.write_bytes(change(file.read_bytes()))


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        ("pack", lambda data: b""),
        ("pack", lambda data: data[:-40]),
        ("pack", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        ("pack", lambda data: b"JUNK" + data[4:]),
        ("pack", lambda data: data[:11] + b"\1" + data[12:]),
        ("idx", lambda data: b""),
        ("idx", lambda data: b"JUNK" + data[4:]),
        ("idx", lambda data: data[:1500]),
    ],
)
def test_a_pack_that_is_not_the_one_of_its_index_holds_nothing(
    bare: Bare, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    oids = packed(bare)
    (file,) = bare.packs.glob(f"*.{suffix}")
    spoil(file, change)
    assert Present(bare.packs.parent)(oids) == set()


def test_an_index_without_its_pack_holds_nothing(bare: Bare) -> None:
    oids = packed(bare)
    (file,) = bare.packs.glob("*.pack")
    os.unlink(file)
    assert Present(bare.packs.parent)(oids) == set()
