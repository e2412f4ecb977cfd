"""Answer questions about captures: what one holds, how two differ, what a restore would aim at."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from putback import paths
from putback.errors import MalformedId, UnsafePath
from putback.git.command import Git
from putback.ops import diff
from putback.ops.restore import Target
from putback.ops.session import Session
from putback.ops.survey import Survey
from putback.ops.undo import span_target
from putback.paths import RelPath, quote
from putback.records.capture import Capture, Purpose
from putback.records.change import Change, Kind, Node
from putback.records.history import Cause, Entry, EntryKind
from putback.records.receipt import Receipt
from putback.store.captures import StoredCapture, View


class Comparison(msgspec.Struct, frozen=True):
    """The difference of two trees. `before` and `after` say in words what they are.

    `patch` is a unified diff in git's form, as bytes, where it was asked for; `stat` has (path, added lines,
    removed lines), with None where a file is binary.
    """

    before: str
    after: str
    changes: list[Change]
    patch: bytes = b""
    stat: tuple[tuple[RelPath, int | None, int | None], ...] = ()


class Shown(msgspec.Struct, frozen=True):
    """One entry of the history (None for a capture without one), its capture's record, and what a span changed.

    A run that kept digests alone has no capture; a run whose evidence is there has a receipt.
    """

    entry: Entry | None
    capture: Capture | None
    comparison: Comparison | None
    receipt: Receipt | None = None


def split_range(asked: str) -> tuple[str, str] | None:
    """The two ends of `A..B`, or None where `asked` is a single id. Raises MalformedId for a missing end."""
    left, dots, right = asked.partition("..")
    if not dots:
        return None
    if not left or not right:
        raise MalformedId(f"malformed range {asked!r}: it needs two ids", hint="example: @2..@1")
    return left, right


def compare(session: Session, asked: str, scope: frozenset[RelPath], *, patch: bool) -> Comparison:
    """What `Workspace.diff` answers."""
    ends = split_range(asked)
    if ends is not None:
        older, newer = (session.captures_of(end)[1] for end in ends)
        return _comparison(session.git, older, newer, _name(older), _name(newer), scope, patch)
    before, after = session.captures_of(asked)
    if before is not None:
        own = _own(session, session.entry(session.resolve(asked)), before, after)
        return _comparison(session.git, before, after, _name(before), _name(after), scope, patch, own)
    now = session.capturer.take(message="", purpose=Purpose.SAFETY)
    survey = Survey(session, now, after)
    survey.look(diff.toward(session.git, now, after), None)
    now = session.capturer.with_examined(now, survey.present, survey.examined)
    found = diff.toward(session.git, now, after)
    return _comparison(session.git, now, after, "the disk now", _name(after), scope, patch, found)


def describe(session: Session, asked: str) -> Shown:
    """What `Workspace.show` answers."""
    full = session.resolve(asked)
    entry = session.entry(full)
    if entry is not None and entry.kind is EntryKind.RUN and not entry.after:
        return Shown(entry, None, None)
    before, after = session.captures_of(full)
    comparison = None
    if before is not None:
        own = _own(session, entry, before, after)
        comparison = _comparison(session.git, before, after, _name(before), _name(after), frozenset(), False, own)
    return Shown(entry, after.record, comparison)


def _own(session: Session, entry: Entry | None, before: StoredCapture, after: StoredCapture) -> list[Change]:
    """The changes of a span; of an agent's turn those that are its own, which are what undo takes back."""
    found = diff.changes(session.git, before, after)
    own = None if entry is None or entry.agent is None else after.touched
    return found if own is None else [change for change in found if change.path in own]


def holdings(session: Session, asked: str, below: RelPath | None) -> dict[RelPath, Node]:
    """What `Workspace.files` answers."""
    _, capture = session.captures_of(asked)
    nodes: dict[RelPath, Node] = dict(diff.listing(session.git, capture))
    filled = {above for path in (*nodes, *capture.directories) for above in paths.parents(path)}
    for path, mode in capture.directories.items():
        if path not in filled and capture.in_scope(path):
            nodes[path] = Node(Kind.DIRECTORY, mode)
    return {path: nodes[path] for path in sorted(nodes) if below is None or paths.within(path, {below})}


