"""Where everything in the store lies, and how it comes into being: lazily, idempotently, as its record has it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from putback import directories
from putback.config import Permissions
from putback.errors import IntegrityError, StorageError, UsageError
from putback.fs.durable import read_file, sync_directory, write_file, write_new_file
from putback.fs.modes import GROUP, PRIVATE, Modes, directory
from putback.paths import quote
from putback.records import document

FORMAT = "putback/store"
VERSION = 1
# How the names end of records of turns that coding agents have begun and not ended.
OPEN_TURN = ".open"

_MODES: dict[Permissions, Modes] = {"private": PRIVATE, "group": GROUP}
_CONFIG = b"""[core]
\trepositoryformatversion = 1
\tfilemode = true
\tbare = true
[extensions]
\tobjectformat = sha256
[fsck]
\thasDotgit = ignore
"""
_FOLDERS = ("info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/putback")
_ATTRIBUTES = b"* -text -eol -filter -ident -working-tree-encoding !diff !merge !export-ignore\n"


class StoreFile(msgspec.Struct, frozen=True):
    """`store.json`. `permissions` say who may use the store, for good."""

    format: str
    version: int
    permissions: Permissions = "private"


class WorkspaceFile(msgspec.Struct, frozen=True):
    """`workspace.json`: the root as base64 of its real path, its identity, and when we first saw it.

    `former_b64` are the roots at which it was before it was moved here, oldest first, in the same form.
    """

    root_b64: str
    root: str
    device: int
    inode: int
    created_ns: int
    former_b64: tuple[str, ...] = ()

    @property
    def path(self) -> bytes:
        """The root. Raises IntegrityError where the record holds no path."""
        return _decode(self.root_b64)

    @property
    def former(self) -> frozenset[bytes]:
        """The roots at which the workspace was before. Raises IntegrityError as `path` does."""
        return frozenset(map(_decode, self.former_b64))


def _decode(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise IntegrityError(f"no path in a workspace record: {encoded!r}") from error


def default_store() -> Path:
    """The store of this user: `putback` in the platform's directory for user state."""
    return directories.user_state()


def check_place(place: Path, root: Path) -> None:
    """Raise UsageError for a store that would hold the workspace, or lie in a repository of the user's."""
    if place == root or place in root.parents:
        problem = f"the store {quote(os.fsencode(place))} would hold the workspace itself"
    elif any(part.lower() == ".git" for part in place.parts):
        problem = f"the store {quote(os.fsencode(place))} would lie inside a .git"
    else:
        return
    raise UsageError(
        f"{problem}; nothing was written", hint="name another directory with --store or $PUTBACK_STORE"
    )


