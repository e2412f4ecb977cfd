"""See a tree as an earlier capture would have seen it, whatever has become of the ignore rules since.

A command that edits a `.gitignore` must not thereby hide what it deleted or created, nor make its own what was
there before and only came to light. So the capture after a run holds what the capture before it could have held:
the rules are those of the start, like every other policy of a run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from putback import paths
from putback.errors import StorageError
from putback.fs import modes
from putback.fs.durable import side_by_side, sync_directory, sync_file, write_cache
from putback.fs.place import is_file
from putback.fs.root import Root
from putback.ops.ignore import IgnoreRules
from putback.ops.session import Session
from putback.paths import RelPath
from putback.records.capture import Purpose
from putback.store.captures import TreeState, View

_FILE = b".gitignore"


class Seen(msgspec.Struct, frozen=True):
    """A tree, and the sizes of the files in it that the private index does not list."""

    state: TreeState
    sizes: Mapping[RelPath, int]


def keep_rules(session: Session, held: Iterable[RelPath], folder: Path) -> None:
    """Copy the ignore rules that are in force to `folder`, durably. Raises StorageError."""
    tree = folder / "tree"
    copied = [folder / "excludes"]
    try:
        modes.directory(tree)
        write_cache(copied[0], session.capturer.where.excludes.read_bytes())
        for path in held:
            if path.rpartition(b"/")[2] == _FILE:
                place = tree / os.fsdecode(path)
                modes.directory(place.parent)
                write_cache(place, _content(session.root, path))
                copied.append(place)
        side_by_side(sync_file, copied)
        side_by_side(sync_directory, [Path(name) for name, _, _ in os.walk(folder)])
    except OSError as error:
        raise StorageError(f"cannot write the store: {error.strerror}") from error


def as_before(session: Session, before: View, held: Mapping[RelPath, int], rules: Path) -> Seen:
    """Capture the tree now as `before`, which held the files `held`, would have seen it.

    `rules` is the folder that `keep_rules` filled. Raises what a capture raises.
    """
    state = session.capturer.take(message="", purpose=Purpose.AFTER)
    if state.ignored == before.ignored and state.not_covered == before.not_covered:
        return Seen(state, {})
    now = session.capturer.intake.held()
    entered = {path for path in now if path not in held and not before.could_hold(path)}
    lost = {path for path in held if path not in now and not state.could_hold(path)}
    hidden = set(_hidden(session, before, state, rules))
    found = {path: session.root.look(path) for path in lost | hidden}
    sizes = {path: seen.st_size for path, seen in found.items() if seen is not None and is_file(seen)}
    whole = session.capturer.with_examined(state, sizes, lost | hidden, without=entered)
    record = msgspec.structs.replace(
        whole.record,
        files=whole.record.files + len(sizes) - len(entered),
        bytes=whole.record.bytes + sum(sizes.values()) - sum(map(session.capturer.intake.size, entered)),
    )
    return Seen(msgspec.structs.replace(whole, record=record, ignored=whole.ignored | entered), sizes)


def _hidden(session: Session, before: View, state: View, rules: Path) -> Iterator[RelPath]:
    """What is ignored now and would not have been by the rules of the start."""
    fresh = [path for path in state.ignored if path not in before.ignored]
    if not fresh or _same_rules(session, rules):
        return
    git = session.git.on(
        session.git.git_dir or b"", work_tree=os.fsencode(rules / "tree"), index=rules / "no-index"
    ).configured(("core.excludesFile", str(rules / "excludes")))
    judge = IgnoreRules(git, rules / "excludes", 1 << 62, (), b"")
    level = fresh
    while level:
        inside: list[RelPath] = []
        still = judge.ignored_among(level)
        for path in level:
            if path in still or not before.could_hold(path):
                continue
            yield path
            found = session.root.look(path)
            if found is not None and stat.S_ISDIR(found.st_mode):
                below = (RelPath(path + b"/" + name) for name in session.root.names(path))
                inside += [child for child in below if paths.fault(child) is None]
        level = inside


def _same_rules(session: Session, rules: Path) -> bool:
    """Whether the ignore rules are those that were kept, apart from files that came with new directories."""
    tree = rules / "tree"
    kept = [Path(folder) / name for folder, _, names in os.walk(tree) for name in names]
    files: Sequence[RelPath] = [RelPath(os.fsencode(file.relative_to(tree))) for file in kept]
    now = {path for path in session.capturer.intake.held() if path.rpartition(b"/")[2] == _FILE}
    return (
        set(files) == now
        and all(_content(session.root, path) == file.read_bytes() for path, file in zip(files, kept, strict=True))
        and session.capturer.where.excludes.read_bytes() == (rules / "excludes").read_bytes()
    )


def _content(root: Root, path: RelPath) -> bytes:
    try:
        with open(root.open_file(path), "rb") as file:
            return file.read()
    except OSError:
        # What cannot be read has no rules for git, either.
        return b""
