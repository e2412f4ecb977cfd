"""Retention that a user has configured, by itself after a capture: in a process of its own, nobody waits for it.

At most one such process is at work on a store, and none is started while nothing has changed since the last one.
What it came to is kept in `WorkspacePaths.settled`. A prune takes a moment; reclaiming reads and writes packs, so
it is done at most every ten minutes, unless the store is close to its cap.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from putback.config import Settings
from putback.errors import IntegrityError, PutbackError
from putback.fs.durable import read_file, write_cache
from putback.progress import SILENT
from putback.records import document
from putback.records.upkeep import Settled
from putback.store import usage
from putback.store.history import History
from putback.store.layout import Store, WorkspacePaths

if TYPE_CHECKING:
    from putback.upkeep.catalog import Upkeep

RECLAIM_EVERY_SECONDS = 600
_CLOSE_TO_CAP = 0.8
_NICENESS = 10


class Request(msgspec.Struct, frozen=True):
    """What the process is told on its standard input."""

    store: bytes
    root: bytes
    settings: Settings


def start(where: WorkspacePaths, settings: Settings) -> None:
    """Have retention done in the background, where it is configured and anything has changed. Raises nothing."""
    with suppress(PutbackError, OSError):
        if sys.executable and is_due(where, settings):
            request = Request(os.fsencode(where.store.root), where.root, settings)
            # Nothing of the workspace is on its module path, and no lock of ours is inherited.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "putback.upkeep.automatic"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            assert process.stdin is not None
            with process.stdin as pipe:
                pipe.write(msgspec.json.encode(request))


def make_room(where: WorkspacePaths, settings: Settings) -> None:
    """Before a capture, do what `start` began and has not come to, where the store is over its cap by now."""
    if is_due(where, settings) and usage.measure(where.store) > settings.store.max_bytes:
        from putback.upkeep.catalog import Upkeep

        with suppress(PutbackError):
            settle(Upkeep(where, settings, SILENT), settings.store.lock_wait_seconds)


def is_due(where: WorkspacePaths, settings: Settings) -> bool:
    """Whether retention is configured, and the history or the rules have changed since it was done."""
    if not settings.retention.is_set or not where.exists():
        return False
    last = settled(where)
    return last is None or (last.newest, last.rules) != (_newest(where), _rules(settings))


def settled(where: WorkspacePaths) -> Settled | None:
    """What retention came to last in this workspace; None where nobody knows."""
    with suppress(OSError, IntegrityError):
        return document.decode(read_file(where.settled), Settled, "note on retention")
    return None


def over_cap(where: WorkspacePaths, settings: Settings) -> str:
    """What to tell a person where retention leaves the store larger than its cap; else empty."""
    last = settled(where) if settings.retention.is_set else None
    if last is None or not last.over or last.rules != _rules(settings):
        return ""
    return (
        f"the store takes {last.store_bytes:,} bytes, its cap is {settings.store.max_bytes:,}, and retention frees"
        " no more: keep less (retention.*), drop workspaces that are gone (`putback prune --vanished`), or raise"
        " store.max_bytes"
    )


def news(where: WorkspacePaths, settings: Settings) -> str:
    """The same, once: empty where it was told already. Raises nothing."""
    text, last = over_cap(where, settings), settled(where)
    if not text or last is None or last.told:
        return ""
    with suppress(OSError):
        write_cache(where.settled, document.encode(msgspec.structs.replace(last, told=True)) + b"\n")
    return text


def settle(upkeep: Upkeep, wait_seconds: float) -> None:
    """Do it, unless another process is at it for longer than `wait_seconds`. Raises what a prune raises."""
    from putback.fs import lock
    from putback.upkeep import prune, retention

    where, settings = upkeep.where, upkeep.settings
    with lock.hold(where.store.maintenance, "retention", False, wait_seconds, upkeep.progress):
        if not is_due(where, settings):
            return
        last = settled(where)
        draft = prune.drop(upkeep, retention.configured(settings.retention))
        staying = () if draft is None else (item.id for item in draft.judged if item.kept)
        reclaimed_ns, now = 0 if last is None else last.reclaimed_ns, time.time_ns()
        waiting = False
        close = usage.measure(where.store) > settings.store.max_bytes * _CLOSE_TO_CAP
        # A clock that went backwards is no reason to wait for it to come round again.
        if close or abs(now - reclaimed_ns) > RECLAIM_EVERY_SECONDS * 10**9:
            waiting = upkeep.reclaim().waiting
            reclaimed_ns = now
        used = usage.measure(where.store)
        note = Settled(
            # What others at work have kept from being freed is still to be done.
            newest="" if waiting else next(iter(staying), ""),
            rules=_rules(settings),
            at_ns=now,
            reclaimed_ns=reclaimed_ns,
            store_bytes=used,
            over=used > settings.store.max_bytes and not waiting,
            told=last is not None and last.over and last.told,
        )
        write_cache(where.settled, document.encode(note) + b"\n")


def _newest(where: WorkspacePaths) -> str:
    """The newest entry; a restore, too, for it may have put an end to what redo needed."""
    names = History(where.history).names()
    return names[0].id if names else ""


def _rules(settings: Settings) -> str:
    """Whatever decides what retention comes to."""
    return msgspec.json.encode((settings.retention, settings.store.max_bytes)).decode()


def main() -> None:
    """The process: it tells nobody anything, whatever happens."""
    from putback.upkeep.catalog import Upkeep

    os.nice(_NICENESS)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    where = Store(Path(os.fsdecode(request.store))).workspace(request.root)
    with suppress(PutbackError):
        settle(Upkeep(where, request.settings, SILENT), 0.0)


if __name__ == "__main__":
    main()
