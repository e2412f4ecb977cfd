"""A few objects as loose files: written aside, made durable together, then given their names.

The counterpart of `git.packs` for small captures: a pack of ten objects each would soon be thousands of packs.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from isal import isal_zlib

from putback.fs import modes
from putback.fs.durable import side_by_side, sync_directory, sync_file
from putback.git.objectid import DEFLATE_LEVEL, Kind, deflate, object_header, object_id


class LooseWriter:
    """Collects objects for the directory `objects`; a context manager that discards what was not finished.

    Methods raise OSError.
    """

    def __init__(self, scratch: Path, objects: Path) -> None:
        self._scratch = scratch
        self._objects = objects
        self._parts: dict[bytes, Path] = {}
        self._mode = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._parts

    def compress(self, kind: Kind, data: bytes) -> bytes:
        """The form in which `add` wants a content. May be called from any thread."""
        return deflate(object_header(kind, len(data)) + data)

    def add(self, kind: Kind, oid: bytes, size: int, deflated: bytes) -> None:
        """Add an object in the form that `compress` gives; once if called twice."""
        if oid not in self._parts:
            self._write(oid, [deflated])

    def add_whole(self, kind: Kind, data: bytes) -> str:
        """Add an object by its content, unless it lies there whole already; returns its id in hex."""
        oid = object_id(kind, data)
        if not self._is_whole(oid, object_header(kind, len(data)) + data):
            self.add(kind, oid, len(data), self.compress(kind, data))
        return oid.hex()

    def add_stream(self, kind: Kind, oid: bytes, size: int, blocks: Iterable[bytes]) -> bool:
        """Add an object whose content arrives in blocks; False, and nothing added, if it is not `oid`."""
        if oid in self._parts:
            return True
        digest = sha256(object_header(kind, size))
        stream = isal_zlib.compressobj(DEFLATE_LEVEL)

        def deflated() -> Iterable[bytes]:
            yield stream.compress(object_header(kind, size))
            for block in blocks:
                digest.update(block)
                yield stream.compress(block)
            yield stream.flush()

        self._write(oid, deflated())
        if digest.digest() == oid:
            return True
        self._parts.pop(oid).unlink()
        return False

    def finish(self) -> None:
        """Publish the objects: on disk before the call returns."""
        if not self._parts:
            return
        side_by_side(sync_file, self._parts.values())
        folders: set[Path] = set()
        for oid, part in list(self._parts.items()):
            place = self._place(oid)
            if place.parent not in folders:
                modes.directory(place.parent, scratch=self._scratch)
                folders.add(place.parent)
            part.replace(place)
            del self._parts[oid]
        side_by_side(sync_directory, (*folders, self._objects))

    def abort(self) -> None:
        """Take away whatever has not been published."""
        for part in self._parts.values():
            part.unlink(missing_ok=True)
        self._parts.clear()

    def _is_whole(self, oid: bytes, content: bytes) -> bool:
        try:
            return zlib.decompress(self._place(oid).read_bytes()) == content
        except (OSError, zlib.error):
            return False

    def _place(self, oid: bytes) -> Path:
        name = oid.hex()
        return self._objects / name[:2] / name[2:]

    def _write(self, oid: bytes, blocks: Iterable[bytes]) -> None:
        part = self._scratch / f"object-{oid.hex()}"
        self._parts[oid] = part
        try:
            self._mode = self._mode or modes.of(self._scratch).readonly
            with open(modes.create(part, os.O_WRONLY | os.O_TRUNC, self._mode), "wb") as file:
                for block in blocks:
                    file.write(block)
        except BaseException:
            del self._parts[oid]
            part.unlink(missing_ok=True)
            raise
