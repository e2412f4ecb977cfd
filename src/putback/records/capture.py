"""The record of one capture: what it covers, what it does not, and where it was taken.

The bulk of a capture is a git tree; this record is the `capture.json` beside it (docs/formats.md). Three lists
that may be long lie in blobs of their own, so that captures share them while they do not change.
"""

from __future__ import annotations

import enum

import msgspec

from putback.paths import RelPath
from putback.records.document import AtPath


class Reason(enum.StrEnum):
    """Why a path is not covered: the closed list."""

    TOO_LARGE = "too_large"
    SPECIAL_FILE = "special_file"
    UNREADABLE = "unreadable"
    CHANGED_WHILE_READ = "changed_while_read"
    OUTSIDE_ROOT = "outside_root"
    EXCLUDED = "excluded"
    MOUNT_POINT = "mount_point"
    RESERVED_NAME = "reserved_name"
    FORGOTTEN = "forgotten"


class NotCovered(AtPath, frozen=True, omit_defaults=True):
    """A path that the capture does not hold. `size` is in bytes, where the reason is about size."""

    reason: Reason
    detail: str = ""
    size: int = 0

    @property
    def raw(self) -> RelPath:
        """The path, which here may be a name that no capture can hold."""
        return RelPath(self.name)


class Repository(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the user's own repository stood: commit id and branch, each empty where there is none."""

    head: str = ""
    branch: str = ""


class Purpose(enum.StrEnum):
    """Why a capture was made."""

    SNAPSHOT = "snapshot"
    SAFETY = "safety"
    BEFORE = "before"
    AFTER = "after"


class Capture(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    tag_field="format",
    tag="putback/capture/v1",
):
    """`capture.json`. `scope` is empty where the capture is of the whole workspace.

    `examined` names paths that were looked at although ignore rules or ceilings leave them out, because a
    restore was about to write there: such a path is held, or was absent. `files` counts regular files and
    symbolic links, `bytes` their content; `ignored` counts the paths that ignore rules leave out, a directory as
    one. `warnings` say what else may be missing, in words. `privileged` names paths whose setuid, setgid or
    sticky bits are not kept. `created_ns` is in nanoseconds since the epoch.
    """

    workspace: str
    root: str
    created_ns: int
    message: str = ""
    purpose: Purpose = Purpose.SNAPSHOT
    scope: tuple[AtPath, ...] = ()
    examined: tuple[AtPath, ...] = ()
    files: int = 0
    bytes: int = 0
    ignored: int = 0
    not_covered: tuple[NotCovered, ...] = ()
    nested_repositories: tuple[AtPath, ...] = ()
    privileged: tuple[AtPath, ...] = ()
    warnings: tuple[str, ...] = ()
    repository: Repository | None = None
    tool: str = ""
