"""Tree objects built from entries, against `git write-tree`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from putback.git.index import REGULAR, SYMLINK, Entries, write_index
from putback.git.objectid import deflate, object_id
from putback.git.packs import PackWriter
from putback.git.trees import Trees, build_trees
from support.plumbing import ODD_NAMES, Bare, make_bare

BLOB = object_id("blob", b"x")


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return make_bare(tmp_path)


def entry(mode: int = REGULAR, oid: bytes = BLOB) -> bytes:
    return bytes(24) + mode.to_bytes(4, "big") + bytes(12) + oid


def entries_of(*names: bytes) -> Entries:
    return {name: entry() for name in names}


def publish(bare: Bare, trees: Trees) -> None:
    with PackWriter(bare.scratch) as writer:
        writer.add("blob", BLOB, 1, deflate(b"x"))
        for oid, data in trees.objects:
            writer.add("tree", oid, len(data), deflate(data))
        writer.finish(bare.packs)


def root_by_git(bare: Bare, entries: Entries) -> str:
    """What git makes of the entries when nothing tells it a tree beforehand."""
    write_index(bare.index, entries, None)
    return bare.git("write-tree", "--missing-ok").decode().strip()


def random_entries(seed: int) -> Entries:
    chance = random.Random(seed)
    names = [b"a", b"b", b"a.b", b"a-b", b"a0", b"aa", b"ab", b"abc", b"z"]
    files: set[bytes] = set()
    for _ in range(60):
        parts = [chance.choice(names) for _ in range(chance.randint(1, 5))]
        parts[-1] += b".txt"
        files.add(b"/".join(parts))
    return {name: entry(chance.choice([REGULAR, 0o100755, SYMLINK])) for name in files}


@pytest.mark.parametrize("seed", range(8))
def test_the_root_is_gits(bare: Bare, seed: int) -> None:
    entries = random_entries(seed)
    assert build_trees(entries).root.hex() == root_by_git(bare, entries)


def test_odd_names_sort_as_git_sorts_them(bare: Bare) -> None:
    entries = entries_of(*ODD_NAMES, b"a", b"a.b", b"a0", b"b/x", b"b.x", b"b0")
    trees = build_trees(entries)
    assert trees.root.hex() == root_by_git(bare, entries)
    publish(bare, trees)
    bare.fsck()
    listed = bare.git("ls-tree", "-r", "-z", "--name-only", trees.root.hex()).split(b"\0")[:-1]
    assert listed == sorted(entries)


def test_no_entries_give_the_empty_tree(bare: Bare) -> None:
    trees = build_trees({})
    assert trees.root == object_id("tree", b"")
    assert trees.objects == [(trees.root, b"")]
    assert trees.root.hex() == root_by_git(bare, {})
    publish(bare, trees)
    write_index(bare.index, {}, trees.cache_tree)
    assert bare.git("write-tree").decode().strip() == trees.root.hex()


def test_equal_directories_are_one_object() -> None:
    trees = build_trees(entries_of(b"a/x/f", b"b/x/f", b"c/f"))
    assert len(trees.objects) == 3
    assert len({oid for oid, _ in trees.objects}) == 3
    assert all(object_id("tree", data) == oid for oid, data in trees.objects)
    assert trees.objects[-1][0] == trees.root


@pytest.mark.parametrize("seed", range(4))
def test_the_cache_tree_is_byte_for_byte_gits(bare: Bare, seed: int) -> None:
    entries = random_entries(seed)
    trees = build_trees(entries)
    publish(bare, trees)
    write_index(bare.index, entries, None)
    # Only a full `read-tree` makes git write the TREE extension for every directory.
    bare.git("read-tree", trees.root.hex())
    by_git = bare.index.read_bytes()
    start = by_git.index(b"TREE")
    size = int.from_bytes(by_git[start + 4 : start + 8], "big")
    assert by_git[start + 8 : start + 8 + size] == trees.cache_tree


def test_git_uses_the_cache_tree(bare: Bare) -> None:
    """A wrong id in the payload comes out of `write-tree`, so git has not computed it again."""
    entries = entries_of(b"a/b/c", b"a/d", b"e")
    trees = build_trees(entries)
    other = build_trees(entries_of(b"other"))
    publish(bare, trees)
    with PackWriter(bare.scratch) as writer:
        writer.add("tree", *_sized(other.objects[-1]))
        writer.finish(bare.packs)
    write_index(bare.index, entries, trees.cache_tree)
    assert bare.git("write-tree").decode().strip() == trees.root.hex()
    write_index(bare.index, entries, trees.cache_tree.replace(trees.root, other.root))
    assert bare.git("write-tree").decode().strip() == other.root.hex()


def _sized(tree: tuple[bytes, bytes]) -> tuple[bytes, int, bytes]:
    return tree[0], len(tree[1]), deflate(tree[1])


def test_git_invalidates_only_what_changes(bare: Bare) -> None:
    for name in (b"a/b/c", b"a/d", b"e/f"):
        bare.write(name, b"x")
    entries = bare.records([b"a/b/c", b"a/d", b"e/f"])
    trees = build_trees(entries)
    publish(bare, trees)
    write_index(bare.index, entries, trees.cache_tree)
    bare.write(b"a/b/c", b"changed")
    bare.add_with_git([b"a/b/c"])
    expected = build_trees(bare.records([b"a/b/c", b"a/d", b"e/f"]))
    assert bare.git("write-tree").decode().strip() == expected.root.hex()
    bare.fsck()


def test_a_very_deep_path(bare: Bare) -> None:
    entries = entries_of(b"d/" * 1500 + b"f", b"d/" * 1499 + b"g")
    assert build_trees(entries).root.hex() == root_by_git(bare, entries)


@pytest.mark.parametrize(
    "names", [(b"a", b"a/b"), (b"a", b"a.c", b"a/b"), (b"a//b",), (b"/a",), (b"a/",), (b"a", b"a/b/c"), (b"",)]
)
def test_what_no_tree_can_hold_is_refused(names: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match=r"cannot be a directory|no tree entry"):
        build_trees(entries_of(*names))


def test_a_mode_of_no_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no tree entry"):
        build_trees({b"module": entry(0o160000)})
