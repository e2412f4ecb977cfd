"""What is in a store, byte for byte."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path


def bytes_of(store: Path) -> bytes:
    """Everything in a store: its files as they are, and its objects as their contents."""
    whole = [path.read_bytes() for path in store.rglob("*") if path.is_file()]
    whole += [zlib.decompress(path.read_bytes()) for path in store.glob("**/objects/[0-9a-f][0-9a-f]/*")]
    for git_dir in (store / "objects.git", *store.glob("workspaces/*/digests/trees.git")):
        batch = ["git", f"--git-dir={git_dir}", "cat-file", "--batch-all-objects", "--batch"]
        whole.append(subprocess.run(batch, capture_output=True, check=True).stdout)
    return b"\n".join(whole)
