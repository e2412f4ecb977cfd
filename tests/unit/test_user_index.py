"""The user's index taken apart and put together again, beside the real git, which is the second opinion."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from putback.errors import UnsupportedPath
from putback.git.index import DamagedIndex
from putback.git.user_index import Item, NewEntry, empty, parse
from support.hermetic import git, make_repository
from support.indexes import FORMATS, LONG, TREE, listed, make, of_paths, put, read
from support.trees import create

KINDS = [(algorithm, version) for algorithm in FORMATS for version in (2, 3, 4)]
ZERO = {"sha1": "0" * 40, "sha256": "0" * 64}


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-v{kind[1]}")
def rich(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    algorithm, version = request.param
    root = make(tmp_path / "tree", algorithm, version, flags=version != 2)
    assert read(root).version == version
    return root


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "plain", {"a": "1\n", "b/c": "2\n", "d": "3\n"})


def store_blob(root: Path, content: bytes) -> str:
    return git(root, "hash-object", "-w", "--stdin", given=content).strip().decode()


def sealed(body: bytes, oid_bytes: int = 20) -> bytes:
    return body + (hashlib.sha1 if oid_bytes == 20 else hashlib.sha256)(body).digest()


@pytest.mark.requirement("H6", "H27", "H31")
def test_what_is_not_selected_stays_byte_for_byte(rich: Path) -> None:
    """Stat data, flags, stages: in every version, with both kinds of id, as git itself reads them."""
    before, index = listed(rich), read(rich)
    oid = store_blob(rich, b"staged A\n")
    changes = {
        b"changed": NewEntry(0o100755, oid),
        b"removed/x": None,
        b"never was": None,
        b"\x01first": NewEntry(0o100644, oid),
        b"module-not": NewEntry(0o100644, oid),
        b"zzz": NewEntry(0o100755, oid),
        os.fsencode(LONG): NewEntry(0o100644, oid),
    }
    put(rich, index.replaced(changes))
    after, again = listed(rich), read(rich)
    assert of_paths(after, *changes) == of_paths(before, *changes)
    assert len(of_paths(before, *changes)) == len(index.names) - 2
    new = {name: entry for name, entry in changes.items() if entry}
    got = {name: value[0] for (name, _), value in after.items() if name in changes}
    assert got == {name: f"H {entry.mode:o} {oid} ".encode() for name, entry in new.items()}
    assert again.version == index.version
    assert again.replaced({}) == again.data
    assert b"error" not in git(rich, "fsck", "--strict")


def test_git_finds_what_was_staged_and_nothing_else(rich: Path) -> None:
    git(rich, "rm", "-q", "--cached", "conflict")
    before = git(rich, "--no-optional-locks", "status", "--porcelain", "-z").split(b"\0")
    oid = store_blob(rich, b"staged A\n")
    changes = {b"changed": NewEntry(0o100644, oid), b"removed/x": None}
    put(rich, read(rich).replaced(changes))
    after = git(rich, "--no-optional-locks", "status", "--porcelain", "-z").split(b"\0")
    assert sorted(set(after) - set(before)) == [b"?? removed/", b"D  removed/x", b"MM changed"]
    assert set(before) <= set(after)
    cached = git(rich, "diff-index", "--cached", "--name-status", "HEAD").splitlines()
    assert {b"M\tchanged", b"D\tremoved/x"} <= set(cached)
    assert not [line for line in cached if b"link" in line or b"assumed" in line]


@pytest.mark.parametrize(("algorithm", "version"), KINDS)
def test_an_entry_with_stat_data_is_what_git_would_have_written(
    tmp_path: Path, algorithm: str, version: int
) -> None:
    root = make(tmp_path / "tree", algorithm, version, flags=False)
    names = [os.fsencode(name) for name in TREE if name not in ("link", "conflict", "assumed", "added-only")]
    by_git, index = listed(root), read(root)
    changes = {}
    for name in names:
        item = index.entries_at([name])[name][0]
        found = os.lstat(os.fsencode(root) + b"/" + name)
        changes[name] = NewEntry(item.mode, item.oid, found)
    put(root, index.replaced(dict.fromkeys(names)))
    assert not set(names) & {name for name, _ in listed(root)}
    put(root, read(root).replaced(changes))
    assert listed(root) == by_git
    assert git(root, "diff-files", "--name-only", "-z", "--", *names[:3]) == b""


def test_an_entry_without_stat_data_is_compared_by_content(plain: Path) -> None:
    oid = read(plain).entries_at([b"a"])[b"a"][0].oid
    put(plain, read(plain).replaced({b"a": NewEntry(0o100644, oid)}))
    assert git(plain, "--no-optional-locks", "status", "--porcelain") == b""
    (plain / "a").write_text("9\n")
    assert git(plain, "--no-optional-locks", "status", "--porcelain") == b" M a\n"


@pytest.mark.requirement("H11", "H31")
def test_entries_tell_what_they_are(tmp_path: Path) -> None:
    root = make(tmp_path / "tree", "sha256", 4)
    index = read(root)
    oid = git(root, "rev-parse", "HEAD:changed").strip().decode()
    names = [b"changed", b"run", b"link", b"module", b"conflict", b"skipped", b"assumed", b"added-only", b"no"]
    found = index.entries_at(names)
    assert found[b"changed"] == (Item(0o100644, oid, 0, False, False, False),)
    assert [found[name][0].mode for name in (b"run", b"link", b"module")] == [0o100755, 0o120000, 0o160000]
    assert [item.stage for item in found[b"conflict"]] == [1, 2, 3]
    assert found[b"skipped"][0].skip_worktree and not found[b"skipped"][0].intent_to_add
    assert found[b"added-only"][0].intent_to_add and not found[b"added-only"][0].skip_worktree
    assert found[b"assumed"][0].assume_unchanged and not found[b"changed"][0].assume_unchanged
    assert found[b"no"] == ()


def test_conflicts_are_the_entries_above_and_below(tmp_path: Path) -> None:
    index = read(make(tmp_path / "tree"))
    assert list(index.conflicts(b"a")) == [b"a/b"]
    assert list(index.conflicts(b"zz")) == [b"zz/-dash", b"zz/last"]
    assert list(index.conflicts(b"a/b/c/d")) == [b"a/b"]
    assert index.conflicts(b"module/x")[b"module"][0].mode == 0o160000
    assert index.conflicts(b"changed") == index.conflicts(b"a/c") == index.conflicts(b"zz/") == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({b"conflict": None}, "conflict"),
        ({b"a/b/c": NewEntry(0o100644, "1" * 40)}, "file and a directory"),
        ({b"a": NewEntry(0o100644, "1" * 40)}, "file and a directory"),
        ({b"n": NewEntry(0o100644, "1" * 40), b"n/m": NewEntry(0o100644, "1" * 40)}, "file and a directory"),
        ({b"n": NewEntry(0o120000, "1" * 40)}, "no entry"),
        ({b"n": NewEntry(0o100600, "1" * 40)}, "no entry"),
        ({b"n": NewEntry(0o100644, "1" * 64)}, "no entry"),
    ],
    ids=str,
)
def test_no_index_is_made_that_git_would_not_make(tmp_path: Path, changes, says: str) -> None:
    index = read(make(tmp_path / "tree"))
    with pytest.raises(ValueError, match=says):
        index.replaced(changes)


def test_a_file_may_take_the_place_of_a_directory_that_goes(tmp_path: Path) -> None:
    root = make(tmp_path / "tree")
    oid = git(root, "rev-parse", "HEAD:changed").strip().decode()
    put(root, read(root).replaced({b"a/b": None, b"a": NewEntry(0o100644, oid)}))
    assert git(root, "ls-files", "a", "a/b") == b"a\n"


def test_no_file_is_an_empty_index(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "tree")
    oid = git(root, "rev-parse", "HEAD:committed").strip().decode()
    put(root, empty(20).replaced({b"x": NewEntry(0o100644, oid)}))
    assert git(root, "ls-files", "-s") == f"100644 {oid} 0\tx\n".encode()
    put(root, empty(20).replaced({}))
    assert git(root, "ls-files") == b""


def extensions(data: bytes, oid_bytes: int = 20) -> list[bytes]:
    position, found = parse(data, oid_bytes)._cuts[-1], []
    while position < len(data) - oid_bytes:
        found.append(data[position : position + 4])
        position += 8 + int.from_bytes(data[position + 4 : position + 8], "big")
    return found


def test_caches_go_and_resolve_undo_stays(plain: Path) -> None:
    git(plain, "checkout", "-q", "-b", "other")
    for branch, text in (("other", "x\n"), ("main", "y\n")):
        git(plain, "checkout", "-q", branch)
        (plain / "a").write_text(text)
        git(plain, "commit", "-q", "-am", branch)
    git(plain, "merge", "other", check=False)
    git(plain, "add", "a")
    git(plain, "update-index", "--untracked-cache")
    git(plain, "status")
    before = read(plain)
    assert {b"REUC", b"UNTR"} <= set(extensions(before.data or b""))
    put(plain, before.replaced({b"d": None}))
    after = read(plain)
    assert extensions(after.data or b"") == [b"REUC"]
    assert git(plain, "ls-files", "--resolve-undo") != b""
    git(plain, "write-tree")
    assert b"TREE" in extensions(read(plain).data or b"")
    assert extensions(read(plain).replaced({b"a": None})) == [b"REUC"]


@pytest.mark.parametrize("oid_bytes", [20, 32])
def test_zeros_in_the_place_of_the_checksum_are_accepted(tmp_path: Path, oid_bytes: int) -> None:
    """index.skipHash writes them. What is written here has a checksum."""
    root = make(tmp_path / "tree", "sha1" if oid_bytes == 20 else "sha256")
    data = (root / ".git" / "index").read_bytes()
    skipped = parse(data[:-oid_bytes] + bytes(oid_bytes), oid_bytes)
    assert skipped.names == parse(data, oid_bytes).names
    put(root, skipped.replaced({b"changed": None}))
    assert b"error" not in git(root, "fsck", "--strict")
    with pytest.raises(DamagedIndex, match="checksum"):
        parse(data[:-1] + bytes([data[-1] ^ 1]), oid_bytes)


@pytest.mark.requirement("H31")
def test_a_split_index_is_refused(plain: Path) -> None:
    git(plain, "update-index", "--split-index")
    with pytest.raises(UnsupportedPath, match="split") as caught:
        read(plain)
    assert "--no-split-index" in str(caught.value.hint)
    git(plain, "update-index", "--no-split-index")
    assert read(plain).names == [b"a", b"b/c", b"d"]


@pytest.mark.requirement("H31")
def test_a_sparse_index_is_refused(plain: Path) -> None:
    create(plain, {"far/x": "x\n", "near/y": "y\n"})
    git(plain, "add", "-A")
    git(plain, "commit", "-q", "-m", "more")
    git(plain, "sparse-checkout", "set", "--cone", "--sparse-index", "near")
    assert b"040000" in git(plain, "ls-files", "-s", "--sparse")
    with pytest.raises(UnsupportedPath, match="sparse") as caught:
        read(plain)
    assert "--no-sparse-index" in str(caught.value.hint)
    git(plain, "sparse-checkout", "reapply", "--no-sparse-index")
    assert read(plain).entries_at([b"far/x"])[b"far/x"][0].skip_worktree


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (b"link\0\0\0\0", "split"),
        (b"sdir\0\0\0\0", "sparse"),
        (b"newx\0\0\0\0", "not known"),
        (b"\xffEWX\0\0\0\0", "not known"),
    ],
    ids=str,
)
@pytest.mark.requirement("H31")
def test_an_extension_that_must_be_understood_is_refused(rest: bytes, says: str) -> None:
    with pytest.raises(UnsupportedPath, match=says):
        parse(sealed(struct.pack(">4sII", b"DIRC", 2, 0) + rest), 20)


def test_an_extension_that_may_be_ignored_is_left_out() -> None:
    index = parse(sealed(struct.pack(">4sII", b"DIRC", 2, 0) + b"NEWX\0\0\0\1xREUC\0\0\0\1y"), 20)
    assert extensions(index.replaced({})) == [b"REUC"]


def entry(
    name: bytes,
    flags: int | None = None,
    *,
    extra: int | None = None,
    mode: int = 0o100644,
    cut: int | None = None,
) -> bytes:
    """An entry as versions 2 and 3 have it, with `cut` as version 4 does."""
    fixed = bytes(24) + struct.pack(">I", mode) + bytes(12) + b"\1" * 20
    fixed += struct.pack(">H", len(name) if flags is None else flags)
    fixed += b"" if extra is None else struct.pack(">H", extra)
    if cut is not None:
        return fixed + bytes([cut]) + name + b"\0"
    return fixed + name + b"\0" * (8 - (len(fixed) + len(name)) % 8)


@pytest.mark.parametrize(
    ("version", "count", "rest", "says"),
    [
        (1, 0, b"", "version"),
        (5, 0, b"", "version"),
        (2, 1, entry(b"a", 0x4001, extra=0x4000), "extended"),
        (3, 1, entry(b"a", 0x4001, extra=0x1000), "not known"),
        (4, 1, entry(b"a", 0x4001, extra=0x8000, cut=0), "not known"),
        (2, 1, entry(b"abc", 2), "does not end"),
        (2, 1, entry(b"abc", 4), "does not end"),
        (2, 1, entry(b"abc", 0xFFF), "does not end"),
        (4, 1, entry(b"abc", 2, cut=0), "does not end"),
        (4, 2, entry(b"abc", cut=0) + entry(b"d", 1, cut=4), "leans"),
        (4, 1, entry(b"abc", cut=1), "leans"),
        (4, 1, entry(b"", 0, cut=0), "empty"),
        (2, 2, entry(b"b") + entry(b"a"), "sorted"),
        (2, 2, entry(b"a") + entry(b"a"), "twice"),
        (2, 2, entry(b"a") + entry(b"a", 0x2001), "twice"),
        (2, 2, entry(b"a", 0x2001) + entry(b"a", 0x1001), "twice"),
        (2, 2, entry(b"a", 0x2001) + entry(b"a", 0x2001), "twice"),
        (2, 1, entry(b""), "empty"),
        (2, 1, entry(b"a\0b"), "does not end"),
        (2, 1, entry(b"\0b"), "does not end"),
        (2, 0xFFFFFFFF, entry(b"a"), "malformed|does not end"),
        (2, 2, entry(b"a"), "malformed|checksum|does not end"),
        (2, 1, entry(b"abc")[:-2], "checksum"),
        (2, 0, b"TREE\0\0\0\5abc", "checksum"),
        (2, 0, b"TREE\0\0", "truncated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("skipped", [False, True], ids=["checksum", "zeros"])
def test_a_malformed_index_is_refused(version: int, count: int, rest: bytes, says: str, skipped: bool) -> None:
    body = struct.pack(">4sII", b"DIRC", version, count) + rest
    with pytest.raises(DamagedIndex, match=says):
        parse(body + bytes(20) if skipped else sealed(body), 20)


@pytest.mark.requirement("H31")
def test_a_directory_among_the_entries_is_refused_without_its_extension() -> None:
    with pytest.raises(UnsupportedPath, match="sparse"):
        parse(sealed(struct.pack(">4sII", b"DIRC", 2, 1) + entry(b"a/", mode=0o040000)), 20)


@pytest.mark.parametrize("version", [2, 4])
def test_every_truncation_and_every_flipped_byte_is_refused(tmp_path: Path, version: int) -> None:
    root = tmp_path / "tree"
    make_repository(root, {"a": "1\n", "ab": "2\n"})
    git(root, "update-index", f"--index-version={version}", "--assume-unchanged", "a")
    whole = (root / ".git" / "index").read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        for data in (whole[:position], bytes(damaged)):
            with pytest.raises(DamagedIndex):
                parse(data, 20)


def test_another_kind_of_file_is_refused() -> None:
    with pytest.raises(DamagedIndex, match="signature"):
        parse(sealed(struct.pack(">4sII", b"DIRK", 2, 0)), 20)


def test_the_flags_of_an_entry_stay_where_its_name_is_written_anew() -> None:
    """In version 4 a name leans on the one before; the entry here has the second word of flags."""
    first, second = entry(b"aa", cut=0), entry(b"b", 0x4002, extra=0x4000, cut=1)
    index = parse(sealed(struct.pack(">4sII", b"DIRC", 4, 2) + first + second), 20)
    assert index.names == [b"aa", b"ab"]
    made = parse(index.replaced({b"aa": None}), 20)
    assert made.names == [b"ab"]
    assert made.entries_at([b"ab"]) == index.entries_at([b"ab"])
    assert made.entries_at([b"ab"])[b"ab"][0].skip_worktree


def test_another_kind_of_id_is_refused(plain: Path) -> None:
    data = (plain / ".git" / "index").read_bytes()
    with pytest.raises(DamagedIndex):
        parse(data, 32)


@pytest.mark.parametrize("version", [2, 4])
def test_names_of_every_length(tmp_path: Path, version: int) -> None:
    root = make_repository(tmp_path / "tree", {})
    git(root, "config", "index.version", str(version))
    oid = store_blob(root, b"1")
    lengths = [*range(1, 20), 126, 127, 128, 129, 0xFFD, 0xFFE, 0xFFF, 0x1000, 0x1001, 16511, 16512, 16513, 16700]
    names = [b"%05d" % number + b"x" * length for number, length in enumerate(lengths)]
    lines = b"".join(b"100644 %b 0\t%b\n" % (oid.encode(), name) for name in names)
    git(root, "update-index", "--index-info", given=lines)
    index = read(root)
    assert index.names == names
    by_git = index.replaced({})
    assert (index.data or b"").startswith(by_git[:-20])
    for gone in (names[::2], names[1::2], names[-1:], names[:5]):
        cut = parse(index.replaced(dict.fromkeys(gone)), 20)
        assert cut.names == [name for name in names if name not in gone]
        assert cut.replaced({name: NewEntry(0o100644, oid) for name in gone}) == by_git


@pytest.mark.parametrize("version", [2, 4])
def test_fifty_thousand_entries_in_blocks(tmp_path: Path, version: int) -> None:
    """So many that git writes them in blocks, each of which starts its names anew."""
    root = make_repository(tmp_path / "tree", {})
    for key, value in (("index.threads", "4"), ("index.version", str(version))):
        git(root, "config", key, value)
    oid = store_blob(root, b"1")
    line = f"100644 {oid} 0\tpackage%02d/module_%05d.py\n"
    lines = "".join(line % (number % 97, number) for number in range(50_000))
    git(root, "update-index", "--index-info", given=lines.encode())
    index = read(root)
    assert b"IEOT" in extensions(index.data or b"")
    chosen = index.names[::500]
    before = git(root, "ls-files", "-s", "-z").split(b"\0")
    put(root, index.replaced({name: NewEntry(0o100755, oid) for name in chosen}))
    after = git(root, "ls-files", "-s", "-z").split(b"\0")
    assert [line for line in after if line.startswith(b"100755")] == after[:-1][::500]
    assert [line.replace(b"100755", b"100644") for line in after] == before


# --- git as a second implementation ----------------------------------------------------------------------------

component = st.text(alphabet="ab-.\n\udcff ", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
path = st.lists(component, min_size=1, max_size=3).map(lambda parts: os.fsencode("/".join(parts)))


def free_of_clashes(names: list[bytes]) -> list[bytes]:
    """The names without those that lie below another one."""
    chosen = set(names)
    return sorted(name for name in chosen if not any(name.startswith(other + b"/") for other in chosen))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[bytes], dict[bytes, int], dict[bytes, int], set[bytes], set[bytes]]:
    names = free_of_clashes(draw(st.lists(path, max_size=14)))
    old = {name: draw(st.sampled_from([0o100644, 0o100755, 0o120000, 0o160000])) for name in names}
    old = {name: mode for name, mode in old.items() if draw(st.booleans())}
    changed = {name: draw(st.sampled_from([0, 0o100644, 0o100755])) for name in names if draw(st.booleans())}
    flagged = [name for name in old if name not in changed]
    assumed = {name for name in flagged if draw(st.booleans())}
    skipped = {name for name in flagged if draw(st.booleans())}
    return names, old, changed, assumed, skipped


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("workbench")
    for algorithm in FORMATS:
        root = base / algorithm
        root.mkdir()
        git(root, "init", "-q", "--template=", f"--object-format={algorithm}")
    return base


@pytest.mark.requirement("H6", "H27", "H31")
@settings(max_examples=40)
@given(case=cases(), algorithm=st.sampled_from(sorted(FORMATS)), version=st.sampled_from([2, 4]))
def test_git_makes_the_same_bytes_of_the_same_change(case, algorithm: str, version: int, workbench: Path) -> None:
    _, old, changed, assumed, skipped = case
    root, oid_bytes = workbench / algorithm, FORMATS[algorithm]
    (root / ".git" / "index").unlink(missing_ok=True)
    first, second = b"1" * 2 * oid_bytes, b"2" * 2 * oid_bytes

    def update(entries: dict[bytes, int], oid: bytes) -> None:
        lines = b"".join(b"%o %b 0\t%b\0" % (mode, oid, name) for name, mode in entries.items())
        git(root, "-c", f"index.version={version}", "update-index", "-z", "--index-info", given=lines)

    update(old, first)
    for option, names in (("--assume-unchanged", assumed), ("--skip-worktree", skipped)):
        if names:
            git(root, "update-index", option, "-z", "--stdin", given=b"".join(name + b"\0" for name in names))
    if not old:
        return
    new = {name: NewEntry(mode, second.decode()) if mode else None for name, mode in changed.items()}
    ours = read(root).replaced(new)
    update(changed, second)
    by_git = (root / ".git" / "index").read_bytes()
    theirs = parse(by_git, oid_bytes)
    made = parse(ours, oid_bytes)
    assert made.names == theirs.names
    # git falls back from version 3 to 2 where no entry needs it any more; ours stays at what it was.
    assert ours[8 : made._cuts[-1]] == by_git[8 : theirs._cuts[-1]]
    put(root, ours)
    everything = listed(root)
    assert {name for (name, _), (head, _) in everything.items() if head[:1] in b"hsS"} == assumed | skipped
