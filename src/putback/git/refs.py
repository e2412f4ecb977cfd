"""One ref per capture: `refs/putback/<workspace>/<id>`."""

from __future__ import annotations

from pathlib import Path

from putback.fs import modes
from putback.fs.durable import sync_directory, write_new_file
from putback.git.command import Git

PREFIX = "refs/putback"


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
