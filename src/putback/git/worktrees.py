"""Linked work trees of the user's repository: made, filled and removed.

The only module that lets git write into a repository of the user's: a branch, an entry below `worktrees`, and the
tree itself, because they asked for it. HEAD, index, work tree and every other ref of theirs stay as they are.

No program of the repository's configuration runs: no hook, and no filter. Which filters there are is asked on the
spot, bound to the very work tree that is filled, because configuration can depend on it (`includeIf`). What they
would have changed is told. Conversions that git makes by itself (line ends, encodings) are made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from putback import seams
from putback.errors import FailedError, RefusedError, StorageError, UsageError
from putback.git.command import Git, Result
from putback.git.user_repo import ANY_CODE, UserRepository, split_paths
from putback.paths import quote

_PROGRAMS = r"^filter\..*\.(clean|smudge|process)$"
_ID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n")
_PART = b"index.putback-"


@dataclass(frozen=True)
class Filters:
    """git on a work tree with every filter program switched off, and the names of the drivers that have one."""

    git: Git
    drivers: frozenset[bytes]

    def used(self) -> tuple[str, ...]:
        """The drivers that files in the bound index ask for by their attributes, and do not get."""
        if not self.drivers:
            return ()
        tracked = self.git.run("ls-files", "-z").out
        fields = self.git.run("check-attr", "-z", "--stdin", "filter", given=tracked).out.split(b"\0")
        asked = self.drivers & set(fields[2::3])
        return tuple(sorted(name.decode("utf-8", "backslashreplace") for name in asked))


def unfiltered(repository: UserRepository, index: bytes | None = None) -> Filters:
    """git on the work tree of `repository`, and on `index` in place of its own, without any filter program."""
    asking = repository.git.with_users_home().on(repository.git_dir, work_tree=repository.root)
    answer = asking.run("config", "-z", "--name-only", "--get-regexp", _PROGRAMS, accept={0, 1})
    keys = answer.out.split(b"\0")[:-1]
    drivers = {key.partition(b".")[2].rpartition(b".")[0] for key in keys}
    settings = []
    for driver in sorted(drivers):
        name = os.fsdecode(driver)
        settings += [(f"filter.{name}.{program}", "") for program in ("clean", "smudge", "process")]
        settings.append((f"filter.{name}.required", "false"))
    git = as_user(repository).on(repository.git_dir, work_tree=repository.root, index=index)
    return Filters(git.configured(*settings), frozenset(drivers))


def as_user(repository: UserRepository) -> Git:
    """git that writes files with the permissions that the user's own git would give them."""
    git = repository.git.with_users_umask().on(repository.git_dir)
    return git.configured(("core.sharedRepository", sharing(repository)))


def sharing(repository: UserRepository) -> str:
    """Who else may write into the repository, as its own configuration has it."""
    file = os.path.join(repository.common_dir, b"config")
    answer = repository.git.run("config", "--file", file, "--get", "core.sharedRepository", accept=ANY_CODE)
    value = answer.out.decode("ascii", "replace").strip()
    return value if value.isalnum() and value.isascii() else "umask"


def check_branch(git: Git, branch: str) -> None:
    """Raise UsageError for what cannot be the name of a branch."""
    if branch.startswith("-") or "\0" in branch:
        raise UsageError(f"not the name of a branch: {branch!r}")
    if git.run("check-ref-format", f"refs/heads/{branch}", accept=ANY_CODE).code != 0:
        raise UsageError(f"not the name of a branch: {branch!r}", hint="choose another one with --branch")


def commit(repository: UserRepository, start: str) -> str:
    """The id of the commit that `start` means. Raises UsageError where it means none."""
    answer = repository.git.run(
        "rev-parse", "-q", "--verify", "--end-of-options", f"{start}^{{commit}}", accept=ANY_CODE
    )
    if answer.code != 0 or not _ID.fullmatch(answer.out):
        raise UsageError(f"{start!r} is no commit of {quote(repository.root)}", hint="commit something first")
    return answer.out.decode().strip()


def tip(repository: UserRepository, ref: str) -> str | None:
    """The commit that a full ref names, or None where there is no such ref."""
    answer = repository.git.run("rev-parse", "-q", "--verify", f"{ref}^{{commit}}", accept=ANY_CODE)
    return answer.out.decode().strip() if answer.code == 0 else None


