"""A history that takes the place of another, and under which ids what was in the old one is kept."""

from __future__ import annotations

from typing import Annotated

import msgspec

from putback.records.document import Strict

Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$(?!\\n)")]


# Names, not paths: a plan that somebody else wrote must not lead out of the folders it is about.
File = Annotated[str, msgspec.Meta(pattern="^[0-9]{10,}-[a-z]+-[0-9a-f]{64}\\.json$(?!\\n)")]
Folder = Annotated[str, msgspec.Meta(pattern="^([A-Za-z0-9_][A-Za-z0-9._-]*-[0-9a-f]{12})?$(?!\\n)")]


class Aliases(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/aliases/v1"):
    """`aliases`: for each id that a capture or an entry once had, the id that is kept in its place."""

    ids: dict[Id, Id]


class Exchange(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/exchange/v1"):
    """The plan of an exchange. Once it is on disk, the exchange is certain.

    `removed` names files of the history that go, `released` captures whose refs do; `aliases` says what is kept
    in their place. With `forgets`, every cache that may promise a purged content goes, too. `moved` is the folder
    of another workspace whose records become this one's, `moved_root_b64` where that was, and `moved_captures`
    those that had a ref.
    """

    removed: tuple[File, ...] = ()
    released: tuple[Id, ...] = ()
    aliases: dict[Id, Id] = msgspec.field(default_factory=dict)
    forgets: bool = False
    moved: Folder = ""
    moved_root_b64: str = ""
    moved_captures: tuple[Id, ...] = ()
