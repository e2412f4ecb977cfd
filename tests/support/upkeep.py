"""Stores with something to reclaim, and what is in them, asked of stock git."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from putback.git import command, refs
from putback.records.upkeep import Reclaimed
from putback.workspace import Workspace
from support.hermetic import git


def drop(workspace: Workspace, ids: Iterable[str]) -> None:
    """Take entries out of the history and their refs away, as retention does; their objects stay behind."""
    where = workspace.paths
    ids = list(ids)
    for oid in ids:
        for record in where.history.glob(f"*-{oid}.json"):
            record.unlink()
    refs.release(command.find().on(where.store.git_dir), where.name, ids)


def holds_object(store: Path, oid: str) -> bool:
    """Whether stock git finds an object in the store."""
    place, asked = f"--git-dir={store}/objects.git", f"{oid}\n".encode()
    return not git(store, place, "cat-file", "--batch-check", given=asked).endswith(b"missing\n")


def blob_of(workspace: Workspace, capture: str, path: bytes) -> str:
    """The id of a file's content in a capture."""
    return workspace.files(capture)[path].digest


def packs(store: Path) -> list[Path]:
    return sorted((store / "objects.git/objects/pack").glob("*.pack"))


def loose(store: Path) -> list[Path]:
    return sorted((store / "objects.git/objects").glob("[0-9a-f][0-9a-f]/*"))


def reclaim(workspace: Workspace, **chosen: frozenset[str]) -> Reclaimed:
    return workspace.upkeep.reclaim(**chosen)


def litter(path: Path) -> Path:
    """Put a file where a killed process could have left one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(20))
    return path
