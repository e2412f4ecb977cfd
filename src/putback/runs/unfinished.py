"""Runs without a receipt: under way, or left by a supervisor that came to no end. Reads only."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from putback.errors import LockedError, PutbackError, UnknownStateError
from putback.paths import printable
from putback.records.ledger import RunStarted
from putback.runs import LEDGER, MANIFEST
from putback.runs.at_work import at_work
from putback.runs.evidence import Documents
from putback.runs.faults import Code
from putback.runs.folder import RunFolder
from putback.runs.processes import Process
from putback.store.layout import WorkspacePaths

_ID = re.compile(r"[0-9a-f]{64}")


class Unfinished(msgspec.Struct, frozen=True):
    """A run without a receipt. `alive` is true where its supervisor is still at work.

    Where it is not, `processes` are those of the command that go on all the same, and `fault` says what is wrong
    with the evidence, if anything is; `started` is None only then.
    """

    evidence: RunFolder
    started: RunStarted | None
    alive: bool
    began: str = ""
    processes: tuple[Process, ...] = ()
    fault: str = ""

    @property
    def id(self) -> str:
        return self.evidence.id

    @property
    def command(self) -> tuple[str, ...]:
        """What was run; empty where the evidence does not tell any more."""
        return () if self.started is None else self.started.command

    def not_over(self) -> PutbackError:
        """The error for whoever wants what only a run that is closed has."""
        name, command = (
            f"run {self.id[:12]}",
            printable(" ".join(self.command).encode("utf-8", "backslashreplace")),
        )
        if self.alive:
            return LockedError(f"{name} is under way: {command}", hint="wait for it to end")
        return UnknownStateError(
            f"{name} was interrupted and is not closed: {command}",
            hint="`putback recover` shows what is known of it, and closes it",
        )


def unfinished(where: WorkspacePaths) -> list[Unfinished]:
    """The runs of a workspace that have no receipt, oldest first."""
    found = (_look(evidence) for evidence in folders(where) if not evidence.receipt.exists())
    return sorted((run for run in found if run is not None), key=lambda run: run.began)


def killed(where: WorkspacePaths) -> list[Unfinished]:
    """Those of them that nobody supervises any more."""
    return [run for run in unfinished(where) if not run.alive]


def supervised(where: WorkspacePaths) -> list[str]:
    """The ids of the runs that are under way."""
    return sorted(run.id for run in folders(where) if not run.receipt.exists() and is_locked(run.ledger))


def check_closed(where: WorkspacePaths) -> None:
    """Raise UnknownStateError where a run was interrupted and not closed, for what would build on it."""
    for run in killed(where):
        raise run.not_over()


def folders(where: WorkspacePaths) -> Iterator[RunFolder]:
    """The folders of all runs of a workspace."""
    try:
        yield from [RunFolder(path) for path in where.runs.iterdir() if _ID.fullmatch(path.name)]
    except FileNotFoundError:
        return


def fault(evidence: RunFolder, documents: Documents) -> str:
    """Why an interrupted run cannot be closed by its evidence; empty where it can.

    A last line that is torn is no fault: that is how a ledger looks whose writer was killed.
    """
    for name in (LEDGER, MANIFEST):
        for found in documents.faults.get(name, ()):
            if found.code is not Code.TORN_TAIL:
                return f"{name}: {found}"
    ledger = documents.ledger
    if ledger is None or documents.manifest is None:
        return f"{LEDGER if ledger is None else MANIFEST} is missing"
    if ledger.started is None or ledger.before is None:
        return f"{LEDGER} does not say what was begun"
    if ledger.started.run != evidence.id:
        return "it is that of another run"
    return ""


def is_locked(path: Path) -> bool:
    """Whether somebody is writing this ledger."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _look(evidence: RunFolder) -> Unfinished | None:
    alive = is_locked(evidence.ledger)
    if not alive and (evidence.receipt.exists() or not evidence.folder.exists()):
        return None  # it came to its end, or was given up, while we looked
    documents = evidence.load()
    ledger = documents.ledger
    started, began = (None, "") if ledger is None else (ledger.started, ledger.began)
    if alive:
        return Unfinished(evidence, started, alive, began)
    # Once the command's end is on record, what it left running was left on purpose.
    ended = ledger is not None and ledger.exit is not None
    left = () if ended else at_work(evidence.id, evidence.read_process())
    return Unfinished(evidence, started, alive, began, left, fault(evidence, documents))
