"""The ledger: what the writer promises, what a kill leaves, and every fault that the reader finds."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from putback import canonical
from putback.errors import IntegrityError, LockedError, RefusedError, StorageError
from putback.fs import journal
from putback.records import document
from putback.records.ledger import (
    TYPES,
    Changed,
    EventData,
    Instant,
    RollbackRefused,
    RunEnded,
    RunStarted,
    Snapshotted,
)
from putback.records.run import Breach, Discipline, EndedBy, Exit, Limit, RunStatus
from putback.runs import events, ledger
from putback.runs.events import Opaque
from putback.runs.faults import MAX_FAULTS, Code
from putback.runs.ledger import LedgerWriter
from support.runs import ROOT, RUN, changed, directory, file, read

TS = "2023-11-14T22:13:20.000000Z"
LATER = "2023-11-14T22:13:20.000001Z"

START = RunStarted.at(ROOT, run=RUN, command=("true",), cwd="/", discipline=Discipline.DIGESTS)
BEFORE = Snapshotted(when=Instant.BEFORE, tree="1" * 64, files=1, bytes=2, not_covered=0, manifest="2" * 64)
EXIT = Exit(by=EndedBy.EXIT, code=0)
AFTER = Snapshotted(when=Instant.AFTER, tree="3" * 64, files=1, bytes=2, not_covered=0)
A, B, C = (changed(name, None, file(name.encode())) for name in "abc")
BREACH = Breach(limit=Limit.TIME, allowed="1 s", measured="2 s")
DECLINED = RollbackRefused(trigger="time", reason="nothing to put back")
END = RunEnded(status=RunStatus.FINISHED)
WHOLE: list[EventData] = [START, BEFORE, EXIT, AFTER, A, B, C, BREACH, BREACH, DECLINED, END]


def write(path: Path, *data: EventData) -> bytes:
    with LedgerWriter(path) as writer:
        for each in data:
            writer.append(each, sync=False)
    return path.read_bytes()


def chain(*lines: EventData | tuple[str, object], ts: Callable[[int], str] = lambda number: TS) -> bytes:
    """Lines that are canonical and chained, whatever they say and in whatever order."""
    out, prev = [], canonical.genesis()
    for number, line in enumerate(lines):
        if isinstance(line, tuple):
            kind, data = line[0], msgspec.json.encode(line[1], order="sorted")
        else:
            kind, data = TYPES[type(line)], document.encode(line)
        whole, prev = canonical.link(number, ts(number), kind, data, prev)
        out.append(whole + b"\n")
    return b"".join(out)


def codes(data: bytes, **limits: int) -> list[tuple[Code, int]]:
    return [(fault.code, fault.line) for fault in read(data, **limits)[1].faults.found]


# The writer.


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    data = write(tmp_path / "l", *WHOLE)
    found, reader = read(data)
    assert [event.data for event in found] == WHOLE and reader.faults.found == [] and reader.complete
    assert [event.seq for event in found] == list(range(len(WHOLE)))
    assert reader.head == found[-1].hash and reader.count == len(WHOLE)


@pytest.mark.requirement("D24")
def test_a_line_is_what_the_format_says(tmp_path: Path) -> None:
    """Checked with another JSON library and another sha256 than the code under test takes."""
    prev = subprocess.run(["sha256sum"], input=b"putback/genesis/v1", capture_output=True).stdout[:64].decode()
    for number, line in enumerate(write(tmp_path / "l", *WHOLE).splitlines()):
        event = json.loads(line)
        assert list(event) == ["data", "hash", "prev", "seq", "ts", "type"]
        assert (event["seq"], event["prev"]) == (number, prev)
        own = event.pop("hash")
        bare = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert own == subprocess.run(["sha256sum"], input=bare, capture_output=True).stdout[:64].decode()
        prev = own


def test_the_file_is_private_and_never_replaced(tmp_path: Path) -> None:
    write(tmp_path / "l", START)
    assert os.stat(tmp_path / "l").st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match="cannot begin the ledger"):
        LedgerWriter(tmp_path / "l")


def test_time_never_goes_backwards(tmp_path: Path) -> None:
    clock = iter([2_000_000, 1_000_000, 3_000_000])
    with LedgerWriter(tmp_path / "l", clock=lambda: next(clock)) as writer:
        for each in (START, BEFORE, EXIT):
            writer.append(each, sync=False)
    found, reader = read((tmp_path / "l").read_bytes())
    assert [event.ts[-10:] for event in found] == ["00.002000Z", "00.002000Z", "00.003000Z"]
    assert not reader.faults.found


@pytest.mark.parametrize("before", [[], [START], [START, BEFORE, EXIT, AFTER, B], WHOLE])
def test_what_may_not_come_next_is_refused_and_leaves_no_trace(tmp_path: Path, before: list[EventData]) -> None:
    for number, each in enumerate([START, BEFORE, EXIT, AFTER, A, B, C, BREACH, DECLINED, END]):
        path = tmp_path / f"{number}"
        with LedgerWriter(path) as writer:
            for earlier in before:
                writer.append(earlier, sync=False)
            head, count = writer.head, writer.count
            may = not codes(chain(*before, each))
            if may:
                writer.append(each, sync=False)
            else:
                with pytest.raises(ValueError, match="out of order"):
                    writer.append(each, sync=False)
                assert (writer.head, writer.count) == (head, count)
        assert codes(path.read_bytes()) == []


def test_an_event_that_no_reader_would_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_LINE_BYTES", 2000)
    with LedgerWriter(tmp_path / "l") as writer:
        writer.append(START, sync=True)
        with pytest.raises(RefusedError, match="a ledger takes 1000"):
            writer.append(msgspec.structs.replace(BEFORE, capture="x" * 1100), sync=True)
        writer.append(BEFORE, sync=True)


def test_sync_means_on_disk_and_its_absence_means_buffered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)))
    path = tmp_path / "l"
    with LedgerWriter(path) as writer:
        synced.clear()
        writer.append(START, sync=True)
        assert synced == [path.stat().st_size] and path.read_bytes().count(b"\n") == 1
        writer.append(BEFORE, sync=False)
        assert path.read_bytes().count(b"\n") == 1 and len(synced) == 1
        writer.append(EXIT, sync=True)
        assert synced[1:] == [path.stat().st_size] and path.read_bytes().count(b"\n") == 3


def test_a_hundred_thousand_changes_are_taken_from_a_generator_and_none_is_kept(tmp_path: Path) -> None:
    """One change at a time is alive, and no more than a buffer of lines; nor does the reader keep any."""
    alive, most = 0, 0

    class Counted(Changed, frozen=True, weakref=True):
        pass

    TYPES[Counted] = "fs.change"

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def changes() -> Iterator[Changed]:
        nonlocal alive, most
        state = file(b"")
        for number in range(100_000):
            change = Counted.at(b"%06d" % number, after=state)
            weakref.finalize(change, gone)
            alive += 1
            most = max(most, alive)
            yield change

    try:
        with LedgerWriter(tmp_path / "l") as writer:
            for each in (START, BEFORE, EXIT, AFTER):
                writer.append(each, sync=False)
            writer.extend(changes())
            assert writer._journal._waiting_bytes < journal.BUFFER_BYTES
            writer.append(END, sync=True)
    finally:
        del TYPES[Counted]
    assert most <= 3
    with open(tmp_path / "l", "rb") as stream:
        reader = events.Reader(stream)
        assert sum(1 for _ in reader) == reader.count == 100_005
        assert iter(reader) is not reader and reader.complete and not reader.faults.found


def test_a_full_disk_ends_the_ledger_until_it_is_reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l"
    writer = LedgerWriter(path)
    writer.append(START, sync=True)
    real = os.write

    def short(fd: int, data: memoryview) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return real(fd, data[:99])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(StorageError, match="No space left"):
        writer.append(BEFORE, sync=True)
    monkeypatch.setattr(os, "write", real)
    with pytest.raises(StorageError, match="an earlier write failed"):
        writer.append(EXIT, sync=True)
    with pytest.raises(StorageError, match="an earlier write failed"):
        writer.append(AFTER, sync=False)
    with pytest.raises(StorageError, match="an earlier write failed"):
        writer.sync()
    writer.close()
    assert codes(path.read_bytes()) == [(Code.TORN_TAIL, 2)]
    with LedgerWriter.reopen(path) as again:
        again.append(BEFORE, sync=True)
    assert codes(path.read_bytes()) == []


def test_a_sync_that_fails_ends_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LedgerWriter(tmp_path / "l") as writer:
        real = os.fsync

        def fails(fd: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(StorageError, match="Input/output"):
            writer.append(START, sync=True)
        monkeypatch.setattr(os, "fsync", real)
        with pytest.raises(StorageError, match="an earlier write failed"):
            writer.append(BEFORE, sync=True)


# A writer that was killed.


def test_killed_at_every_byte_then_continued(tmp_path: Path) -> None:
    """Whatever the last write left, every whole line stays as it was and the run can be ended."""
    path = tmp_path / "l"
    data = write(path, START, BEFORE, EXIT)
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = data[: data.rfind(b"\n", 0, length) + 1]
        with LedgerWriter.reopen(path) as writer:
            count = whole.count(b"\n")
            assert writer.count == count and path.read_bytes() == whole, f"killed after {length} bytes"
            for each in [START, BEFORE, EXIT, AFTER, A, END][count:]:
                writer.append(each, sync=False)
        now = path.read_bytes()
        found, reader = read(now)
        assert now.startswith(whole) and not reader.faults.found and reader.complete, length
        assert [event.data for event in found] == [START, BEFORE, EXIT, AFTER, A, END]


def test_a_torn_line_longer_than_a_block_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "l"
    data = write(path, START)
    path.write_bytes(data + b"x" * 200_000)
    LedgerWriter.reopen(path).close()
    assert path.read_bytes() == data


def test_a_ledger_goes_on_where_it_stood(tmp_path: Path) -> None:
    """Order and time go on, too: nothing that had come may come again, nothing is earlier."""
    path = tmp_path / "l"
    with LedgerWriter(path, clock=lambda: 5_000_000) as writer:
        for each in (START, BEFORE, EXIT, AFTER, B):
            writer.append(each, sync=False)
        head = writer.head
    with LedgerWriter.reopen(path, clock=lambda: 1) as writer:
        assert writer.head == head and not writer.ended
        for misplaced in (START, BEFORE, AFTER, A, B):
            with pytest.raises(ValueError, match="out of order"):
                writer.append(misplaced, sync=False)
        writer.append(C, sync=False)
        writer.append(END, sync=True)
        assert writer.ended
    assert codes(path.read_bytes()) == []


def test_a_damaged_ledger_is_not_continued_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l"
    damaged = write(path, START, BEFORE).replace(b'"files":1', b'"files":7') + b"torn"
    path.write_bytes(damaged)
    with pytest.raises(IntegrityError, match=r"line 2: the hash is .* it was not continued"):
        LedgerWriter.reopen(path)
    assert path.read_bytes() == damaged


def test_a_living_writer_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with LedgerWriter(path) as writer:
        writer.append(START, sync=True)
        with pytest.raises(LockedError, match="another process writes"):
            LedgerWriter.reopen(path)
    LedgerWriter.reopen(path).close()


@pytest.mark.parametrize("kind", ["missing", "link", "pipe", "directory"])
def test_only_a_regular_file_is_continued(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "l"
    write(tmp_path / "other", START)
    if kind == "link":
        path.symlink_to("other")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(StorageError, match="cannot go on"):
        LedgerWriter.reopen(path)


# The reader: every fault.


def edited(number: int, old: bytes, new: bytes) -> bytes:
    """A whole ledger with a replacement in one line (from 1), and nothing made consistent again."""
    lines = chain(*WHOLE).splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    return b"".join(lines)


def relinked(number: int, **fields: object) -> bytes:
    """A whole ledger in which one line has other fields, and its own hash is right again."""
    lines = chain(*WHOLE).splitlines()
    event = json.loads(lines[number - 1]) | fields
    data = msgspec.json.encode(event["data"], order="sorted")
    lines[number - 1] = canonical.link(event["seq"], event["ts"], event["type"], data, event["prev"])[0]
    return b"\n".join(lines) + b"\n"


WHOLE_BYTES = chain(*WHOLE)
FAULTS: list[tuple[str, bytes, list[tuple[Code, int]]]] = [
    ("none", WHOLE_BYTES, []),
    ("none, empty", b"", []),
    ("torn tail", WHOLE_BYTES[:-1], [(Code.TORN_TAIL, 11)]),
    ("torn tail, few bytes", WHOLE_BYTES + b"{", [(Code.TORN_TAIL, 12)]),
    ("white space", edited(2, b'"when":', b'"when": '), [(Code.NOT_CANONICAL, 2)]),
    ("needless escape", edited(1, b"true", b"\\u0074rue"), [(Code.NOT_CANONICAL, 1)]),
    ("a default written out", edited(3, b'"code":0', b'"code":0,"duration_ms":0'), [(Code.NOT_CANONICAL, 3)]),
    ("order of fields", edited(3, b'"by":"exit","code":0', b'"code":0,"by":"exit"'), [(Code.NOT_CANONICAL, 3)]),
    ("a field twice", edited(3, b'"code":0', b'"code":1,"code":0'), [(Code.NOT_CANONICAL, 3)]),
    ("carriage return", edited(3, b"\n", b"\r\n"), [(Code.NOT_CANONICAL, 3)]),
    ("wrong hash, data", edited(3, b'"code":0', b'"code":9'), [(Code.WRONG_HASH, 3)]),
    ("wrong hash, time", edited(11, b".000000Z", b".000009Z"), [(Code.WRONG_HASH, 11)]),
    ("wrong hash, type", edited(8, b"limit.breach", b"x-other.thing"), [(Code.WRONG_HASH, 8)]),
    ("hash in capitals", edited(11, b'"hash":"', b'"hash":"A'), [(Code.WRONG_HASH, 11)]),
    ("empty line", edited(2, b"\n", b"\n\n"), [(Code.NOT_AN_EVENT, 3)]),
    ("not JSON", edited(2, b"{", b"("), [(Code.NOT_AN_EVENT, 2)]),
    ("not an object", edited(2, b"{", b"[]{"), [(Code.NOT_AN_EVENT, 2)]),
    ("not UTF-8", edited(1, b"true", b"tr\xffe"), [(Code.BAD_DATA, 1)]),
    ("seq is a string", edited(2, b'"seq":1', b'"seq":"1"'), [(Code.NOT_AN_EVENT, 2)]),
    ("seq is huge", edited(2, b'"seq":1', b'"seq":' + b"9" * 4300), [(Code.NOT_AN_EVENT, 2)]),
    ("seq is negative", edited(2, b'"seq":1', b'"seq":-1'), [(Code.NOT_AN_EVENT, 2)]),
    ("depth without end", edited(2, b'"data":', b'"data":' + b"[" * 100_000), [(Code.NOT_AN_EVENT, 2)]),
    ("unknown field of the event", edited(2, b'{"data"', b'{"also":1,"data"'), [(Code.UNKNOWN_FIELD, 2)]),
    ("unknown field of the data", edited(3, b'"code":0', b'"code":0,"d":1'), [(Code.UNKNOWN_FIELD, 3)]),
    ("missing field of the data", edited(3, b'"by":"exit",', b""), [(Code.BAD_DATA, 3)]),
    ("null", edited(3, b'"code":0', b'"code":null'), [(Code.NOT_CANONICAL, 3), (Code.WRONG_HASH, 3)]),
    ("a float", edited(3, b'"code":0', b'"code":0.5'), [(Code.BAD_DATA, 3)]),
    ("damaged snapshot of the tree after", edited(4, b'"files":1', b'"files":-1'), [(Code.BAD_DATA, 4)]),
    ("damaged run.start", edited(1, b"{", b"("), [(Code.NOT_AN_EVENT, 1)]),
    ("type with a quote", edited(11, b'"run.end"', b'"x-\\""'), [(Code.UNKNOWN_TYPE, 11)]),
    ("time with a quote", edited(11, b'"ts":"2', b'"ts":"\\"'), [(Code.BAD_TIME, 11)]),
    (
        "hash with a quote",
        edited(11, b'"hash":"', b'"hash":"\\"'),
        [(Code.NOT_CANONICAL, 11), (Code.WRONG_HASH, 11)],
    ),
    ("negative size", edited(2, b'"bytes":2', b'"bytes":-2'), [(Code.BAD_DATA, 2)]),
]


@pytest.mark.requirement("D24")
@pytest.mark.parametrize(("name", "data", "expected"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_faults_of_one_line(name: str, data: bytes, expected: list[tuple[Code, int]]) -> None:
    assert sorted(codes(data)) == sorted(expected)


LINKED: list[tuple[str, bytes, list[Code]]] = [
    ("wrong seq", relinked(2, seq=5), [Code.WRONG_SEQ, Code.WRONG_SEQ, Code.BROKEN_CHAIN]),
    ("wrong prev", relinked(2, prev="0" * 64), [Code.BROKEN_CHAIN, Code.BROKEN_CHAIN]),
    ("prev is no hash", relinked(2, prev="g"), [Code.BROKEN_CHAIN, Code.WRONG_HASH, Code.BROKEN_CHAIN]),
    ("time of another form", relinked(11, ts="2023-11-14 22:13:20.000000Z"), [Code.BAD_TIME]),
    ("time without a fraction", relinked(11, ts="2023-11-14T22:13:21Z"), [Code.BAD_TIME]),
    ("time with an offset", relinked(11, ts="2023-11-14T22:13:20.000000+00:00"), [Code.BAD_TIME]),
    ("no such day", relinked(11, ts="2023-02-30T22:13:20.000000Z"), [Code.BAD_TIME]),
    (
        "time in other digits",
        relinked(11, ts=TS.replace("2023", "٢٠٢٣")),
        [Code.BAD_TIME],
    ),
    ("earlier", relinked(11, ts="2023-11-14T22:13:19.999999Z"), [Code.BAD_TIME]),
    ("unknown type", relinked(11, type="run.over"), [Code.UNKNOWN_TYPE]),
    ("unknown type of ours", relinked(11, type="x-putback.other"), [Code.UNKNOWN_TYPE]),
    ("type that is no name", relinked(11, type="x-Ä"), [Code.UNKNOWN_TYPE]),
]


@pytest.mark.parametrize(("name", "data", "expected"), LINKED, ids=[name for name, _, _ in LINKED])
def test_faults_of_a_line_that_hashes_right(name: str, data: bytes, expected: list[Code]) -> None:
    assert [code for code, _ in codes(data)] == expected


ORDERS: list[tuple[str, list[EventData]]] = [
    ("before run.start", [BEFORE, START]),
    ("fs.change before run.start", [A]),
    ("run.start for the second time", [START, START]),
    ("before for the second time", [START, BEFORE, BEFORE]),
    ("after without run.exit", [START, BEFORE, AFTER]),
    ("run.exit without", [START, EXIT]),
    ("run.exit for the second time", [START, BEFORE, EXIT, EXIT]),
    ("run.exit after fs.snapshot of the tree after", [START, BEFORE, AFTER, EXIT]),
    ("fs.change without fs.snapshot of the tree after", [START, BEFORE, EXIT, A]),
    ("one path twice", [START, BEFORE, EXIT, AFTER, A, A]),
    ("not in path order", [START, BEFORE, EXIT, AFTER, B, A]),
    ("fs.change after limit.breach", [START, BEFORE, EXIT, AFTER, BREACH, A]),
    ("limit.breach without run.exit", [START, BEFORE, BREACH]),
    ("limit.breach after the rollback", [START, BEFORE, EXIT, AFTER, BREACH, DECLINED, BREACH]),
    ("the rollback without limit.breach", [START, BEFORE, EXIT, AFTER, DECLINED]),
    ("the rollback for the second time", [START, BEFORE, EXIT, BREACH, DECLINED, DECLINED]),
    ("run.end before run.start", [END]),
    ("fs.change after run.end", [START, BEFORE, EXIT, AFTER, END, A]),
    ("run.end after run.end", [START, END, END]),
]


@pytest.mark.parametrize(("words", "sequence"), ORDERS, ids=[words for words, _ in ORDERS])
def test_events_out_of_order(words: str, sequence: list[EventData]) -> None:
    found = read(chain(*sequence))[1].faults.found
    assert found and all(fault.code is Code.OUT_OF_ORDER for fault in found)
    assert any(words in fault.detail for fault in found), [fault.detail for fault in found]


@pytest.mark.parametrize("length", range(len(WHOLE) + 1))
def test_a_killed_run_has_no_end_and_no_fault(length: int) -> None:
    found, reader = read(chain(*WHOLE[:length]))
    assert len(found) == length and not reader.faults.found
    assert reader.complete is (length == len(WHOLE))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 6])
def test_an_interrupted_run_may_be_ended_from_anywhere(length: int) -> None:
    assert codes(chain(*WHOLE[:length], END)) == []


def test_events_of_others_are_chained_and_not_understood() -> None:
    other = ("x-ci.note", {"b": [1, {"c": "ü"}], "a": 10**30})
    data = chain(START, other, BEFORE)
    found, reader = read(data)
    assert not reader.faults.found and reader.count == 3
    assert isinstance(found[1].data, Opaque) and json.loads(found[1].data.data) == other[1]
    assert codes(data.replace(b'"x-ci.note"', b'"x-ci.nota"')) == [(Code.WRONG_HASH, 2)]
    assert codes(data.replace(b'"b":[1,', b'"b":[2,')) == [(Code.WRONG_HASH, 2)]
    assert codes(data.replace(b'"b":[1,', b'"b":[ 1,')) == [(Code.NOT_CANONICAL, 2)]
    assert codes(chain(other, START)) == [(Code.OUT_OF_ORDER, 1)]
    assert codes(chain(START, END, other)) == [(Code.OUT_OF_ORDER, 3)]
    assert codes(chain(START, BEFORE, EXIT, AFTER, A, other, A)) == [(Code.OUT_OF_ORDER, 7)]


@pytest.mark.parametrize("value", [1.5, True, None, [False], {"a": None}])
def test_events_of_others_have_strings_and_integers_only(value: object) -> None:
    assert codes(chain(START, ("x-ci.note", value))) == [(Code.BAD_DATA, 2)]


@pytest.mark.parametrize(
    ("path", "b64"),
    [
        *[("/etc/passwd", ""), ("../x", ""), ("a/./b", ""), ("", ""), ("a//b", ""), ("a/.GIT/hooks/x", "")],
        *[("a\0b", ""), ("x" * 256, ""), ("a", "!"), ("a", "Yg=="), ("a", "YR=="), ("caf\\xe8", "Y2Fm6Q==")],
    ],
)
def test_a_path_that_nothing_may_touch_is_a_fault(path: str, b64: str) -> None:
    change = Changed(path=path, path_b64=b64, after=directory())
    assert codes(chain(START, BEFORE, EXIT, AFTER, change)) == [(Code.BAD_PATH, 5)]


def test_every_fault_is_found_not_only_the_first() -> None:
    lines = WHOLE_BYTES.splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"files":1', b'"files":2')
    lines[3] = b"?\n"
    lines[6], lines[5] = lines[5], lines[6]
    found = codes(b"".join(lines) + b"torn")
    assert [line for _, line in found if line in (2, 4, 12)] == [2, 4, 12]
    assert {code for code, line in found if line in (6, 7)} >= {
        Code.WRONG_SEQ,
        Code.BROKEN_CHAIN,
        Code.OUT_OF_ORDER,
    }


def test_faults_are_bounded() -> None:
    found = codes(b"?\n" * (MAX_FAULTS + 10))
    assert len(found) == MAX_FAULTS + 1 and found[-1][0] is Code.MORE


def test_a_line_without_end_is_not_read_on() -> None:
    data = chain(START, BEFORE)
    long = b"x" * 5000 + b"\n" + data
    assert codes(data + long, max_line_bytes=2000) == [(Code.LINE_TOO_LONG, 3)]
    stream = io.BytesIO(data + long)
    list(events.Reader(stream, max_line_bytes=2000))
    assert stream.tell() == len(data) + 2001


def test_a_ledger_without_end_is_not_read_on() -> None:
    data = chain(START, BEFORE, EXIT)
    size = len(data.splitlines()[0]) + 2
    found, reader = read(data, max_bytes=size)
    assert len(found) == 1 and [fault.code for fault in reader.faults.found] == [Code.TOO_LARGE]
    assert codes(data, max_bytes=len(data)) == []


def test_what_a_document_says_cannot_move_a_cursor() -> None:
    data = edited(3, b'"code":0', b'"code":0,"\\u001b[2J":1')
    (fault,) = read(data)[1].faults.found
    assert "\x1b" not in str(fault) and str(fault).startswith("line 3: ")


def test_a_line_that_is_no_event_is_passed_over() -> None:
    found = ledger.read(io.BytesIO(edited(8, b"{", b"(")))
    assert found.started == START and found.count == len(WHOLE) and found.complete
    assert all(isinstance(event, events.Event) for event in events.Reader(io.BytesIO(b"?\n" + chain(START))))


def test_the_whole_ledger_keeps_the_first_of_what_stands_once() -> None:
    replace = msgspec.structs.replace
    again: list[EventData] = [replace(START, tool="x"), replace(BEFORE, files=7), replace(EXIT, code=7)]
    again += [replace(AFTER, files=7), replace(DECLINED, reason="x"), replace(END, created=7)]
    events = [START, BEFORE, EXIT, AFTER, A, BREACH, DECLINED, END]
    found = ledger.read(io.BytesIO(chain(*events, *again)))
    assert (found.started, found.before, found.exit, found.after) == (START, BEFORE, EXIT, AFTER)
    assert (found.changes, found.breaches, found.rollback, found.ended) == ([A], [BREACH], DECLINED, END)
    assert found.complete and found.count == 14
    assert [fault.line for fault in found.faults] == [9, 10, 11, 12, 13, 14]


def test_times_sort_as_text() -> None:
    moments = [0, 999, 1_000, 1_700_000_000_123_456_789, 253_402_300_799_999_999_000]
    texts = [ledger.timestamp(each) for each in moments]
    assert texts == sorted(texts) and len({len(text) for text in texts}) == 1
    assert texts[3] == "2023-11-14T22:13:20.123456Z"
    assert all(one <= other for one, other in itertools.pairwise(texts))
