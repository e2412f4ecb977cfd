"""How a workspace stands: protected or not, since when, at what cost, and what is undecided."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from putback.config import Permissions, Settings
from putback.fs import lock
from putback.records.history import Entry
from putback.store import former, usage
from putback.store.history import History
from putback.store.layout import WorkspacePaths

if TYPE_CHECKING:
    from putback.ops.recover import Interrupted

# How many records of the history are looked at for damage; `check` looks at all.
NEWEST = 1000


class WorkspaceStatus(msgspec.Struct, frozen=True):
    """Whether a workspace is protected (`last` is its newest entry), and what the whole store costs in bytes.

    `damaged` says what is wrong with those of the NEWEST records of the history that cannot be read. `replaced` is
    true where another directory stands at the path than the one that was captured last. `permissions` are those of
    the store, or those that it would be made with. Where nothing was ever captured, `moved_from` are the roots at
    which this may have been captured before it was moved, the likeliest first. `purging`: content that was
    forgotten may still be on the disk.
    """

    root: Path
    last: Entry | None
    entries: int
    damaged: tuple[str, ...]
    store: Path
    store_bytes: int
    store_limit: int
    permissions: Permissions
    replaced: bool
    moved_from: tuple[bytes, ...]
    purging: bool
    interrupted: Interrupted | None

    @property
    def warning(self) -> str:
        """What to tell people of the store's size; empty where there is nothing to tell."""
        return usage.warning(self.store_bytes, self.store_limit)


class Glance(msgspec.Struct, frozen=True):
    """The same as far as it can be told at once: what the store cost when it was last measured, no id resolved.

    `damaged` says what is wrong with the newest record, where it cannot be read. `cut_short` is true where a
    restore was interrupted.
    """

    last: Entry | None
    damaged: str
    store_bytes: int
    store_limit: int
    replaced: bool
    cut_short: bool

    @property
    def warning(self) -> str:
        """What to tell people of the store's size; empty where there is nothing to tell."""
        return usage.warning(self.store_bytes, self.store_limit)


def inspect(where: WorkspacePaths, settings: Settings, interrupted: Interrupted | None) -> WorkspaceStatus:
    """Look at the store and at the root; `interrupted` is the restore that was cut short, if one was."""
    history = History(where.history)
    names = history.names() if where.exists() else []
    damaged: list[str] = []
    looked_at = list(history.each(names[:NEWEST], damaged.append))
    return WorkspaceStatus(
        root=Path(os.fsdecode(where.root)),
        last=looked_at[0] if looked_at else None,
        entries=len(names) - len(damaged),
        damaged=tuple(damaged),
        store=where.store.root,
        store_bytes=usage.measure(where.store),
        store_limit=settings.store.max_bytes,
        permissions=where.store.permissions or settings.store.permissions,
        replaced=_is_replaced(where),
        purging=where.purge.exists(),
        moved_from=() if names else tuple(former.candidates(where)),
        interrupted=interrupted,
    )


def glance(where: WorkspacePaths, settings: Settings) -> Glance:
    """Look at what can be told without a lock, without git, and without going through the store.

    Raises StorageError, and IntegrityError where the store or the journal is not ours to read.
    """
    history = History(where.history)
    names = history.names() if where.exists() else []
    damaged: list[str] = []
    return Glance(
        last=next(history.each(names, damaged.append), None),
        damaged=damaged[0] if damaged else "",
        store_bytes=usage.recent(where.store) if where.store.exists() else 0,
        store_limit=settings.store.max_bytes,
        replaced=_is_replaced(where),
        cut_short=_is_cut_short(where),
    )


def _is_replaced(where: WorkspacePaths) -> bool:
    identity = where.identity() if where.exists() else None
    here = os.stat(where.root)
    return identity is not None and (identity.device, identity.inode) != (here.st_dev, here.st_ino)


def _is_cut_short(where: WorkspacePaths) -> bool:
    """Whether nobody is at work, and a restore has begun to change targets and came to no end."""
    if not where.journal.exists() or lock.is_held(where.lock):
        return False
    from putback.ops import leftovers  # hardly ever needed

    return leftovers.is_unknown(where, History(where.history))
