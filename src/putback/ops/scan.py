"""Find out what changed in a workspace since the private index was last written. Reads no content.

Two searches run side by side: git compares the stat data of every known file, and the walk looks for everything
that git does not know. The result names candidates; `ops.capture` decides what becomes of each.
"""

from __future__ import annotations

import os
import stat
import time
from functools import cached_property

import msgspec

from putback.errors import IntegrityError, StorageError
from putback.fs.filesystem import reliable_directory_times
from putback.git.command import MODIFIED, Git, Pending, Result
from putback.git.index import record_size, same_stat
from putback.git.user_repo import UserRepository, split_paths
from putback.ops import ignore, state
from putback.ops.ignore import IgnoreRules
from putback.ops.intake import Intake
from putback.ops.state import DirectoryFacts, ScanState, Signature, remember_file, settled, signature
from putback.ops.walk import Walk
from putback.paths import RelPath, fault, parents, within
from putback.progress import Progress
from putback.records.capture import NotCovered, Reason
from putback.store.layout import WorkspacePaths

# To ask for so many paths, all are taken out of the index at once.
MANY = 1_000

_HARMLESS = (FileNotFoundError, NotADirectoryError)


class Scan(msgspec.Struct):
    """What a scan found. Paths may be gone again by the time anybody looks.

    `changed` are files in the index that look different now, `new` are files that are not in it, `left` are
    files in it that are out of scope now. `settled` is the state to keep, once the candidates are dealt with.
    """

    changed: set[RelPath]
    new: list[RelPath]
    left: list[RelPath]
    directories: dict[RelPath, int]
    ignored: frozenset[RelPath]
    not_covered: list[NotCovered]
    warnings: tuple[str, ...]
    nested: list[RelPath]
    state: ScanState
    rules: IgnoreRules
    fresh: bool


