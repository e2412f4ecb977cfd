"""Which paths some earlier capture held. A restore removes nothing else unless it is asked to be exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from putback.errors import IntegrityError
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.ops import diff
from putback.paths import RelPath
from putback.store.captures import decode_modes

T = TypeVar("T")


def held_before(
    git: Git, reader: ObjectReader, capture_ids: Sequence[str], target_tree: str, wanted: set[RelPath]
) -> set[RelPath]:
    """Those of the wanted paths, all absent from the tree `target_tree`, that any of the captures holds.

    A damaged capture holds nothing as far as this question goes.
    """
    if not wanted or not capture_ids:
        return set()
    lines = _each_alone(lambda ids: _parts(git, ids), capture_ids)
    trees = list(dict.fromkeys(line[5:].decode() for line in lines if line.startswith(b"tree ")))
    lists = dict.fromkeys(line[5:].decode() for line in lines if line.startswith(b"blob "))
    found = set(_each_alone(lambda some: list(diff.added_since(git, target_tree, some, wanted)), trees))
    for oid in lists:
        if found >= wanted:
            break
        with suppress(IntegrityError):
            found |= wanted & decode_modes(reader.read(oid, "blob"), oid).keys()
    return found


def _each_alone(ask: Callable[[Sequence[str]], list[T]], ids: Sequence[str]) -> list[T]:
    """What git answers about all ids together; where it gives up because of one of them, about each by itself."""
    try:
        return ask(ids)
    except IntegrityError:
        answers: list[T] = []
        for oid in ids if len(ids) > 1 else ():
            with suppress(IntegrityError):
                answers += ask([oid])
        return answers


def _parts(git: Git, capture_ids: Sequence[str]) -> list[bytes]:
    """Kind and id of the files and of the list of directories of each capture, one a line."""
    asked = "".join(f"{oid}:files\n{oid}:directories\n" for oid in capture_ids).encode()
    return git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", given=asked).out.splitlines()
