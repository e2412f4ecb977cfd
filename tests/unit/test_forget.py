"""Forgetting: nothing of a path's content is left in the store, every id still resolves, restores leave it alone."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest

from putback.errors import FailedError, UsageError
from putback.records.capture import Reason
from putback.store.history import History
from support.hermetic import OpenWorkspace
from support.trees import create, read_back

SECRET = b"hunter2-hunter2-hunter2"


def bytes_of(store: Path) -> bytes:
    """Everything in a store, objects as their contents."""
    whole = [path.read_bytes() for path in store.rglob("*") if path.is_file()]
    for path in store.glob("objects.git/objects/??/*"):
        whole.append(zlib.decompress(path.read_bytes()))
    whole.append(
        subprocess.run(
            ["git", f"--git-dir={store}/objects.git", "cat-file", "--batch-all-objects", "--batch"],
            capture_output=True,
            check=True,
        ).stdout
    )
    return b"\n".join(whole)


def test_forget(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {".env": SECRET, "a": "1\n", "d/x": "x\n"})
    workspace = open_workspace(tree)
    first = workspace.snapshot("first")
    (tree / "a").write_text("2\n")
    workspace.snapshot("second")
    workspace.restore(first.id)
    done = workspace.upkeep.forget([b".env"])
    print(done)
    assert SECRET not in bytes_of(store)
