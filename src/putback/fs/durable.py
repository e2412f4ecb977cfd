"""Files of our own store: written whole, durable before they are visible, readable by whom `fs.modes` says."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from putback.fs import modes
from putback.fs.modes import Modes

SYNC_THREADS = 8

T = TypeVar("T")


def read_file(path: Path) -> bytes:
    """A whole file of ours. Raises OSError, also where something else has its name: a pipe would never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step, over whatever is there. Raises OSError and leaves nothing then."""
    part = _write_part(path.parent, path.name, data, durable=True)
    _rename(part, path)
    sync_directory(path.parent)


def write_new_file(path: Path, data: bytes, scratch: Path, chosen: Modes | None = None) -> None:
    """Put `data` at `path` in one step, which must be a new name; written first in `scratch`. Raises OSError.

    Its mode is that of `chosen`; None: of those that `scratch` asks for.
    """
    part = _write_part(scratch, path.name, data, durable=True, chosen=chosen)
    try:
        os.link(part, path)
        try:
            sync_directory(path.parent)
        except OSError:
            path.unlink()
            raise
    finally:
        with suppress(OSError):
            part.unlink()


def write_cache(path: Path, data: bytes, chosen: Modes | None = None) -> None:
    """Like `write_file`, but without waiting for the disk: for what can be made again. Raises OSError.

    Its mode is that of `chosen`; None: of those that its directory asks for.
    """
    _rename(_write_part(path.parent, path.name, data, durable=False, chosen=chosen), path)


def _write_part(folder: Path, name: str, data: bytes, *, durable: bool, chosen: Modes | None = None) -> Path:
    part = folder / f"{name}.{os.urandom(4).hex()}.part"
    mode = (chosen or modes.of(folder)).file
    try:
        with open(modes.create(part, os.O_WRONLY | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def _rename(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_directory(folder: Path) -> None:
    """Make the names in `folder` durable. Raises OSError."""
    _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the content of a file durable. Raises OSError."""
    _sync(path, os.O_NOFOLLOW)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def side_by_side(effect: Callable[[T], None], items: Iterable[T]) -> None:
    """Do something to each item in a few threads, so that the disk can serve many waits with one flush.

    Raises the first error, after every thread has ended.
    """
    listed = list(items)
    waiting = iter(listed)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            with lock:
                item = next(waiting, None)
            if item is None:
                return
            try:
                effect(item)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, name="sync") for _ in range(min(SYNC_THREADS, len(listed)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Aside:
    """Something that waits for the disk, done on a thread of its own."""

    def __init__(self, effect: Callable[[], None]) -> None:
        self._effect = effect
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="sync")
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is done. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._effect()
        except BaseException as error:
            self._error = error


@contextmanager
def meanwhile(effect: Callable[[], None]) -> Iterator[None]:
    """Do something that waits for the disk while the block is at work; the block ends when both have.

    Raises what the block raises, else what `effect` did.
    """
    aside = Aside(effect)
    try:
        yield
    except BaseException:
        with suppress(BaseException):
            aside.wait()
        raise
    aside.wait()
