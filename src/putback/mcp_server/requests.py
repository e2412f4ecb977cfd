"""The arguments of the tools: their types, which give the input schemas, and the check of every path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from putback import paths
from putback.errors import UnsafePath, UsageError

MOST_ITEMS, MOST_PATCH_BYTES = 1000, 200_000

Id = Annotated[
    str,
    Meta(
        max_length=200,
        description="@1 for the newest entry, @2 for the one before; or 7 to 64 hex digits of an id",
    ),
]
IdOrRange = Annotated[
    str, Meta(max_length=200, description="An id (see snapshot_list), @n, or a range A..B of two")
]
Paths = Annotated[
    tuple[str, ...],
    Meta(
        max_length=1000, description="Only these files or directories, relative to the workspace's root; no globs"
    ),
]
PathsB64 = Annotated[
    tuple[str, ...],
    Meta(max_length=1000, description="More of `paths`, in base64: for names that came with a path_b64"),
]
Limit = Annotated[int, Meta(ge=1, le=MOST_ITEMS, description="The most items of a list to return")]
Offset = Annotated[int, Meta(ge=0, description="Where the page begins: next_offset of the page before")]
Exact = Annotated[bool, Meta(description="Also remove files that no capture held before (snapshots only)")]
Force = Annotated[bool, Meta(description="Overwrite paths that changed since, too (runs, restores and ranges)")]

Merge = Annotated[
    bool,
    Meta(
        description="Merge text files that changed since, so that what changed is kept; what cannot be merged is "
        "refused (runs, turns, restores and ranges; not with force)"
    ),
]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the arguments of every tool."""


class Create(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of snapshot_create."""

    message: Annotated[str, Meta(max_length=2000, description="What the snapshot is for; empty for the time")] = ""
    paths: Paths = ()
    paths_b64: PathsB64 = ()


class List(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of snapshot_list."""

    limit: Limit = 50
    offset: Offset = 0


class Show(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of snapshot_show."""

    id: Id = "@1"
    limit: Limit = 100
    offset: Offset = 0


class Diff(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of snapshot_diff. `offset` pages the list of changes, `patch_offset` the patch."""

    id: IdOrRange = "@1"
    paths: Paths = ()
    paths_b64: PathsB64 = ()
    patch: Annotated[bool, Meta(description="Return the unified diff, not only the list of changes")] = True
    patch_bytes: Annotated[
        int, Meta(ge=1000, le=MOST_PATCH_BYTES, description="The most bytes of the patch to return")
    ] = 20_000
    patch_offset: Annotated[int, Meta(ge=0, description="next_offset of the piece of the patch before")] = 0
    limit: Limit = 100
    offset: Offset = 0


class Plan(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of snapshot_restore_plan."""

    id: IdOrRange
    paths: Paths = ()
    paths_b64: PathsB64 = ()
    exact: Exact = False
    force: Force = False
    merge: Merge = False
    limit: Limit = 100
    offset: Offset = 0


class Apply(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of snapshot_restore_apply: those of the plan, and its digest."""

    id: IdOrRange
    digest: Annotated[
        str, Meta(pattern="^[0-9a-f]{64}$", description="The digest of the plan that was reviewed, in full")
    ]
    paths: Paths = ()
    paths_b64: PathsB64 = ()
    exact: Exact = False
    force: Force = False
    merge: Merge = False
    limit: Limit = 100


class Status(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """snapshot_status takes no arguments."""


R = TypeVar("R", bound=Request)


def read(arguments: dict[str, Any] | None, kind: type[R]) -> R:
    """The arguments of a call; null is as good as absent. Raises UsageError that names the faulty one."""
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"wrong arguments: {error}") from error


def scope(root: bytes, texts: Iterable[str], encoded: Iterable[str]) -> list[bytes]:
    """The paths of a call, each checked and below `root`. Raises UnsafePath for any that could mean another tree.

    Stricter than the command line, which knows the directory that a user typed in: nothing but a plain relative
    path is taken.
    """
    raw = [_encode(text) for text in texts] + [_decode(text) for text in encoded]
    return [os.path.join(root, paths.parse(path[:-1] if path.endswith(b"/") else path)) for path in raw]


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnsafePath(f"no path in UTF-8: {text!r}") from error


def _decode(text: str) -> bytes:
    try:
        return paths.decode_b64(text)
    except ValueError as error:
        raise UnsafePath(f"no path in base64: {text!r}") from error
