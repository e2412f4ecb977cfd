"""What a path is in one capture, and how it differs between two."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from putback.paths import RelPath

PERMISSION_BITS = 0o777
LINK_MODE = 0o777

# Bytes or files: what fits a signed integer of 64 bits.
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Kind(enum.StrEnum):
    """The kinds of path that a capture holds."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """The identity of one path in one capture: two equal nodes are the same on disk.

    `mode` holds permission bits only. `digest` is git's sha256 id of the content (of the link text for a
    symbolic link) in 64 lowercase hex digits; a directory has none.
    """

    kind: Kind
    mode: int
    digest: str = ""

    def __str__(self) -> str:
        short = f" {self.digest[:12]}" if self.digest else ""
        return f"{self.kind} {self.mode:04o}{short}"


class State(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """One path at one instant. `mode` holds permission bits, `size` is in bytes.

    `digest` is git's sha256 id of the content (of the link text for a symbolic link): sha256 over `blob`, a
    space, the size in decimal, NUL and the content, in 64 lowercase hex digits. A directory has none.
    """

    kind: Kind
    mode: int
    size: Size = 0
    digest: str = ""

    @property
    def node(self) -> Node:
        """The state as captures have it: without the size, which the digest commits to."""
        return Node(self.kind, self.mode, self.digest)


class Change(msgspec.Struct, frozen=True):
    """The difference of one path between two captures; None means that the path is absent there."""

    path: RelPath
    before: Node | None
    after: Node | None

    @property
    def status(self) -> str:
        """`created`, `modified` or `deleted`."""
        if self.before is None:
            return "created"
        return "deleted" if self.after is None else "modified"

    def reverse(self) -> Change:
        """The change that takes this one back."""
        return Change(self.path, self.after, self.before)
