"""Questions to the user's own repository. Nothing here writes, locks or runs a program of theirs.

The repository is always named to git outright, so that neither its `core.worktree` nor the environment can
point anywhere else, and its index is read without being refreshed.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import cast

import msgspec

from putback.errors import PutbackError
from putback.fs import modes
from putback.fs.durable import write_cache
from putback.git.command import Git, Pending
from putback.paths import RelPath
from putback.records.capture import Repository

ANY_CODE = frozenset(range(256))

_BRANCH = re.compile(rb"ref: (refs/heads/([^\0-\x20]+))\n")
_ID = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n")
_SMALL = 4096


class UserRepository(msgspec.Struct, frozen=True):
    """The repository whose work tree is `root`; `git_dir` is what stands there as `.git`."""

    root: bytes
    git_dir: bytes
    common_dir: bytes
    git: Git

    @property
    def index(self) -> bytes:
        """The user's index file. It may not exist."""
        return os.path.join(self.git_dir, b"index")

    def is_sparse(self) -> bool:
        """Whether the index may be sparse: git would expand it, and touch tree objects of theirs on the way."""
        return os.path.lexists(os.path.join(self.git_dir, b"info", b"sparse-checkout"))

    def tracked(self) -> list[RelPath]:
        """The tracked files, of a sparse index only those that are in it one by one."""
        git = self.git.configured(("core.sparseCheckout", "true"), ("index.sparse", "true"))
        paths = split_paths(git.run("ls-files", "-c", "--sparse", "-z").out)
        return [path for path in paths if not path.endswith(b"/")]

    def tracked_but_ignored(self, excludes: Path, scratch: Path) -> Pending:
        """Ask, in the background, for the tracked paths that ignore rules match, NUL after each.

        A split index is copied to `scratch` first: git marks the time of its shared part when it reads it.
        """
        git = self.git.configured(("core.excludesFile", str(excludes)))
        shared = [name for name in os.listdir(self.git_dir) if name.startswith(b"sharedindex.")]
        if shared and self._is_split():
            git = git.on(self._copy_index(scratch, shared), work_tree=self.root)
        return git.background("ls-files", "-c", "-i", "-z", "--exclude-standard")

    def _is_split(self) -> bool:
        try:
            with open(self.index, "rb") as file:
                return b"link" in file.read()
        except OSError:
            return False

    def _copy_index(self, scratch: Path, shared: list[bytes]) -> bytes:
        """A git directory with nothing in it but a copy of the index."""
        copy = scratch / "user-git"
        for part in ("", "objects", "refs"):
            modes.directory(copy / part)
        wanted = [(self.git_dir, b"index"), (self.git_dir, b"HEAD"), (self.common_dir, b"config")]
        for folder, name in (*wanted, *((self.git_dir, name) for name in shared)):
            write_cache(copy / os.fsdecode(name), Path(os.fsdecode(os.path.join(folder, name))).read_bytes())
        return os.fsencode(copy)

    def standing(self) -> Standing:
        """HEAD and branch; git is asked, in the background, where more than two plain files say what they are."""
        plain = self._plain_standing()
        if plain is not None:
            return Standing(plain)
        return Standing(
            None,
            self.git.background("rev-parse", "-q", "--verify", "HEAD^{commit}", accept=ANY_CODE),
            self.git.background("symbolic-ref", "-q", "HEAD", accept=ANY_CODE),
        )

    def _plain_standing(self) -> Repository | None:
        """HEAD and branch where HEAD names a branch and that is a loose ref, as after most commits."""
        head = _BRANCH.fullmatch(_small_file(os.path.join(self.git_dir, b"HEAD")))
        if head is None or b".." in head[2]:
            return None
        ref = _ID.fullmatch(_small_file(os.path.join(self.common_dir, head[1])))
        return None if ref is None else Repository(head=ref[1].decode(), branch=head[2].decode("utf-8", "replace"))


class Standing(msgspec.Struct, frozen=True):
    """Where the user's repository stands: known, or being found out."""

    known: Repository | None
    head: Pending | None = None
    branch: Pending | None = None

    def result(self) -> Repository:
        """The answer, for the record."""
        if self.known is not None:
            return self.known
        assert self.branch is not None and self.head is not None
        name = self.branch.result().out.decode("utf-8", "replace").strip().removeprefix("refs/heads/")
        return Repository(head=self.head.result().out.decode("ascii", "replace").strip(), branch=name)


