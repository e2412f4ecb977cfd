"""Take away what killed processes left in the store: temporary files, and only those that nobody can be using.

What lies in a workspace's folder is its lock holder's; the lock is taken without waiting, and who has it is left in
peace. What lies beside the objects is of whoever holds the store's lock.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from putback.errors import LockedError
from putback.fs import lock
from putback.progress import SILENT
from putback.store.layout import Store
from putback.upkeep.roots import workspaces

# What is written without any lock, when a store is made, is left alone for so long.
UNLOCKED_SECONDS = 600.0


def workspace_leftovers(store: Store) -> int:
    """Sweep the folder of every workspace that nobody is using; returns how many leftovers are gone."""
    removed = 0
    for folder in workspaces(store):
        with suppress(LockedError):
            if (folder / "lock").exists():
                with lock.hold(folder / "lock", "sweep", False, 0.0, SILENT):
                    removed += remove(_in_workspace(folder))
    return removed


def store_leftovers(store: Store) -> int:
    """Sweep what lies beside the objects and in the store's root; the caller holds the store's lock exclusively."""
    long_ago = time.time() - UNLOCKED_SECONDS
    old = [
        path for path in (*store.root.glob("*.part"), *store.git_dir.glob("*.part")) if _is_older(path, long_ago)
    ]
    return remove([*_in_repository(store.git_dir), *old])


def _in_workspace(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "digests"):
        yield from (place / "scratch").glob("*")
        yield from place.glob("*.part")
        yield place / "index.lock"
    yield from _in_repository(folder / "digests" / "trees.git")


def _in_repository(git_dir: Path) -> Iterator[Path]:
    """Temporary files of git and of our own writers, locks of refs, and packs that never got their index."""
    objects = git_dir / "objects"
    yield from git_dir.glob("packed-refs.*")
    for folder, folders, names in os.walk(git_dir / "refs"):
        yield from (Path(folder, name) for name in (*folders, *names) if name.endswith((".lock", ".part")))
    for place in (objects, objects / "pack", *objects.glob("[0-9a-f][0-9a-f]")):
        yield from place.glob("tmp_*")
        yield from place.glob("*.part")
    for pack in (objects / "pack").glob("pack-*.pack"):
        if not pack.with_suffix(".idx").exists():
            yield pack


def _is_older(path: Path, than: float) -> bool:
    try:
        return path.lstat().st_mtime < than
    except OSError:
        return False


def remove(paths: Iterator[Path] | list[Path]) -> int:
    """Remove files and directories that are there; returns how many."""
    removed = 0
    for path in list(paths):
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
            removed += 1
    return removed
