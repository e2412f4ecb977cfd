"""Which paths some earlier capture held. A restore removes nothing else unless it is asked to be exact."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from putback.errors import IntegrityError
from putback.git.command import Git
from putback.git.objects import ObjectReader
from putback.ops import diff
from putback.paths import RelPath
from putback.store.captures import decode_modes


def held_before(
    git: Git, reader: ObjectReader, capture_ids: Sequence[str], target_tree: str, wanted: set[RelPath]
) -> set[RelPath]:
    """Those of the wanted paths, all absent from the tree `target_tree`, that any of the captures holds.

    A damaged capture holds nothing as far as this question goes.
    """
    if not wanted or not capture_ids:
        return set()
    asked = "".join(f"{oid}:files\n{oid}:directories\n" for oid in capture_ids).encode()
    lines = git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", given=asked).out.splitlines()
    trees = dict.fromkeys(line[5:].decode() for line in lines if line.startswith(b"tree "))
    lists = dict.fromkeys(line[5:].decode() for line in lines if line.startswith(b"blob "))
    found = diff.added_since(git, target_tree, trees, wanted)
    for oid in lists:
        if found >= wanted:
            break
        with suppress(IntegrityError):
            found |= wanted & decode_modes(reader.read(oid, "blob"), oid).keys()
    return found
