"""The provider `git-worktree`: a linked work tree of its own, on a branch of its own.

Allocating again finds what an earlier call left, also one that was killed halfway, and goes on from there. A
release removes the tree only when a branch holds all of it, or after a salvage has made it so; the branches stay.
Not kept by a salvage: empty directories, special files, and the reflog of the work tree's HEAD. Between the last
look and git's removal another program could still write; nothing can rule that out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from putback import seams
from putback.errors import FailedError, NotOwned, RefusedError, UsageError
from putback.git import unsaved, user_repo, worktrees
from putback.git.command import Git
from putback.git.salvage import Salvage
from putback.git.unsaved import Unsaved
from putback.git.user_repo import UserRepository
from putback.paths import quote
from putback.records.turn import Binding
from putback.turns.providers import Allocation, Removal, Removed, Request, check_suitable, checkout

SALVAGE = "putback/salvage/"


class GitWorktree:
    """Makes, finds again and removes linked work trees."""

    id = "git-worktree"
    version = 1

    def place(self, request: Request) -> bytes:
        """Where the work tree is or will be. Raises UsageError for a place inside the checkout or the store."""
        check_suitable(request)
        source = checkout(request.git, request.root)
        chosen = request.place or os.path.join(source.root + b".worktrees", request.binding_id.encode())
        above, name = os.path.split(os.path.abspath(chosen))
        place = os.path.join(os.path.realpath(above), name)
        store = os.path.realpath(os.fsencode(request.store))
        for what, taken in (("checkout", source.root), ("repository", source.common_dir), ("store", store)):
            if _within(place, os.path.realpath(taken)):
                raise UsageError(
                    f"{quote(place)} lies inside the {what}", hint="choose another place with --place"
                )
        if _within(store, place):
            raise UsageError(f"{quote(place)} would hold the store", hint="choose another place with --place")
        return place

    def allocate(self, request: Request) -> Allocation:
        """Make the work tree, or take over one that stands at its place on its branch with nothing unsaved."""
        source, place = checkout(request.git, request.root), self.place(request)
        branch = request.branch or f"putback/{request.binding_id}"
        worktrees.check_branch(request.git, branch)
        if f"{branch}/".startswith(SALVAGE):
            raise UsageError(
                f"the branch {branch!r} is kept for salvages", hint="choose another one with --branch"
            )
        if not os.path.lexists(place) or _is_empty(place):
            self._add(source, request, place, branch)
        linked = self._adopt(request, source, place, branch)
        if not os.path.lexists(linked.index):
            filters = worktrees.fill(linked)
            seams.reach("worktree.published")
        else:
            _check_clean(linked, "the work tree that is there already cannot be taken over")
            filters = worktrees.unfiltered(linked).used()
        return Allocation(place, source.root, branch, filters)

    def attest(self, git: Git, binding: Binding) -> None:
        """Raise NotOwned where the repository does not count the tree among its work trees any more."""
        path = binding.root.raw
        linked = checkout(git, path)
        try:
            pointer = Path(os.fsdecode(os.path.join(linked.git_dir, b"gitdir"))).read_bytes().rstrip(b"\n")
        except OSError:
            pointer = b""
        back = os.path.join(linked.git_dir, pointer)
        if binding.source is None or not pointer or os.path.realpath(back) != os.path.join(path, b".git"):
            raise NotOwned(
                f"{quote(path)} is not the linked work tree any more that was allocated",
                hint="`git worktree repair` may help",
            )

    def release(self, binding: Binding, removal: Removal) -> Removed:
        """Remove the work tree. Raises RefusedError where anything in it would be lost, or changes meanwhile."""
        path = binding.root.raw
        if not os.path.lexists(path):
            with removal.locks():
                removal.record()
            return Removed(removed=True)
        linked = checkout(removal.git, path)
        found = _look(linked)
        reasons = found.reasons()
        if reasons and not removal.salvage:
            raise RefusedError(
                f"the work tree {quote(path)} holds unsaved work: {'; '.join(reasons)}",
                hint="commit it, or release with --salvage, which commits it to a branch of its own",
            )
        snapshot = _keep_ignored(linked, found, removal)
        with removal.locks():
            return self._remove(binding, linked, found, snapshot, removal)

    def _add(self, source: UserRepository, request: Request, place: bytes, branch: str) -> None:
        """A branch that is there already is used as it is: an earlier call made it, and nothing moves it."""
        start = worktrees.commit(source, request.start or "HEAD")
        known = worktrees.tip(source, f"refs/heads/{branch}")
        if known is not None and request.start and known != start:
            raise RefusedError(
                f"the branch {branch!r} is there already, at {known[:12]}, not at {start[:12]}",
                hint="choose another one with --branch",
            )
        worktrees.add(source, place, branch, start, new=known is None)
        seams.reach("worktree.added")

    def _adopt(self, request: Request, source: UserRepository, place: bytes, branch: str) -> UserRepository:
        """The linked work tree at `place`. Raises RefusedError where it is another thing, or on another branch."""
        found = None if os.path.islink(place) else user_repo.open_at(request.git, place)
        hint = "choose another place with --place"
        if not isinstance(found, UserRepository) or not _same(found.common_dir, source.common_dir):
            raise RefusedError(f"{quote(place)} is there already and no work tree of this repository", hint=hint)
        if _same(found.git_dir, found.common_dir):
            raise RefusedError(f"{quote(place)} is the main work tree of this repository", hint=hint)
        if worktrees.branch_of(found) != f"refs/heads/{branch}":
            raise RefusedError(f"the work tree {quote(place)} is not on the branch {branch!r}", hint=hint)
        return found

    def _remove(
        self, binding: Binding, linked: UserRepository, found: Unsaved, snapshot: str, removal: Removal
    ) -> Removed:
        branch = ""
        with _salvage(linked, removal) as salvage:
            kept = salvage.survey()
            now = _look(linked)
            if now != found or now.loose != found.loose:
                raise _changed(linked)
            removal.record()
            seams.reach("worktree.releasing")
            if found.reasons():
                branch = _save(binding, linked, salvage)
                seams.reach("worktree.salvaged")
            if salvage.survey() != kept or _look(linked) != found:
                raise _changed(linked)
        worktrees.remove(binding.common_dir.raw, linked)
        seams.reach("worktree.removed")
        return Removed(removed=True, salvage=branch, snapshot=snapshot)


def _save(binding: Binding, linked: UserRepository, salvage: Salvage) -> str:
    """Put all that is unsaved onto a branch, and return its name; one that holds just that already will do."""
    kept = salvage.survey()
    prefix = f"{SALVAGE}{binding.id}-"
    known = {
        int(name.removeprefix(prefix)): oid
        for name, oid in worktrees.branches(linked, prefix).items()
        if name.removeprefix(prefix).isdecimal()
    }
    for number, oid in known.items():
        if salvage.holds(oid, kept):
            return f"{prefix}{number}"
    branch = f"{prefix}{max(known, default=0) + 1}"
    worktrees.create_branch(linked, branch, salvage.commit(kept, f"putback: salvage of {binding.id}"))
    tip = worktrees.tip(linked, f"refs/heads/{branch}")
    if tip is None or not salvage.holds(tip, kept):
        raise FailedError(f"the branch {branch!r} does not hold what is unsaved; nothing was removed")
    return branch


def _keep_ignored(linked: UserRepository, found: Unsaved, removal: Removal) -> str:
    if not found.ignored:
        return ""
    if removal.keep_ignored is None:
        raise RefusedError(
            f"the work tree {quote(linked.root)} holds {len(found.ignored)} ignored files that no commit keeps "
            f"({quote(found.ignored[0][0])})",
            hint="move them away, or release with --salvage, which takes a snapshot of them",
        )
    return removal.keep_ignored(Path(os.fsdecode(linked.root)))


def _look(linked: UserRepository) -> Unsaved:
    """What is unsaved. Raises RefusedError where that cannot be told, or where the tree may not be removed."""
    inside = unsaved.nested(linked.root)
    modules = os.path.join(linked.git_dir, b"modules")
    if inside is not None or os.path.isdir(modules):
        where = inside or modules
        raise RefusedError(
            f"the work tree {quote(linked.root)} holds another repository: {quote(where)}",
            hint="move it away first: putback cannot tell what would be lost with it",
        )
    if os.path.lexists(os.path.join(linked.git_dir, b"locked")):
        raise RefusedError(
            f"the work tree {quote(linked.root)} is locked", hint="`git worktree unlock` unlocks it"
        )
    return unsaved.look(linked, user_repo.excludes_file(linked.git, linked))


def _check_clean(linked: UserRepository, problem: str) -> None:
    found = _look(linked)
    reasons = found.reasons()
    if found.ignored:
        reasons.append(f"{len(found.ignored)} ignored files ({quote(found.ignored[0][0])})")
    if reasons:
        raise RefusedError(
            f"{problem}: {quote(linked.root)} holds {'; '.join(reasons)}",
            hint="commit it or move it away, or choose another place with --place",
        )


@contextmanager
def _salvage(linked: UserRepository, removal: Removal) -> Iterator[Salvage]:
    shutil.rmtree(removal.scratch, ignore_errors=True)
    salvage = Salvage(linked, removal.scratch / "salvage", user_repo.excludes_file(linked.git, linked))
    try:
        yield salvage
    finally:
        shutil.rmtree(removal.scratch, ignore_errors=True)


def _changed(linked: UserRepository) -> RefusedError:
    return RefusedError(
        f"somebody is changing the work tree {quote(linked.root)}; it was not removed",
        hint="end that, then try again",
    )


def _same(one: bytes, other: bytes) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _is_empty(place: bytes) -> bool:
    return os.path.isdir(place) and not os.path.islink(place) and not os.listdir(place)


def _within(path: bytes, above: bytes) -> bool:
    return path == above or path.startswith(above.rstrip(b"/") + b"/")
