"""What the last scan learned, kept so that the next one need not learn it again. A cache: losing it costs time.

It has a checksum, and is bound to the private index by that file's own; where these do not belong together the
state is dropped, and everything in it is found out anew.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
from isal import isal_zlib

from putback.fs.durable import write_cache
from putback.paths import RelPath

Signature = tuple[int, ...]
RACY_NS = 2_000_000_000
_VERSION = 4
_CHECKSUM_BYTES = 4


class DirectoryFacts(msgspec.Struct, array_like=True):
    """What is in a directory besides covered files. `signature` is empty where it must be read again."""

    signature: Signature
    mode: int
    below: list[bytes]
    ignored: list[bytes]
    excluded: list[bytes]
    special: list[bytes]
    reserved: list[bytes]
    repository: bool
    rules: Signature


class ScanState(msgspec.Struct, array_like=True):
    """The whole state. Paths are relative; the root's own facts have the empty path.

    `index_cuts` are those of `git.index_edit`, or empty. Git compares times by the second; `young` has the exact
    signatures of files that could change again within the second in which they were last seen.
    """

    version: int = _VERSION
    index_checksum: bytes = b""
    index_cuts: bytes = b""
    rules_digest: bytes = b""
    began_ns: int = 0
    directories: dict[bytes, DirectoryFacts] = {}
    user_index: Signature = ()
    tracked_ignored: list[bytes] = []
    pending: list[bytes] = []
    young: dict[bytes, Signature] = {}
    modes: dict[bytes, int] = {}
    privileged: dict[bytes, int] = {}
    files: int = 0
    content_bytes: int = 0
    files_tree: str = ""


def load(path: Path, checksum: bytes) -> ScanState | None:
    """The state that belongs to the index with this checksum, or None."""
    try:
        data = _content(path.read_bytes())
        state = None if data is None else msgspec.msgpack.decode(data, type=ScanState)
    except (OSError, msgspec.DecodeError):
        return None
    if state is None:
        return None
    if state.version != _VERSION or state.index_checksum != checksum:
        return None
    return state


def save(path: Path, state: ScanState) -> None:
    """Keep the state. Raises OSError."""
    data = msgspec.msgpack.encode(state)
    write_cache(path, data + _checksum(data))


def is_damaged(path: Path) -> bool:
    """Whether a file is there that `load` would not take, whatever the index is. Raises OSError."""
    try:
        data = _content(path.read_bytes())
        if data is not None:
            msgspec.msgpack.decode(data, type=ScanState)
    except FileNotFoundError:
        return False
    except msgspec.DecodeError:
        return True
    return data is None


def _content(file: bytes) -> bytes | None:
    """What is before the checksum; None where the two do not belong together."""
    data = file[:-_CHECKSUM_BYTES]
    return data if file[-_CHECKSUM_BYTES:] == _checksum(data) else None


def _checksum(data: bytes) -> bytes:
    # A flipped bit would change what the next captures say, modes among it, and no one would notice.
    return isal_zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")


def signature(found: os.stat_result) -> Signature:
    """What changes whenever names in a directory, or the content of a file, change."""
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def file_signature(found: os.stat_result) -> Signature:
    """What changes whenever a file's content, mode or identity does."""
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def is_young(sign: Signature, began_ns: int) -> bool:
    """Whether a file with this signature could still change without git noticing."""
    return sign[3] >= began_ns - RACY_NS


def settled(sign: Signature, began_ns: int) -> bool:
    """Whether a signature taken in a scan that began then can be trusted to change with the next change.

    A change in the same tick of the file system's clock would leave it as it is.
    """
    return len(sign) == 5 and max(sign[2], sign[3]) < began_ns - RACY_NS


def says_more(found: os.stat_result, now_ns: int) -> bool:
    """Whether a file has anything that `remember_file` would note; most have nothing."""
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o7777 not in (0o644, 0o755):
        return True
    return is_young(file_signature(found), now_ns)


def remember_file(kept: ScanState, path: RelPath, found: os.stat_result, now_ns: int) -> None:
    """Note what git's index does not say of a file: exact mode, bits that are not kept, whether it is young."""
    forget_file(kept, path)
    sign = file_signature(found)
    if is_young(sign, now_ns):
        kept.young[path] = sign
    if stat.S_ISLNK(found.st_mode):
        return
    permissions = found.st_mode & 0o777
    if permissions != (0o755 if found.st_mode & 0o100 else 0o644):
        kept.modes[path] = permissions
    if found.st_mode & 0o7000:
        kept.privileged[path] = found.st_mode & 0o7000


def forget_file(kept: ScanState, path: RelPath) -> None:
    """The path is no file of the index any more."""
    kept.modes.pop(path, None)
    kept.privileged.pop(path, None)
    kept.young.pop(path, None)
