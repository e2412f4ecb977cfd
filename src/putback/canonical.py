"""Canonical JSON and the hash chain of a ledger.

Canonical JSON here: UTF-8, keys sorted, no white space, fields at their default left out, and no values but
strings, integers, lists and objects, so that equal records are equal bytes on every machine.
"""

from __future__ import annotations

import hashlib

GENESIS = "putback/genesis/v1"


def digest(data: bytes) -> str:
    """sha256 in 64 lowercase hex digits."""
    return hashlib.sha256(data).hexdigest()


def genesis() -> str:
    """What stands in `prev` of a ledger's first event."""
    return digest(GENESIS.encode())


def link(seq: int, ts: str, kind: str, data: bytes, prev: str) -> tuple[bytes, str]:
    """One event as a line of canonical JSON, without its newline, and the event's hash.

    `data` is canonical JSON already; `ts` and `kind` are ASCII that needs no escape. The hash is sha256 over the
    event without its `hash` field.
    """
    rest = b'"prev":"%s","seq":%d,"ts":"%s","type":"%s"}' % (prev.encode(), seq, ts.encode(), kind.encode())
    own = digest(b'{"data":' + data + b"," + rest)
    return b'{"data":' + data + b',"hash":"' + own.encode() + b'",' + rest, own
