"""The paths of an exact-path turn, as arguments and `--paths-from` name them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from putback.cli.call import Call
from putback.errors import UsageError
from putback.paths import from_argument
from putback.records.turn import Binding

MOST_BYTES = 1 << 20


def paths(here: Call, bound: Binding, given: Iterable[str], file: str | None) -> list[bytes]:
    """The paths relative to the bound root; typed ones are relative to the directory that the user is in.

    Where that is not in the bound work tree, they are relative to its root. Raises UnsafePath for a path outside,
    and UsageError where `file` cannot be read.
    """
    root = bound.root.raw
    start = os.path.realpath(os.fsencode(here.directory))
    base = start if start == root or start.startswith(root + b"/") else root
    raw = [os.fsencode(argument) for argument in given]
    if file is not None:
        raw += listed(file)
    # The root itself stays in as an empty path, which is refused like any other that is no file's.
    return [from_argument(root, base, argument) or b"" for argument in raw]


def listed(file: str) -> list[bytes]:
    """The paths in a file, `-` for standard input: NUL after each where there is a NUL, else one a line.

    Raises UsageError where it cannot be read, or is larger than any list of paths.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(file, "rb") as source:
                data = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read the paths in {file!r}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"the paths in {file!r} are more than {MOST_BYTES} bytes")
    end = b"\0" if b"\0" in data else b"\n"
    return [path for path in data.split(end) if path]
