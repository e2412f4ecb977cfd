"""Answers that fit: pages of long lists, and pieces of long patches. Whatever is left out is said to be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

PAGE_BYTES = 40_000
TEXT_CHARACTERS = 500

T = TypeVar("T")
R = TypeVar("R")


class Page(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True, kw_only=True):
    """Part of a list, from `offset` on. `total` counts the whole list; `next_offset` is where the next page
    begins, and absent on the last one."""

    items: list[T]
    total: int
    truncated: bool
    offset: int = 0
    next_offset: int | None = None


class Patch(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Part of a unified diff, from the byte `offset` on. `total_bytes` and `digest` (sha256, hex) are of the
    whole: pieces belong together where the digest is the same. Bytes that are not UTF-8 are escaped in `text`."""

    text: str
    total_bytes: int
    digest: str
    truncated: bool
    offset: int = 0
    next_offset: int | None = None


def page(items: Sequence[R], make: Callable[[R], T], offset: int, limit: int) -> Page[T]:
    """At most `limit` of `items` as `make` gives them; fewer, but at least one, where names are very long."""
    made: list[T] = []
    size = 0
    for item in items[offset : offset + limit]:
        one = make(item)
        size += len(msgspec.json.encode(one))
        if made and size > PAGE_BYTES:
            break
        made.append(one)
    end = offset + len(made)
    more = end < len(items)
    return Page(
        items=made,
        total=len(items),
        truncated=more or offset > 0,
        offset=offset,
        next_offset=end if more else None,
    )


def piece(patch: bytes, offset: int, limit: int) -> Patch:
    """At most `limit` bytes of a patch, cut after a whole line where one ends in time, else between characters."""
    part = patch[offset : offset + limit]
    more = offset + len(part) < len(patch)
    if more:
        part = part[: part.rfind(b"\n") + 1] or _whole_characters(part, patch[offset + len(part)])
    end = offset + len(part)
    return Patch(
        text=part.decode("utf-8", "backslashreplace"),
        total_bytes=len(patch),
        digest=hashlib.sha256(patch).hexdigest(),
        truncated=more or offset > 0,
        offset=offset,
        next_offset=end if more else None,
    )


def brief(text: str) -> str:
    """Text that others wrote, cut to a length that an answer can bear."""
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"


def _whole_characters(part: bytes, following: int) -> bytes:
    """`part` without a UTF-8 sequence that goes on in the byte `following`, as far as there can be one."""
    for back in range(min(4, len(part))):
        if following & 0xC0 != 0x80:
            return part[: len(part) - back]
        following = part[-1 - back]
    return part
