"""The bulk reader on real files, with an opener that can interfere."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from putback.errors import Cancelled
from putback.git.index import EXECUTABLE, REGULAR, SYMLINK, make_record, write_index
from putback.git.objectid import deflate, object_id
from putback.git.packs import PackWriter
from putback.git.trees import build_trees
from putback.ops.bulk import Known, Missing, NotCovered, Outcome, Stored, store_files
from putback.progress import SILENT, Progress, Silent
from support.plumbing import ODD_NAMES, Bare, make_bare

LIMIT = 64 << 20
LARGE = 9 << 20


class Disk:
    """Opens files below a root; `before` and `after` open may do something to them."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root) + b"/"
        self.before: Callable[[bytes], None] = lambda _path: None
        self.after: Callable[[bytes], None] = lambda _path: None
        self.opened: list[bytes] = []

    def open_file(self, path: bytes) -> int:
        self.opened.append(path)
        self.before(path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(self.root + path, flags)

    def read_link(self, path: bytes) -> bytes:
        return os.readlink(self.root + path)

    def lstat(self, path: bytes) -> os.stat_result:
        return os.lstat(self.root + path)

    def append(self, path: bytes, data: bytes) -> None:
        with open(self.root + path, "ab") as file:
            file.write(data)


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return make_bare(tmp_path)


@pytest.fixture
def disk(bare: Bare) -> Disk:
    return Disk(bare.tree)


@pytest.fixture
def writer(bare: Bare) -> Iterator[PackWriter]:
    with PackWriter(bare.scratch) as writer:
        yield writer
    assert not list(bare.scratch.iterdir())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "putback-read"]


def run(
    disk: Disk,
    writer: PackWriter,
    paths: Sequence[bytes],
    known: Known | None = None,
    limit: int = LIMIT,
    progress: Progress = SILENT,
) -> dict[bytes, Outcome]:
    outcomes = list(store_files(paths, disk, writer, known, max_file_bytes=limit, progress=progress))
    by_path = {outcome.path: outcome for outcome in outcomes}
    assert len(by_path) == len(outcomes) == len(paths)
    return by_path


def one(disk: Disk, writer: PackWriter, path: bytes, **options: int) -> Outcome:
    return run(disk, writer, [path], **options)[path]  # type: ignore[arg-type]


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, NotCovered), outcome
    return outcome.reason


