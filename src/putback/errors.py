"""Every error that putback raises on purpose.

    PutbackError
    ├── UsageError            2   the request itself is wrong
    │   ├── MalformedId           not an id, a prefix of one, or @n
    │   ├── UnknownId             well formed, but nothing has it
    │   ├── AmbiguousId           a prefix of several
    │   ├── UnsafePath            outside the workspace, or a name no capture may hold
    │   ├── RootDisagreement      a run's documents do not agree on the tree, or mean another one
    │   ├── CommandNotFound  127  the command to run does not exist
    │   └── NotExecutable    126  it exists, but cannot be run
    ├── FailedError           1   something that was asked for could not be done
    │   ├── StorageError          the operating system refused a read or a write
    │   └── NothingToUndo         the undo list (or the redo list) is empty
    ├── RefusedError         43   refused by policy, before anything was written
    │   ├── OverBudget            a limit, with both numbers
    │   ├── UnsuitableRoot        a directory that is plainly no project
    │   ├── NotOwned              no binding attests that the tree is the caller's
    │   ├── OverlappingClaim      somebody else's claim touches the tree
    │   ├── UnsupportedPath       a path, or an index, that an exact-path turn does not take
    │   ├── OutOfOrder            not the turn, or not the moment, for what was asked
    │   └── Stale                 what was reviewed is not what is there
    ├── UnknownStateError    44   an interrupted restore needs a person
    ├── LockedError          45   another process holds the lock
    ├── IntegrityError       46   the store does not hold what it says it holds
    ├── GitUnavailable       69   git is missing, too old, or does not answer
    └── Cancelled           130   the caller stopped the operation

Each class has a stable `code` for programs and an `exit_code` for the shell. A message says in lower case what
failed first and quotes the path; `hint` is one more line that names the next command.
"""

from __future__ import annotations

from typing import ClassVar


class PutbackError(Exception):
    """The root of the tree: anything that putback reports instead of a result."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PutbackError):
    """The request is wrong whatever the state of the disk: a bad option, a bad id, a path outside."""

    code = "usage"
    exit_code = 2


class MalformedId(UsageError):
    """The text is neither a hexadecimal id of 7 to 64 digits nor `@n`."""

    code = "malformed_id"


class UnknownId(UsageError):
    """The id is well formed but no entry and no capture of this workspace has it."""

    code = "unknown_id"


class AmbiguousId(UsageError):
    """The prefix belongs to more than one entry or capture."""

    code = "ambiguous_id"


class UnsafePath(UsageError):
    """A path that leaves the workspace or that has a component no capture may hold."""

    code = "unsafe_path"


class RootDisagreement(UsageError):
    """The documents of a run name different trees, or another one than this; the user has to say which."""

    code = "root_disagreement"


class CommandNotFound(UsageError):
    """The command to run does not exist. The exit code is the one a shell gives."""

    code = "command_not_found"
    exit_code = 127


class NotExecutable(UsageError):
    """The command to run exists but is no program, or one that we may not run. The exit code is a shell's."""

    code = "not_executable"
    exit_code = 126


class FailedError(PutbackError):
    """Something that was asked for could not be done."""

    code = "failed"
    exit_code = 1


class StorageError(FailedError):
    """The operating system refused a read or a write of the store or of the workspace."""

    code = "storage"


class NothingToUndo(FailedError):
    """No entry is left that undo (or redo) could take."""

    code = "nothing_to_undo"


class RefusedError(PutbackError):
    """Refused by policy; nothing was written."""

    code = "refused"
    exit_code = 43


class OverBudget(RefusedError):
    """A limit would be exceeded. Carries the limit and the measured value, in the limit's own unit."""

    code = "over_budget"

    def __init__(self, message: str, *, key: str, limit: int, measured: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.limit = limit
        self.measured = measured


class UnsuitableRoot(RefusedError):
    """The directory is plainly no project: the home directory, the file system root, a system directory."""

    code = "unsuitable_root"


class NotOwned(RefusedError):
    """No binding attests that the work tree is the caller's: none was made, or it is not the same any more."""

    code = "not_owned"


class OverlappingClaim(RefusedError):
    """Another claim is on the same tree, on one above or below it, or on the same directory under another name."""

    code = "overlapping_claim"


class UnsupportedPath(RefusedError):
    """An exact-path turn does not take the path, or the index: what it could not put back, it does not touch."""

    code = "unsupported_path"


class OutOfOrder(RefusedError):
    """The turn is not the latest, is not sealed, or an earlier one is not; or something is still at work."""

    code = "out_of_order"


class Stale(RefusedError):
    """What was reviewed is not what is there; nothing was touched.

    A plan that would be another one now, or the proposal of a turn, HEAD, the index or a file that is not as the
    end of the turn says.
    """

    code = "stale"


class UnknownStateError(PutbackError):
    """An interrupted restore or turn left something of which nobody has decided yet what it should be."""

    code = "unknown_state"
    exit_code = 44


class LockedError(PutbackError):
    """Another process held the lock for longer than we were willing to wait."""

    code = "locked"
    exit_code = 45


class IntegrityError(PutbackError):
    """The store is damaged, or a record in it names something that no record may name."""

    code = "integrity"
    exit_code = 46


class GitUnavailable(PutbackError):
    """git is missing, older than supported, or did not answer within its time limit."""

    code = "git_unavailable"
    exit_code = 69


class Cancelled(PutbackError):
    """The caller asked for the operation to stop. Nothing half-done has been published."""

    code = "cancelled"
    exit_code = 130
