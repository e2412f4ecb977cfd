"""The three documents that a run leaves behind, as files of one folder.

What is read is taken as a document that anybody can have written: regular files only, never through a link, within
bounds, in canonical form alone; every fault is kept, and a file that is not there is no fault. What is written is
whole or not there, 0600, and never replaces another content.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from putback.errors import IntegrityError, StorageError
from putback.fs.durable import sync_directory, write_new_file
from putback.records import document
from putback.records.manifest import Manifest
from putback.records.receipt import Receipt
from putback.runs import LEDGER, MANIFEST, RECEIPT, ledger
from putback.runs.faults import Code, Fault, Faults
from putback.runs.ledger import Ledger

# 300,000 files with long names; a receipt lists the paths of a rollback and what is not covered.
MAX_MANIFEST_BYTES = 512 << 20
MAX_RECEIPT_BYTES = 128 << 20
_RUN_ID = re.compile(r"[0-9a-f]{64}")
_HINT = "`putback verify` lists every fault"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Document = TypeVar("Document", Manifest, Receipt)


class Documents(msgspec.Struct, frozen=True):
    """What was found. `faults` has, by file name, what is wrong with each file that is there.

    A document is None where its file is absent (no fault) or was not taken (faults say why).
    """

    manifest: Manifest | None = None
    receipt: Receipt | None = None
    ledger: Ledger | None = None
    faults: dict[str, tuple[Fault, ...]] = {}

    @classmethod
    def of(
        cls, *, manifest: bytes | None = None, receipt: bytes | None = None, ledger: bytes | None = None
    ) -> Documents:
        """The documents in these bytes; None stands for a file that is absent."""
        given = ((MANIFEST, manifest), (RECEIPT, receipt), (LEDGER, ledger))
        return _load({name: io.BytesIO(data) for name, data in given if data is not None}, {})

    def check(self) -> None:
        """Raise IntegrityError where a document is damaged, or where they are not all of one run.

        A change at an unsafe path is no damage: it is that path that is refused, and the others go on.
        """
        for name, faults in sorted(self.faults.items()):
            damage = [fault for fault in faults if fault.code is not Code.BAD_PATH]
            if damage:
                more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
                raise IntegrityError(f"damaged {name}: {damage[0]}{more}; nothing was touched", hint=_HINT)
        for what in self._strangers():
            raise IntegrityError(f"{what}; nothing was touched", hint=_HINT)

    def _strangers(self) -> Iterator[str]:
        """What does not belong to the run that the ledger tells of."""
        ledger, manifest, receipt = self.ledger, self.manifest, self.receipt
        if ledger is None or ledger.started is None:
            return
        run = ledger.started.run
        if not _RUN_ID.fullmatch(run):
            yield "the run's id is not 64 lowercase hexadecimal digits"
        if manifest is not None and manifest.run != run:
            yield "the manifest is that of another run than the ledger"
        if receipt is not None and receipt.session.id != run:
            yield "the receipt is that of another run than the ledger"
        before, ended = ledger.before, ledger.ended
        if manifest is not None and before is not None and before.manifest != document.digest(manifest):
            yield "the manifest is not the one that the ledger names"
        if receipt is not None and ended is not None and ended.receipt != receipt_digest(receipt):
            yield "the receipt is not the one that the ledger names"


class Evidence:
    """The folder of one run, which somebody else makes and removes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / LEDGER
        self.manifest = folder / MANIFEST
        self.receipt = folder / RECEIPT

    def load(self) -> Documents:
        """All that is there, with every fault. Raises nothing of its own: what cannot be read is a fault, too."""
        opened: dict[str, BinaryIO] = {}
        faults: dict[str, Faults] = {}
        try:
            for path in (self.manifest, self.receipt, self.ledger):
                _open(path, opened, faults)
            return _load(opened, faults)
        finally:
            for file in opened.values():
                file.close()

    def write_manifest(self, manifest: Manifest) -> str:
        """Write `manifest.json`, durably; returns its sha256 in lowercase hex.

        Raises IntegrityError where another one is there, and StorageError.
        """
        return self._write(self.manifest, document.encode(manifest))

    def write_receipt(self, receipt: Receipt) -> str:
        """Write `receipt.json`, as `write_manifest` does."""
        return self._write(self.receipt, document.encode(receipt))

    def _write(self, path: Path, data: bytes) -> str:
        limit = MAX_MANIFEST_BYTES if path.name == MANIFEST else MAX_RECEIPT_BYTES
        if len(data) > limit:
            raise StorageError(f"{path.name} would have {len(data)} bytes; readers take {limit}")
        try:
            try:
                write_new_file(path, data, self.folder)
            except FileExistsError:
                if not _holds(path, data):
                    raise IntegrityError(f"another {path.name} is there already: {str(path)!r}") from None
                # Whoever wrote it may have been killed before its name was durable.
                sync_directory(self.folder)
        except OSError as error:
            raise StorageError(f"cannot write {str(path)!r}: {error.strerror}") from error
        return hashlib.sha256(data).hexdigest()


def receipt_digest(receipt: Receipt) -> str:
    """sha256, in lowercase hex, over the canonical receipt without its `ledger` field.

    `run.end` records it; the `ledger` field in turn names the hash of `run.end`.
    """
    parts = msgspec.to_builtins(receipt)
    del parts["ledger"]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def _holds(path: Path, data: bytes) -> bool:
    descriptor = os.open(path, _FLAGS)
    with open(descriptor, "rb") as file:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and file.read(len(data) + 1) == data


def _open(path: Path, opened: dict[str, BinaryIO], faults: dict[str, Faults]) -> None:
    found = Faults()
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return
        code = Code.NOT_REGULAR if error.errno in (errno.ELOOP, errno.ENXIO) else Code.UNREADABLE
        found.add(code, f"cannot be opened: {error.strerror}")
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            opened[path.name] = os.fdopen(descriptor, "rb")
            return
        os.close(descriptor)
        found.add(Code.NOT_REGULAR, "not a regular file")
    faults[path.name] = found


def _load(files: dict[str, BinaryIO], faults: dict[str, Faults]) -> Documents:
    manifest = _decode(files, faults, MANIFEST, Manifest, MAX_MANIFEST_BYTES)
    receipt = _decode(files, faults, RECEIPT, Receipt, MAX_RECEIPT_BYTES)
    whole = None
    if LEDGER in files:
        try:
            whole = ledger.read(files[LEDGER])
        except OSError as error:
            faults.setdefault(LEDGER, Faults()).add(Code.UNREADABLE, f"cannot be read: {error.strerror}")
    found = {name: tuple(each.found) for name, each in faults.items()}
    if whole is not None and whole.faults:
        found[LEDGER] = whole.faults
    return Documents(manifest, receipt, whole, found)


def _decode(
    files: dict[str, BinaryIO], faults: dict[str, Faults], name: str, kind: type[Document], limit: int
) -> Document | None:
    if name not in files:
        return None
    found = Faults()
    try:
        data = files[name].read(limit + 1)
        if len(data) <= limit:
            return document.decode_canonical(data, kind, name)
        found.add(Code.TOO_LARGE, f"larger than {limit} bytes")
    except IntegrityError as error:
        found.add(Code.DAMAGED, error.message)
    except OSError as error:
        found.add(Code.UNREADABLE, f"cannot be read: {error.strerror}")
    faults[name] = found
    return None
