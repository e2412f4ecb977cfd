"""What a killed restore left: its journal, and files that it staged and never published."""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from putback.errors import IntegrityError, StorageError
from putback.fs.journal import read_lines
from putback.fs.root import Root
from putback.paths import RelPath
from putback.records.journal import Line, Published, Started
from putback.store.history import History
from putback.store.layout import WorkspacePaths

STAGED_PREFIX = b".putback-"
_WAY_OUT = "`putback recover --keep` sets it aside and accepts the tree as it is"
_STAGED = re.compile(rb"\.putback-[0-9a-f]{8}-\d+")


def set_aside(where: WorkspacePaths) -> None:
    """Keep a damaged journal as evidence, out of the way. Raises OSError."""
    number = 1
    while (kept := where.journal.with_name(f"journal.damaged-{number}")).exists():
        number += 1
    where.journal.rename(kept)


def clear(where: WorkspacePaths, root: Root, history: History) -> None:
    """Take away what was staged; drop the journal of a restore that had changed nothing yet, or is recorded.

    The caller holds the workspace's lock. Raises IntegrityError on a damaged journal.
    """
    found = read_journal(where)
    if found is None:
        return
    started, publishing = found
    for item in started.staged:
        remove_staged(root, item.raw)
    if not publishing or _is_recorded(started, history):
        where.journal.unlink(missing_ok=True)


def is_unknown(where: WorkspacePaths, history: History) -> bool:
    """Whether the journal is one that `clear` would leave: its restore had begun to publish, and is not recorded.

    Reads only, so that nobody has to hold a lock. Raises IntegrityError on a damaged journal.
    """
    lines = read_lines(where.journal)
    if not lines:
        return False
    started, publishing = _decoded(where, lines)
    return publishing and not _is_recorded(started, history)


def remove_staged(root: Root, path: RelPath) -> None:
    """Take away a file that was staged, if it is still there; a path of any other name is left alone."""
    if _STAGED.fullmatch(path.rpartition(b"/")[2]):
        with suppress(OSError):
            root.remove(path)


def _is_recorded(started: Started, history: History) -> bool:
    """Whether the newest entry is this restore's, so that it was killed with nothing left to do."""
    newest = history.names()[:1]
    return any(history.read(name).before == started.before for name in newest)


def read_journal(where: WorkspacePaths) -> tuple[Started, bool] | None:
    """What the journal says was begun, and whether publishing had begun; None where there is no whole line."""
    if not where.journal.exists():
        return None
    try:
        lines = read_lines(where.journal)
        if not lines:
            where.journal.unlink(missing_ok=True)
            return None
    except OSError as error:
        raise StorageError(f"cannot read the journal: {error.strerror}") from error
    return _decoded(where, lines)


def _decoded(where: WorkspacePaths, lines: list[bytes]) -> tuple[Started, bool]:
    damaged = f"damaged journal {str(where.journal)!r}"
    try:
        decoded = [msgspec.json.decode(line, type=Line) for line in lines]
    except msgspec.DecodeError as error:
        raise IntegrityError(f"{damaged}: {error}", hint=_WAY_OUT) from error
    if not isinstance(decoded[0], Started):
        raise IntegrityError(f"{damaged}: it does not begin at the start", hint=_WAY_OUT)
    return decoded[0], any(isinstance(line, Published) for line in decoded)
