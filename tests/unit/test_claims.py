"""Who owns which tree: overlaps by every name, an inventory that is whole or refuses, and the gate before it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from crash.killing import in_child
from putback import seams
from putback.errors import IntegrityError, LockedError, NotOwned, OverlappingClaim, PutbackError
from putback.records import document
from putback.records.turn import ClaimState, Directory
from putback.turns.overlap import Mounts, overlap, survey
from putback.turns.ownership import Disposition
from support.claims import Registry, repository_at
from support.hermetic import git, unmoved

pytestmark = pytest.mark.requirement("H20")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A work tree below a directory, so that there is something above it."""
    return repository_at(tmp_path / "area" / "mine")


@contextmanager
def mounted(source: Path, point: Path) -> Iterator[None]:
    """`source` seen at `point`, too; skips where mounting is not permitted."""
    point.mkdir()
    done = subprocess.run(["mount", "--bind", source, point], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("no bind mounts here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


def refused(registry: Registry, root: Path, how: str) -> None:
    """Assert that `root` cannot be bound, for the reason given, and that nothing has become of the attempt."""
    before = registry.states()
    with pytest.raises(OverlappingClaim) as caught:
        registry.bind(root, "second", owner="somebody")
    held = registry.claim("first").binding.root.path
    assert caught.value.message.endswith(f"holds '{held}', {how}"), caught.value.message
    assert "'first' of 'me'" in caught.value.message
    assert registry.states() == before


@pytest.mark.requirement("H22")
def test_without_a_claim_nobody_owns_anything(registry: Registry, mine: Path) -> None:
    for ask in (lambda: registry.claims.find("mine"), lambda: registry.claims.at(os.fsencode(mine))):
        with pytest.raises(NotOwned) as caught:
            ask()
        assert "putback turn bind" in (caught.value.hint or "")
    assert not registry.store.root.exists()


def test_a_bound_tree_is_found_by_id_and_by_root(registry: Registry, mine: Path) -> None:
    with unmoved(mine):
        held = registry.bound(mine, "first")
    assert registry.claims.find("first").binding == held == registry.claims.at(os.fsencode(mine)).binding
    assert registry.states() == {"first": "active"}
    assert oct(registry.file("first").stat().st_mode & 0o777) == "0o600"


OVERLAPS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "same": (lambda mine: mine, "the same directory"),
    "above": (lambda mine: repository_at(mine.parent), "a directory below it"),
    "below": (lambda mine: repository_at(mine / "sub" / "deep"), "a directory above it"),
}


@pytest.mark.requirement("H19")
@pytest.mark.parametrize("way", OVERLAPS)
def test_trees_that_touch_by_name(registry: Registry, mine: Path, way: str) -> None:
    registry.bind(mine, "first")
    make, how = OVERLAPS[way]
    refused(registry, make(mine), how)


def test_a_neighbour_whose_name_begins_alike_is_free(registry: Registry, mine: Path) -> None:
    registry.bind(mine, "first")
    registry.bind(repository_at(mine.with_name("mine-too")), "second")
    assert set(registry.states()) == {"first", "second"}


@pytest.mark.requirement("H19")
def test_an_alias_by_a_symbolic_link(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    (tmp_path / "alias").symlink_to(mine)
    (tmp_path / "area-alias").symlink_to(mine.parent)
    refused(registry, tmp_path / "alias", "the same directory")
    refused(registry, tmp_path / "area-alias" / "mine", "the same directory")


@pytest.mark.requirement("H19")
def test_a_moved_tree_is_known_by_its_identity(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    inner = repository_at(mine / "inner")
    mine.rename(tmp_path / "moved")
    refused(registry, tmp_path / "moved", "the same directory under another name")
    refused(registry, tmp_path / "moved" / inner.name, "a directory above it under another name")


@pytest.mark.requirement("H19")
def test_a_directory_above_that_was_moved(registry: Registry, mine: Path, tmp_path: Path) -> None:
    """The claim is by its old name, which a link now leads on from."""
    registry.bind(mine, "first")
    mine.parent.rename(tmp_path / "area-moved")
    (tmp_path / "area").symlink_to("area-moved")
    refused(registry, repository_at(tmp_path / "area-moved"), "a directory below it")


@pytest.mark.requirement("H19")
def test_a_vanished_tree_below_a_directory_that_was_moved(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    mine.parent.rename(tmp_path / "area-moved")
    (tmp_path / "area").symlink_to("area-moved")
    shutil.rmtree(tmp_path / "area-moved" / "mine")
    refused(registry, repository_at(tmp_path / "area-moved" / "mine"), "the same directory")


def test_identities_alone_tell_of_an_overlap(tmp_path: Path) -> None:
    """Without names that touch, and without a table of mounts."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    nobody = Mounts()
    moved = (inner.stat().st_dev, inner.stat().st_ino)
    below = survey(os.fsencode(inner / "c"), None, None, nobody)
    was = survey(b"/nowhere/else", moved, None, nobody)
    assert overlap(below, was) == "a directory above it under another name"
    assert overlap(was, below) == "a directory below it under another name"
    assert overlap(was, survey(os.fsencode(inner), moved, None, nobody)) == "the same directory under another name"
    assert overlap(was, survey(os.fsencode(tmp_path), None, None, nobody)) is None


@pytest.mark.requirement("H19")
def test_bind_mounts_of_the_tree_and_of_parts_around_it(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    inner = repository_at(mine / "inner")
    with mounted(mine, tmp_path / "again"):
        refused(registry, tmp_path / "again", "the same directory under another name")
    with mounted(inner, tmp_path / "part"):
        refused(registry, tmp_path / "part", "a part of the same directory, mounted under another name")
    other = repository_at(tmp_path / "free")
    with mounted(other, tmp_path / "unrelated"):
        registry.bind(tmp_path / "unrelated", "second")


TABLE = Mounts.parse(
    b"20 1 8:1 / / rw - ext4 /dev/a rw\n"
    b"21 20 0:5 / /proc rw - proc proc rw\n"
    b"30 20 8:2 /home /home rw shared:1 - ext4 /dev/b rw\n"
    b"31 30 8:1 /srv/data /home/me/my\\040data rw - ext4 /dev/a rw\n"
    b"40 20 8:3 / /mnt/deep rw - ext4 /dev/c rw\n"
    b"41 20 8:4 / /mnt rw - ext4 /dev/d rw\n"
    b"50 20 8:5 /one /over rw - ext4 /dev/e rw\n"
    b"51 50 8:6 /two /over rw - ext4 /dev/f rw\n"
    b"no line of this kind\n"
)


@pytest.mark.parametrize(
    ("path", "spot"),
    [
        (b"/srv/data/x", (b"8:1", b"/srv/data/x")),
        (b"/", (b"8:1", b"/")),
        (b"/home", (b"8:2", b"/home")),
        (b"/home/me/x", (b"8:2", b"/home/me/x")),
        (b"/homeless", (b"8:1", b"/homeless")),
        (b"/home/me/my data", (b"8:1", b"/srv/data")),
        (b"/home/me/my data/x/y", (b"8:1", b"/srv/data/x/y")),
        (b"/mnt/deep/x", (b"8:4", b"/deep/x")),
        (b"/over/x", (b"8:6", b"/two/x")),
    ],
)
def test_the_table_of_mounts_says_where_a_path_leads(path: bytes, spot: tuple[bytes, bytes]) -> None:
    """Among them: a name with a space, one that another mount hides, and two mounts at one point."""
    assert TABLE.locate(path) == spot
    assert Mounts().locate(path) is None


def test_two_names_of_one_place_touch(tmp_path: Path) -> None:
    def at(path: bytes) -> object:
        return survey(path, None, None, TABLE)

    assert overlap(at(b"/home/me/my data/x"), at(b"/srv/data")) is not None
    assert overlap(at(b"/home/me/my data"), at(b"/srv/data/x/y")) is not None
    assert overlap(at(b"/home/me/my data/x"), at(b"/srv/dat")) is None


@pytest.mark.requirement("H19")
def test_two_work_trees_with_one_index(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {mine}/.git\n")
    refused(registry, other, "a work tree with the same git index")


def test_the_linked_work_tree_of_a_bound_one_is_free(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    git(mine, "worktree", "add", "-q", "-b", "other", tmp_path / "linked")
    held = registry.bound(tmp_path / "linked", "second")
    first = registry.claim("first").binding
    assert held.common_dir == first.common_dir and held.git_dir != first.git_dir
    registry.attest(held)
    registry.attest(first)


@pytest.mark.parametrize("disposition", [Disposition.RETAIN, Disposition.ARCHIVE])
def test_what_is_retained_or_archived_counts(registry: Registry, mine: Path, disposition: Disposition) -> None:
    registry.bind(mine, "first")
    registry.release("first", disposition=disposition)
    state = registry.states()["first"]
    assert state in ("retained", "archived")
    with pytest.raises(OverlappingClaim, match=rf"\({state}\)"):
        registry.bind(repository_at(mine / "sub"), "second")


def test_a_claim_whose_tree_has_vanished_counts_by_name(registry: Registry, mine: Path) -> None:
    registry.bind(mine, "first")
    shutil.rmtree(mine)
    refused(registry, repository_at(mine.parent), "a directory below it")
    registry.release("first")
    registry.bind(mine.parent, "second")


MALFORMED: dict[str, Callable[[Path], object]] = {
    "garbage": lambda folder: (folder / "x.json").write_bytes(b"garbage\n"),
    "empty": lambda folder: (folder / "x.json").write_bytes(b""),
    "half": lambda folder: _edit(folder, lambda data: data[: len(data) // 2]),
    "no newline": lambda folder: _edit(folder, lambda data: data[:-1]),
    "spaces": lambda folder: _edit(folder, lambda data: data.replace(b":", b": ", 1)),
    "extra field": lambda folder: _edit(folder, lambda data: data.replace(b'{"', b'{"a":1,"', 1)),
    "unknown state": lambda folder: _edit(folder, lambda data: data[:-2] + b',"state":"actual"}\n'),
    "relative root": lambda folder: _edit(folder, lambda data: data.replace(b'"path":"/', b'"path":"')),
    "wrong name": lambda folder: os.link(folder / "first.json", folder / "x.json"),
    "name with newline": lambda folder: _newline(folder),
    "foreign file": lambda folder: (folder / "README").write_bytes(b"\n"),
    "a directory": lambda folder: (folder / "x.json").mkdir(),
    "a directory like a part": lambda folder: (folder / "x.json.01234567.part").mkdir(),
    "a link": lambda folder: (folder / "x.json").symlink_to("first.json"),
    "a link to the very claim": lambda folder: _link(folder),
    "a pipe": lambda folder: os.mkfifo(folder / "x.json"),
    "huge": lambda folder: _huge(folder),
    "the folder a link": lambda folder: (folder.rename(folder.parent / "c"), folder.symlink_to("c")),
    "the folder a file": lambda folder: (shutil.rmtree(folder), folder.write_bytes(b"")),
}


def _edit(folder: Path, change: Callable[[bytes], bytes]) -> None:
    before = (folder / "first.json").read_bytes()
    assert change(before) != before
    (folder / "first.json").write_bytes(change(before))


def _newline(folder: Path) -> None:
    """A pattern that ends with `$` also takes a name with a newline at its end."""
    data = (folder / "first.json").read_bytes().replace(b'"id":"first"', b'"id":"first\\n"')
    (folder / "first\n.json").write_bytes(data)


def _link(folder: Path) -> None:
    (folder / "first.json").rename(folder.parent / "elsewhere")
    (folder / "first.json").symlink_to("../elsewhere")


def _huge(folder: Path) -> None:
    with open(folder / "x.json", "wb") as file:
        file.truncate(1 << 30)


@pytest.mark.parametrize("way", MALFORMED)
def test_a_malformed_inventory_refuses_everything(
    registry: Registry, mine: Path, tmp_path: Path, way: str
) -> None:
    held = registry.bound(mine, "first")
    other = repository_at(tmp_path / "other")
    claims = registry.claims
    MALFORMED[way](registry.store.claims)
    ways: list[Callable[[], object]] = [
        claims.all,
        lambda: claims.find("first"),
        lambda: claims.check_free(os.fsencode(other), None, but=None),
    ]
    if not way.startswith("the folder"):
        ways += [lambda: registry.bind(other, "second"), lambda: registry.attest(held)]
    for ask in ways:
        with pytest.raises(IntegrityError):
            ask()
    assert not registry.file("second").exists()


def test_what_a_killed_process_left_half_written_is_no_claim(registry: Registry, mine: Path) -> None:
    registry.bind(mine, "first")
    part = registry.store.claims / "second.json.0123abcd.part"
    part.write_bytes(b'{"bin')
    assert set(registry.states()) == {"first"}
    registry.release("first")
    assert not part.exists()


def test_claims_change_under_the_exclusive_gate_alone(registry: Registry, mine: Path) -> None:
    held = registry.bound(mine, "first")
    claims = registry.claims
    ways: list[Callable[[], object]] = [
        lambda: claims.publish(held),
        lambda: claims.set_state("first", ClaimState.RETAINED),
        lambda: claims.remove("first"),
    ]
    for change in ways:
        with pytest.raises(RuntimeError, match="exclusively"):
            change()
        with registry.gate(shared=True, claims=claims), pytest.raises(RuntimeError, match="exclusively"):
            change()
    assert registry.states() == {"first": "active"}


def test_publication_looks_once_more(registry: Registry, mine: Path) -> None:
    """Whoever publishes without having asked is refused all the same."""
    held = registry.bound(mine, "first")
    claims = registry.claims
    twin = msgspec.structs.replace(held, id="twin")
    with registry.gate(shared=False, claims=claims):
        with pytest.raises(OverlappingClaim, match="same directory"):
            claims.publish(twin)
        with pytest.raises(OverlappingClaim, match="bound already"):
            claims.publish(held)
        claims.remove("first")
        with pytest.raises(NotOwned):
            claims.set_state("first", ClaimState.RETAINED)
        with pytest.raises(IntegrityError):
            claims.publish(msgspec.structs.replace(held, id="../x"))
        claims.publish(twin)
    assert set(registry.states()) == {"twin"}
    assert registry.file("twin").read_bytes() == document.encode(registry.claim("twin")) + b"\n"


@contextmanager
def holding(registry: Registry, *, shared: bool) -> Iterator[int]:
    """Another process that holds the gate until the end of the block."""
    held, go = os.pipe()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(go)
            with registry.gate(shared=shared):
                os.write(sink, b"x")
                os.read(held, 1)
        finally:
            os._exit(0)
    os.close(held)
    os.close(sink)
    assert os.read(source, 1) == b"x"
    try:
        yield child
    finally:
        os.close(go)
        os.waitpid(child, 0)
        os.close(source)


@pytest.mark.requirement("H21")
def test_no_claim_is_published_while_a_turn_is_under_way(registry: Registry, mine: Path, tmp_path: Path) -> None:
    held = registry.bound(mine, "first")
    other = repository_at(tmp_path / "other")
    with holding(registry, shared=True):
        registry.attest(held)
        for change in (
            lambda: registry.bind(other, "second"),
            lambda: registry.release("first"),
            lambda: registry.release("first", disposition=Disposition.RETAIN),
        ):
            with pytest.raises(LockedError):
                change()
        assert registry.states() == {"first": "active"}
    registry.bind(other, "second")


@pytest.mark.requirement("H21")
def test_no_turn_begins_while_a_claim_changes(registry: Registry, mine: Path) -> None:
    held = registry.bound(mine, "first")
    with holding(registry, shared=False), pytest.raises(LockedError):
        registry.attest(held)
    with holding(registry, shared=False) as pid:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        registry.attest(held)


@pytest.mark.requirement("H21")
def test_of_two_processes_that_bind_one_tree_one_wins(registry: Registry, mine: Path) -> None:
    """Both begin at the same moment, and the second one waits at the gate."""
    registry.wait = 20.0
    ready, go = os.pipe()
    children = []
    for name in ("one", "two"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(go)
                os.read(ready, 1)
                registry.bind(mine, name, owner=name)
                code = 0
            except OverlappingClaim:
                code = 43
            finally:
                os._exit(code)
        children.append(child)
    os.close(ready)
    os.close(go)
    ends = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert ends == [0, 43]
    assert len(registry.claims.all()) == 1


def test_a_published_claim_is_there_only_after_its_record(registry: Registry, mine: Path) -> None:
    seen: list[tuple[str, bool, bool]] = []

    def look(name: str) -> None:
        kept = bool(list(registry.store.root.glob("workspaces/*/turns/first/1/binding.json")))
        seen.append((name, kept, registry.file("first").exists()))

    seams.observe(look)
    try:
        registry.bind(mine, "first")
    finally:
        seams.observe(None)
    assert seen == [
        ("turn.allocated", False, False),
        ("turn.bound", True, False),
        ("turn.recorded", True, False),
        ("turn.claimed", True, True),
    ]


def test_a_root_that_cannot_be_looked_at_refuses(
    registry: Registry, mine: Path, tmp_path: Path, monkeypatch
) -> None:
    registry.bind(mine, "first")
    real = os.stat

    def stat(path, *rest, **options):
        if path == os.fsencode(mine):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(PutbackError, match="Permission denied"):
        registry.claims.check_free(os.fsencode(tmp_path / "other"), None, but=None)


def test_directories_with_names_that_are_not_utf8(registry: Registry, tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/odd-\xff\n"
    root = Path(os.fsdecode(raw))
    held = registry.bound(repository_at(root), "first")
    assert held.root.raw == raw and held.root == Directory.at(raw, *held.root.identity)
    registry.attest(held)
    with pytest.raises(OverlappingClaim):
        registry.bind(root, "second")


def test_gate_in_a_child_frees_itself_at_its_end(registry: Registry, mine: Path) -> None:
    status, said = in_child(lambda: registry.bind(mine, "first"))
    assert status == 0, said
    registry.attest(registry.claim("first").binding)