class Scanner(msgspec.Struct, dict=True):
    """One scan of one workspace. `intake` knows the private index, and what the last scan learned.

    `git` is bound to the private repository, the work tree and the private index.
    """

    where: WorkspacePaths
    git: Git
    intake: Intake
    repository: UserRepository | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    progress: Progress

    def run(self, early: Pending | None = None) -> Scan:
        """`early` is the answer to the question MODIFIED, where it was asked already, under the same lock.

        Raises StorageError where the root or an ignore file cannot be read, IntegrityError on a bad index."""
        self._pending = [early or self.git.background(*MODIFIED)]
        try:
            return self._run(self._pending[0])
        finally:
            for question in self._pending:
                question.abandon()

    def _run(self, modified: Pending) -> Scan:
        began = time.time_ns()
        kept = self.intake.load_state()
        last = kept if kept is not None else ScanState()
        rules = ignore.gather(self.git, self.where.excludes, self.repository, self.include, self.exclude)
        same_rules = last.rules_digest == rules.digest and self._rules_stand(last)
        user_index, asked = self._ask_tracked(same_rules, last)
        walk = self._walk(rules, last if same_rules else ScanState())
        if walk.rules_moved:
            same_rules = False
            walk = self._walk(rules, ScanState())
        if asked is None and not same_rules and self.repository is not None:
            asked = self._ask(self.repository)
        tracked, warnings = self._tracked(rules, asked, last)
        wanted = tracked | rules.included()
        known = walk.known
        found = Scan(
            changed=_changed(modified.result()) | self._young(last, began),
            new=self._new(walk, last if known else ScanState(), wanted),
            left=self._left(walk, known, last, wanted),
            directories=self._directories(walk, wanted),
            ignored=_ignored(walk.facts) - wanted,
            not_covered=walk.not_covered,
            warnings=warnings,
            nested=[RelPath(path) for path, facts in walk.facts.items() if facts.repository and path],
            state=last,
            rules=rules,
            fresh=kept is None,
        )
        self._distrust(modified.result(), walk, found)
        last.rules_digest, last.began_ns, last.directories = rules.digest, began, walk.facts
        # What git could not tell is to be asked again, however old the user's index is by then.
        last.user_index, last.tracked_ignored = () if warnings else user_index, sorted(wanted)
        return found

    @cached_property
    def held(self) -> set[RelPath]:
        """All paths in the private index."""
        return self.intake.held()

    def _young(self, last: ScanState, began_ns: int) -> set[RelPath]:
        """Files that changed within the second in which they were last seen; those that are old now are let go."""
        changed: set[RelPath] = set()
        young: dict[bytes, Signature] = {}
        for path, sign in last.young.items():
            try:
                now = state.file_signature(os.lstat(os.path.join(self.where.root, path)))
            except OSError:
                now = ()
            if now != sign:
                changed.add(RelPath(path))
            elif state.is_young(sign, began_ns):
                young[path] = sign
        last.young = young
        return changed

    def _walk(self, rules: IgnoreRules, last: ScanState) -> Walk:
        try:
            ours = os.stat(self.where.store.root)
            identity = (ours.st_dev, ours.st_ino)
        except OSError:
            identity = None
        walk = Walk(
            root=self.where.root,
            rules=rules,
            known=last.directories,
            known_began_ns=last.began_ns,
            held_in=self.intake.held_in,
            store_identity=identity,
            read_all=not reliable_directory_times(self.where.root),
            progress=self.progress,
        )
        self.progress.start("looking", None)
        walk.run()
        self.progress.finish()
        return walk

    def _rules_stand(self, last: ScanState) -> bool:
        """Whether every known `.gitignore` is as it was."""
        for path, facts in last.directories.items():
            if facts.rules:
                file = os.path.join(self.where.root, path, b".gitignore")
                if _signature(file) != facts.rules or not settled(facts.rules, last.began_ns):
                    return False
        return True

    def _ask_tracked(self, same_rules: bool, last: ScanState) -> tuple[Signature, Pending | None]:
        """The user's index as it is, and git's answer on the way where the last one may not hold any more."""
        if self.repository is None:
            return (), None
        current = _signature(self.repository.index)
        if same_rules and current == last.user_index and (not current or settled(current, last.began_ns)):
            return current, None
        return current, self._ask(self.repository)

    def _ask(self, repository: UserRepository) -> Pending | None:
        return (
            None
            if repository.is_sparse()
            else repository.tracked_but_ignored(self.where.excludes, self.where.scratch)
        )

    def _tracked(
        self, rules: IgnoreRules, asked: Pending | None, last: ScanState
    ) -> tuple[set[RelPath], tuple[str, ...]]:
        """The files that the user tracks although rules ignore them; as last known where git cannot tell now."""
        known = set(map(RelPath, last.tracked_ignored))
        try:
            if self.repository is not None and self.repository.is_sparse():
                return rules.ignored_among(self.repository.tracked()), ()
            if asked is None:
                return known, ()
            return _tracked(asked.result()), ()
        except (IntegrityError, StorageError) as error:
            return known, (f"your repository's index cannot be read, so tracked files may be missing: {error}",)

    def _new(self, walk: Walk, last: ScanState, wanted: set[RelPath]) -> list[RelPath]:
        """Files that the index lacks: found by the walk, left over from last time, or wanted though ignored."""
        candidates = {*walk.found, *map(RelPath, last.pending), *wanted}
        if not candidates:
            return []
        holds = self.intake.holds if len(candidates) < MANY else self.held.__contains__
        return sorted(path for path in candidates if not holds(path) and fault(path) is None)

    def _left(
        self, walk: Walk, known: dict[bytes, DirectoryFacts], last: ScanState, wanted: set[RelPath]
    ) -> list[RelPath]:
        """Files in the index that are out of scope now."""
        if known:
            gone = {RelPath(path) for path in last.tracked_ignored} - wanted
            return sorted(filter(self.intake.holds, gone))
        found = {*walk.found, *wanted}
        out = _ignored(walk.facts) | frozenset(
            item.raw for item in walk.not_covered if item.reason is Reason.EXCLUDED
        )
        return sorted(path for path in self.held if path not in found and within(path, out))

    def _directories(self, walk: Walk, wanted: set[RelPath]) -> dict[RelPath, int]:
        """Every directory in scope, also those that only a wanted file brings in."""
        directories = {RelPath(path): facts.mode for path, facts in walk.facts.items() if path}
        for path in wanted:
            if not _is_there(os.path.join(self.where.root, path)):
                continue
            for above in parents(path):
                if above not in directories:
                    mode = _mode(os.path.join(self.where.root, above))
                    if mode is not None:
                        directories[above] = mode
        return directories

    def _distrust(self, answer: Result, walk: Walk, found: Scan) -> None:
        """Where git could not look at a file, or a directory hides its files, look at each of them ourselves."""
        if not answer.err and not walk.unreadable:
            return
        hidden = set(walk.unreadable)
        for path in self.held:
            if path not in found.changed and (answer.err or within(path, hidden)):
                try:
                    os.lstat(os.path.join(self.where.root, path))
                except _HARMLESS:
                    continue
                except OSError:
                    found.changed.add(path)


def rebuild(where: WorkspacePaths, kept: ScanState, records: dict[RelPath, bytes]) -> set[RelPath]:
    """Fill in what a lost state said of the files in the index; returns those that look different now."""
    kept.files, kept.content_bytes = len(records), sum(map(record_size, records.values()))
    now_ns = time.time_ns()
    changed: set[RelPath] = set()
    for path, record in records.items():
        try:
            found = os.lstat(os.path.join(where.root, path))
        except OSError:
            continue
        remember_file(kept, path, found, now_ns)
        if not same_stat(record, found):
            changed.add(path)
    return changed


def _tracked(answer: Result) -> set[RelPath]:
    return {path for path in split_paths(answer.out) if fault(path) is None}


def _changed(answer: Result) -> set[RelPath]:
    """The paths in `diff-files --name-only -z` output."""
    return set(split_paths(answer.out))


def _ignored(facts: dict[bytes, DirectoryFacts]) -> frozenset[RelPath]:
    return frozenset(
        RelPath(path + b"/" + name if path else name) for path, here in facts.items() for name in here.ignored
    )


def _signature(path: bytes) -> Signature:
    try:
        return signature(os.lstat(path))
    except OSError:
        return ()


def _is_there(path: bytes) -> bool:
    """Whether a file or link stands there, and not a directory in its place."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _mode(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode & 0o777
    except OSError:
        return None
