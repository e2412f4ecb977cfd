"""How two captures differ, path by path. Git compares the trees; exact modes and directories are compared here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from putback import paths
from putback.errors import IntegrityError, UnsafePath
from putback.git.command import Git
from putback.paths import RelPath
from putback.records.change import LINK_MODE, Change, Kind, Node
from putback.store.captures import View

# The lines that come and go, by file.
Lines = dict[RelPath, tuple[int, int]]

_ABSENT = b"000000"
_USUAL = {b"100644": 0o644, b"100755": 0o755}
_LINK = b"120000"
_HEADER = re.compile(rb"(?:[0-9a-f]{64} [0-9a-f]{64}\n)+")


def changes(
    git: Git, before: View, after: View, *, honest: bool = True, lines: Lines | None = None
) -> list[Change]:
    """Every path whose node differs, in path order, directories included.

    With `honest`, a path that is absent from a capture which could not have held it is no change: absence says
    nothing there. `lines` is given the lines that come and go in each file, where git takes it for text. Raises
    IntegrityError where a stored tree has an entry that no capture may hold.
    """
    nodes = _files(git, before, after, lines)
    for path in _mode_differences(before, after) - nodes.keys():
        nodes[path] = (None, None)
    _fill_modes(git, nodes, before, after)
    for path, pair in _directories(before, after).items():
        old, new = nodes.get(path, (None, None))
        nodes[path] = (old or pair[0], new or pair[1])
    found = [Change(path, old, new) for path, (old, new) in sorted(nodes.items()) if old != new]
    return [change for change in found if _is_change(change, before, after)] if honest else found


def toward(git: Git, now: View, goal: View) -> list[Change]:
    """The changes that would make `now` what `goal` holds, in path order.

    What `goal` could not have held stays. What `now` could not hold appears as absent, whatever is there.
    """
    found = changes(git, now, goal, honest=False)
    return [change for change in found if change.after is not None or goal.could_hold(change.path)]


def _is_change(change: Change, before: View, after: View) -> bool:
    if change.before is None:
        return before.could_hold(change.path)
    return change.after is not None or after.could_hold(change.path)


def listing(git: Git, view: View) -> dict[RelPath, Node]:
    """Every file and link that a capture holds. Raises IntegrityError on an entry that none may hold."""
    out = git.run("ls-tree", "-r", "-z", "--full-tree", view.files_tree).out
    nodes: dict[RelPath, Node] = {}
    for line in out.split(b"\0"):
        if line:
            header, _, name = line.partition(b"\t")
            mode, _, oid = header.split(b" ")
            path = _checked(name)
            node = _node(mode, oid, path, view)
            assert node is not None
            nodes[path] = node
    return nodes


def lookup(git: Git, view: View, wanted: Iterable[RelPath]) -> dict[RelPath, Node]:
    """The nodes of the wanted paths that a capture holds, directories included."""
    asked = set(wanted)
    if not asked:
        return {}
    found = {path: node for path, node in listing(git, view).items() if path in asked}
    for path in asked:
        if path in view.directories:
            found[path] = Node(Kind.DIRECTORY, view.directories[path])
    return found


def added_since(git: Git, base_tree: str, trees: Iterable[str], wanted: set[RelPath]) -> set[RelPath]:
    """Which of the wanted paths, absent from `base_tree`, at least one of the other trees holds as a file."""
    given = "".join(f"{base_tree} {tree}\n" for tree in trees)
    if not given or not wanted:
        return set()
    arguments = ("diff-tree", "--stdin", "-r", "-z", "--name-only", "--diff-filter=A", "--no-renames")
    names = git.run(*arguments, given=given.encode()).out.split(b"\0")
    return wanted & {RelPath(_HEADER.sub(b"", name, count=1)) for name in names}


def essential(found: list[Change]) -> list[Change]:
    """The changes without directories that come or go only because something in them does."""
    implied: set[RelPath] = set()
    for change in found:
        if change.before is None or change.after is None:
            implied.update(paths.parents(change.path))
    return [change for change in found if not (_is_whole_directory(change) and change.path in implied)]


def _is_whole_directory(change: Change) -> bool:
    """Whether a directory appeared or vanished, as against one whose mode changed or that became a file."""
    node = change.after if change.before is None else change.before if change.after is None else None
    return node is not None and node.kind is Kind.DIRECTORY


Pair = tuple[Node | None, Node | None]


def _files(git: Git, before: View, after: View, lines: Lines | None) -> dict[RelPath, Pair]:
    if before.files_tree == after.files_tree:
        return {}
    counted = () if lines is None else ("--numstat", "--no-ext-diff", "--no-textconv")
    arguments = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", *counted)
    fields = git.run(*arguments, before.files_tree, after.files_tree).out.split(b"\0")
    # All raw lines come first, each with its path in a field of its own.
    raw = next((at for at in range(0, len(fields), 2) if not fields[at].startswith(b":")), len(fields))
    if lines is not None:
        for line in filter(None, fields[raw:]):
            added, removed, path = line.split(b"\t", 2)
            if added != b"-":
                lines[_checked(path)] = (int(added), int(removed))
    nodes: dict[RelPath, Pair] = {}
    for header, name in zip(fields[:raw:2], fields[1:raw:2], strict=True):
        old_mode, new_mode, old_id, new_id, _ = header.lstrip(b":").split(b" ")
        path = _checked(name)
        nodes[path] = (_node(old_mode, old_id, path, before), _node(new_mode, new_id, path, after))
    return nodes


def _node(mode: bytes, oid: bytes, path: RelPath, view: View) -> Node | None:
    if mode == _ABSENT:
        return None
    if mode == _LINK:
        return Node(Kind.SYMLINK, LINK_MODE, oid.decode())
    if mode not in _USUAL:
        raise IntegrityError(f"a capture holds {paths.quote(path)} with mode {mode.decode()}, which none may")
    return Node(Kind.FILE, view.modes.get(path, _USUAL[mode]), oid.decode())


def _mode_differences(before: View, after: View) -> set[RelPath]:
    old, new = before.modes, after.modes
    if old is new or old == new:
        return set()
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def _fill_modes(git: Git, nodes: dict[RelPath, Pair], before: View, after: View) -> None:
    """Give the paths of which only the exact mode differs their nodes: same content, same mode to git."""
    bare = [path for path, pair in nodes.items() if pair == (None, None)]
    if not bare:
        return
    old, new = lookup(git, before, bare), lookup(git, after, bare)
    for path in bare:
        nodes[path] = (old.get(path), new.get(path))


def _directories(before: View, after: View) -> Mapping[RelPath, Pair]:
    old, new = before.directories, after.directories
    if old == new:
        return {}
    return {
        path: (_directory(old.get(path)), _directory(new.get(path)))
        for path in old.keys() | new.keys()
        if old.get(path) != new.get(path) and before.in_scope(path) and after.in_scope(path)
    }


def _directory(mode: int | None) -> Node | None:
    return None if mode is None else Node(Kind.DIRECTORY, mode)


def _checked(name: bytes) -> RelPath:
    try:
        return paths.parse(name)
    except UnsafePath as error:
        raise IntegrityError(f"a capture holds an unsafe path: {error.message}; nothing was touched") from error
