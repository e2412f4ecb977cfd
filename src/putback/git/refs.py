"""One ref per capture: `refs/putback/<workspace>/<id>`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from putback.fs import modes
from putback.fs.durable import sync_directory, write_new_file
from putback.git.command import Git

PREFIX = "refs/putback"

_ID = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = re.compile(rb"\b[0-9a-f]{64}\b")


def anchor(git_dir: Path, workspace: str, capture_id: str, scratch: Path) -> None:
    """Create the ref of a capture, as a loose ref written first in `scratch`; fails where it exists.

    Git's lock on a ref is not taken: the name holds the value, so nobody has another one to give it. Durable
    before the call returns. Raises OSError.
    """
    folder = git_dir / PREFIX / workspace
    if modes.directory(folder, scratch=scratch):
        sync_directory(folder.parent)
    write_new_file(folder / capture_id, f"{capture_id}\n".encode(), scratch)


def release(git: Git, workspace: str, capture_ids: list[str]) -> None:
    """Delete the refs of captures, all or none, each only with the value it must have."""
    _transaction(git, (f"delete {PREFIX}/{workspace}/{oid} {oid}" for oid in capture_ids))


def anchor_all(git: Git, workspace: str, capture_ids: Iterable[str]) -> None:
    """Create the refs of captures, all or none; git looks whether each capture is there."""
    _transaction(git, (f"create {PREFIX}/{workspace}/{oid} {oid}" for oid in capture_ids))


def release_present(git: Git, workspace: str, capture_ids: Iterable[str]) -> None:
    """Delete those refs of captures that are there, as `release` does."""
    present = set(anchored(git, workspace))
    _transaction(git, (f"delete {PREFIX}/{workspace}/{oid} {oid}" for oid in capture_ids if oid in present))


def transfer(git: Git, old: str, new: str, capture_ids: Iterable[str]) -> None:
    """Make the refs of captures of one workspace those of another; what was done already is passed over."""
    left, there = set(anchored(git, old)), set(anchored(git, new))
    lines: list[str] = []
    for oid in capture_ids:
        if oid in left and oid not in there:
            lines.append(f"create {PREFIX}/{new}/{oid} {oid}")
        if oid in left:
            lines.append(f"delete {PREFIX}/{old}/{oid} {oid}")
    _transaction(git, lines)


def _transaction(git: Git, lines: Iterable[str]) -> None:
    """Do all of it, or nothing; git is not started for nothing."""
    wanted = "".join(f"{line}\n" for line in lines)
    if wanted:
        git.run("update-ref", "--stdin", given=f"start\n{wanted}commit\n".encode())


def anchored(git: Git, workspace: str) -> list[str]:
    """The ids of all captures of a workspace that have a ref."""
    out = git.run("for-each-ref", "--format=%(refname)", f"{PREFIX}/{workspace}/").out
    return [line.rpartition("/")[2] for line in out.decode("ascii", "replace").splitlines()]


def by_workspace(git: Git) -> dict[str, list[str]]:
    """The same of every workspace that has any, by its name."""
    found: dict[str, list[str]] = {}
    out = git.run("for-each-ref", "--format=%(refname:lstrip=2)", f"{PREFIX}/").out
    for line in out.decode("ascii", "replace").splitlines():
        workspace, _, oid = line.partition("/")
        found.setdefault(workspace, []).append(oid)
    return found


def named(git_dir: Path) -> set[str]:
    """The ids that any ref of a private repository names, in hex; read without git. Raises OSError.

    The ref of a capture counts by its name, so that one whose content is damaged still holds what it stands for.
    """
    found: set[str] = set()
    for folder, _, names in os.walk(git_dir / "refs", onerror=_raise):
        for name in names:
            if _ID.fullmatch(name):
                found.add(name)
            elif not name.endswith((".lock", ".part")):
                with suppress(FileNotFoundError):
                    found |= _ids_in(Path(folder, name).read_bytes())
    with suppress(FileNotFoundError):
        found |= _ids_in((git_dir / "packed-refs").read_bytes())
    return found


def _ids_in(data: bytes) -> set[str]:
    return {match.decode() for match in _ID_BYTES.findall(data)}


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
