"""Find contents again that the store has lost: a file that hashes to the same id has the same content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from putback.errors import PutbackError
from putback.fs import lock
from putback.fs.root import Root, store_inside
from putback.git.command import Git
from putback.git.index import DamagedIndex, Entries, read_index, record_oid
from putback.git.loose import LooseWriter
from putback.git.objectid import Kind, object_id
from putback.git.objects import ObjectReader
from putback.git.present import Present
from putback.git.trees import build_trees
from putback.opening import session
from putback.paths import RelPath
from putback.progress import Progress
from putback.records import document
from putback.records.capture import Capture, Purpose
from putback.store import captures
from putback.store.layout import WorkspacePaths
from putback.upkeep import papers
from putback.upkeep.catalog import Upkeep
from putback.upkeep.survey import Survey

_BLOCK = 1 << 20
_LARGEST_ROOT = 1 << 12


class Sources(msgspec.Struct):
    """Where lost contents may still be: paths by the root of their workspace, and trees that can be made anew."""

    paths: dict[bytes, list[RelPath]] = {}
    trees: dict[bytes, bytes] = {}


def sources(found: Survey) -> Sources:
    """What the private indexes know of what is lost, to be asked before they are dropped."""
    made = Sources()
    wanted = {bytes.fromhex(oid) for oid in found.bad}
    if not wanted:
        return made
    lost = [item.raw for damage in found.damage for item in damage.lost if not item.below]
    for where in papers.workspaces(found.store):
        records: Entries = {}
        with suppress(DamagedIndex, OSError):
            records = read_index(where.index)
        named = [RelPath(path) for path, record in records.items() if record_oid(record) in wanted]
        if where.root:
            made.paths[where.root] = list(dict.fromkeys([*named, *lost]))
        with suppress(ValueError):
            made.trees |= {oid: data for oid, data in build_trees(records).objects if oid in wanted}
    return made


def capture_anew(upkeep: Upkeep, bad: Iterable[str]) -> None:
    """Take in all that is in the workspace now, without what the private index knows; no capture comes of it.

    Brings back the contents, the trees and the lists that the present state shares with earlier ones.
    """
    where = upkeep.where
    # Whoever has the lock may be at work with the index that goes.
    with lock.hold(where.lock, "check", False, upkeep.settings.store.lock_wait_seconds, upkeep.progress):
        where.index.unlink(missing_ok=True)
        where.state.unlink(missing_ok=True)
    with suppress(PutbackError), session(where, upkeep.settings, upkeep.progress, "check") as opened:
        now = opened.capturer.take(message="", purpose=Purpose.SAFETY)
        lists = (
            captures.encode_modes(now.directories),
            captures.encode_modes(now.modes),
            captures.encode_paths(now.ignored),
        )
        with LooseWriter(where.scratch, where.store.objects) as writer:
            _add(writer, set(bad), [("blob", data) for data in lists])
            writer.finish()


def refill(where: WorkspacePaths, git: Git, found: Survey, known: Sources, progress: Progress) -> None:
    """Store again what is lost and can be found. The locks are held. Raises OSError."""
    objects = where.store.objects
    held = Present(objects)([bytes.fromhex(oid) for oid in found.bad])
    wanted = {oid for oid in found.bad if bytes.fromhex(oid) not in held}
    if not wanted:
        return
    with LooseWriter(where.scratch, objects) as writer:
        _add(writer, wanted, [("blob", b""), ("tree", b""), *(("tree", data) for data in known.trees.values())])
        for root, names in known.paths.items():
            _search(writer, wanted, root, where, names)
        if wanted:
            progress.start("searching the workspace", None)
            _search(writer, wanted, where.root, where, _all(where.root, progress))
        writer.finish()
    if wanted & found.captures:
        with LooseWriter(where.scratch, objects) as writer:
            _add(writer, wanted, [("commit", data) for data in _commits(git.on(where.store.git_dir))])
            writer.finish()


def _add(writer: LooseWriter, wanted: set[str], objects: Iterable[tuple[Kind, bytes]]) -> None:
    """Store those objects that are wanted, which are wanted no more then."""
    for kind, data in objects:
        oid = object_id(kind, data).hex()
        if oid in wanted:
            writer.add_whole(kind, data)
            wanted.discard(oid)


def _search(
    writer: LooseWriter, wanted: set[str], root: bytes, where: WorkspacePaths, names: Iterable[RelPath]
) -> None:
    """Hash the files at these paths of a workspace, and store those that are wanted."""
    try:
        forbidden = store_inside(Path(os.fsdecode(root)), where.store.root)
        opened = Root(root, forbidden)
    except (OSError, PutbackError):
        return
    with opened:
        for path in names:
            if not wanted:
                return
            with suppress(OSError, PutbackError):
                node = opened.measure(path)
                if node is not None and node.digest in wanted:
                    _add(writer, wanted, [("blob", _content(opened, path))])


def _content(root: Root, path: RelPath) -> bytes:
    try:
        descriptor = root.open_file(path)
    except OSError:
        return root.read_link(path)
    with open(descriptor, "rb") as file:
        return file.read()


def _all(root: bytes, progress: Progress) -> Iterator[RelPath]:
    """Every file of a tree; what is called `.git` is none of ours."""
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name.lower() != b".git"]
        links = [name for name in directories if os.path.islink(os.path.join(folder, name))]
        for name in (*names, *links):
            progress.advance()
            yield RelPath(os.path.relpath(os.path.join(folder, name), root))


def _commits(git: Git) -> Iterator[bytes]:
    """What the commits of all captures would be whose trees are there."""
    asked = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    lines = git.run("cat-file", "--batch-all-objects", asked, accept={*range(-64, 256)}).out.decode().splitlines()
    with ObjectReader(git) as reader:
        for oid, kind, size in (line.split() for line in lines if line.count(" ") == 2):
            if kind == "tree" and int(size) < _LARGEST_ROOT:
                with suppress(PutbackError):
                    parts = captures.entries_of(reader.read(oid, "tree"))
                    if captures.is_whole(parts):
                        record = document.decode(reader.read(parts["capture.json"], "blob"), Capture, "capture")
                        yield captures.commit_of(oid, record)
