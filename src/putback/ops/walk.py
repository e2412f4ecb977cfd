"""The walk over a workspace's directories: what is new, what is left out, what cannot be covered.

Git tells which known files changed; the walk finds everything else. A directory that has not changed since the
last walk, and whose ignore rules have not, is not read again: one `lstat` each is all that an untouched tree
costs. Links are never followed, and content is never opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

import msgspec

from putback.errors import RefusedError, StorageError
from putback.ops.ignore import IgnoreRules
from putback.ops.state import DirectoryFacts, Signature, settled, signature
from putback.paths import RelPath, quote
from putback.progress import Progress
from putback.records.capture import NotCovered, Reason

TOP = RelPath(b"")
_FILE, _DIRECTORY, _SPECIAL = range(3)


class Walk(msgspec.Struct, dict=True):
    """One walk. `known` is what the last one learned (empty: learn everything), `held_in` tells which files
    the index has directly in a directory.

    `read_all` distrusts unchanged directories, for file systems whose times cannot be relied on.
    """

    root: bytes
    rules: IgnoreRules
    known: dict[bytes, DirectoryFacts]
    known_began_ns: int
    held_in: Callable[[RelPath], set[RelPath]]
    store_identity: tuple[int, int] | None
    read_all: bool
    progress: Progress
    facts: dict[bytes, DirectoryFacts] = {}
    found: list[RelPath] = []
    not_covered: list[NotCovered] = []
    unreadable: list[RelPath] = []
    rules_moved: bool = False

    def run(self) -> None:
        """Walk the whole tree. Afterwards `facts` describes every directory in scope."""
        self._device = os.lstat(self.root).st_dev
        self._prefix = os.path.join(self.root, b"")
        front = [TOP]
        while front:
            asked: list[tuple[RelPath, int, DirectoryFacts]] = []
            while front:
                front += self._visit(front.pop(), asked)
            front = self._settle(asked)

    def _visit(self, path: RelPath, asked: list[tuple[RelPath, int, DirectoryFacts]]) -> list[RelPath]:
        """Take one directory in; returns the directories below that are certainly in scope."""
        try:
            here = os.lstat(self._prefix + path if path else self.root)
        except OSError as error:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                self._cannot_read(path, error)
            return []
        if not stat.S_ISDIR(here.st_mode) or (here.st_dev, here.st_ino) == self.store_identity:
            return []
        if here.st_dev != self._device:
            self.not_covered.append(NotCovered.at(path, reason=Reason.MOUNT_POINT))
            return []
        old = self.known.get(path)
        sign = signature(here)
        unchanged = old is not None and old.signature == sign and settled(sign, self.known_began_ns)
        if old is not None and unchanged and not self.read_all:
            facts = old
            if old.mode != here.st_mode & 0o777:
                facts.mode = here.st_mode & 0o777
        else:
            facts = DirectoryFacts(sign, here.st_mode & 0o777, [], [], [], [], [], False, ())
            self._read(path, facts, old, asked)
        self.facts[path] = facts
        self._report(path, facts)
        if not facts.below:
            return []
        prefix = path + b"/" if path else b""
        return [RelPath(prefix + name) for name in facts.below]

    def _read(
        self,
        path: RelPath,
        facts: DirectoryFacts,
        old: DirectoryFacts | None,
        asked: list[tuple[RelPath, int, DirectoryFacts]],
    ) -> None:
        prefix = path + b"/" if path else b""
        below = frozenset(old.below) if old else frozenset()
        ignored = frozenset(old.ignored) if old else frozenset()
        held = self.held_in(path) if self.known else frozenset()
        try:
            with os.scandir(os.path.join(self.root, path) if path else self.root) as entries:
                for entry in entries:
                    name = entry.name
                    if name.lower() == b".git":
                        _note_git(name, facts)
                        continue
                    kind = _kind(entry)
                    full = RelPath(prefix + name)
                    if name == b".gitignore" and kind == _FILE:
                        facts.rules = _signature_of(entry)
                    elif name == b".gitignore" and kind == _SPECIAL:
                        raise RefusedError(
                            f"{quote(full)} is a pipe, socket or device, on which git would wait for ever",
                            hint="remove it, and try again",
                        )
                    if kind == _DIRECTORY and name in below:
                        facts.below.append(name)
                    elif kind == _FILE and full in held:
                        continue
                    elif name in ignored:
                        facts.ignored.append(name)
                    else:
                        asked.append((full, kind, facts))
        except OSError as error:
            facts.signature = ()
            self._cannot_read(path, error)
        if (old is not None and old.rules != facts.rules) or (old is None and self.known and facts.rules):
            self.rules_moved = True
        self.progress.advance()

    def _settle(self, asked: list[tuple[RelPath, int, DirectoryFacts]]) -> list[RelPath]:
        """Ask git about everything new; returns the directories to walk next."""
        verdict = self.rules.judge([path for path, _, _ in asked])
        front: list[RelPath] = []
        for path, kind, facts in asked:
            name = path.rpartition(b"/")[2]
            if path in verdict.ignored:
                facts.ignored.append(name)
            elif path in verdict.excluded:
                facts.excluded.append(name)
                self.not_covered.append(NotCovered.at(path, reason=Reason.EXCLUDED))
            elif kind == _DIRECTORY:
                facts.below.append(name)
                front.append(path)
            elif kind == _SPECIAL:
                facts.special.append(name)
                self.not_covered.append(_special(path))
            else:
                self.found.append(path)
        return front

    def _report(self, path: RelPath, facts: DirectoryFacts) -> None:
        """Disclose again what an unchanged directory is known to hold."""
        if not (facts.special or facts.excluded or facts.reserved):
            return
        prefix = path + b"/" if path else b""
        for name in facts.special:
            self.not_covered.append(_special(prefix + name))
        for name in facts.excluded:
            self.not_covered.append(NotCovered.at(prefix + name, reason=Reason.EXCLUDED))
        for name in facts.reserved:
            detail = "git cannot hold a component that reads as .git"
            self.not_covered.append(NotCovered.at(prefix + name, reason=Reason.RESERVED_NAME, detail=detail))

    def _cannot_read(self, path: RelPath, error: OSError) -> None:
        if not path:
            raise StorageError(f"cannot read the workspace {quote(self.root)}: {error.strerror}") from error
        self.unreadable.append(path)
        self.not_covered.append(NotCovered.at(path, reason=Reason.UNREADABLE, detail=error.strerror or ""))


def _note_git(name: bytes, facts: DirectoryFacts) -> None:
    if name == b".git":
        facts.repository = True
    else:
        facts.reserved.append(name)


def _kind(entry: os.DirEntry[bytes]) -> int:
    if entry.is_symlink():
        return _FILE
    if entry.is_dir(follow_symlinks=False):
        return _DIRECTORY
    return _FILE if entry.is_file(follow_symlinks=False) else _SPECIAL


def _signature_of(entry: os.DirEntry[bytes]) -> Signature:
    try:
        return signature(entry.stat(follow_symlinks=False))
    except OSError:
        return ()


def _special(path: bytes) -> NotCovered:
    return NotCovered.at(path, reason=Reason.SPECIAL_FILE, detail="a pipe, socket or device")
