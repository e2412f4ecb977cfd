"""The bulk reader: files, each read once, into a pack or into loose objects.

Worker threads read, hash and deflate; the calling thread writes and hands out one outcome per path.
Outcomes come as they get ready, which is only roughly the order of the paths.

Guaranteed: `Stored` means that the content is with the writer, or known to the store, and is what `ops.reading`
promises. Memory is bounded by the number of threads, not by the files. No thread outlives the iterator.

Not done here: which paths are in scope, budgets, and confinement to the workspace (that is the opener's). The
writer is neither finished nor aborted here. A failure that concerns the process rather than one path (no
descriptors or memory left, the pack cannot be written) is raised.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Queue
from typing import Protocol

import msgspec

from putback.errors import Cancelled
from putback.git.objectid import Kind
from putback.ops.reading import Content, Large, Missing, NotCovered, Opener, Outcome, Source, Stored
from putback.progress import Progress

__all__ = ["Known", "Missing", "NotCovered", "Opener", "Outcome", "Stored", "store_files"]

Known = Callable[[Sequence[bytes]], set[bytes]]

_BATCH_BYTES = 2 << 20
_RUN_PATHS = 256
_FEWEST_RUN_PATHS = 4
_QUEUED_BATCHES = 4
_MOST_WORKERS = 4

# Threads that make short system calls at the same time spend more on handing the interpreter to each other
# than on the calls; while one of them deflates, they do not meet. Where the disk is slow, waiting costs more.
_READ_ALONE_SECONDS = 0.02


class Writer(Protocol):
    """Where objects go: a pack, or loose files."""

    def __contains__(self, oid: bytes) -> bool: ...

    def compress(self, kind: Kind, data: bytes) -> bytes: ...

    def add(self, kind: Kind, oid: bytes, size: int, deflated: bytes) -> None: ...

    def add_stream(self, kind: Kind, oid: bytes, size: int, blocks: Iterable[bytes]) -> bool: ...


class _Blob(msgspec.Struct, frozen=True):
    """An object to be written, and the outcome that is true then."""

    stored: Stored
    size: int
    deflated: bytes


_Found = Outcome | Content | Large
_Ready = Outcome | Large | _Blob


def store_files(
    paths: Sequence[bytes],
    opener: Opener,
    writer: Writer,
    known: Known | None,
    *,
    max_file_bytes: int,
    progress: Progress,
) -> Iterator[Outcome]:
    """Read the files and links at `paths` into `writer`; one outcome per path.

    `known` says which of some objects the store has; those are not written again. None says: none of them.
    It is called from worker threads, never twice at a time. Raises Cancelled, and OSError for what concerns
    more than one path.
    """
    source = Source(opener, max_file_bytes, progress)
    target = _Target(writer, known)
    crew = _Crew(paths, source, target)
    try:
        for batch in crew.batches():
            if progress.cancelled():
                raise Cancelled("cancelled")
            for ready in batch:
                yield target.store(source.stream(ready.path, target.keep) if isinstance(ready, Large) else ready)
            progress.advance(len(batch))
    finally:
        crew.stop()


class _Target:
    """Where objects go, and which of them are there already."""

    def __init__(self, writer: Writer, known: Known | None) -> None:
        self._writer = writer
        self._known = known
        self._lock = threading.Lock()

    def reduce(self, batch: list[_Found]) -> list[_Ready]:
        """The batch with each content replaced by what has to be written of it, if anything."""
        new = self._missing([found.stored.oid for found in batch if isinstance(found, Content)])
        ready: list[_Ready] = []
        # Taken out one by one, so that each content is let go as its short form comes.
        batch.reverse()
        while batch:
            found = batch.pop()
            ready.append(self._shorten(found, new) if isinstance(found, Content) else found)
        return ready

    def store(self, ready: Outcome | Content | _Blob) -> Outcome:
        """Write what there is to write; the outcome, which is true from now on."""
        if isinstance(ready, Content):
            ready = self._shorten(ready, self._missing([ready.stored.oid]))
        if isinstance(ready, _Blob):
            self._writer.add("blob", ready.stored.oid, ready.size, ready.deflated)
            return ready.stored
        return ready

    def keep(self, oid: bytes, size: int, blocks: Callable[[], Iterator[bytes]]) -> bool:
        """Store an object that comes in blocks; False if they turn out not to be `oid`."""
        return not self._missing([oid]) or self._writer.add_stream("blob", oid, size, blocks())

    def _shorten(self, content: Content, new: set[bytes]) -> Stored | _Blob:
        """What has to be written of a content if it is one of the new ones, which it ceases to be."""
        stored, data = content.stored, content.data
        if stored.oid not in new:
            return stored
        new.remove(stored.oid)
        return _Blob(stored, len(data), self._writer.compress("blob", data))

    def _missing(self, oids: Sequence[bytes]) -> set[bytes]:
        new = {oid for oid in oids if oid not in self._writer}
        if new and self._known is not None:
            with self._lock:
                new -= self._known(list(new))
        return new


class _Crew:
    """The worker threads of one call."""

    def __init__(self, paths: Sequence[bytes], source: Source, target: _Target) -> None:
        self._paths = paths
        self._source = source
        self._target = target
        # Short runs when there are few paths: a handful of large files is work for every thread, too.
        self._run = max(_FEWEST_RUN_PATHS, min(_RUN_PATHS, len(paths) // 8))
        self._starts = iter(range(0, len(paths), self._run))
        self._starts_lock = threading.Lock()
        self._reading = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._ready: Queue[list[_Ready] | BaseException | None] = Queue(_QUEUED_BATCHES)

    def batches(self) -> Iterator[list[_Ready]]:
        """What the workers found, as it gets ready. Raises what a worker raised."""
        runs = -(-len(self._paths) // self._run)
        for _ in range(min(runs, max(2, os.cpu_count() or 1), _MOST_WORKERS)):
            thread = threading.Thread(target=self._work, name="putback-read", daemon=True)
            thread.start()
            self._threads.append(thread)
            self._running += 1
        while self._running:
            batch = self._ready.get()
            if batch is None:
                self._running -= 1
            elif isinstance(batch, BaseException):
                raise batch
            else:
                yield batch

    def stop(self) -> None:
        """Wait for the workers, dropping what they still bring."""
        self._stopping.set()
        while self._running:
            if self._ready.get() is None:
                self._running -= 1
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            self._read_runs()
        except BaseException as error:
            self._ready.put(error)
        finally:
            self._ready.put(None)

    def _read_runs(self) -> None:
        rest: Sequence[bytes] = ()
        while not self._stopping.is_set() and (rest := rest or self._next_run()):
            batch, rest = self._read_batch(rest)
            self._ready.put(self._target.reduce(batch))

    def _read_batch(self, paths: Sequence[bytes]) -> tuple[list[_Found], Sequence[bytes]]:
        """What is at the paths, up to the limit of a batch, and the paths that are left."""
        batch: list[_Found] = []
        held = 0
        alone = self._reading.acquire(timeout=_READ_ALONE_SECONDS)
        try:
            for path in paths:
                found = self._source.read(path)
                batch.append(found)
                held += len(found.data) if isinstance(found, Content) else 0
                if held >= _BATCH_BYTES:
                    break
        finally:
            if alone:
                self._reading.release()
        return batch, paths[len(batch) :]

    def _next_run(self) -> Sequence[bytes]:
        with self._starts_lock:
            start = next(self._starts, len(self._paths))
        return self._paths[start : start + self._run]
