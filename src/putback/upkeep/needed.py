"""What something other than the history needs of a workspace's captures and entries. Reads only.

Whatever looks like an id in a record of anything that is not over counts, so that no kind of record, present or
to come, is overlooked. That keeps too much rather than too little: all that the records of exact-path turns name
stays for as long as these records do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Set
from pathlib import Path

from putback.errors import StorageError
from putback.records.retention import Why
from putback.runs import RECEIPT
from putback.store.layout import WorkspacePaths

_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def needed(where: WorkspacePaths, known: Set[str]) -> dict[str, Why]:
    """Which of the `known` ids are named by something that is not over, and by what. The lock is held.

    Raises StorageError where a record cannot be read: then nobody can tell what it needs.
    """
    found: dict[str, Why] = {}
    for path, why in _records(where):
        for oid in ids_in(path) & known:
            found.setdefault(oid, why)
    return found


def ids_in(path: Path) -> set[str]:
    """Whatever looks like an id in a file; nothing where there is no such file. Raises StorageError."""
    try:
        with open(path, "rb", opener=_no_follow) as file:
            return {match.decode() for match in _ID.findall(file.read())}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def is_over(run: Path) -> bool:
    """Whether a run's folder has its receipt."""
    return (run / RECEIPT).exists()


def _records(where: WorkspacePaths) -> Iterator[tuple[Path, Why]]:
    yield where.journal, Why.UNFINISHED
    for name in _names(where.folder):
        if name.startswith(f"{where.journal.name}.damaged-"):
            yield where.folder / name, Why.UNFINISHED
    for name in _names(where.runs):
        if not is_over(where.runs / name):
            yield from ((path, Why.UNFINISHED) for path in _files(where.runs / name))
    yield from ((path, Why.OPEN_TURN) for path in _files(where.agents))
    yield from ((path, Why.BOUND_TURN) for path in _files(where.turns))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(f"cannot read {str(folder)!r}: {error.strerror}") from error


def _files(folder: Path) -> Iterator[Path]:
    """Every regular file below a folder, or the file itself; links are not followed."""
    if folder.is_symlink():
        return
    if folder.is_file():
        yield folder
        return
    for name in _names(folder):
        yield from _files(folder / name)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
