"""Decide what becomes of each candidate of a scan, and whether there is room for it. Reads no content."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

import msgspec

from putback import paths
from putback.config import Settings
from putback.errors import OverBudget
from putback.fs.filesystem import free_bytes
from putback.fs.root import GONE
from putback.paths import RelPath
from putback.records.capture import NotCovered, Reason
from putback.store import usage
from putback.store.layout import Store


class Candidates(msgspec.Struct):
    """Candidates by what becomes of them. `bytes` is the size of all files to store."""

    store: list[RelPath] = []
    bytes: int = 0
    drop: list[RelPath] = []
    not_covered: list[NotCovered] = []
    waiting: list[RelPath] = []


def classify(
    root: bytes,
    changed: Iterable[RelPath],
    new: Iterable[RelPath],
    scope: frozenset[RelPath],
    ceiling: int,
) -> Candidates:
    """Sort the files that changed and those that are new; whoever reads them checks again.

    Files outside `scope` wait for another capture.
    """
    result = Candidates()
    device = os.stat(root).st_dev
    prefix = root if root.endswith(b"/") else root + b"/"
    indexed = set(changed)
    for path in (*indexed, *(name for name in new if name not in indexed)):
        if scope and not paths.within(path, scope):
            if path not in indexed:
                result.waiting.append(path)
            continue
        verdict = _judge(prefix + path, path, device, ceiling)
        if isinstance(verdict, int):
            result.store.append(path)
            result.bytes += verdict
            continue
        if path in indexed:
            result.drop.append(path)
        if verdict is not None:
            result.not_covered.append(verdict)
    result.store.sort()
    return result


def check_budgets(settings: Settings, store: Store, files: int, new_bytes: int) -> None:
    """Raise OverBudget where a capture with `files` files, `new_bytes` of them to be read, would be too much."""
    limits = settings.capture
    if files > limits.max_files:
        raise _over("files in the workspace", "capture.max_files", limits.max_files, files)
    if new_bytes > limits.max_new_bytes:
        raise _over("new bytes", "capture.max_new_bytes", limits.max_new_bytes, new_bytes)
    if not new_bytes or store.aside is not None:
        # What keeps digests alone has no part in what the store may take.
        return
    # Where retention is configured it brings the store back below the cap afterwards; a capture is not to be
    # refused for what is dropped the moment after. What the rules keep may pass the cap, up to as much again.
    limit = settings.store.max_bytes * (2 if settings.retention.is_set else 1)
    used = usage.measure(store, new_bytes)
    if used + new_bytes > limit:
        raise OverBudget(
            f"too little room in the store: {used:,} bytes are in it, {new_bytes:,} would be written, and the "
            f"limit is {limit:,}; nothing was written",
            key="store.max_bytes",
            limit=limit,
            measured=used + new_bytes,
            hint="drop old entries, such as with `putback prune --keep-last 20`, or raise the limit:"
            f" -c store.max_bytes={used + new_bytes}",
        )
    free = free_bytes(store.root)
    floor = settings.store.min_free_bytes
    if free - new_bytes < floor:
        raise OverBudget(
            f"too little disk: {free:,} bytes are free, {new_bytes:,} would be written, and {floor:,} are to stay "
            "free",
            key="store.min_free_bytes",
            limit=floor,
            measured=free - new_bytes,
            hint="free some space (`putback prune` is one way), or lower store.min_free_bytes",
        )


def _judge(full: bytes, path: RelPath, device: int, ceiling: int) -> int | NotCovered | None:
    """The size of a file to store, why it cannot be covered, or None where it is gone."""
    try:
        found = os.lstat(full)
    except OSError as error:
        return None if error.errno in GONE else _unreadable(path, error)
    if stat.S_ISDIR(found.st_mode):
        return None
    if found.st_dev != device:
        return NotCovered.at(path, reason=Reason.MOUNT_POINT)
    if stat.S_ISLNK(found.st_mode):
        if path.rpartition(b"/")[2].lower() == b".gitmodules":
            detail = "git cannot hold a link of this name"
            return NotCovered.at(path, reason=Reason.RESERVED_NAME, detail=detail)
        return found.st_size
    if not stat.S_ISREG(found.st_mode):
        return NotCovered.at(path, reason=Reason.SPECIAL_FILE, detail="a pipe, socket or device")
    if found.st_size > ceiling:
        detail = f"{found.st_size} bytes, the ceiling is {ceiling}"
        return NotCovered.at(path, reason=Reason.TOO_LARGE, detail=detail, size=found.st_size)
    return found.st_size


def _unreadable(path: RelPath, error: OSError) -> NotCovered:
    return NotCovered.at(path, reason=Reason.UNREADABLE, detail=error.strerror or os.strerror(errno.EIO))


def _over(what: str, key: str, limit: int, measured: int, hint: str = "") -> OverBudget:
    return OverBudget(
        f"too many {what}: {measured:,}, the limit is {limit:,}; nothing was written",
        key=key,
        limit=limit,
        measured=measured,
        hint=hint or f"ignore what need not be protected, or raise the limit: -c {key}={measured}",
    )
