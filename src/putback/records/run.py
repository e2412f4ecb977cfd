"""What a run is asked to do, what it may do, and what it broke."""

from __future__ import annotations

import enum

import msgspec


class Discipline(enum.StrEnum):
    """What is recorded of the tree: digests alone, or contents, so that it can be put back."""

    DIGESTS = "digests"
    CONTENTS = "contents"


class Limit(enum.StrEnum):
    """What a run can be limited in."""

    TIME = "time"
    FILES = "files"
    BYTES = "bytes"
    PROTECTED = "protected"
    FAILURE = "failure"
    VERIFICATION = "verification"


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of one run, frozen before the command starts. None and the empty value mean no limit.

    `max_ms` is wall-clock time in milliseconds. `max_files` counts changed paths, directories not among them.
    `max_bytes` is the sum of the sizes of the files that the run created or changed, as they are at its end.
    `protected` has gitignore patterns of paths that must not change. `fail_on_error` makes it a breach if the
    command fails, `verify` is a shell command that has to succeed after it.
    """

    max_ms: int | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    protected: tuple[str, ...] = ()
    fail_on_error: int = 0
    verify: str = ""


class Breach(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """One limit that a run broke: what was allowed, what was measured, and, where it helps, an example."""

    limit: Limit
    allowed: str
    measured: str
    detail: str = ""

    def __str__(self) -> str:
        example = f" ({self.detail})" if self.detail else ""
        return f"{self.limit}: {self.measured}, {self.allowed} allowed{example}"


class EndedBy(enum.StrEnum):
    """How the command ended; unknown where the supervisor was killed before it could see."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


class Survivor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that outlived the command; `fate` is `waited`, `ended` or `left`."""

    pid: int
    command: str
    fate: str


class Exit(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """The end of the command. `code` or `signal` is its status; `duration_ms` is in milliseconds."""

    by: EndedBy
    code: int | None = None
    signal: int | None = None
    duration_ms: int = 0
    survivors: tuple[Survivor, ...] = ()

    @property
    def final(self) -> bool:
        """Whether nothing that the run started was left running when the tree was captured."""
        return self.by is not EndedBy.UNKNOWN and all(process.fate != "left" for process in self.survivors)

    @property
    def status(self) -> int:
        """As a shell has it: the exit code, or 128 and the signal; 255 where nobody knows."""
        if self.code is not None:
            return self.code
        return 255 if self.signal is None else 128 + self.signal


class RunStatus(enum.StrEnum):
    """How a run came out."""

    FINISHED = "finished"
    BREACHED = "breached"
    INTERRUPTED = "interrupted"
