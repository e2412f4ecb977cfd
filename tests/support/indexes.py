"""What the real git says of an index, entry by entry, and repositories with much in theirs."""

from __future__ import annotations

import re
from pathlib import Path

from putback.git.user_index import UserIndex, parse
from support.hermetic import git
from support.trees import File, Link, create

FORMATS = {"sha1": 20, "sha256": 32}
ENTRY = re.compile(rb"(. \d{6} [0-9a-f]+ )(\d)\t([^\0]+)\0((?:  .*\n){5})")
LONG = "/".join(["n" * 250] * 17) + "/long"

TREE = {
    "a/b": "a/b\n",
    "a.b": "a.b\n",
    "a0": "a0\n",
    "added-only": "intent\n",
    "assumed": "assumed\n",
    "binary": File(b"\0\xff\r\n\0"),
    "changed": "A\n",
    "conflict": "ours\n",
    "link": Link("changed"),
    "new\nline": "newline\n",
    b"not-utf8-\xff": "odd\n",
    "removed/x": "removed\n",
    "run": File(b"#!/bin/sh\n", 0o755),
    "skipped": "skipped\n",
    "zz/-dash": "dash\n",
    "zz/last": "last\n",
}


def make(root: Path, algorithm: str = "sha1", version: int = 2, *, flags: bool = True) -> Path:
    """A repository with a commit of TREE, and with every kind of entry in its index, a submodule's too."""
    root.mkdir(exist_ok=True)
    create(root, TREE)
    git(root, "init", "-q", "--template=", f"--object-format={algorithm}")
    git(root, "config", "index.version", str(version))
    git(root, "config", "core.protectNTFS", "false")
    git(root, "add", "-A", "--", ".", ":!added-only")
    git(root, "commit", "-q", "-m", "first")
    head = git(root, "rev-parse", "HEAD").strip()
    blob = git(root, "rev-parse", "HEAD:changed").strip()
    lines = b"160000 %b 0\tmodule\n0 %b 0\tconflict\n" % (head, b"0" * len(head))
    lines += b"".join(b"100644 %b %d\tconflict\n" % (blob, stage) for stage in (1, 2, 3))
    git(root, "update-index", "--index-info", given=lines)
    git(root, "update-index", "--assume-unchanged", "assumed")
    if flags:
        git(root, "update-index", "--skip-worktree", "skipped")
        git(root, "add", "-N", "added-only")
    return root


def read(root: Path) -> UserIndex:
    """The index of a repository whose `.git` is a directory."""
    algorithm = git(root, "rev-parse", "--show-object-format").strip().decode()
    return parse((root / ".git" / "index").read_bytes(), FORMATS[algorithm])


def put(root: Path, data: bytes) -> None:
    (root / ".git" / "index").write_bytes(data)


def listed(root: Path) -> dict[tuple[bytes, int], tuple[bytes, bytes]]:
    """By name and stage: tag, mode and id; and the stat data and flags. As git reads them, all of its answer."""
    answer = git(root, "ls-files", "-s", "-v", "--debug", "-z")
    found = {(name, int(stage)): (head, debug) for head, stage, name, debug in ENTRY.findall(answer)}
    assert sum(map(len, ENTRY.sub(b"", answer).splitlines())) == 0, answer
    return found


def of_paths(everything: dict[tuple[bytes, int], tuple[bytes, bytes]], *paths: bytes) -> dict[object, object]:
    """What is not one of the paths."""
    return {key: value for key, value in everything.items() if key[0] not in paths}