def _small_file(path: bytes) -> bytes:
    """What a plain file holds, without waiting for anybody; empty where it is none, or is not small."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return b""
    try:
        found = os.fstat(descriptor)
        return os.read(descriptor, _SMALL) if stat.S_ISREG(found.st_mode) and found.st_size < _SMALL else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def toplevel(start: bytes) -> bytes | None:
    """The nearest directory at or above `start` that has a `.git` that looks like a repository's."""
    directory = start
    while True:
        if _is_repository(os.path.join(directory, b".git")):
            return directory
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _is_repository(candidate: bytes) -> bool:
    """Whether `.git` is a repository, or a file that points to one: git's own test, without running git."""
    try:
        found = os.stat(candidate)
        if stat.S_ISREG(found.st_mode):
            return open_pointer(candidate) is not None
        if not stat.S_ISDIR(found.st_mode):
            return False
        # git would wait for ever on a pipe in place of these.
        config = os.path.join(candidate, b"config")
        head = os.lstat(os.path.join(candidate, b"HEAD")).st_mode
        plain = not os.path.lexists(config) or stat.S_ISREG(os.stat(config).st_mode)
        return plain and (stat.S_ISREG(head) or stat.S_ISLNK(head))
    except OSError:
        return False


def open_pointer(candidate: bytes) -> bytes | None:
    """The directory that a `.git` file names, or None where the file is no such pointer."""
    with open(candidate, "rb") as file:
        text = file.read(4096 + 8)
    if not text.startswith(b"gitdir: "):
        return None
    named = os.path.join(os.path.dirname(candidate), text[8:].rstrip(b"\r\n"))
    return named if os.path.isdir(named) else None


def shared_directory(root: bytes) -> bytes | None:
    """The repository that the work tree at `root` may share with others; None where there is none."""
    candidate = os.path.join(root, b".git")
    try:
        if os.path.isdir(candidate):
            return os.path.realpath(candidate)
        named = open_pointer(candidate)
        if named is None:
            return None
        common = _small_file(os.path.join(named, b"commondir")).rstrip(b"\r\n")
        return os.path.realpath(os.path.join(named, common)) if common else None
    except OSError:
        return None


def open_at(git: Git, root: bytes) -> UserRepository | str | None:
    """The repository whose work tree is `root`; None where there is none, and git's words where it is damaged.

    Raises StorageError where git was ended before it could say.
    """
    candidate = os.path.join(root, b".git")
    if not _is_repository(candidate):
        return None
    bound = git.on(candidate, work_tree=root)
    answer = bound.run("rev-parse", "--absolute-git-dir", "--git-common-dir", accept=ANY_CODE)
    lines = answer.out.split(b"\n")
    if answer.code == 0 and len(lines) != 3:  # a name with a newline in it
        both = [
            bound.run("rev-parse", question).out[:-1] for question in ("--absolute-git-dir", "--git-common-dir")
        ]
        lines = [*both, b""]
    if answer.code != 0 or len(lines) != 3:
        said = answer.err.decode("utf-8", "replace").strip().splitlines()
        return f"your repository cannot be read, so its own ignore rules do not count: {said[0] if said else ''}"
    return UserRepository(root, lines[0], os.path.join(root, lines[1]), bound)


def excludes_file(git: Git, repository: UserRepository | None) -> Path:
    """Where the user's configuration puts their global ignore file, whether or not it exists."""
    asking = git.with_users_home()
    if repository is None:
        asking = asking.on(Path(os.devnull))
    else:
        asking = asking.on(repository.git_dir, work_tree=repository.root)
    answer = asking.run("config", "--type=path", "--get", "core.excludesFile", accept=ANY_CODE)
    value = answer.out.rstrip(b"\n")
    if answer.code == 0 and value:
        return Path(os.fsdecode(os.path.join(repository.root if repository else b"/", value)))
    if answer.code > 1:
        said = answer.err.decode("utf-8", "replace").strip().splitlines()
        raise PutbackError(f"git cannot read your configuration: {said[0] if said else answer.code}")
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "git" / "ignore"


def split_paths(out: bytes) -> list[RelPath]:
    """The paths in NUL-terminated output of git, as git wrote them."""
    return cast("list[RelPath]", out.split(b"\0")[:-1])
