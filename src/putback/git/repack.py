"""Write one pack of given objects, with deltas between what is alike.

Git compares objects by type, by name and by size, so the names matter: revisions of one file then lie side by
side, and each costs what it differs by. Memory and processors are bounded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from putback import seams
from putback.fs import modes
from putback.fs.durable import sync_directory, sync_file
from putback.git.command import Git

THREADS = min(2, os.cpu_count() or 1)
# Of each thread.
WINDOW_BYTES = 64 << 20
# Larger contents are copied as they are: a window of ten of them would not fit.
MOST_DELTA_BYTES = 32 << 20
TIME_LIMIT_SECONDS = 4 * 3600.0

_SETTINGS = (
    # Only packs of ours lie beside it; nothing reads the files that newer versions of git would add.
    ("pack.writeReverseIndex", "false"),
    ("pack.packSizeLimit", "0"),
    ("pack.compression", "6"),
    ("core.bigFileThreshold", str(MOST_DELTA_BYTES)),
    ("pack.threads", str(THREADS)),
)
_OPTIONS = ("--quiet", "--non-empty", "--delta-base-offset", "--window=10", "--depth=50")


def sweep(pack_dir: Path) -> int:
    """Remove what a git process that was killed left of a pack; the caller is alone at packing here."""
    removed = 0
    for path in pack_dir.glob("tmp_*"):
        path.unlink(missing_ok=True)
        removed += 1
    return removed


def write(git: Git, objects: Mapping[bytes, bytes], folder: Path, pack_dir: Path) -> Path | None:
    """Pack objects (raw id to file name) that lie in the repository of `git`, and publish the pack in `pack_dir`.

    It is made in `folder`, which is the caller's own and on the same file system. On disk before the call returns;
    the pack gets its name before its index. Returns its path, None where there was nothing to pack. Raises
    IntegrityError where an object cannot be read, StorageError and OSError.
    """
    if not objects:
        return None
    lines = (b"%b %b\n" % (oid.hex().encode(), name.replace(b"\n", b" ")) for oid, name in objects.items())
    bound = msgspec.structs.replace(git.configured(*_SETTINGS), time_limit=TIME_LIMIT_SECONDS)
    window = f"--window-memory={WINDOW_BYTES}"
    sweep(pack_dir)
    try:
        out = bound.run("pack-objects", *_OPTIONS, window, os.fsencode(folder / "pack"), given=b"".join(lines)).out
    finally:
        sweep(pack_dir)
    made = folder / f"pack-{out.decode('ascii').strip()}.pack"
    target = pack_dir / made.name
    mode = modes.of(folder).readonly
    try:
        for half in (made, made.with_suffix(".idx")):
            half.chmod(mode)
            sync_file(half)
            half.replace(target.with_suffix(half.suffix))
            sync_directory(pack_dir)
            seams.reach("reclaim.half" if half == made else "reclaim.published")
    except OSError:
        if not target.with_suffix(".idx").exists():
            target.unlink(missing_ok=True)
        raise
    return target
