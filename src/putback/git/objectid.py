"""Names of objects, and their compressed form, without starting git.

An object id here is the 32 raw bytes that a repository with object format sha256 gives the object. Nothing
in this module touches the disk; every function may be called from worker threads, and releases the
interpreter while it works on more than a few kilobytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

from isal import isal_zlib

Kind = Literal["blob", "tree", "commit"]

OID_BYTES = 32
# igzip's level 1 is the fastest that still finds matches; higher levels cost more time than space here.
DEFLATE_LEVEL = 1


def object_header(kind: Kind, size: int) -> bytes:
    """The bytes that git hashes in front of a content of `size` bytes."""
    return b"%b %d\0" % (kind.encode(), size)


def object_id(kind: Kind, data: bytes) -> bytes:
    """The raw id of the object with this content."""
    digest = sha256(object_header(kind, len(data)))
    digest.update(data)
    return digest.digest()


def deflate(data: bytes) -> bytes:
    """The zlib stream of a content, as packs hold it."""
    return isal_zlib.compress(data, DEFLATE_LEVEL)
