"""What the user has staged at the paths of a turn: read, judged, and its contents brought back.

The index is read as a file, and so neither refreshed nor locked. Contents come out of the user's repository
checked against their ids, and go back into it only where they are missing there. This is the one place that writes
objects of theirs, save the provider that makes work trees; `turns.index_lock` is the one that writes their index.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from putback.errors import IntegrityError, StorageError, UnsupportedPath
from putback.fs.durable import sync_directory
from putback.fs.place import BLOCK, DIRECTORY_FLAGS, READ_FLAGS
from putback.git import user_index
from putback.git.command import Git, failure
from putback.git.index import EXECUTABLE, REGULAR, SYMLINK, DamagedIndex
from putback.git.objects import ObjectReader
from putback.git.user_index import SUBMODULE, Item, UserIndex
from putback.git.user_repo import ANY_CODE, UserRepository
from putback.paths import quote

INDEX = b"index"

_OID_BYTES = {"sha1": 20, "sha256": 32}
_FSCK = "`git fsck` says what is wrong with it"
_FETCH = "this is a partial clone; `git checkout` or `git fetch` brings the content here"


class Fault(enum.StrEnum):
    """Why an exact-path turn does not take a path as the index has it: the closed list."""

    UNMERGED = "unmerged"
    INTENT_TO_ADD = "intent_to_add"
    ASSUME_UNCHANGED = "assume_unchanged"
    SKIP_WORKTREE = "skip_worktree"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    MODE = "mode"
    BELOW_FILE = "below_file"
    BELOW_SYMLINK = "below_symlink"
    BELOW_SUBMODULE = "below_submodule"
    DIRECTORY = "directory"


_OF_ENTRY: tuple[tuple[Fault, Callable[[Item], bool]], ...] = (
    (Fault.UNMERGED, lambda item: item.stage != 0),
    (Fault.INTENT_TO_ADD, lambda item: item.intent_to_add),
    (Fault.ASSUME_UNCHANGED, lambda item: item.assume_unchanged),
    (Fault.SKIP_WORKTREE, lambda item: item.skip_worktree),
    (Fault.SYMLINK, lambda item: item.mode == SYMLINK),
    (Fault.SUBMODULE, lambda item: item.mode == SUBMODULE),
    (Fault.MODE, lambda item: item.mode not in (REGULAR, EXECUTABLE, SYMLINK, SUBMODULE)),
)
_OF_PARENT = {SYMLINK: Fault.BELOW_SYMLINK, SUBMODULE: Fault.BELOW_SUBMODULE}


def faults(index: UserIndex, path: bytes) -> tuple[Fault, ...]:
    """Everything that speaks against the path; nothing where a turn takes it, as present or as absent."""
    items = index.entries_at([path])[path]
    found = [fault for fault, applies in _OF_ENTRY if any(map(applies, items))]
    for other, standing in index.conflicts(path).items():
        above = len(other) < len(path)
        found.append(_OF_PARENT.get(standing[0].mode, Fault.BELOW_FILE) if above else Fault.DIRECTORY)
    return tuple(dict.fromkeys(found))


def judge(index: UserIndex, paths: Iterable[bytes]) -> dict[bytes, Item | None]:
    """The entry of each path at stage 0, None where the index has none.

    Raises UnsupportedPath, which names every path that a turn does not take, each with all its faults.
    """
    chosen = sorted(paths)
    refused = {path: found for path in chosen if (found := faults(index, path))}
    if refused:
        listed = ", ".join(f"{quote(path)} ({', '.join(found)})" for path, found in refused.items())
        raise UnsupportedPath(f"the index has what an exact-path turn does not take: {listed}")
    return {path: items[0] if items else None for path, items in index.entries_at(chosen).items()}


@dataclass(frozen=True, slots=True)
class Blob:
    """A staged content: its id in the user's repository, and its size in bytes."""

    oid: str
    size: int