class Store(msgspec.Struct, frozen=True):
    """The paths of one store. Making this object touches no disk.

    `aside` is another repository to be used in place of the store's own, which it reads but never writes.
    """

    root: Path
    aside: Path | None = None

    @property
    def git_dir(self) -> Path:
        return self.aside or self.root / "objects.git"

    @property
    def objects(self) -> Path:
        return self.git_dir / "objects"

    @property
    def lock(self) -> Path:
        """Held shared by captures, exclusively by reclaiming."""
        return self.root / "lock"

    @property
    def maintenance(self) -> Path:
        """Held exclusively by the one process of automatic retention."""
        return self.root / "maintenance"

    @property
    def upkeep(self) -> Path:
        """Where reclaiming keeps its lock and its temporary files; whatever else lies here is garbage."""
        return self.root / "upkeep"

    @property
    def claims(self) -> Path:
        """Which work trees belong to whom, for all workspaces together."""
        return self.root / "claims"

    @property
    def marker(self) -> Path:
        return self.root / "store.json"

    @property
    def permissions(self) -> Permissions | None:
        """Who may use the store; None where there is none. Raises as `exists` does."""
        found = self._recorded()
        return found.permissions if found else None

    @property
    def modes(self) -> Modes:
        """The modes of what is made in the store's root, which what is made further down follows.

        Also of what is written for a user elsewhere. Raises as `exists` does.
        """
        return _MODES[self.permissions or "private"]

    def exists(self) -> bool:
        """Whether a store was ever made here. Raises IntegrityError where it is one we cannot read."""
        return self._recorded() is not None

    def _recorded(self) -> StoreFile | None:
        try:
            data = read_file(self.marker)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read the store {str(self.root)!r}: {error.strerror}") from error
        found = document.decode(data, StoreFile, f"store marker {str(self.marker)!r}")
        if found.format != FORMAT:
            raise IntegrityError(f"not a putback store: {str(self.root)!r}")
        if found.version > VERSION:
            raise IntegrityError(
                f"the store {str(self.root)!r} has version {found.version}, this putback reads up to {VERSION}",
                hint="install a newer putback, or name another store with --store",
            )
        return found

    def create(self, permissions: Permissions = "private") -> None:
        """Make whatever of the layout is missing. Safe to call on every use, also after a half-made store.

        `permissions` are those of a store that is not there yet.
        """
        try:
            if not self.exists():
                self._begin(permissions)
            modes = self.modes
            directory(self.root / "workspaces", modes)
            directory(self.git_dir, modes)
            for name in _FOLDERS:
                directory(self.git_dir / name)
            files = {"config": _CONFIG, "HEAD": b"ref: refs/heads/unused\n", "info/attributes": _ATTRIBUTES}
            if self.aside is not None:
                files["objects/info/alternates"] = _alternates(Store(self.root).objects)
            for name, content in files.items():
                if not (self.git_dir / name).exists():
                    write_file(self.git_dir / name, content)
        except OSError as error:
            raise StorageError(f"cannot write the store {str(self.root)!r}: {error.strerror}") from error

    def _begin(self, permissions: Permissions) -> None:
        """Record the policy before there is anything that it governs; of two at a time, one decides."""
        modes = _MODES[permissions]
        self.root.parent.mkdir(parents=True, exist_ok=True)
        directory(self.root, modes)
        record = StoreFile(FORMAT, VERSION, permissions)
        _write_once(self.marker, document.encode(record) + b"\n", self.root, modes)

    def workspace(self, root: bytes) -> WorkspacePaths:
        """The paths of the workspace whose real root is `root`."""
        name = re.sub(rb"[^A-Za-z0-9._-]+", b"-", os.path.basename(root))[:40].decode() or "root"
        slug = name.strip(".-").replace("..", "-") or "root"
        return WorkspacePaths(
            self, self.root / "workspaces" / f"{slug}-{hashlib.sha256(root).hexdigest()[:12]}", root
        )


