"""Keep a whole work tree in commits: raw bytes as they lie there, and what was staged where that differs.

The objects go into the user's repository, but through a repository of ours that shares nothing else with it: none
of its configuration, attributes, hooks or filters have a say, and its index is only read. Not kept: empty
directories, special files, permission bits beyond git's two modes, and ignored files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from putback.errors import FailedError
from putback.git import worktrees
from putback.git.command import Git
from putback.git.unsaved import OWN_REFS
from putback.git.user_repo import ANY_CODE, UserRepository, split_paths
from putback.paths import RelPath, quote

CONFLICTS = b".putback-conflicts"
_AUTHOR = (("user.name", "putback"), ("user.email", "putback@localhost"))
_GITLINK = b"160000"
_ID = re.compile(rb"^(?:[0-9a-f]{40}|[0-9a-f]{64})$", re.MULTILINE)

# Where an operation in progress keeps commits that perhaps no branch has.
_COMMITS = (
    *(b"MERGE_HEAD", b"CHERRY_PICK_HEAD", b"REVERT_HEAD", b"REBASE_HEAD", b"ORIG_HEAD", b"MERGE_AUTOSTASH"),
    *(b"rebase-merge/autostash", b"rebase-merge/orig-head", b"rebase-merge/onto", b"rebase-merge/stopped-sha"),
    *(b"rebase-apply/autostash", b"rebase-apply/orig-head", b"rebase-apply/onto", b"rebase-apply/abort-safety"),
)


@dataclass(frozen=True)
class Entry:
    """One line of the user's index."""

    mode: bytes
    oid: bytes
    stage: int
    path: bytes

    @property
    def line(self) -> bytes:
        return b"%b %b 0\t%b\0" % (self.mode, self.oid, self.path)

    @property
    def aside(self) -> bytes:
        """The line that keeps one side of a conflict at a path of its own."""
        return b"%b %b 0\t%b/%d/%b\0" % (self.mode, self.oid, CONFLICTS, self.stage, self.path)


@dataclass(frozen=True)
class Kept:
    """What a salvage keeps: the tree on disk, the staged one where it differs, HEAD, and what else hangs on it."""

    tree: str
    staged: str | None
    head: str | None
    hanging: tuple[str, ...]