@dataclass(frozen=True)
class Staged:
    """The index and the objects of a repository. `algorithm` is `sha1` or `sha256`: what makes its ids."""

    repository: UserRepository
    algorithm: str

    @property
    def oid_bytes(self) -> int:
        return _OID_BYTES[self.algorithm]

    def read(self, known: UserIndex | None = None) -> UserIndex:
        """The index as it is now; an empty one where there is no file, `known` where that is what the file holds.

        Raises UnsupportedPath for an index that a turn does not take, a damaged one included, and StorageError.
        """
        directory = open_git_dir(self.repository.git_dir)
        try:
            found = read_index(directory)
        finally:
            os.close(directory)
        if found is None:
            return user_index.empty(self.oid_bytes)
        if known is not None and found[0] == known.data:
            return known
        try:
            return user_index.parse(found[0], self.oid_bytes)
        except DamagedIndex as error:
            raise UnsupportedPath(f"your {error}", hint="`git status` says what git makes of it") from error

    def sizes(self, blobs: Mapping[bytes, str]) -> dict[bytes, int]:
        """The size in bytes of each path's blob, none of them read. Raises IntegrityError naming the path."""
        found = self._lookup(sorted(set(blobs.values())))
        for path, oid in blobs.items():
            if oid not in found:
                raise IntegrityError(f"the staged content of {quote(path)} is missing: {oid}", hint=self._hint())
        return {path: found[oid] for path, oid in blobs.items()}

    def contents(self, blobs: Mapping[bytes, Blob]) -> dict[bytes, bytes]:
        """The content of each path's blob, checked against its id.

        Raises IntegrityError naming the path where it is missing, damaged, or not of the size that was said.
        """
        found: dict[bytes, bytes] = {}
        with self._reader() as reader:
            for path, blob in blobs.items():
                try:
                    found[path] = _read(reader, blob)
                except IntegrityError as error:
                    raise IntegrityError(f"the staged content of {quote(path)}: {error.message}") from error
        return found

    def check_id(self, oid: str, content: bytes) -> None:
        """Raise IntegrityError where the user's repository would give a content another id."""
        if self._oid(content) != oid:
            raise IntegrityError(f"a content to be staged is not {oid}")

    def missing(self, contents: Mapping[str, bytes]) -> tuple[str, ...]:
        """Which of the contents the user's repository lacks; the others were read and found whole.

        Raises IntegrityError where one is damaged there, or a content is not what its id says. Writes nothing.
        """
        for oid, content in contents.items():
            self.check_id(oid, content)
        present = self._lookup(sorted(contents))
        with self._reader() as reader:
            for oid in present:
                _read(reader, Blob(oid, len(contents[oid])))
        missing = tuple(sorted(contents.keys() - present.keys()))
        for oid in missing:
            # git takes a file that it cannot read for no object, and does not write over it either.
            if os.path.lexists(self._objects / oid[:2] / oid[2:]):
                raise IntegrityError(f"object {oid} in your repository is damaged", hint=_FSCK)
        return missing

    def import_blobs(self, contents: Mapping[str, bytes]) -> tuple[str, ...]:
        """Put contents into the user's repository under their ids; says which were missing there.

        They are on disk before the call returns. What was there stays untouched. Raises what `missing` raises,
        before anything is written, and StorageError.
        """
        missing = self.missing(contents)
        if missing:
            git = self._writing()
            for oid in missing:
                self._write(git, oid, contents[oid])
            self._sync(missing)
        return missing

    @property
    def _objects(self) -> Path:
        return Path(os.fsdecode(self.repository.common_dir), "objects")

    def _reader(self) -> ObjectReader:
        return ObjectReader(self.repository.git, self.algorithm, "your repository")

    def _oid(self, content: bytes) -> str:
        head = b"blob %d\0" % len(content)
        return hashlib.new(self.algorithm, head + content, usedforsecurity=False).hexdigest()

    def _lookup(self, oids: Sequence[str]) -> dict[str, int]:
        """The sizes of those blobs that are there."""
        found: dict[str, int] = {}
        while oids:
            given = "".join(f"{oid}\n" for oid in oids).encode()
            answer = self.repository.git.run("cat-file", "--batch-check", given=given, accept=ANY_CODE)
            lines = answer.out.decode("ascii", "replace").splitlines()
            for oid, line in zip(oids, lines, strict=False):
                if line != f"{oid} missing":
                    found[oid] = _size(oid, line)
            # git ends where a partial clone lacks an object and may not fetch it.
            if answer.code and b"could not fetch" not in answer.err:
                raise failure(("cat-file",), answer)
            oids = oids[len(lines) + 1 :] if answer.code else ()
        return found

    def _hint(self) -> str | None:
        asked = ("config", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$")
        answer = self.repository.git.run(*asked, accept=ANY_CODE)
        return None if answer.code else _FETCH

    def _writing(self) -> Git:
        """git as the user has it, as far as that says who may read a new object."""
        git = self.repository.git
        answer = git.with_users_home().run("config", "--get", "core.sharedRepository", accept={0, 1})
        shared = answer.out.decode("utf-8", "replace").strip() or "umask"
        return git.with_users_umask().configured(("core.sharedRepository", shared), ("core.fsyncMethod", "fsync"))

    def _write(self, git: Git, oid: str, content: bytes) -> None:
        answer = git.run("hash-object", "-w", "-t", "blob", "--stdin", given=content)
        if answer.out != oid.encode() + b"\n":
            raise IntegrityError(f"git gave a content another id than {oid}")

    def _sync(self, oids: Iterable[str]) -> None:
        """Make the names of new objects durable: git does that for their contents alone."""
        try:
            for folder in {oid[:2] for oid in oids}:
                sync_directory(self._objects / folder)
            sync_directory(self._objects)
        except OSError as error:
            raise StorageError(f"cannot write to the objects of your repository: {error.strerror}") from error


def open_at(repository: UserRepository) -> Staged:
    """The staged state of a repository, which is asked once what its ids are made with."""
    answer = repository.git.run("rev-parse", "--show-object-format").out.decode("ascii", "replace").strip()
    if answer not in _OID_BYTES:
        raise UnsupportedPath(f"your repository has ids of a kind that is not known: {answer!r}")
    return Staged(repository, answer)


def open_git_dir(git_dir: bytes) -> int:
    """A descriptor of the directory that holds the index. Raises StorageError."""
    try:
        return os.open(git_dir, DIRECTORY_FLAGS)
    except OSError as error:
        raise StorageError(f"cannot open {quote(git_dir)}: {error.strerror}") from error


def read_index(directory: int) -> tuple[bytes, os.stat_result] | None:
    """The bytes of the index file and its stat data; None where there is no file.

    Raises UnsupportedPath where it is no plain file, and StorageError.
    """
    try:
        descriptor = os.open(INDEX, READ_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsupportedPath("the index of your repository is a symbolic link") from error
        raise StorageError(f"cannot read the index of your repository: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnsupportedPath("the index of your repository is not a regular file")
        return _all_of(descriptor, found.st_size), found
    except OSError as error:
        raise StorageError(f"cannot read the index of your repository: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _all_of(descriptor: int, size: int) -> bytes:
    parts = [os.read(descriptor, size + 1)]
    while parts[-1]:
        parts.append(os.read(descriptor, BLOCK))
    return b"".join(parts)


def _size(oid: str, line: str) -> int:
    """What an answer of `cat-file --batch-check` says of the size of a blob."""
    with suppress(ValueError):
        name, kind, size = line.split(" ")
        if (name, kind) == (oid, "blob"):
            return int(size)
    raise IntegrityError(f"object {oid} in your repository is not a blob")


def _read(reader: ObjectReader, blob: Blob) -> bytes:
    """The whole of a blob, of which no more is taken than it should have."""
    parts: list[bytes] = []
    taken = 0
    for block in reader.stream(blob.oid, "blob"):
        taken += len(block)
        if taken > blob.size:
            break
        parts.append(block)
    if taken != blob.size:
        raise IntegrityError(f"object {blob.oid[:12]} is not of {blob.size} bytes, as was said before")
    return b"".join(parts)