class WorkspacePaths(msgspec.Struct, frozen=True):
    """The paths of one workspace inside the store."""

    store: Store
    folder: Path
    root: bytes

    @property
    def name(self) -> str:
        """The directory's name, which is also the name in refs."""
        return self.folder.name

    @property
    def marker(self) -> Path:
        return self.folder / "workspace.json"

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def state(self) -> Path:
        """What the last scan learned; a cache that may be deleted at any time."""
        return self.folder / "state"

    @property
    def excludes(self) -> Path:
        """The user's ignore files outside the tree, put together for git."""
        return self.folder / "excludes"

    @property
    def turn_excludes(self) -> Path:
        """The same for exact-path turns, which know no excludes of putback's configuration."""
        return self.folder / "turn-excludes"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def history(self) -> Path:
        return self.folder / "history"

    @property
    def journal(self) -> Path:
        """The restore that is under way; where it exists and nobody holds the lock, it was interrupted."""
        return self.folder / "journal"

    @property
    def scratch(self) -> Path:
        """Temporary files of whoever holds the lock; whatever lies here otherwise is garbage."""
        return self.folder / "scratch"

    @property
    def aliases(self) -> Path:
        """Under which id each capture and entry is kept that was rewritten."""
        return self.folder / "aliases"

    @property
    def exchange(self) -> Path:
        """A history on its way to take this one's place; decided where there is a plan in it, else garbage."""
        return self.folder / "exchange"

    @property
    def purge(self) -> Path:
        """The ids of contents that were forgotten, one a line, until they are off the disk."""
        return self.folder / "purge"

    @property
    def runs(self) -> Path:
        """The evidence of supervised runs, one folder each."""
        return self.folder / "runs"

    @property
    def pruning(self) -> Path:
        """What a prune was about to drop; where it exists and nobody holds the lock, the prune was killed."""
        return self.folder / "pruning"

    @property
    def settled(self) -> Path:
        """What automatic retention came to last; a cache that may be deleted at any time."""
        return self.folder / "settled"

    @property
    def agents(self) -> Path:
        """What coding agents have begun in this tree."""
        return self.folder / "agents"

    def open_turns(self) -> list[Path]:
        """The records of turns that coding agents have begun and not ended, by name. Raises OSError."""
        return sorted(self.agents.glob(f"*{OPEN_TURN}")) if self.agents.is_dir() else []

    @property
    def turns(self) -> Path:
        """The bindings of this tree, one folder for each id, and below them their turns."""
        return self.folder / "turns"

    def digests(self) -> WorkspacePaths:
        """Where captures go that keep digests alone: an index of its own, and trees that nothing else refers to.

        The private index promises that each content is stored; this one promises nothing. Its trees lie in a
        repository of their own, which may be deleted at any time.
        """
        folder = self.folder / "digests"
        return WorkspacePaths(Store(self.store.root, folder / "trees.git"), folder, self.root)

    def exists(self) -> bool:
        """Whether this workspace was ever captured into this store."""
        return self.store.exists() and self.marker.exists()

    def prepare(self, permissions: Permissions = "private") -> None:
        """Make what a capture needs and is missing; see `Store.create`."""
        self.store.create(permissions)
        try:
            for folder in (self.folder, self.scratch):
                directory(folder)
            if not self.store.lock.exists():
                # The root may have been there before us, so that its mode says nothing.
                _write_once(self.store.lock, b"", self.scratch, self.store.modes)
        except OSError as error:
            raise StorageError(f"cannot write the store {str(self.folder)!r}: {error.strerror}") from error

    def create(self, created_ns: int, permissions: Permissions = "private") -> None:
        """Make whatever of the layout is missing, see `Store.create`; record the root's identity as it is now."""
        self.prepare(permissions)
        try:
            directory(self.history)
            self._mark(created_ns)
        except OSError as error:
            raise StorageError(f"cannot write the store {str(self.folder)!r}: {error.strerror}") from error

    def identity(self) -> WorkspaceFile | None:
        """What was recorded of the root, or None."""
        try:
            data = read_file(self.marker)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {str(self.marker)!r}: {error.strerror}") from error
        return document.decode(data, WorkspaceFile, f"workspace record {str(self.marker)!r}")

    def _mark(self, created_ns: int) -> None:
        found = os.stat(self.root)
        known = self.identity()
        if known is not None and (known.device, known.inode) == (found.st_dev, found.st_ino):
            return
        record = WorkspaceFile(
            root_b64=base64.b64encode(self.root).decode(),
            root=self.root.decode("utf-8", "backslashreplace"),
            device=found.st_dev,
            inode=found.st_ino,
            created_ns=known.created_ns if known else created_ns,
            former_b64=known.former_b64 if known else (),
        )
        for last in (False, False, True):
            try:
                write_file(self.marker, document.encode(record) + b"\n")
                return
            except FileNotFoundError:
                # We hold no lock yet; whoever does has swept our half-written file away as a leftover.
                if last:
                    raise


def workspaces(store: Store) -> list[WorkspacePaths]:
    """Every workspace of the store, by name, each without its root: that is in its record. Raises StorageError."""
    try:
        with os.scandir(store.root / "workspaces") as found:
            folders = sorted(
                entry.path
                for entry in found
                if entry.is_dir(follow_symlinks=False) and not entry.name.endswith(".part")
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read the store {str(store.root)!r}: {error.strerror}") from error
    return [WorkspacePaths(store, Path(folder), b"") for folder in folders]


def known_workspaces(store: Store) -> list[WorkspacePaths]:
    """The same with their roots; those whose record cannot be read are passed over. Raises StorageError."""
    found: list[WorkspacePaths] = []
    for where in workspaces(store):
        with suppress(IntegrityError, StorageError):
            record = where.identity()
            if record is not None:
                found.append(msgspec.structs.replace(where, root=record.path))
    return found


def durable_directory(path: Path, modes: Modes | None = None) -> None:
    """Make a directory of the store and what is missing above it; each name is on disk before the call returns.

    `modes` are for what lies in the store's root; None: those of the directory above. Raises OSError.
    """
    if path.is_dir():
        return
    durable_directory(path.parent)
    directory(path, modes)
    sync_directory(path.parent)


def _alternates(objects: Path) -> bytes:
    """The line that makes git read another object directory, too; quoted, for it may hold any character."""
    quoted = os.fsencode(objects).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + quoted + b'"\n'


def _write_once(path: Path, data: bytes, scratch: Path, modes: Modes) -> None:
    """Write a file unless somebody was faster, who may then have swept ours away."""
    with suppress(FileExistsError, FileNotFoundError):
        write_new_file(path, data, scratch, modes)