@dataclass
class Salvage:
    """A work tree being kept. `folder` is ours and new; remove it afterwards with `close`."""

    linked: UserRepository
    folder: Path
    excludes: Path
    _git: Git = field(init=False)

    def __post_init__(self) -> None:
        git = worktrees.as_user(self.linked)
        form = git.run("rev-parse", "--show-object-format").out.decode().strip()
        version = 0 if form == "sha1" else 1
        extension = "" if form == "sha1" else f"[extensions]\n\tobjectFormat = {form}\n"
        (self.folder / "refs").mkdir(parents=True)
        (self.folder / "info").mkdir()
        (self.folder / "HEAD").write_text("ref: refs/heads/none\n")
        core = f"[core]\n\trepositoryformatversion = {version}\n"
        core += f"\tsharedRepository = {worktrees.sharing(self.linked)}\n"
        (self.folder / "config").write_text(core + extension)
        raw = "* -text -eol -filter -ident -working-tree-encoding\n"
        (self.folder / "info" / "attributes").write_text(raw)
        os.symlink(os.path.join(self.linked.common_dir, b"objects"), os.fsencode(self.folder / "objects"))
        self._git = git.configured(*_AUTHOR).on(self.folder, work_tree=self.linked.root)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def files(self) -> str:
        """The id of the tree of all tracked and all untracked files that no rule ignores, as they are on disk.

        Called again it reads again only what has changed. Raises FailedError where a file cannot be kept.
        """
        entries = self._entries()
        tracked = {entry.path for entry in entries if entry.mode != _GITLINK}
        present = {*filter(self._is_there, tracked), *self._untracked()}
        git = self._on("files")
        gone = set(split_paths(git.run("ls-files", "-z").out)) - present
        lines = b"".join(b"0 %b\t%b\0" % (b"0" * 40, path) for path in sorted(gone))
        lines += b"".join(entry.line for entry in self._stand_ins(entries))
        git.run("update-index", "-z", "--index-info", given=lines)
        paths = b"".join(path + b"\0" for path in sorted(present))
        answer = git.run("update-index", "--add", "--replace", "-z", "--stdin", given=paths, accept=ANY_CODE)
        missing = present - set(split_paths(git.run("ls-files", "-z").out))
        if answer.code != 0 or missing:
            what = f" {quote(min(missing))}" if missing else ""
            raise FailedError(f"cannot keep what is unsaved{what}: {worktrees.words(answer)}; nothing was removed")
        return git.run("write-tree").out.decode().strip()

    def survey(self) -> Kept:
        """All that the commits of a salvage have to hold, as it is now."""
        tree, staged = self.files(), self._staged()
        head = worktrees.tip(self.linked, "HEAD")
        known = {tree, None if head is None else self._tree_of(head)}
        hanging = tuple(dict.fromkeys(oid for oid in self._hanging() if oid != head))
        return Kept(tree, None if staged in known else staged, head, hanging)

    def commit(self, kept: Kept, message: str) -> str:
        """Write the commits and return the id of the one that holds all."""
        parents = [] if kept.head is None else [kept.head]
        if kept.staged is not None:
            parents = [self._commit(kept.staged, parents, f"{message}: what was staged")]
        return self._commit(kept.tree, [*parents, *kept.hanging], message)

    def holds(self, oid: str, kept: Kept) -> bool:
        """Whether a commit is one that `commit` would make now, but for its time."""
        head = [] if kept.head is None else [kept.head]
        parents = self._parents(oid)
        first = len(head) if kept.staged is None else 1
        if self._tree_of(oid) != kept.tree or parents[first:] != [*kept.hanging]:
            return False
        if kept.staged is None:
            return parents[:first] == head
        return bool(parents) and self._tree_of(parents[0]) == kept.staged and self._parents(parents[0]) == head

    def _commit(self, tree: str, parents: list[str], message: str) -> str:
        options = [word for parent in parents for word in ("-p", parent)]
        return self._git.run("commit-tree", tree, *options, given=f"{message}\n".encode()).out.decode().strip()

    def _staged(self) -> str:
        """The id of the tree of the user's index; each side of a conflict at a path of its own."""
        entries = self._entries()
        lines = b"".join(entry.line if entry.stage == 0 else entry.aside for entry in entries)
        # An entry that was only announced (`git add -N`) has the id of the empty file, which may not be there.
        self._git.run("hash-object", "-w", "--stdin", given=b"")
        git = self._on(f"staged-{os.urandom(4).hex()}")
        git.run("update-index", "-z", "--index-info", given=lines)
        return git.run("write-tree").out.decode().strip()

    def _entries(self) -> list[Entry]:
        found = []
        for line in self.linked.git.run("ls-files", "-s", "-z").out.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, oid, stage = head.split(b" ")
            found.append(Entry(mode, oid, int(stage), path))
        return found

    def _untracked(self) -> list[RelPath]:
        git = self.linked.git.configured(("core.excludesFile", str(self.excludes)))
        return split_paths(git.run("ls-files", "-o", "-z", "--exclude-standard").out)

    def _stand_ins(self, entries: list[Entry]) -> list[Entry]:
        """The entries that speak for what has no file: a submodule, or what a sparse checkout leaves out."""
        lines = self.linked.git.run("ls-files", "-v", "-z").out.split(b"\0")[:-1]
        skipped = {line[2:] for line in lines if line[:1] in (b"S", b"s")}
        return [
            entry
            for entry in entries
            if entry.mode == _GITLINK
            or (entry.stage == 0 and entry.path in skipped and not self._is_there(entry.path))
        ]

    def _is_there(self, path: bytes) -> bool:
        """Whether a file stands at a path, with no link on the way to it."""
        full = os.path.join(self.linked.root, path)
        above = os.path.dirname(full)
        return os.path.lexists(full) and not _is_directory(full) and os.path.realpath(above) == above

    def _hanging(self) -> Iterator[str]:
        """Commits that this work tree alone keeps."""
        for name in _COMMITS:
            try:
                text = Path(os.fsdecode(os.path.join(self.linked.git_dir, name))).read_bytes()
            except OSError:
                continue
            for oid in _ID.findall(text):
                found = worktrees.tip(self.linked, oid.decode())
                if found is not None:
                    yield found
        out = self.linked.git.run("for-each-ref", "--format=%(objectname)", *OWN_REFS).out
        for line in out.decode().split():
            found = worktrees.tip(self.linked, line)
            if found is not None:
                yield found

    def _parents(self, oid: str) -> list[str]:
        return self._git.run("rev-list", "--parents", "-n1", oid).out.decode().split()[1:]

    def _tree_of(self, oid: str) -> str:
        return self._git.run("rev-parse", f"{oid}^{{tree}}").out.decode().strip()

    def _on(self, index: str) -> Git:
        return self._git.on(self.folder, work_tree=self.linked.root, index=self.folder / index)


def _is_directory(full: bytes) -> bool:
    return os.path.isdir(full) and not os.path.islink(full)
