"""One ref per capture: `refs/putback/<workspace>/<id>`."""

from __future__ import annotations

from putback.git.command import Git

PREFIX = "refs/putback"
ABSENT = "0" * 64


def anchor(git: Git, workspace: str, capture_id: str) -> None:
    """Create the ref of a capture; fails where it exists with another value."""
    line = f"create {PREFIX}/{workspace}/{capture_id} {capture_id}\n"
    git.run("update-ref", "--stdin", given=line.encode())


def release(git: Git, workspace: str, capture_ids: list[str]) -> None:
    """Delete the refs of captures, all or none, each only with the value it must have."""
    lines = "".join(f"delete {PREFIX}/{workspace}/{oid} {oid}\n" for oid in capture_ids)
    git.run("update-ref", "--stdin", given=("start\n" + lines + "commit\n").encode())


def anchored(git: Git, workspace: str) -> list[str]:
    """The ids of all captures of a workspace that have a ref."""
    out = git.run("for-each-ref", "--format=%(refname)", f"{PREFIX}/{workspace}/").out
    return [line.rpartition("/")[2] for line in out.decode("ascii", "replace").splitlines()]
