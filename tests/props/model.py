"""What putback should do, said once more and naively, straight from the rules: a tree is a dictionary.

Not shared with the code under test on purpose: ignore rules, captures, restores, undo and redo are written out
again here, slowly and without git.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass, field

from support.trees import Dir, Fifo, File, Link, Tree

Entry = File | object
Before = object | None


def parents(path: bytes) -> list[bytes]:
    """The directories above, nearest first."""
    parts = path.split(b"/")
    return [b"/".join(parts[:cut]) for cut in range(len(parts) - 1, 0, -1)]


def within(path: bytes, tops: frozenset[bytes] | set[bytes]) -> bool:
    return path in tops or any(above in tops for above in parents(path))


def below(path: bytes, tree: Tree) -> list[bytes]:
    return [other for other in tree if other.startswith(path + b"/")]


def ignored(path: bytes, tree: Tree) -> bool:
    """Whether the rules in the tree ignore this path, whose parents are not ignored. The last match wins."""
    name = os.fsdecode(path.rpartition(b"/")[2])
    verdict = False
    for above in [b"", *reversed(parents(path))]:
        rules = tree.get((above + b"/" if above else b"") + b".gitignore")
        if not isinstance(rules, File):
            continue
        relative = os.fsdecode(path[len(above) + 1 if above else 0 :])
        for line in rules.content.decode().splitlines():
            negated, pattern = line.startswith("!"), line.removeprefix("!")
            if pattern.endswith("/"):
                if not isinstance(tree[path], Dir):
                    continue
                pattern = pattern.removesuffix("/")
            subject = relative if "/" in pattern else name
            if fnmatch.fnmatchcase(subject, pattern.removeprefix("/")):
                verdict = not negated
    return verdict


@dataclass(frozen=True)
class Held:
    """A capture: the files and directories it holds, and what it says nothing about."""

    files: Tree
    directories: Tree
    silent: frozenset[bytes]
    scope: frozenset[bytes] = frozenset()

    def in_scope(self, path: bytes) -> bool:
        return not self.scope or within(path, self.scope)

    def could_hold(self, path: bytes) -> bool:
        return self.in_scope(path) and not within(path, self.silent)

    @property
    def nodes(self) -> Tree:
        return {path: entry for path, entry in {**self.files, **self.directories}.items() if self.in_scope(path)}

    @property
    def listing(self) -> Tree:
        """Files, and the directories that hold nothing."""
        every = {**self.files, **self.directories}
        full = {above for path in every for above in parents(path)}
        return {path: entry for path, entry in self.nodes.items() if path not in full or path in self.files}


def capture(tree: Tree, scope: frozenset[bytes] = frozenset(), tracked: frozenset[bytes] = frozenset()) -> Held:
    """Everything in scope except what is ignored and not tracked, and what no capture can hold."""
    out: set[bytes] = set()
    for path in sorted(tree):
        if not within(path, out) and (ignored(path, tree) or isinstance(tree[path], Fifo)):
            out.add(path)
    wanted = {path for path in tracked if isinstance(tree.get(path), File | Link)}
    wanted |= {above for path in wanted for above in parents(path)}
    seen = {path: entry for path, entry in tree.items() if path in wanted or not within(path, out)}
    above = {directory for path in scope for directory in parents(path)}
    chosen = {path: entry for path, entry in seen.items() if not scope or within(path, scope)}
    return Held(
        files={path: entry for path, entry in chosen.items() if not isinstance(entry, Dir)},
        directories={
            path: entry
            for path, entry in seen.items()
            if isinstance(entry, Dir) and (path in chosen or path in above)
        },
        silent=frozenset(out),
        scope=scope,
    )


@dataclass
class Outcome:
    """The tree after a restore, what was done (path to the entry before and after), and what was refused."""

    tree: Tree
    applied: dict[bytes, tuple[Before, Before]] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)


def restore(
    tree: Tree,
    goal: Held,
    known: set[bytes],
    paths: frozenset[bytes] = frozenset(),
    *,
    exact: bool = False,
    tracked: frozenset[bytes] = frozenset(),
) -> Outcome:
    """Put a snapshot back. `known` are all paths that any snapshot ever held."""
    now = capture(tree, tracked=tracked)
    held = {**now.files, **now.directories}
    chosen = {path: entry for path, entry in goal.nodes.items() if not paths or within(path, paths)}
    wants = {path: entry for path, entry in chosen.items() if tree.get(path) != entry}
    refused = {path for path in wants if isinstance(tree.get(path), Fifo)}
    blocked = {path for path in wants if isinstance(tree.get(path), Dir) and not isinstance(wants[path], Dir)}
    refused |= {path for path in blocked if any(other not in held for other in below(path, tree))}
    for path in list(wants):
        for above in parents(path):
            if above not in chosen and not isinstance(tree.get(above), Dir):
                wants.setdefault(above, goal.directories.get(above, Dir()))
                if isinstance(tree.get(above), Fifo):
                    refused.add(above)
    wants = {path: entry for path, entry in wants.items() if not within(path, refused)}
    refused |= {path for path in chosen if within(path, refused) and tree.get(path) != chosen[path]}
    giving_way = blocked - refused
    removals = [
        path
        for path in held
        if path not in goal.nodes
        and path not in wants
        and goal.could_hold(path)
        and (not paths or within(path, paths))
        and (exact or path in known or within(path, giving_way))
    ]
    return carry_out(tree, wants, removals, refused)


def carry_out(tree: Tree, wants: Tree, removals: list[bytes], refused: set[bytes]) -> Outcome:
    result = Outcome(dict(tree), refused=set(refused))
    for path in sorted(removals, reverse=True):
        if not isinstance(tree[path], Dir) or not below(path, result.tree):
            result.applied[path] = (tree[path], None)
            del result.tree[path]
    for path, entry in sorted(wants.items()):
        result.applied[path] = (tree.get(path), entry)
        result.tree[path] = entry
    return result


@dataclass
class Done:
    """A restore in the history, by what it did."""

    applied: dict[bytes, tuple[Before, Before]]


class Complicated(Exception):
    """Drift that changes the shape of the tree; the model has no opinion on it."""


def shift(tree: Tree, applied: dict[bytes, tuple[Before, Before]]) -> Outcome:
    """Take each path from the first entry to the second, where the first is what is there; refuse drift."""
    drifted = {path for path, (old, new) in applied.items() if tree.get(path) not in (old, new)}
    moves = {path: new for path, (old, new) in applied.items() if path not in drifted and tree.get(path) != new}
    if drifted and any(_shapes(*applied[path], tree.get(path)) for path in drifted):
        raise Complicated
    for path, new in moves.items():
        if new is not None and any(not isinstance(tree.get(a), Dir) and a not in moves for a in parents(path)):
            raise Complicated
        gives_way = new is not None and not isinstance(new, Dir) and isinstance(tree.get(path), Dir)
        if gives_way and any(other not in moves or moves[other] is not None for other in below(path, tree)):
            raise Complicated
    wants = {path: new for path, new in moves.items() if new is not None}
    return carry_out(tree, wants, [path for path, new in moves.items() if new is None], drifted)


def _shapes(*entries: Before) -> bool:
    return any(isinstance(entry, Dir | Fifo) for entry in entries)


def reverse(applied: dict[bytes, tuple[Before, Before]]) -> dict[bytes, tuple[Before, Before]]:
    return {path: (new, old) for path, (old, new) in applied.items()}
