"""The folder of a run on this machine: its evidence, and what is needed only until the run is closed.

It is filled where nobody looks and moved to its place in one step, when everything that decides about the run is
on disk. So a folder in `runs/` without a receipt is that of a run whose command may have been started.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from putback.errors import IntegrityError, StorageError
from putback.fs import modes
from putback.fs.durable import sync_directory, write_cache, write_file
from putback.paths import RelPath
from putback.records import document
from putback.records.receipt import Receipt
from putback.runs.evidence import Evidence
from putback.store.captures import decode_paths, encode_paths


class RunFolder(Evidence):
    """`rules` has the ignore rules of the start, `draft` the receipt before the ledger's end is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rules = folder / "rules"
        self.draft = folder / "receipt.draft"
        self._process = folder / "process"
        self._ignored = self.rules / "ignored"

    @property
    def id(self) -> str:
        """The id of the run, which is the folder's name."""
        return self.folder.name

    def create(self) -> None:
        """Make the folder. Raises StorageError."""
        try:
            modes.directory(self.folder)
        except OSError as error:
            raise StorageError(f"cannot write {str(self.folder)!r}: {error.strerror}") from error

    def move(self, runs: Path) -> RunFolder:
        """Move the folder below `runs`, durably; files that are open stay open. Raises StorageError."""
        place = runs / self.folder.name
        try:
            if modes.directory(runs):
                sync_directory(runs.parent)
            self.folder.rename(place)
            try:
                sync_directory(runs)
            except OSError:
                place.rename(self.folder)
                raise
        except OSError as error:
            raise StorageError(f"cannot write {str(place)!r}: {error.strerror}") from error
        return RunFolder(place)

    def discard(self, scratch: Path) -> None:
        """Take the folder away, in one step: nothing was run. What is left of it in `scratch` is garbage."""
        doomed = scratch / self.folder.name
        if doomed != self.folder:
            try:
                self.folder.rename(doomed)
            except OSError:
                doomed = self.folder
        shutil.rmtree(doomed, ignore_errors=True)

    def set_aside(self) -> Path:
        """Keep damaged evidence out of the way; returns where. Raises StorageError."""
        place = self.folder.with_name(f"damaged-{self.folder.name}")
        try:
            self.folder.rename(place)
        except OSError as error:
            raise StorageError(f"cannot write {str(place)!r}: {error.strerror}") from error
        return place

    def keep_ignored(self, ignored: Iterable[RelPath]) -> None:
        """Note what ignore rules left out at the start. Raises StorageError."""
        try:
            write_file(self._ignored, encode_paths(ignored))
        except OSError as error:
            raise StorageError(f"cannot write {str(self._ignored)!r}: {error.strerror}") from error

    def read_ignored(self) -> frozenset[RelPath]:
        """What ignore rules left out at the start. Raises IntegrityError."""
        try:
            return decode_paths(self._ignored.read_bytes(), self.id)
        except OSError as error:
            raise IntegrityError(f"the rules of run {self.id[:12]} are missing: {error.strerror}") from error

    def write_process(self, pid: int, started: int) -> None:
        """Note which process the command is, as far as the disk allows: it also bears the mark of the run."""
        with suppress(OSError):
            write_cache(self._process, b"%d %d\n" % (pid, started))

    def read_process(self) -> tuple[int, int] | None:
        """The number of the command's process and when it was started; None where that was not noted."""
        with suppress(OSError, ValueError):
            pid, started = self._process.read_bytes().split()
            return int(pid), int(started)
        return None

    def write_draft(self, receipt: Receipt) -> None:
        """Put the receipt down, durably, before the ledger's end names it. Raises StorageError."""
        try:
            write_file(self.draft, document.encode(receipt))
        except OSError as error:
            raise StorageError(f"cannot write {str(self.draft)!r}: {error.strerror}") from error

    def read_draft(self) -> Receipt:
        """Raises IntegrityError where there is none, or a damaged one."""
        try:
            return document.decode(self.draft.read_bytes(), Receipt, f"receipt {str(self.draft)!r}")
        except OSError as error:
            raise IntegrityError(f"the receipt of an ended run is missing: {str(self.draft)!r}") from error

    def close(self) -> None:
        """Take away what a closed run needs no more."""
        for path in (self.draft, self._process, *self.folder.glob("*.part")):
            with suppress(OSError):
                path.unlink()
        shutil.rmtree(self.rules, ignore_errors=True)

    def tidy(self) -> None:
        """The same for a run that was closed by somebody who was killed just then."""
        if os.path.exists(self.receipt) and (os.path.exists(self.rules) or os.path.exists(self.draft)):
            self.close()