def restore_target(session: Session, asked: str, scope: frozenset[RelPath]) -> Target:
    """What `restore ASKED PATH…` aims at. Raises UnsafePath for a path that nothing knows."""
    ends = split_range(asked)
    if ends is not None:
        older, newer = (session.captures_of(end)[1] for end in ends)
        message = f"took back {older.id[:12]}..{newer.id[:12]}"
        target = Target(goal=older, recorded=newer, of=f"{older.id}..{newer.id}", message=message)
    else:
        full = session.resolve(asked)
        entry = session.entry(full)
        if entry is not None and entry.kind is not EntryKind.SNAPSHOT:
            message = f"took back {entry.short_id}: {entry.message}"
            target = span_target(session, entry, Cause.RESTORE, message)
        else:
            goal = session.capture(full)
            title = goal.record.message or str(goal.record.purpose)
            target = Target(goal=goal, recorded=None, of=full, message=f"restored {full[:12]}: {title}")
    _check_scope(session, target, scope)
    return target


def _check_scope(session: Session, target: Target, scope: frozenset[RelPath]) -> None:
    """Refuse a path that neither the captures nor the disk know: most likely a mistyped one."""
    if not scope:
        return
    views: list[View] = [view for view in (target.goal, target.recorded) if view is not None]
    known: set[RelPath] = set()
    for view in views:
        for path in (*diff.listing(session.git, view), *view.directories):
            known.add(path)
            known.update(paths.parents(path))
    for path in sorted(scope):
        if path not in known and session.root.look(path) is None:
            raise UnsafePath(f"neither in the capture nor on disk: {quote(path)}; nothing was touched")


def _name(capture: StoredCapture) -> str:
    title = capture.record.message or str(capture.record.purpose)
    return f"{capture.id[:12]} ({title})"


def _comparison(
    git: Git,
    before: View,
    after: View,
    old: str,
    new: str,
    scope: frozenset[RelPath],
    patch: bool,
    found: list[Change] | None = None,
) -> Comparison:
    found = diff.essential(diff.changes(git, before, after) if found is None else found)
    chosen = [change for change in found if not scope or paths.within(change.path, scope)]
    if not patch:
        return Comparison(old, new, chosen)
    return Comparison(
        old, new, chosen, make_patch(git, before, after, chosen), tuple(_stat(git, before, after, chosen))
    )


_PATCH = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--abbrev=12")
_SECTION = re.compile(rb"^diff --git ", re.MULTILINE)


def make_patch(git: Git, before: View, after: View, chosen: list[Change]) -> bytes:
    """The unified diff of the chosen changes. Git writes it for content; modes and directories are added here."""
    files = [change for change in chosen if _content_differs(change)]
    parts = [_patch_of_files(git, before, after, files)] if files else []
    for change in chosen:
        if change not in files:
            parts.append(_patch_of_mode(change))
    return b"".join(parts)


def _patch_of_files(git: Git, before: View, after: View, files: list[Change]) -> bytes:
    whole = ("-p", before.files_tree, after.files_tree)
    if sum(len(change.path) for change in files) > 100_000:
        wanted = {change.path for change in files}
        return git.run(*_PATCH, *whole).out if wanted else b""
    return git.run(*_PATCH, *whole, "--", *(change.path for change in files)).out


def _patch_of_mode(change: Change) -> bytes:
    name = paths.printable(change.path).encode()
    lines = [b"diff --git a/%s b/%s" % (name, name)]
    old, new = change.before, change.after
    if old is None and new is not None:
        lines.append(b"new directory mode %04o" % new.mode)
    elif new is None and old is not None:
        lines.append(b"deleted directory mode %04o" % old.mode)
    elif old is not None and new is not None:
        lines += [b"old mode %04o" % old.mode, b"new mode %04o" % new.mode]
    return b"\n".join(lines) + b"\n"


def _content_differs(change: Change) -> bool:
    nodes = (change.before, change.after)
    sides = [node for node in nodes if node is not None and node.kind is not Kind.DIRECTORY]
    if not sides:
        return False
    return len(sides) == 1 or sides[0].digest != sides[1].digest or sides[0].kind is not sides[1].kind


def _stat(
    git: Git, before: View, after: View, chosen: list[Change]
) -> Iterable[tuple[RelPath, int | None, int | None]]:
    wanted = {change.path for change in chosen}
    if not any(_content_differs(change) for change in chosen):
        return
    arguments = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
    for line in git.run(*arguments, before.files_tree, after.files_tree).out.split(b"\0"):
        added, _, rest = line.partition(b"\t")
        removed, _, name = rest.partition(b"\t")
        if name in wanted:
            yield RelPath(name), _count(added), _count(removed)


def _count(text: bytes) -> int | None:
    return None if text == b"-" else int(text)
