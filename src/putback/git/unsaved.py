"""What a work tree holds that no branch does.

Asks only: no index of the user's is refreshed, and no program of theirs runs. A nested repository is found by
walking, before git is asked: git would go into it, with a configuration of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from putback.git import worktrees
from putback.git.user_repo import UserRepository
from putback.paths import quote

OPERATIONS = {
    b"MERGE_HEAD": "a merge",
    b"CHERRY_PICK_HEAD": "a cherry-pick",
    b"REVERT_HEAD": "a revert",
    b"rebase-merge": "a rebase",
    b"rebase-apply": "a rebase or am",
    b"sequencer": "a sequence of picks",
    b"BISECT_LOG": "a bisection",
}
OWN_REFS = ("refs/bisect", "refs/worktree", "refs/rewritten")

# An empty name, which other commands take for none, ends `git status`.
_NO_ORDER = ("diff.orderFile", os.devnull)

Print = tuple[bytes, int, int, int, int]


@dataclass(frozen=True)
class Unsaved:
    """What would be lost with the work tree. `ignored` is by path, identity, size and times of each file.

    `flagged` are files that git was told not to look at. `loose` says what else hangs on this work tree alone; two
    looks are compared without it, for a salvage makes an end of it.
    """

    staged: tuple[bytes, ...]
    modified: tuple[bytes, ...]
    untracked: tuple[bytes, ...]
    conflicts: tuple[bytes, ...]
    flagged: tuple[bytes, ...]
    ignored: tuple[Print, ...]
    loose: tuple[str, ...] = field(compare=False)

    def reasons(self) -> list[str]:
        """What a salvage would have to keep, in words; the ignored files are not among it."""
        parts = (
            ("in conflict", self.conflicts),
            ("staged", self.staged),
            ("modified", self.modified),
            ("untracked", self.untracked),
            ("hidden from git by a flag", self.flagged),
        )
        return [*(_count(what, paths) for what, paths in parts if paths), *self.loose]


def nested(root: bytes) -> bytes | None:
    """A directory below `root` that has a `.git` of its own, by its path, or None."""
    for folder, folders, files in os.walk(root):
        if folder != root and (b".git" in folders or b".git" in files):
            return folder
        if folder == root and b".git" in folders:
            folders.remove(b".git")
    return None


def look(linked: UserRepository, excludes: Path) -> Unsaved:
    """What is unsaved in a work tree in which nothing is nested. `excludes` is the user's global ignore file."""
    git = worktrees.unfiltered(linked).git.configured(("core.excludesFile", str(excludes)), _NO_ORDER)
    found: dict[str, list[bytes]] = {name: [] for name in ("staged", "modified", "untracked", "conflicts")}
    ignored: list[Print] = []
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
    for line in git.run("status", *options, "--ignore-submodules=dirty").out.split(b"\0")[:-1]:
        code, path = line[:2], line[3:]
        if code == b"!!":
            ignored += _prints(linked.root, path)
        elif code == b"??":
            found["untracked"].append(path)
        elif b"U" in code or code in (b"AA", b"DD"):
            found["conflicts"].append(path)
        else:
            found["staged"] += [path] * (code[:1] != b" ")
            found["modified"] += [path] * (code[1:] != b" ")
    return Unsaved(
        **{name: tuple(paths) for name, paths in found.items()},
        flagged=tuple(_flagged(linked)),
        ignored=tuple(sorted(ignored)),
        loose=tuple(_loose(linked)),
    )


def _flagged(linked: UserRepository) -> Iterator[bytes]:
    """The files that are there and that git looks away from: assume-unchanged or skip-worktree."""
    for line in linked.git.run("ls-files", "-v", "-z").out.split(b"\0")[:-1]:
        tag, path = line[:1], line[2:]
        if (tag.islower() or tag == b"S") and os.path.lexists(os.path.join(linked.root, path)):
            yield path


def _loose(linked: UserRepository) -> Iterator[str]:
    for name, operation in OPERATIONS.items():
        if os.path.lexists(os.path.join(linked.git_dir, name)):
            yield f"{operation} in progress"
    if linked.git.run("for-each-ref", "--count=1", *OWN_REFS).out:
        yield "refs that belong to this work tree alone"
    head = worktrees.tip(linked, "HEAD")
    if head is not None and worktrees.branch_of(linked) is None:
        places = ("refs/heads", "refs/tags", "refs/remotes")
        if not linked.git.run("for-each-ref", "--count=1", "--contains", head, *places).out:
            yield "commits that no branch has"


def _prints(root: bytes, path: bytes) -> Iterator[Print]:
    """The files at or below an ignored path, each with what a write to it would change."""
    full = os.path.join(root, path.rstrip(b"/"))
    if os.path.isdir(full) and not os.path.islink(full):
        for folder, folders, files in os.walk(full):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (_print(os.path.join(folder, name), root) for name in (*files, *links))
    else:
        yield _print(full, root)


def _print(full: bytes, root: bytes) -> Print:
    try:
        found = os.lstat(full)
    except FileNotFoundError:
        return (os.path.relpath(full, root), 0, 0, 0, 0)
    return (os.path.relpath(full, root), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _count(what: str, paths: tuple[bytes, ...]) -> str:
    number = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    return f"{number} {what} ({quote(paths[0])}{', ...' if len(paths) > 1 else ''})"
