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
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Self

from putback.errors import Cancelled, GitUnavailable, IntegrityError
from putback.git.command import Git, kill

BLOCK = 1 << 18


def tree_of(entries: Sequence[tuple[int, bytes, str]]) -> bytes:
    """The content of a tree object with these (mode, name, id) entries."""

    def order(entry: tuple[int, bytes, str]) -> bytes:
        return entry[1] + (b"/" if entry[0] == 0o040000 else b"")

    lines = (b"%o %s\0" % (mode, name) + bytes.fromhex(oid) for mode, name, oid in sorted(entries, key=order))
    return b"".join(lines)


class ObjectReader:
    """Reads objects through one git process for as long as the block lasts."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._asked = ""
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
            self._process = None
            self._buffer.clear()

    def read(self, oid: str, kind: str) -> bytes:
        """The whole content of an object. Raises IntegrityError where it is not there whole."""
        return b"".join(self.stream(oid, kind))

    def stream(self, oid: str, kind: str) -> Iterator[bytes]:
        """The content in blocks; the last one comes only after the whole has been checked against `oid`."""
        if self._unfinished:
            # Somebody gave up a stream; the rest of it would be taken for the next answer.
            self.close()
        self._unfinished = True
        remaining = self._ask(oid, kind)
        digest = hashlib.sha256(f"{kind} {remaining}\0".encode())
        held = b""
        while remaining:
            block = self._take(min(remaining, BLOCK))
            remaining -= len(block)
            digest.update(block)
            if held:
                yield held
            held = block
        self._take(1)
        self._unfinished = False
        if digest.hexdigest() != oid:
            raise IntegrityError(f"object {oid[:12]} is damaged in the store")
        if held:
            yield held

    def _ask(self, oid: str, kind: str) -> int:
        self._asked = oid
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch", reads=True)
        write = _pipe(self._process.stdin)
        try:
            os.write(write.fileno(), oid.encode() + b"\n")
        except BrokenPipeError as error:
            raise self._broken(oid) from error
        header = self._line(oid)
        fields = header.split()
        if fields[1:] == [b"missing"]:
            raise IntegrityError(f"object {oid[:12]} is missing from the store")
        if len(fields) != 3 or fields[0].decode() != oid or fields[1].decode() != kind:
            raise IntegrityError(f"object {oid[:12]} is not a {kind}")
        return int(fields[2])

    def _line(self, oid: str) -> bytes:
        while b"\n" not in self._buffer:
            block = self._receive(4096)
            if not block:
                raise self._broken(oid)
            self._buffer += block
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        return line

    def _take(self, wanted: int) -> bytes:
        if self._buffer:
            block = bytes(self._buffer[:wanted])
            del self._buffer[:wanted]
            return block
        block = self._receive(wanted)
        if not block:
            raise self._broken(self._asked)
        return block

    def _receive(self, most: int) -> bytes:
        assert self._process is not None
        source = _pipe(self._process.stdout).fileno()
        deadline = time.monotonic() + self._git.time_limit
        while not select.select([source], [], [], 0.2)[0]:
            if self._git.cancelled():
                raise Cancelled("cancelled while reading from the store")
            if time.monotonic() > deadline:
                raise GitUnavailable(f"git did not answer within {self._git.time_limit:g} s and was stopped")
        return os.read(source, most)

    def _broken(self, oid: str) -> IntegrityError:
        """The process has ended: git dies on an object that it cannot inflate."""
        said = b""
        if self._process is not None:
            kill(self._process)
            said = self._process.communicate()[1]
        self._process = None
        self._buffer.clear()
        line = said.decode("utf-8", "replace").strip().splitlines()
        words = f": {line[0]}" if line else ""
        return IntegrityError(f"object {oid[:12]} cannot be read from the store{words}")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def known(git: Git, oids: Sequence[bytes]) -> set[bytes]:
    """Which of the raw ids the store already holds."""
    asked = b"".join(oid.hex().encode() + b"\n" for oid in oids)
    out = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", given=asked).out
    return {bytes.fromhex(line[:64].decode()) for line in out.splitlines() if not line.endswith(b" missing")}
