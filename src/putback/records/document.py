"""How records become JSON and back: strictly, deterministically, with paths that need not be UTF-8.

A record about a path carries `path`, and `path_b64` too when the name is not UTF-8; then `path_b64` counts, and
`path` must be the escaped text of it: no record shows one path and means another.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec

from putback import paths
from putback.errors import IntegrityError, UnsafePath
from putback.paths import RelPath


class Strict(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """Base of records that take no field they do not know, and write none that is at its default."""


class AtPath(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of every record about one path."""

    path: str
    path_b64: str = ""

    @classmethod
    def at(cls, raw: bytes, **fields: Any) -> Self:
        """The record for the path `raw` with the other fields as given."""
        encoded = "" if paths.is_text(raw) else paths.encode_b64(raw)
        return cls(path=paths.text(raw), path_b64=encoded, **fields)

    @property
    def raw(self) -> RelPath:
        """The path as bytes, checked. Raises IntegrityError where the document holds an unsafe one."""
        return _checked(self.path, self.path_b64)

    @property
    def name(self) -> bytes:
        """The path as bytes, as the document has it. Raises IntegrityError where it is not even a name."""
        return raw_name(self.path, self.path_b64)


def raw_name(path: str, path_b64: str) -> bytes:
    """What a text and its base64 form mean. Raises IntegrityError where they are no name, or disagree."""
    try:
        raw = paths.decode_b64(path_b64) if path_b64 else path.encode()
    except ValueError as error:
        raise IntegrityError(f"undecodable path in a record: {path!r}") from error
    if path_b64 and (paths.is_text(raw) or paths.text(raw) != path):
        raise IntegrityError(f"path and path_b64 disagree in a record: {path!r}")
    return raw


@lru_cache(maxsize=1 << 14)
def _checked(path: str, path_b64: str) -> RelPath:
    try:
        return paths.parse(raw_name(path, path_b64))
    except UnsafePath as error:
        raise IntegrityError(f"unsafe path in a record: {error.message}") from error


Record = TypeVar("Record", bound=msgspec.Struct)


def encode(record: msgspec.Struct) -> bytes:
    """The record as JSON with sorted keys; equal records give equal bytes."""
    return msgspec.json.encode(record, order="sorted")


def decode(data: bytes, kind: type[Record], what: str) -> Record:
    """The record in `data`. Raises IntegrityError that names `what` and the faulty field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise IntegrityError(f"damaged {what}: {error}") from error


def decode_canonical(data: bytes, kind: type[Record], what: str) -> Record:
    """Like `decode`, but only the one form that `encode` gives is taken."""
    record = decode(data, kind, what)
    if encode(record) != data:
        raise IntegrityError(f"damaged {what}: not in canonical form")
    return record


def digest(record: msgspec.Struct) -> str:
    """sha256 over the encoded record, in lowercase hex."""
    return hashlib.sha256(encode(record)).hexdigest()
