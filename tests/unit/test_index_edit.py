"""Editing an index in place gives byte for byte what writing all of it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from putback.git.index import DamagedIndex, write_index
from putback.git.index_edit import MAX_DEPTH, CachedTree, IndexEditor, edit_trees, is_deep
from putback.git.trees import Trees, build_trees

NAMES = st.sampled_from([b"a", b"a.b", b"a-", b"b", b"c" * 250, b"\xff", b"d\n", b"z"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(b"/".join)


def record(number: int) -> bytes:
    mode = (0o100644, 0o100755, 0o120000)[number % 3]
    return (
        number.to_bytes(24, "big")
        + mode.to_bytes(4, "big")
        + number.to_bytes(12, "big")
        + bytes([number % 256]) * 32
    )


def coherent(paths: set[bytes]) -> set[bytes]:
    """Without the paths that would be below a file."""
    return {path for path in paths if not any(path[:at] in paths for at, c in enumerate(path) if c == ord("/"))}


def written(folder: Path, paths: dict[bytes, bytes]) -> tuple[bytes, Trees]:
    trees = build_trees(paths)
    write_index(folder / "whole", paths, trees.cache_tree)
    return (folder / "whole").read_bytes(), trees


@given(st.sets(PATHS, max_size=20), st.sets(PATHS, max_size=8), st.data())
def test_edits_are_what_a_new_index_would_be(
    tmp_path_factory: pytest.TempPathFactory, before: set[bytes], after: set[bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("index")
    old = {path: record(number) for number, path in enumerate(sorted(coherent(before)))}
    gone = data.draw(st.sets(st.sampled_from(sorted(old)))) if old else set()
    kept = coherent((set(old) - gone) | after)
    new = {path: old.get(path, b"") if path not in after else record(100 + len(path)) for path in kept}
    body, trees = written(folder, old)
    store = dict(trees.objects)
    (folder / "index").write_bytes(body)
    editor = IndexEditor.read(folder / "index")
    changes = {path: None for path in old if path not in new} | {p: r for p, r in new.items() if old.get(p) != r}
    assert editor.trees is not None
    edited, made = edit_trees(editor, changes)
    successor = editor.changed(changes, edited.payload(), edited)
    successor.write(folder / "index")
    whole, wanted = written(folder, new)
    assert (folder / "index").read_bytes() == whole
    assert edited.oid == wanted.root
    again = IndexEditor.read(folder / "index")
    kept = IndexEditor(whole, again.cuts, verified=True)
    assert again.cuts == successor.cuts == kept.cuts
    assert all(kept.record(path) == new.get(path) for path in (*old, *new))
    assert kept.changed({path: old.get(path) for path in changes}, b"", None).cuts == editor.cuts
    for same in (IndexEditor(whole, again.cuts), again):
        for prefix in {path[: path.rfind(b"/") + 1] for path in new} | {b"", b"none/"}:
            below = [path for path in sorted(new) if path.startswith(prefix) and b"/" not in path[len(prefix) :]]
            assert list(same.files_in(prefix)) == below
    assert kept.paths == again.paths
    assert (successor.paths, successor.trees, successor.checksum) == (again.paths, again.trees, again.checksum)
    assert dict(successor.records()) == dict(again.records()) == new
    assert dict(editor.records()) == old and editor.trees == IndexEditor(body).trees
    assert dict(wanted.objects).items() <= (store | dict(made)).items()


def test_an_otherfinds_records_and_knows_what_is_not_there(tmp_path: Path) -> None:
    entries = {b"a": record(1), b"b/c": record(2), b"x" * 5000: record(3)}
    body, _ = written(tmp_path, entries)
    editor = IndexEditor(body)
    assert dict(editor.records()) == entries
    assert editor.record(b"b/c") == record(2)
    assert editor.record(b"b") is None


def test_cuts_that_are_not_whole_are_made_anew(tmp_path: Path) -> None:
    entries = {b"a": record(1), b"b/c": record(2)}
    body, _ = written(tmp_path, entries)
    cuts = IndexEditor(body).cuts
    other = IndexEditor.blank().changed({b"z": record(1)}, b"", None).cuts
    for wrong in (b"", cuts[:-1], cuts + b"\0", cuts[:-1] + b"!", b"!" + cuts[1:], other, b"x" * len(cuts)):
        editor = IndexEditor(body, wrong)
        assert editor.cuts == cuts and dict(editor.records()) == entries


@pytest.mark.parametrize("flip", [0, 4, 8, 20, 90, 120, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, flip: int) -> None:
    body = bytearray(written(tmp_path, {b"a": record(1), b"b": record(2)})[0])
    body[flip] ^= 0x40
    with pytest.raises(DamagedIndex):
        IndexEditor(bytes(body))


def test_a_path_cannot_become_a_file_and_a_directory(tmp_path: Path) -> None:
    editor = IndexEditor(written(tmp_path, {b"a/b": record(1), b"c": record(2)})[0])
    for path in (b"a", b"c/d"):
        with pytest.raises(ValueError, match="file and a directory"):
            edit_trees(editor, {path: record(2)})


def test_trees_that_the_entries_do_not_bear_out_are_refused(tmp_path: Path) -> None:
    entries = {b"a/b": record(1), b"a/c/d": record(2), b"x": record(3)}
    body = written(tmp_path, entries)[0]
    for wrong in (CachedTree(3), CachedTree(4), CachedTree(2), CachedTree(3, b"", {b"a": CachedTree(1)})):
        editor = IndexEditor(body)
        editor.trees = wrong
        with pytest.raises(ValueError, match="the index does not"):
            edit_trees(editor, {b"a/b": None})


def test_trees_deeper_than_we_can_recurse_are_not_taken_from_the_index(tmp_path: Path) -> None:
    paths = {b"d/" * 2000 + b"f": record(1), b"g": record(2)}
    written(tmp_path, paths)
    editor = IndexEditor.read(tmp_path / "whole")
    assert editor.trees is None and dict(editor.records()) == paths
    assert is_deep(paths) and not is_deep({b"d/" * MAX_DEPTH + b"f": None})
    shallow = {b"d/" * MAX_DEPTH + b"f": record(1)}
    written(tmp_path, shallow)
    assert IndexEditor.read(tmp_path / "whole").trees is not None
