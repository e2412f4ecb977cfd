"""How a workspace stands: protected or not, since when, at what cost, and what is undecided."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from putback.config import Permissions, Settings
from putback.fs.filesystem import used_bytes
from putback.ops.recover import Interrupted
from putback.records.history import Entry
from putback.store import former
from putback.store.history import History
from putback.store.layout import WorkspacePaths


class WorkspaceStatus(msgspec.Struct, frozen=True):
    """Whether a workspace is protected (`last` is its newest entry), and what the whole store costs in bytes.

    `damaged` says what is wrong with records of the history that cannot be read. `replaced` is true where another
    directory stands at the path than the one that was captured last. `permissions` are those of the store, or
    those that it would be made with. Where nothing was ever captured, `moved_from` are the roots at which this may
    have been captured before it was moved, the likeliest first. `purging`: content that was forgotten may still be
    on the disk.
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


def inspect(where: WorkspacePaths, settings: Settings, interrupted: Interrupted | None) -> WorkspaceStatus:
    """Look at the store and at the root; `interrupted` is the restore that was cut short, if one was."""
    known = where.exists()
    entries, damaged = History(where.history).readable() if known else ([], [])
    identity = where.identity() if known else None
    here = os.stat(where.root)
    return WorkspaceStatus(
        root=Path(os.fsdecode(where.root)),
        last=entries[0] if entries else None,
        entries=len(entries),
        damaged=tuple(damaged),
        store=where.store.root,
        store_bytes=used_bytes(where.store.root),
        store_limit=settings.store.max_bytes,
        permissions=where.store.permissions or settings.store.permissions,
        replaced=identity is not None and (identity.device, identity.inode) != (here.st_dev, here.st_ino),
        purging=where.purge.exists(),
        moved_from=() if entries or damaged else tuple(former.candidates(where)),
        interrupted=interrupted,
    )
