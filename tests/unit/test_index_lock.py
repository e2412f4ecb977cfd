"""The user's index is written behind git's own lock, whole, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from putback import seams
from putback.errors import LockedError, Stale, StorageError
from putback.git import user_index
from putback.git.user_index import NewEntry, UserIndex
from putback.turns.index_lock import IndexLock, holder, is_ours, remove_stale
from support.hermetic import git, make_repository, unmoved
from support.indexes import FORMATS, listed, make, of_paths, read

ID = "ab" * 32
OTHER = "cd" * 32
BESIDE = "index.putback-" + ID[:12]


@pytest.fixture(params=[(algorithm, version) for algorithm in FORMATS for version in (2, 3, 4)], ids=str)
def rich(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / "tree", *request.param, flags=request.param[1] != 2)


def git_dir(root: Path) -> bytes:
    return git(root, "rev-parse", "--absolute-git-dir").strip()


def lock_of(root: Path) -> Path:
    return Path(os.fsdecode(git_dir(root))) / "index.lock"


def locked(root: Path, mode: int = 0o600, capture_id: str = ID) -> IndexLock:
    return IndexLock(git_dir(root), capture_id, mode)


def publish(root: Path, index: UserIndex, changes: dict[bytes, NewEntry | None], mode: int = 0o600) -> None:
    with locked(root, mode) as lock:
        lock.publish(index, changes)


def staged(root: Path, content: bytes = b"staged A\n", mode: int = 0o100644) -> NewEntry:
    return NewEntry(mode, git(root, "hash-object", "-w", "--stdin", given=content).strip().decode())


def names(root: Path) -> set[str]:
    return {path.name for path in (root / ".git").iterdir() if path.name.startswith("index")}


@contextmanager
def at(seam: str, action: Callable[[], object]) -> Iterator[None]:
    """Do something when the seam is reached."""
    reached: list[str] = []

    def observer(name: str) -> None:
        reached.append(name)
        if name == seam:
            action()

    seams.observe(observer)
    try:
        yield
    finally:
        seams.observe(None)
    assert seam in reached


# --- publishing -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("H6", "H27", "H31")
def test_staged_a_comes_back_and_unstaged_b_stays(rich: Path) -> None:
    git(rich, "rm", "-q", "--cached", "conflict")
    (rich / "changed").write_text("unstaged B\n")
    before, index = listed(rich), read(rich)
    changes = {
        b"changed": staged(rich),
        b"run": staged(rich, b"\0binary\xff", 0o100755),
        b"removed/x": None,
        b"new": staged(rich, b"new\n"),
    }
    publish(rich, index, changes)
    after = listed(rich)
    assert of_paths(after, *changes) == of_paths(before, *changes)
    assert git(rich, "show", ":changed") == b"staged A\n"
    assert git(rich, "show", ":run") == b"\0binary\xff"
    assert git(rich, "ls-files", "removed") == b""
    assert (rich / "changed").read_text() == "unstaged B\n"
    states = git(rich, "--no-optional-locks", "status", "--porcelain", "-z").split(b"\0")
    assert {b"MM changed", b"MM run", b"D  removed/x", b"AD new", b"?? removed/"} <= set(states)
    assert b"error" not in git(rich, "fsck", "--strict")
    assert names(rich) == {"index"}


@pytest.mark.requirement("H27", "H31")
def test_a_linked_worktree_is_published_to_its_own_index(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    git(linked, "update-index", "--assume-unchanged", "committed")
    index = user_index.parse(Path(os.fsdecode(git_dir(linked)), "index").read_bytes(), 20)
    new = staged(linked)
    before = (repository / ".git" / "index").read_bytes()
    with locked(linked) as lock:
        assert lock_of(linked) == repository / ".git" / "worktrees" / "linked" / "index.lock"
        assert lock_of(linked).exists()
        lock.publish(index, {b"new": new})
    assert git(linked, "ls-files", "-v") == b"h committed\nH new\n"
    assert (repository / ".git" / "index").read_bytes() == before


def test_the_first_index_of_a_repository(tree: Path) -> None:
    git(tree, "init", "-q", "--template=")
    publish(tree, user_index.empty(20), {b"a/b": staged(tree)})
    assert git(tree, "ls-files") == b"a/b\n"
    assert git(tree, "show", ":a/b") == b"staged A\n"


def test_without_changes_nothing_is_written(rich: Path) -> None:
    index, path = read(rich), rich / ".git" / "index"
    before = path.stat()
    publish(rich, index, {})
    after = path.stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Stale):
        publish(rich, index, {})


@pytest.mark.requirement("H27")
def test_a_file_changed_in_the_instant_of_its_staging_still_shows(repository: Path) -> None:
    """git knows such a file by its time alone, which is not older than the index; another entry is published."""
    index = repository / ".git" / "index"
    git(repository, "config", "core.trustctime", "false")
    (repository / "racy").write_text("one\n")
    git(repository, "add", "racy")
    os.utime(index, ns=(0, (repository / "racy").stat().st_mtime_ns))
    before = (repository / "racy").stat().st_mtime_ns
    with open(repository / "racy", "r+") as file:
        file.write("two\n")
    os.utime(repository / "racy", ns=(before, before))
    assert b"AM racy" in git(repository, "--no-optional-locks", "status", "--porcelain")
    late = before + 5_000_000_000
    with at("turn.index_written", lambda: os.utime(repository / ".git" / BESIDE, ns=(late, late))):
        publish(repository, read(repository), {b"committed": staged(repository)})
    assert index.stat().st_mtime_ns == before
    assert b"AM racy" in git(repository, "--no-optional-locks", "status", "--porcelain")


def test_stat_data_that_are_too_young_are_not_believed(repository: Path) -> None:
    """The stat of a file that is changed after it was taken, in the same second and with the same size."""
    git(repository, "config", "core.trustctime", "false")
    path = repository / "committed"
    index = repository / ".git" / "index"
    old = index.stat().st_mtime_ns
    new = staged(repository, b"A\n")
    path.write_bytes(b"A\n")
    found = path.stat()
    publish(repository, read(repository), {b"committed": NewEntry(0o100644, new.oid, found)})
    assert git(repository, "--no-optional-locks", "status", "--porcelain") == b"M  committed\n"
    with open(path, "r+") as file:
        file.write("B\n")
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert index.stat().st_mtime_ns == old <= found.st_mtime_ns
    assert git(repository, "--no-optional-locks", "status", "--porcelain") == b"MM committed\n"


@pytest.mark.requirement("H13")
@pytest.mark.parametrize("mode", [0o600, 0o660])
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_lock_and_index_have_the_mode_of_the_policy(repository: Path, mode: int, umask: int) -> None:
    git(repository, "config", "core.sharedRepository", "group")
    index, new = repository / ".git" / "index", staged(repository)
    index.chmod(0o644)
    folder = stat.S_IMODE((repository / ".git").stat().st_mode)
    modes: list[int] = []

    def look() -> None:
        for name in ("index.lock", BESIDE):
            modes.append(stat.S_IMODE((repository / ".git" / name).stat().st_mode))

    before = read(repository)
    os.umask(umask)
    with at("turn.index_written", look):
        publish(repository, before, {b"committed": new}, mode)
    os.umask(0o022)
    assert [*modes, stat.S_IMODE(index.stat().st_mode)] == [mode, mode, mode]
    assert stat.S_IMODE((repository / ".git").stat().st_mode) == folder


def test_the_index_is_on_disk_before_it_is_seen_and_its_name_before_the_call_returns(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def noted_rename(source: bytes, target: bytes, **places: int) -> None:
        done.append(f"{os.fsdecode(source)} -> {os.fsdecode(target)}")
        rename(source, target, **places)

    index, new = read(repository), staged(repository)
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    publish(repository, index, {b"committed": new})
    assert done == ["index.lock", ".git", BESIDE, BESIDE, f"{BESIDE} -> index", ".git"]


# --- who else is there ------------------------------------------------------------------------------------------


@pytest.mark.requirement("H27")
def test_git_waits_outside_while_the_lock_is_held(repository: Path) -> None:
    with locked(repository) as lock:
        found = lock_of(repository).stat()
        assert lock.identity == (found.st_dev, found.st_ino)
        assert lock_of(repository).read_text() == f"putback turn {ID} pid {os.getpid()}\n"
        with unmoved(repository):
            assert git(repository, "rm", "--cached", "committed", check=False) == b""
    assert not lock_of(repository).exists()
    git(repository, "rm", "-q", "--cached", "committed")


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def test_a_lock_of_somebody_else_is_left_and_named(repository: Path) -> None:
    lock = lock_of(repository)
    for content in (b"", b"DIRC", b"putback turn x pid 1\n", f"putback turn {ID} pid 0\n".encode()):
        lock.write_bytes(content)
        with unmoved(repository), pytest.raises(LockedError) as caught, locked(repository):
            pass
        assert str(lock) in caught.value.message and "another program" in caught.value.message
        assert "resolve" not in str(caught.value.hint)
        assert caught.value.exit_code == 45
        assert holder(git_dir(repository)) is None


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "directory"])
def test_what_is_no_plain_lock_is_left(repository: Path, tmp_path: Path, kind: str) -> None:
    lock, outside = lock_of(repository), tmp_path / "outside"
    if kind != "dangling":
        outside.write_text(f"putback turn {ID} pid {dead_pid()}\n")
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "directory":
        lock.mkdir()
    else:
        lock.symlink_to(outside)
    before = outside.read_text() if outside.exists() else None
    with unmoved(repository):
        with pytest.raises(LockedError, match="another program"), locked(repository):
            pass
        assert not is_ours(git_dir(repository), ID)
        assert remove_stale(git_dir(repository), ID) == ()
    assert (outside.read_text() if outside.exists() else None) == before


def test_a_lock_that_a_dead_turn_left_is_named_with_the_way_out(repository: Path) -> None:
    lock = lock_of(repository)
    lock.write_text(f"putback turn {OTHER} pid {dead_pid()}\n")
    with pytest.raises(LockedError, match=f"{OTHER[:12]}, which has died") as caught, locked(repository):
        pass
    assert "remove the file" in str(caught.value.hint)
    lock.write_text(f"putback turn {OTHER} pid {os.getppid()}\n")
    with pytest.raises(LockedError, match=f"pid {os.getppid()}") as caught, locked(repository):
        pass
    assert "resolve" not in str(caught.value.hint)
    assert lock.exists()


@pytest.mark.requirement("H27")
@pytest.mark.parametrize("when", ["turn.index_locked", "turn.index_written"])
def test_an_index_that_somebody_wrote_in_spite_of_the_lock_is_not_overwritten(repository: Path, when: str) -> None:
    index, new = read(repository), staged(repository)
    path = repository / ".git" / "index"
    theirs = index.replaced({b"theirs": new})
    with at(when, lambda: path.write_bytes(theirs)), pytest.raises(Stale, match="ignores git's lock"):
        publish(repository, index, {b"committed": new})
    assert path.read_bytes() == theirs
    assert names(repository) == {"index"}


@pytest.mark.requirement("H27")
def test_an_index_that_came_or_went_is_not_overwritten(repository: Path) -> None:
    index, new = read(repository), staged(repository)
    path = repository / ".git" / "index"
    with at("turn.index_written", path.unlink), pytest.raises(Stale):
        publish(repository, index, {b"committed": new})
    assert names(repository) == set()
    for data in (b"", index.data or b""):
        with at("turn.index_written", lambda data=data: path.write_bytes(data)), pytest.raises(Stale):
            publish(repository, user_index.empty(20), {b"committed": new})
        assert path.read_bytes() == data
        path.unlink()


@pytest.mark.requirement("H27")
def test_an_index_that_became_a_link_is_not_followed(repository: Path, tmp_path: Path) -> None:
    index, new = read(repository), staged(repository)
    path, outside = repository / ".git" / "index", tmp_path / "outside"
    outside.write_bytes(index.data or b"")

    def swap() -> None:
        path.unlink()
        path.symlink_to(outside)

    with at("turn.index_written", swap), pytest.raises(Stale, match="symbolic link"):
        publish(repository, index, {b"committed": new})
    assert outside.read_bytes() == index.data
    assert path.is_symlink()
    assert names(repository) == {"index"}


@pytest.mark.requirement("H27")
def test_a_lock_that_was_taken_away_ends_the_publication(repository: Path) -> None:
    index, new = read(repository), staged(repository)
    path, lock = repository / ".git" / "index", lock_of(repository)
    for put in (lambda: None, lambda: lock.write_text("another's\n")):

        def swap(put: Callable[[], object] = put) -> None:
            lock.rename(lock.with_name("kept"))
            put()

        with at("turn.index_written", swap), pytest.raises(LockedError, match="not the one that was taken"):
            publish(repository, index, {b"committed": new})
        assert path.read_bytes() == index.data
    assert lock.read_text() == "another's\n", "the lock of another is never removed"
    assert names(repository) == {"index", "index.lock"}


def test_what_stands_beside_the_index_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    for make_it in (os.symlink, os.link):
        make_it(outside, repository / ".git" / BESIDE)
        publish(repository, read(repository), {b"committed": staged(repository, os.urandom(4))})
        assert outside.read_text() == "mine\n"
        assert names(repository) == {"index"}


def test_a_git_directory_that_is_a_link_is_refused(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repository / ".git")
    with unmoved(repository), pytest.raises(StorageError), IndexLock(os.fsencode(tmp_path / "link"), ID, 0o600):
        pass


# --- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(3))
def test_a_full_disk_leaves_the_old_index_and_no_lock(
    repository: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    index, new = read(repository), staged(repository)
    sync, calls = os.fsync, [0]

    def full(descriptor: int) -> None:
        if calls[0] == number:
            raise OSError(28, "No space left on device")
        calls[0] += 1
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        publish(repository, index, {b"committed": new})
    assert (repository / ".git" / "index").read_bytes() == index.data
    assert names(repository) == {"index"}


@pytest.mark.requirement("H18")
@pytest.mark.parametrize("when", ["turn.index_locked", "turn.index_written", "turn.index_published"])
def test_whoever_throws_at_a_seam_leaves_no_lock(repository: Path, when: str) -> None:
    index, new = read(repository), staged(repository)

    def throw() -> None:
        raise KeyboardInterrupt

    with at(when, throw), pytest.raises(KeyboardInterrupt):
        publish(repository, index, {b"committed": new})
    assert names(repository) == {"index"}
    published = (repository / ".git" / "index").read_bytes() != index.data
    assert published == (when == "turn.index_published")


def test_a_lock_that_cannot_be_given_back_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(StorageError, match="give the lock"), locked(repository):
        monkeypatch.setattr(os, "unlink", refused)
    monkeypatch.undo()
    lock_of(repository).unlink()

    def fail() -> None:
        with locked(repository):
            monkeypatch.setattr(os, "unlink", refused)
            raise Stale("this first")

    with pytest.raises(Stale, match="this first"):
        fail()


def test_descriptors_are_given_back(repository: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before, index, new = count(), read(repository), staged(repository)
    publish(repository, index, {b"committed": new})
    with pytest.raises(Stale):
        publish(repository, index, {b"committed": new})
    with locked(repository), pytest.raises(LockedError), locked(repository):
        pass
    remove_stale(git_dir(repository), ID)
    assert count() == before


def test_only_the_id_of_a_turn_goes_into_a_lock() -> None:
    for wrong in ("", "ab", "AB" * 32, ID + "\n", "../" * 20):
        with pytest.raises(ValueError, match="not the id"):
            IndexLock(b"/nowhere", wrong, 0o600)


# --- what a killed process left ---------------------------------------------------------------------------------


@pytest.mark.requirement("H34")
def test_what_a_dead_turn_left_is_removed_and_nothing_else(repository: Path) -> None:
    where, lock = git_dir(repository), lock_of(repository)
    beside, others = repository / ".git" / BESIDE, repository / ".git" / ("index.putback-" + OTHER[:12])
    for place in (beside, others):
        place.write_bytes(b"half")
    lock.write_text(f"putback turn {ID} pid {dead_pid()}\n")
    found = holder(where)
    assert found is not None and not found.alive
    assert found.identity == (lock.stat().st_dev, lock.stat().st_ino)
    assert is_ours(where, ID) and not is_ours(where, OTHER)
    assert remove_stale(where, OTHER) == (os.fsencode(others.name),)
    assert lock.exists() and beside.exists()
    assert remove_stale(where, ID) == (os.fsencode(BESIDE), b"index.lock")
    assert names(repository) == {"index"}
    assert remove_stale(where, ID) == ()


def test_a_lock_is_stale_also_where_its_process_number_is_anothers_by_now(repository: Path) -> None:
    """Whoever removes it holds the lease of the binding, so its maker has ended."""
    lock_of(repository).write_text(f"putback turn {ID} pid {os.getpid()}\n")
    assert remove_stale(git_dir(repository), ID) == (b"index.lock",)


def test_a_lock_that_changed_hands_is_not_removed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removed it and git took it, right before we do."""
    lock, unlink = lock_of(repository), os.unlink
    lock.write_text(f"putback turn {ID} pid {dead_pid()}\n")

    def first_the_other(name: bytes, **places: int) -> None:
        if name != b"index.lock":
            lock.rename(lock.with_name("kept"))
            lock.write_text("another's\n")
        unlink(name, **places)

    monkeypatch.setattr(os, "unlink", first_the_other)
    assert remove_stale(git_dir(repository), ID) == ()
    assert lock.read_text() == "another's\n"


def test_a_repository_that_moved_under_the_lock_is_written_where_it_went(tmp_path: Path) -> None:
    """The directory is held open: whoever swaps its name leads the writer nowhere else."""
    root = make_repository(tmp_path / "tree")
    index, new = read(root), staged(root)
    decoy = make_repository(tmp_path / "decoy")

    def swap() -> None:
        (root / ".git").rename(tmp_path / "moved")
        (decoy / ".git").rename(root / ".git")

    before = (decoy / ".git" / "index").read_bytes()
    with at("turn.index_written", swap):
        publish(root, index, {b"committed": new})
    assert (root / ".git" / "index").read_bytes() == before
    assert (tmp_path / "moved" / "index").read_bytes() == index.replaced({b"committed": new})
    assert not (tmp_path / "moved" / "index.lock").exists()