def branch_of(repository: UserRepository) -> str | None:
    """The full ref that HEAD names, or None where it is detached."""
    answer = repository.git.run("symbolic-ref", "-q", "HEAD", accept=ANY_CODE)
    return answer.out.decode("utf-8", "surrogateescape").rstrip("\n") if answer.code == 0 else None


def add(source: UserRepository, place: bytes, branch: str, start: str, *, new: bool) -> None:
    """Make an empty linked work tree at `place`, on a branch that is `new` at `start`, or is there already.

    Raises RefusedError with git's words where it will not.
    """
    chosen: tuple[str | bytes, ...] = ("--no-track", "-b", branch, place, start) if new else (place, branch)
    answer = as_user(source).run("worktree", "add", "--no-checkout", *chosen, accept=ANY_CODE)
    _check("git makes no work tree", answer, "nothing was bound; see `git worktree list`")


def fill(linked: UserRepository) -> tuple[str, ...]:
    """Put the files of HEAD into a work tree that has no index yet, and return the filters that did not run.

    Files that are there already must be those of the commit: then an earlier call came so far. Raises RefusedError
    where they are not; nothing that stands there is written over. The index appears last.
    """
    for name in os.listdir(linked.git_dir):
        if name.startswith(_PART):
            with suppress(OSError):
                os.unlink(os.path.join(linked.git_dir, name))
    part = os.path.join(linked.git_dir, _PART + os.urandom(4).hex().encode())
    filters = unfiltered(linked, part)
    git = filters.git
    git.run("read-tree", "HEAD")
    git.run("update-index", "-q", "--refresh", accept={0, 1})
    foreign = split_paths(git.run("diff-files", "--name-only", "-z", "--diff-filter=d").out)
    foreign += split_paths(git.run("ls-files", "-o", "-z").out)
    if foreign:
        os.unlink(part)
        raise RefusedError(
            f"the half-made work tree {quote(linked.root)} holds what is not its commit's: {quote(foreign[0])}",
            hint="move that away, or remove the work tree with `git worktree remove --force`",
        )
    _check("git does not fill the work tree", git.run("checkout-index", "-a", "-u", accept=ANY_CODE))
    seams.reach("worktree.filled")
    try:
        os.link(part, linked.index)
        os.unlink(part)
    except OSError as error:
        raise StorageError(f"cannot write the index of {quote(linked.root)}: {error.strerror}") from error
    return Filters(git.on(linked.git_dir, work_tree=linked.root), filters.drivers).used()


def remove(source_dir: bytes, linked: UserRepository) -> None:
    """Remove a linked work tree with all that is in it; the branch stays. Raises FailedError with git's words.

    `source_dir` is the git directory of the whole repository. What may be lost was looked at before.
    """
    git = as_user(linked).on(source_dir)
    _check(
        "git does not remove the work tree", git.run("worktree", "remove", "--force", linked.root, accept=ANY_CODE)
    )
    if os.path.lexists(linked.root):
        raise FailedError(
            f"git has left something at {quote(linked.root)}", hint="look at it, and remove it yourself"
        )


def create_branch(repository: UserRepository, branch: str, target: str) -> None:
    """Make a branch that does not exist yet. Raises RefusedError with git's words where it cannot."""
    none = "0" * len(target)
    answer = as_user(repository).run("update-ref", f"refs/heads/{branch}", target, none, accept=ANY_CODE)
    _check(f"git makes no branch {branch!r}", answer)


def branches(repository: UserRepository, prefix: str) -> dict[str, str]:
    """Name and commit of each branch whose name begins with `prefix`."""
    out = repository.git.run("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/").out
    lines = (line.partition(" ") for line in out.decode("utf-8", "surrogateescape").splitlines())
    found = {ref.removeprefix("refs/heads/"): oid for ref, _, oid in lines}
    return {name: oid for name, oid in found.items() if name.startswith(prefix)}


def words(answer: Result) -> str:
    """What git said, in one printable line."""
    said = answer.err.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in said if line.startswith(("fatal:", "error:"))]
    line: Sequence[str] = (fatal or said or [f"it ended with code {answer.code}"])[0]
    return "".join(c for c in line if c.isprintable()).removeprefix("fatal: ")


def _check(problem: str, answer: Result, hint: str | None = None) -> None:
    if answer.code != 0:
        raise RefusedError(f"{problem}: {words(answer)}", hint=hint)
