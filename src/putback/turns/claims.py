"""The claims registry: which work trees belong to whom, for all workspaces of a store.

    claims/gate             flock: shared while a turn is captured or taken back, exclusive while claims change
    claims/<binding id>.json

Whoever holds the gate shared can be sure that no claim comes, goes or changes its state meanwhile. The inventory
is believed as a whole or not at all: one file that is not a claim refuses everything, for it may be the claim that
is in the way. Claims count in every state, and also where their tree has vanished.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from putback.errors import IntegrityError, NotOwned, OverlappingClaim, StorageError
from putback.fs import lock
from putback.fs.durable import sync_directory, write_file
from putback.paths import quote
from putback.progress import Progress
from putback.records import document
from putback.records.turn import Binding, Claim, ClaimState, Directory
from putback.store.layout import Store, durable_directory
from putback.turns.overlap import Mounts, overlap, survey

GATE = "gate"
BIND = "`putback turn bind` says whose it is"

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PART = re.compile(r".+\.[0-9a-f]{8}\.part")
_MOST_BYTES = 1 << 20


def is_id(text: str) -> bool:
    """Whether `text` can be the id of a binding, and so a part of a file's name."""
    return _ID.fullmatch(text) is not None


class Claims:
    """The registry of one store. Making this object touches no disk."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._exclusive = False

    @property
    def folder(self) -> Path:
        return self.store.claims

    @contextmanager
    def gate(self, command: str, *, shared: bool, wait_seconds: float, progress: Progress) -> Iterator[None]:
        """Hold the gate for the length of the block; after a lease, before the workspace's lock, and not twice.

        Makes the store where there is none. Raises LockedError, Cancelled and StorageError.
        """
        self.store.create()
        try:
            durable_directory(self.folder, self.store.modes)
        except OSError as error:
            raise StorageError(f"cannot write the claims: {error.strerror}") from error
        with lock.hold(self.folder / GATE, command, shared, wait_seconds, progress):
            if shared:
                yield
                return
            self._exclusive = True
            try:
                self._sweep()
                yield
            finally:
                self._exclusive = False

    def all(self) -> list[Claim]:
        """Every claim, by binding id. Raises IntegrityError where anything but claims is among them."""
        try:
            # A link in the place of the folder would make another inventory out of it.
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise IntegrityError(f"the claims {str(self.folder)!r} are no directory: {error.strerror}") from error
        try:
            names = sorted(os.listdir(folder))
            found = (self._read(name, folder) for name in names if name != GATE and not _is_part(name, folder))
            return [claim for claim in found if claim is not None]
        finally:
            os.close(folder)

    def get(self, binding_id: str) -> Claim | None:
        """The claim of a binding, or None. Raises IntegrityError as `all` does."""
        return next((claim for claim in self.all() if claim.binding.id == binding_id), None)

    def find(self, binding_id: str) -> Claim:
        """The claim of a binding. Raises NotOwned where there is none, IntegrityError as `all` does."""
        claim = self.get(binding_id)
        if claim is None:
            raise NotOwned(f"nothing is bound as {binding_id!r}", hint=BIND)
        return claim

    def at(self, root: bytes) -> Claim:
        """The claim on the tree whose real path is `root`. Raises NotOwned, and IntegrityError as `all` does."""
        for claim in self.all():
            if claim.binding.root.raw == root:
                return claim
        raise NotOwned(f"no claim says whose {quote(root)} is", hint=BIND)

    def check_free(self, root: Directory | bytes, git_dir: Directory | None, *, but: str | None) -> None:
        """Raise OverlappingClaim where a claim other than `but`'s touches the tree `root`, or has its index.

        `root` is a path where nothing stands there yet.
        """
        mounts = Mounts.here()
        path, identity = (root, None) if isinstance(root, bytes) else (root.raw, root.identity)
        ours = survey(path, identity, git_dir, mounts)
        for claim in self.all():
            peer = claim.binding
            if peer.id == but:
                continue
            how = overlap(ours, survey(peer.root.raw, peer.root.identity, peer.git_dir, mounts))
            if how is not None:
                raise OverlappingClaim(
                    f"{quote(path)} is not free: {peer.id!r} of {quote(peer.owner.encode())} ({claim.state}) "
                    f"holds {quote(peer.root.raw)}, {how}",
                    hint=f"`putback turn release -b {peer.id}`, if it is yours, gives it up",
                )

    def publish(self, binding: Binding) -> Claim:
        """Make a binding known: from here on it owns its tree. Under the exclusive gate.

        Raises OverlappingClaim where another claim touches the tree, or has the same id.
        """
        self._check_exclusive()
        if not is_id(binding.id):
            raise IntegrityError(f"not the id of a binding: {binding.id!r}")
        if self.get(binding.id) is not None:
            raise OverlappingClaim(f"{binding.id!r} is bound already", hint="choose another id with --id")
        self.check_free(binding.root, binding.git_dir, but=None)
        claim = Claim(binding=binding, published_ns=time.time_ns())
        self._write(claim)
        return claim

    def set_state(self, binding_id: str, state: ClaimState) -> Claim:
        """Change what a claim is. Under the exclusive gate. Raises NotOwned where there is none."""
        self._check_exclusive()
        claim = msgspec.structs.replace(self.find(binding_id), state=state)
        self._write(claim)
        return claim

    def remove(self, binding_id: str) -> None:
        """Give a tree up. Under the exclusive gate. Raises NotOwned where there is no claim."""
        self._check_exclusive()
        self.find(binding_id)
        try:
            (self.folder / _file_name(binding_id)).unlink()
            sync_directory(self.folder)
        except OSError as error:
            raise StorageError(f"cannot remove the claim {binding_id!r}: {error.strerror}") from error

    def _check_exclusive(self) -> None:
        if not self._exclusive:
            raise RuntimeError("claims change only while the gate is held exclusively")

    def _write(self, claim: Claim) -> None:
        try:
            write_file(self.folder / _file_name(claim.binding.id), document.encode(claim) + b"\n")
        except OSError as error:
            raise StorageError(f"cannot write the claim {claim.binding.id!r}: {error.strerror}") from error

    def _sweep(self) -> None:
        """Take away what a killed process left half-written: nobody else writes now."""
        for path in self.folder.iterdir():
            if _PART.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()

    def _read(self, name: str, folder: int) -> Claim | None:
        """The claim in a file; None where it was removed since the names were read."""
        what = f"claim {str(self.folder / name)!r}"
        try:
            data = _content(name, folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IntegrityError(f"damaged {what}: {error.strerror}") from error
        if not data.endswith(b"\n"):
            raise IntegrityError(f"damaged {what}: not whole")
        claim = document.decode_canonical(data[:-1], Claim, what)
        if not is_id(claim.binding.id) or name != _file_name(claim.binding.id):
            raise IntegrityError(f"damaged {what}: it is that of {claim.binding.id!r}")
        check_paths(claim.binding)
        return claim


def _content(name: str, folder: int) -> bytes:
    """What a plain file holds, or as much as a claim can have; links are not followed. Raises OSError."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def check_paths(binding: Binding) -> None:
    """Raise IntegrityError where a directory of the binding has no absolute path."""
    for directory in (binding.root, binding.git_dir, binding.common_dir, binding.source):
        if directory is not None:
            _ = directory.raw


def _file_name(binding_id: str) -> str:
    return f"{binding_id}.json"


def _is_part(name: str, folder: int) -> bool:
    """Whether this is what `write_file` leaves where its process is killed."""
    if not _PART.fullmatch(name):
        return False
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True
