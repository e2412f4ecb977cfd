"""The capture after a restore, out of the one before it and what the restore has done: no second scan.

Only where nothing but the steps of the plan can tell the two apart: every step was carried out and read back, and
none of them could change what ignore rules, ceilings or the kinds of other paths say of the tree. What somebody
else changed meanwhile is seen by the next capture, because its stat data are not those in the index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import cast

import msgspec

from putback.git.index import git_mode, make_record
from putback.ops.capture import Capturer
from putback.ops.ignore import IgnoreRules
from putback.ops.intake import Taken
from putback.paths import RelPath
from putback.records.capture import Purpose
from putback.records.change import Kind, Node
from putback.records.document import AtPath
from putback.records.plan import Plan, Step
from putback.store.captures import TreeState

# Files whose content decides what other files are, or which git holds only in some forms.
_TELLING = (b".gitignore", b".gitmodules", b".gitattributes")


class Followed(msgspec.Struct, frozen=True):
    """What is known of a restore: the state before it, the plan, and of each file that it put somewhere the stat
    data from when it was read back."""

    before: TreeState
    made: Plan
    verified: Mapping[RelPath, os.stat_result]


def follow(capturer: Capturer, known: Followed) -> TreeState | None:
    """The state after the restore, stored; None where only a scan can tell. Raises as `Capturer.take` does."""
    last = capturer.last
    if last is None or known.before.record.examined or known.before.files_tree != last.state.files_tree:
        return None
    taken = _changes(capturer, known)
    if taken is None or _are_ignored(last.rules, _new(capturer, known)):
        return None
    standing = None if capturer.repository is None else capturer.repository.standing()
    kept = last.state
    if taken.changes:
        kept.files_tree = capturer.intake.put(kept, taken)
    capturer.keep(kept)
    record = msgspec.structs.replace(
        known.before.record,
        created_ns=time.time_ns(),
        message="",
        purpose=Purpose.AFTER,
        files=kept.files,
        bytes=kept.content_bytes,
        privileged=tuple(AtPath.at(path) for path in sorted(kept.privileged)),
        repository=None if standing is None else standing.result(),
        examined=tuple(AtPath.at(path) for path in sorted(step.raw for step in known.made.steps)),
    )
    return msgspec.structs.replace(
        known.before,
        record=record,
        files_tree=kept.files_tree,
        directories=_directories(known),
        modes=cast("dict[RelPath, int]", kept.modes),
    )


def _changes(capturer: Capturer, known: Followed) -> Taken | None:
    """What the steps make of the index; None where that cannot be told from them."""
    index = capturer.intake.index
    if index is None:
        return None
    ceiling = capturer.settings.capture.max_file_bytes
    device = os.stat(capturer.where.root).st_dev
    taken = Taken()
    for step in known.made.steps:
        path, goal = step.raw, step.goal
        if not _is_plain(step, known):
            return None
        if goal is not None and goal.kind is not Kind.DIRECTORY:
            found = known.verified.get(path)
            mode = None if found is None else git_mode(found.st_mode)
            if found is None or mode is None or found.st_size > ceiling or found.st_dev != device:
                return None
            taken.changes[path] = make_record(found, mode, bytes.fromhex(goal.digest))
            taken.found[path] = found
        elif goal is None and _is_file(step.now):
            if index.record(path) is None:
                return None
            taken.changes[path] = None
    return taken


def _new(capturer: Capturer, known: Followed) -> list[RelPath]:
    """The paths on which ignore rules have not been asked yet."""
    index = capturer.intake.index
    return [
        step.raw
        for step in known.made.steps
        if step.goal is not None
        and step.raw not in known.before.directories
        and (index is None or index.record(step.raw) is None)
    ]


def _is_plain(step: Step, known: Followed) -> bool:
    """Whether the step is about a file or about a directory, and about nothing that tells of other paths."""
    nodes = [node for node in (step.now, step.goal) if node is not None]
    return (
        len({node.kind is Kind.DIRECTORY for node in nodes}) == 1
        and step.raw.rpartition(b"/")[2].lower() not in _TELLING
        and known.before.could_hold(step.raw)
    )


def _is_file(node: Node | None) -> bool:
    return node is not None and node.kind is not Kind.DIRECTORY


def _are_ignored(rules: IgnoreRules, new: list[RelPath]) -> bool:
    """Whether the rules have something to say on any of the paths."""
    verdict = rules.judge(new)
    return bool(verdict.ignored or verdict.excluded)


def _directories(known: Followed) -> dict[RelPath, int]:
    directories = dict(known.before.directories)
    for step in known.made.steps:
        if step.goal is not None and step.goal.kind is Kind.DIRECTORY:
            directories[step.raw] = step.goal.mode
        elif step.now is not None and step.now.kind is Kind.DIRECTORY:
            directories.pop(step.raw, None)
    return directories
