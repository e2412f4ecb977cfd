"""What the store costs: measured where it must be exact, else remembered from the last time, to be told at once.

What is remembered is a cache. It does not count once packs have come or gone, for that is where the bytes are.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated

import msgspec

from putback.errors import IntegrityError
from putback.fs.durable import read_file, write_cache
from putback.fs.filesystem import used_bytes
from putback.records import document
from putback.records.document import Strict
from putback.store.layout import Store

FILE = "usage.json"
# From this share of the limit on people are told, before anything is refused.
NEARLY = 0.8


class Usage(Strict, frozen=True, kw_only=True):
    """Bytes on disk of the whole store, and when its packs had changed last, in nanoseconds since the epoch."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    packs_ns: int


def measure(store: Store, coming: int = 0) -> int:
    """The bytes on disk of the whole store, by looking at every file; `coming` more are about to be written."""
    packs = _packs_ns(store)
    used = used_bytes(store.root)
    if packs is not None:
        record = Usage(bytes=used + coming, packs_ns=packs)
        with suppress(OSError):
            write_cache(store.root / FILE, document.encode(record), store.modes)
    return used


def recent(store: Store) -> int:
    """The bytes on disk as they were seen last, or measured where nobody knows."""
    with suppress(OSError, IntegrityError):
        found = document.decode(read_file(store.root / FILE), Usage, "usage of the store")
        if found.packs_ns == _packs_ns(store):
            return found.bytes
    return measure(store)


def warning(used: int, limit: int) -> str:
    """What to tell people of a store that is nearly full; empty where it is not."""
    if used < NEARLY * limit:
        return ""
    share = 100 * used // limit if limit else 100
    return (
        f"the store has {used:,} bytes on disk, {share} % of the limit, {limit:,} (store.max_bytes); "
        "`putback prune` makes room, `putback status --sizes` shows what takes it"
    )


def _packs_ns(store: Store) -> int | None:
    """None where there is no store yet."""
    try:
        return os.stat(store.root / "objects.git" / "objects" / "pack").st_mtime_ns
    except OSError:
        return None
