"""Where a workspace without a history may have been before: what a person is told, and nothing is done about."""

from __future__ import annotations

import os

from putback.errors import IntegrityError, StorageError
from putback.store.history import History
from putback.store.layout import WorkspaceFile, WorkspacePaths, known_workspaces


def candidates(where: WorkspacePaths) -> list[bytes]:
    """The roots of vanished workspaces which the directory at `where` may have been, the likeliest first.

    First those that were this very directory, by device and inode; then those of the same name, the newest first.
    A root that is still there as the directory that was captured is none: what looks like it is a copy.
    """
    here = os.lstat(where.root)
    found: list[tuple[bool, int, bytes]] = []
    for other in known_workspaces(where.store):
        try:
            record, names = other.identity(), History(other.history).names()
        except (IntegrityError, StorageError):
            continue
        if record is None or not names or other.name == where.name or is_there(record):
            continue
        same = (record.device, record.inode) == (here.st_dev, here.st_ino)
        namesake = os.path.basename(other.root) == os.path.basename(where.root)
        if same or (namesake and not os.path.lexists(other.root)):
            found.append((not same, -record.created_ns, other.root))
    return [root for _, _, root in sorted(found)]


def is_there(record: WorkspaceFile) -> bool:
    """Whether the directory that was captured still stands at its path; a symbolic link there is not it.

    Raises IntegrityError for a record without a path.
    """
    try:
        found = os.lstat(record.path)
    except OSError:
        return False
    same = (found.st_dev, found.st_ino) == (record.device, record.inode)
    return same and os.path.realpath(record.path) == record.path
