"""Reading and writing single objects of the private repository.

Reads go through one `cat-file --batch` process. Small objects are written here, as loose objects under their
own digest: whole or not at all, and on disk before the call returns.
"""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import IO, Self

from putback.errors import Cancelled, GitUnavailable, IntegrityError
from putback.git.command import Git, kill

BLOCK = 1 << 16

# How many announced objects are asked for before their turn; so many questions always fit into the pipe.
AHEAD = 64


def tree_of(entries: Sequence[tuple[int, bytes, str]]) -> bytes:
    """The content of a tree object with these (mode, name, id) entries."""

    def order(entry: tuple[int, bytes, str]) -> bytes:
        return entry[1] + (b"/" if entry[0] == 0o040000 else b"")

    lines = (b"%o %s\0" % (mode, name) + bytes.fromhex(oid) for mode, name, oid in sorted(entries, key=order))
    return b"".join(lines)


class ObjectReader:
    """Reads objects through one git process for as long as the block lasts.

    `algorithm` is the one that the repository makes its ids with, `where` what messages call the repository.
    """

    def __init__(self, git: Git, algorithm: str = "sha256", where: str = "the store") -> None:
        self._git = git
        self._algorithm = algorithm
        self._where = where
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._at = 0
        self._sent: deque[str] = deque()
        self._announced: Iterator[str] = iter(())
        self._unfinished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            kill(self._process)
            self._process.communicate()
        self._start_over()

    def announce(self, oids: Iterable[str]) -> None:
        """Say what will be read next, in this order, so that git looks it up meanwhile. A hint, and no more."""
        self._announced = iter(oids)

    def read(self, oid: str, kind: str) -> bytes:
        """The whole content of an object. Raises IntegrityError where it is not there whole."""
        return b"".join(self.stream(oid, kind))

    def stream(self, oid: str, kind: str) -> Iterator[bytes]:
        """The content in blocks; the last one comes only after the whole has been checked against `oid`."""
        if self._unfinished:
            # Somebody gave up a stream; the rest of it would be taken for the next answer.
            self.close()
        self._unfinished = True
        self._ask(oid)
        remaining = self._answer(oid, kind)
        digest = hashlib.new(self._algorithm, f"{kind} {remaining}\0".encode(), usedforsecurity=False)
        held = b""
        while remaining:
            block = self._take(oid, remaining)
            remaining -= len(block)
            digest.update(block)
            if held:
                yield held
            held = block
        self._take(oid, 1)
        self._unfinished = False
        if digest.hexdigest() != oid:
            raise IntegrityError(f"object {oid[:12]} is damaged in {self._where}")
        if held:
            yield held

    def _ask(self, oid: str) -> None:
        """See to it that the next answer is the one for `oid`."""
        if oid not in self._sent and (self._sent or not self._send_announced(oid)):
            if self._sent:
                self.close()
            self._send([oid])
        while self._sent[0] != oid:
            self._pass_over()
        self._sent.popleft()
        if len(self._sent) < AHEAD // 2:
            self._send_announced()

    def _send_announced(self, oid: str = "") -> bool:
        """Ask for what was announced, as far as the pipe takes it; says whether `oid` is among it."""
        chosen = list(islice(self._announced, AHEAD - len(self._sent)))
        if chosen:
            self._send(chosen)
        return oid in chosen

    def _send(self, oids: list[str]) -> None:
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch", reads=True)
            os.set_blocking(_pipe(self._process.stdout).fileno(), False)
        self._sent += oids
        try:
            os.write(_pipe(self._process.stdin).fileno(), "".join(f"{oid}\n" for oid in oids).encode())
        except BrokenPipeError as error:
            raise self._broken(oids[0]) from error

    def _pass_over(self) -> None:
        """Drop an answer that was announced and is not wanted after all."""
        oid = self._sent.popleft()
        fields = self._line(oid).split()
        remaining = int(fields[2]) + 1 if len(fields) == 3 else 0
        while remaining:
            remaining -= len(self._take(oid, remaining))

    def _answer(self, oid: str, kind: str) -> int:
        """The size of the object whose content comes next."""
        fields = self._line(oid).split()
        if fields[1:] == [b"missing"]:
            raise IntegrityError(f"object {oid[:12]} is missing from {self._where}")
        if len(fields) != 3 or fields[0].decode() != oid or fields[1].decode() != kind:
            raise IntegrityError(f"object {oid[:12]} is not a {kind}")
        return int(fields[2])

    def _line(self, oid: str) -> bytes:
        while (end := self._buffer.find(b"\n", self._at)) < 0:
            self._buffer = self._buffer[self._at :] + self._receive(oid)
            self._at = 0
        line = self._buffer[self._at : end]
        self._at = end + 1
        return line

    def _take(self, oid: str, wanted: int) -> bytes:
        if self._at == len(self._buffer):
            self._buffer = self._receive(oid)
            self._at = 0
        block = self._buffer[self._at : self._at + wanted]
        self._at += len(block)
        return block

    def _receive(self, oid: str) -> bytes:
        assert self._process is not None
        source = _pipe(self._process.stdout).fileno()
        deadline = time.monotonic() + self._git.time_limit
        while True:
            try:
                block = os.read(source, BLOCK)
            except BlockingIOError:
                select.select([source], [], [], 0.2)
            else:
                if not block:
                    raise self._broken(oid)
                return block
            if self._git.cancelled():
                raise Cancelled(f"cancelled while reading from {self._where}")
            if time.monotonic() > deadline:
                raise GitUnavailable(f"git did not answer within {self._git.time_limit:g} s and was stopped")

    def _start_over(self) -> None:
        self._process = None
        self._buffer, self._at = b"", 0
        self._sent.clear()
        self._announced = iter(())
        self._unfinished = False

    def _broken(self, oid: str) -> IntegrityError:
        """The process has ended: git dies on an object that it cannot inflate."""
        said = b""
        if self._process is not None:
            kill(self._process)
            said = self._process.communicate()[1]
        self._start_over()
        line = said.decode("utf-8", "replace").strip().splitlines()
        words = f": {line[0]}" if line else ""
        return IntegrityError(f"object {oid[:12]} cannot be read from {self._where}{words}")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
