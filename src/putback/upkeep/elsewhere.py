"""Where in the store contents are held: by captures of any workspace, or promised by its private index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from putback.git import refs
from putback.git.index import DamagedIndex, read_index, record_oid
from putback.ops.session import Session
from putback.paths import quote
from putback.store.layout import Store, WorkspacePaths, known_workspaces


def places(opened: Session, contents: frozenset[str]) -> tuple[str, ...]:
    """In words, one path for each of the contents in each workspace that holds it."""
    found: list[str] = []
    for where in known_workspaces(opened.where.store):
        if contents & set(_promised(where)):
            found.append(f"the files of {quote(where.root)} as they are now")
        found += _captured(opened, where, contents)
    return tuple(dict.fromkeys(found))


def set_aside(store: Store) -> tuple[str, ...]:
    """In words, where a repair keeps damaged files of objects, of which nobody knows what they hold."""
    place = store.root / "damaged"
    found = any(place.glob("objects.git/objects/**/*"))
    return (f"perhaps what a repair set aside in {quote(os.fsencode(place))}",) if found else ()


def _captured(opened: Session, where: WorkspacePaths, contents: frozenset[str]) -> Iterator[str]:
    arguments = ("rev-list", "--objects", "--missing=allow-any", f"--glob={refs.PREFIX}/{where.name}/")
    for line in opened.git.run(*arguments).out.split(b"\n"):
        oid, _, name = line.partition(b" ")
        if oid.decode("ascii", "replace") in contents:
            # A path in the tree of a capture begins with what it is there for, files or index.
            yield f"{quote(name.partition(b'/')[2])} of {quote(where.root)}"


def _promised(where: WorkspacePaths) -> Iterator[str]:
    # A damaged one promises nothing: it is made anew out of what is there.
    with suppress(DamagedIndex):
        yield from (record_oid(record).hex() for record in read_index(where.index).values())