def test_a_capture_of_it_all_satisfies_git(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    names = [*ODD_NAMES, *(b"many/%d/%d" % (number % 7, number) for number in range(600)), b"large"]
    for number, name in enumerate(names):
        bare.write(name, b"" if name == b"empty" else b"text %d\n" % (number // 2), executable=number % 3 == 0)
    bare.write(b"large", random.Random(6).randbytes(4 << 10) * (LARGE >> 12))
    bare.link(b"link", b"not-utf8-\xff")
    bare.link(b"dangling", b"/nowhere")
    names += [b"link", b"dangling"]

    entries = {}
    for path, outcome in run(disk, writer, names).items():
        assert isinstance(outcome, Stored)
        entries[path] = make_record(outcome.st, outcome.mode, outcome.oid)
    trees = build_trees(entries)
    for oid, data in trees.objects:
        writer.add("tree", oid, len(data), deflate(data))
    writer.finish(bare.packs)
    write_index(bare.index, entries, trees.cache_tree)

    assert bare.git("diff-files", "--raw", "-z") == b""
    assert bare.git("ls-files", "-o", "-z") == b""
    assert bare.git("write-tree").decode().strip() == trees.root.hex()
    bare.fsck()
    write_index(bare.index, entries, None)
    assert bare.git("write-tree").decode().strip() == trees.root.hex()
    bare.git("diff-index", "--cached", "--exit-code", trees.root.hex())


def test_kinds_and_modes(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    bare.write(b"f", b"x")
    bare.write(b"x", b"x", executable=True)
    bare.link(b"l", b"f")
    bare.write(b"d/inside")
    os.mkfifo(bare.tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(bare.tree / "sock"))
        found = run(disk, writer, [b"f", b"x", b"l", b"d", b"pipe", b"sock", b"none", b"f/below", b"d/none"])
    stored = {path: outcome for path, outcome in found.items() if isinstance(outcome, Stored)}
    assert {path: outcome.mode for path, outcome in stored.items()} == {
        b"f": REGULAR,
        b"x": EXECUTABLE,
        b"l": SYMLINK,
    }
    assert stored[b"l"].oid == object_id("blob", b"f")
    assert reason(found[b"pipe"]) == reason(found[b"sock"]) == "special_file"
    for path in (b"d", b"none", b"f/below", b"d/none"):
        assert found[path] == Missing(path)


def test_too_large_names_both_numbers(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    bare.write(b"at", b"x" * 100)
    bare.write(b"over", b"x" * 101)
    found = run(disk, writer, [b"at", b"over"], limit=100)
    assert isinstance(found[b"at"], Stored)
    assert found[b"over"] == NotCovered(b"over", "too_large", "101 bytes, the limit is 100", 101)


def test_what_the_system_refuses_is_unreadable(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    bare.write(b"f", b"12345")

    def refuse(_path: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    disk.before = refuse
    assert one(disk, writer, b"f") == NotCovered(b"f", "unreadable", "Permission denied", 5)


def test_running_out_of_descriptors_is_no_property_of_a_file(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    bare.write(b"f", b"1")

    def exhausted(_path: bytes) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    disk.before = exhausted
    with pytest.raises(OSError, match="Too many open files"):
        one(disk, writer, b"f")


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_file_that_changes_once_is_read_again(
    bare: Bare, disk: Disk, writer: PackWriter, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    bare.write(b"f", b"a" * size)
    interfere_at_read(monkeypatch, lambda: disk.append(b"f", b"more"), times=1)
    outcome = one(disk, writer, b"f")
    assert isinstance(outcome, Stored)
    assert outcome.oid == object_id("blob", b"a" * size + b"more")
    assert outcome.st.st_size == size + 4
    assert writer.count == 1
    writer.finish(bare.packs)
    bare.fsck()


@pytest.mark.parametrize("size", [0, 10, LARGE])
def test_a_file_that_keeps_growing_is_not_covered(
    bare: Bare, disk: Disk, writer: PackWriter, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    bare.write(b"f", b"a" * size)
    bare.write(b"other", b"still")
    interfere_at_read(monkeypatch, lambda: disk.append(b"f", b"more"))
    assert reason(one(disk, writer, b"f")) == "changed_while_read"
    monkeypatch.undo()
    assert isinstance(one(disk, writer, b"other"), Stored)
    writer.finish(bare.packs)
    bare.fsck()


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_rewrite_of_the_same_size_is_noticed(
    bare: Bare, disk: Disk, writer: PackWriter, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also right after the file was made, when the file system's clock has not moved on."""
    bare.write(b"f", b"a" * size)

    def rewrite() -> None:
        with open(disk.root + b"f", "r+b") as file:
            file.write(b"b")

    interfere_at_read(monkeypatch, rewrite, times=1)
    outcome = one(disk, writer, b"f")
    assert isinstance(outcome, Stored)
    assert outcome.oid == object_id("blob", b"b" + b"a" * (size - 1))


def test_a_large_file_that_changes_between_the_two_passes_is_rolled_back(
    bare: Bare, disk: Disk, writer: PackWriter
) -> None:
    bare.write(b"f", b"a" * LARGE)

    def change_when_asked(_oids: Sequence[bytes]) -> set[bytes]:
        disk.append(b"f", b"more")
        return set()

    assert reason(run(disk, writer, [b"f"], change_when_asked)[b"f"]) == "changed_while_read"
    assert writer.count == 0


def interfere_at_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int | None = None) -> None:
    """Do something to the file each time its content is about to be read from the start."""
    left = [times]

    def interfere() -> None:
        if left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            act()

    real_read, real_pread = os.read, os.pread

    def read(descriptor: int, length: int) -> bytes:
        interfere()
        return real_read(descriptor, length)

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        if offset == 0:
            interfere()
        return real_pread(descriptor, length, offset)

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(os, "pread", pread)


def test_a_link_that_becomes_a_file_is_not_taken_for_either(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    bare.link(b"l", b"text")

    def swap(path: bytes) -> bytes:
        os.unlink(disk.root + path)
        bare.write(path, b"a file")
        return os.readlink(disk.root + path)

    disk.read_link = swap  # type: ignore[method-assign]
    outcome = one(disk, writer, b"l")
    assert isinstance(outcome, Stored)
    assert (outcome.mode, outcome.oid) == (REGULAR, object_id("blob", b"a file"))


def test_a_large_file_that_shrinks_or_turns_into_a_link_meanwhile(
    bare: Bare, disk: Disk, writer: PackWriter
) -> None:
    bare.write(b"shrinks", b"a" * LARGE)
    bare.write(b"turns", b"a" * LARGE)

    def meanwhile(path: bytes) -> None:
        if disk.opened.count(path) == 2:
            os.unlink(disk.root + path)
            if path == b"turns":
                bare.link(path, b"shrinks")
            else:
                bare.write(path, b"small")

    disk.before = meanwhile
    found = run(disk, writer, [b"shrinks", b"turns"])
    shrunk, turned = found[b"shrinks"], found[b"turns"]
    assert isinstance(shrunk, Stored) and isinstance(turned, Stored)
    assert (shrunk.oid, shrunk.mode) == (object_id("blob", b"small"), REGULAR)
    assert (turned.oid, turned.mode) == (object_id("blob", b"shrinks"), SYMLINK)
    writer.finish(bare.packs)
    assert bare.git("cat-file", "blob", turned.oid.hex()) == b"shrinks"


def test_what_the_store_knows_is_not_written(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    names = [b"f%d" % number for number in range(700)]
    for name in names:
        bare.write(name, b"content " + name)
    bare.write(b"large", b"a" * LARGE)
    held = {object_id("blob", b"content " + name) for name in names[::2]}
    held.add(object_id("blob", b"a" * LARGE))
    asked: list[int] = []
    busy = threading.Lock()

    def known(oids: Sequence[bytes]) -> set[bytes]:
        assert busy.acquire(blocking=False)
        asked.append(len(oids))
        found = held & set(oids)
        busy.release()
        return found

    found = run(disk, writer, [*names, b"large"], known)
    assert all(isinstance(outcome, Stored) for outcome in found.values())
    assert writer.count == 350
    assert sum(asked) == 701
    assert max(asked) <= 256


def test_equal_contents_are_stored_once(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    names = [b"f%d" % number for number in range(600)]
    for name in names:
        bare.write(name, b"the same")
    found = run(disk, writer, names)
    assert {outcome.oid for outcome in found.values() if isinstance(outcome, Stored)} == {
        object_id("blob", b"the same")
    }
    assert writer.count == 1


class Watch(Silent):
    def __init__(self, stop_after: int | None = None) -> None:
        self.done = 0
        self.stop_after = stop_after

    def advance(self, count: int = 1) -> None:
        self.done += count

    def cancelled(self) -> bool:
        return self.stop_after is not None and self.done >= self.stop_after


def many(bare: Bare, count: int) -> list[bytes]:
    names = [b"f%d" % number for number in range(count)]
    for name in names:
        bare.write(name, name)
    return names


def test_progress_counts_every_path(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    watch = Watch()
    run(disk, writer, [*many(bare, 1000), b"none"], progress=watch)
    assert watch.done == 1001


def test_cancelling_stops_within_a_batch(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    with pytest.raises(Cancelled):
        run(disk, writer, many(bare, 3000), progress=Watch(stop_after=1))
    assert writer.count <= 256


def test_cancelling_stops_within_a_large_file(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    bare.write(b"f", b"a" * LARGE)
    watch = Watch(stop_after=0)
    answers = iter([False, False, False])
    watch.cancelled = lambda: next(answers, True)  # type: ignore[method-assign]
    with pytest.raises(Cancelled):
        run(disk, writer, [b"f"], progress=watch)
    assert writer.count == 0


def test_an_iterator_that_is_dropped_takes_its_threads_along(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    names = many(bare, 3000)
    outcomes = store_files(names, disk, writer, None, max_file_bytes=LIMIT, progress=SILENT)
    next(iter(outcomes))
    outcomes.close()  # type: ignore[attr-defined]


def test_an_error_in_a_worker_reaches_the_caller(bare: Bare, disk: Disk, writer: PackWriter) -> None:
    def broken(_oids: Sequence[bytes]) -> set[bytes]:
        raise RuntimeError("the store is gone")

    with pytest.raises(RuntimeError, match="the store is gone"):
        run(disk, writer, many(bare, 1000), broken)


def test_a_full_disk_is_raised_not_blamed_on_the_file(
    bare: Bare, disk: Disk, writer: PackWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.write(b"f", random.Random(7).randbytes(LARGE))

    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        one(disk, writer, b"f")


def test_no_paths_give_no_outcomes(disk: Disk, writer: PackWriter) -> None:
    assert run(disk, writer, []) == {}
    assert writer.count == 0
