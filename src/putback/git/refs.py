"""One ref per capture: `refs/putback/<workspace>/<id>`."""

from __future__ import annotations

import os
import re
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
    lines = "".join(f"delete {PREFIX}/{workspace}/{oid} {oid}\n" for oid in capture_ids)
    git.run("update-ref", "--stdin", given=("start\n" + lines + "commit\n").encode())


def anchored(git: Git, workspace: str) -> list[str]:
    """The ids of all captures of a workspace that have a ref."""
    out = git.run("for-each-ref", "--format=%(refname)", f"{PREFIX}/{workspace}/").out
    return [line.rpartition("/")[2] for line in out.decode("ascii", "replace").splitlines()]


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
