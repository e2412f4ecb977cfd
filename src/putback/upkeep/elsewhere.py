"""Which contents are held by captures, or promised by the private indexes, of any workspace of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from putback.git import refs
from putback.ops.session import Session
from putback.paths import quote
from putback.store.layout import WorkspacePaths, known_workspaces


class Held(msgspec.Struct, frozen=True):
    """Those of the contents that something holds, and where, in words."""

    contents: frozenset[str] = frozenset()
    places: tuple[str, ...] = ()


def find(opened: Session, contents: frozenset[str]) -> Held:
    """Look through the whole store; the caller holds its lock, so that nothing comes or goes meanwhile."""
    asked = ("rev-list", "--objects", "--missing=allow-any", "--no-object-names")
    held = contents & set(_words(opened.git.run(*asked, "--all").out))
    places: list[str] = []
    for where in known_workspaces(opened.where.store):
        promised = contents & {line.split(b" ")[1].decode() for line in _index(opened, where)}
        if promised:
            places.append(f"the files of {quote(where.root)} as they are now")
        held |= promised
        if held:
            places += _named(opened, where, held)
    return Held(frozenset(held), tuple(dict.fromkeys(places)))


def _named(opened: Session, where: WorkspacePaths, held: frozenset[str]) -> Iterator[str]:
    """One path for each of the contents that captures of this workspace hold."""
    arguments = ("rev-list", "--objects", "--missing=allow-any", f"--glob={refs.PREFIX}/{where.name}/")
    for line in opened.git.run(*arguments).out.split(b"\n"):
        oid, _, name = line.partition(b" ")
        if oid.decode("ascii", "replace") in held:
            yield f"{quote(name.partition(b'/')[2])} of {quote(where.root)}"


def _index(opened: Session, where: WorkspacePaths) -> list[bytes]:
    if not where.index.exists():
        return []
    git = opened.git.on(where.store.git_dir, work_tree=os.fsencode(where.folder), index=where.index)
    return [line for line in git.run("ls-files", "-s", "-z").out.split(b"\0") if line]


def _words(out: bytes) -> list[str]:
    return out.decode("ascii", "replace").split()
