"""Relative paths inside a workspace: bytes, checked once at the border.

A `RelPath` is the raw name as the file system has it, components joined by `/`, never empty, never absolute,
with no `.`, `..` or empty component, no NUL, and no component that git reads as `.git`. Whatever has this type
has been checked; `parse` is the only way to make one from outside data.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import NewType

from putback.errors import UnsafePath

RelPath = NewType("RelPath", bytes)

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 4096


def fault(raw: bytes) -> str | None:
    """Why `raw` cannot be a path inside a workspace, or None where it can."""
    if not raw:
        return "empty path"
    if b"\0" in raw:
        return "NUL byte in path"
    if raw.startswith(b"/"):
        return "absolute path"
    if len(raw) > MAX_PATH_BYTES:
        return "path too long"
    for component in raw.split(b"/"):
        if component in (b"", b".", b".."):
            return f"component {os.fsdecode(component)!r} in path"
        if component.lower() == b".git":
            return "component '.git' in path"
        if len(component) > MAX_COMPONENT_BYTES:
            return "component too long"
    return None


def parse(raw: bytes) -> RelPath:
    """Check `raw` and give it the type of a checked path.

    Raises UnsafePath with the reason and the path.
    """
    reason = fault(raw)
    if reason is not None:
        raise UnsafePath(f"{reason}: {quote(raw)}")
    return RelPath(raw)


def from_argument(root: bytes, base: bytes, argument: bytes) -> RelPath | None:
    """The path that a user means by `argument`, typed in the directory `base`, as one below `root`.

    Literal: no globs, no `~`. None stands for the root itself. Symbolic links in the argument are not resolved,
    so a link names itself. Raises UnsafePath where the path lies outside.
    """
    if b"\0" in argument or not argument:
        raise UnsafePath(f"not a path: {quote(argument)}")
    absolute = os.path.normpath(os.path.join(base, argument))
    prefix = root if root.endswith(b"/") else root + b"/"
    if absolute != root and not absolute.startswith(prefix):
        # The workspace itself may have been named through a link.
        above, name = os.path.split(absolute)
        absolute = os.path.join(os.path.realpath(above), name)
        if os.path.realpath(absolute) == root:
            return None
    if absolute == root:
        return None
    if not absolute.startswith(prefix):
        raise UnsafePath(f"outside the workspace: {quote(argument)}", hint=f"the workspace is {quote(root)}")
    return parse(absolute[len(prefix) :])


def parents(path: bytes) -> Iterator[RelPath]:
    """The directories above `path`, nearest first, without the root."""
    cut = path.rfind(b"/")
    while cut > 0:
        path = path[:cut]
        yield RelPath(path)
        cut = path.rfind(b"/")


def within(path: bytes, ancestors: frozenset[RelPath] | set[RelPath] | dict[RelPath, int]) -> bool:
    """Whether `path` is one of `ancestors` or lies below one of them."""
    return path in ancestors or any(parent in ancestors for parent in parents(path))


def text(raw: bytes) -> str:
    """The path as text for a document: exact where the name is UTF-8, escaped where it is not."""
    return raw.decode("utf-8", "backslashreplace")


def is_text(raw: bytes) -> bool:
    """Whether `text(raw)` says everything, so that a document needs no `path_b64`."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def quote(raw: bytes) -> str:
    """The path for a person: in single quotes, with control characters and undecodable bytes escaped."""
    return "'" + printable(raw) + "'"


def printable(raw: bytes) -> str:
    """The path for a person, without quotes: nothing in it can move a terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text(raw))


def encode_b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def decode_b64(encoded: str) -> bytes:
    """Raises ValueError on anything but canonical base64."""
    raw = base64.b64decode(encoded, validate=True)
    if encode_b64(raw) != encoded:
        raise ValueError("base64 with stray bits")
    return raw
