"""Take away what killed processes left in the store: temporary files, and only those that nobody can be using.

What lies in a workspace's folder is its lock holder's; the lock is taken without waiting, and who has it is left
in peace. What lies beside the objects is of whoever holds the store's lock.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from putback.errors import LockedError, StorageError
from putback.fs import lock
from putback.fs.filesystem import used_bytes
from putback.progress import SILENT
from putback.runs import unfinished
from putback.store.layout import Store, WorkspacePaths, workspaces

# What is written without any lock, when a store is made, is left alone for so long.
UNLOCKED_SECONDS = 600.0

MOST_DIGESTS_BYTES = 8 << 20


def workspace_leftovers(store: Store) -> int:
    """Sweep the folder of every workspace that nobody is using; returns how many leftovers are gone."""
    removed = 0
    for folder in (where.folder for where in workspaces(store)):
        # Others wait for the lock while we have it, so it is not taken for nothing.
        if not (folder / "lock").exists() or not (_leftovers(folder) or _is_large(folder)):
            continue
        # One that is being dropped just now has no lock any more that could be opened.
        with suppress(LockedError, StorageError), lock.hold(folder / "lock", "sweep", False, 0.0, SILENT):
            removed += remove(_leftovers(folder))
            if _is_large(folder) and not _has_unfinished_run(store, folder):
                _drop_digests(folder)
    return removed


def _leftovers(folder: Path) -> list[Path]:
    return [path for path in _in_workspace(folder) if os.path.lexists(path)]


def _is_large(folder: Path) -> bool:
    """Whether captures of digests alone have left more than is worth keeping: nothing packs or drops it."""
    return used_bytes(folder / "digests" / "trees.git" / "objects") > MOST_DIGESTS_BYTES


def _has_unfinished_run(store: Store, folder: Path) -> bool:
    runs = unfinished.folders(WorkspacePaths(store, folder, b""))
    return any(not run.receipt.exists() for run in runs)


def _drop_digests(folder: Path) -> None:
    """They begin anew from the private index; gone in one step, so that no part of them is ever found."""
    with suppress(OSError):
        doomed = folder / "scratch" / f"digests-{os.urandom(4).hex()}"
        (folder / "digests").rename(doomed)
        shutil.rmtree(doomed)


def store_leftovers(store: Store) -> int:
    """Sweep what lies beside the objects and in the store's root; the store's lock is held exclusively."""
    long_ago = time.time() - UNLOCKED_SECONDS
    parts = (*store.root.glob("*.part"), *store.git_dir.glob("*.part"))
    return remove([*_in_repository(store.git_dir), *(path for path in parts if _is_older(path, long_ago))])


def _in_workspace(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "digests"):
        if not (place / "scratch").is_symlink():
            yield from (place / "scratch").glob("*")
        yield from place.glob("*.part")
        yield place / "index.lock"
    aside = folder / "digests" / "trees.git"
    yield from (*_in_repository(aside), *without_index(aside))


def _in_repository(git_dir: Path) -> Iterator[Path]:
    """Temporary files of git and of our own writers, locks of refs, and indexes of no pack."""
    objects = git_dir / "objects"
    yield from git_dir.glob("packed-refs.*")
    for folder, folders, names in os.walk(git_dir / "refs"):
        yield from (Path(folder, name) for name in (*folders, *names) if name.endswith((".lock", ".part")))
    for place in (objects, objects / "pack", *objects.glob("[0-9a-f][0-9a-f]")):
        yield from place.glob("tmp_*")
        yield from place.glob("*.part")
    yield from (path for path in (objects / "pack").glob("pack-*.idx") if not path.with_suffix(".pack").exists())


def without_index(git_dir: Path) -> list[Path]:
    """Packs that have no index: a killed process was about to write that, or had dropped it, or it is lost."""
    found = (git_dir / "objects" / "pack").glob("pack-*.pack")
    return [path for path in found if not path.with_suffix(".idx").exists()]


def _is_older(path: Path, than: float) -> bool:
    try:
        return path.lstat().st_mtime < than
    except OSError:
        return False


def remove(paths: Iterable[Path]) -> int:
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
