"""One run: capture, command, capture; then the evidence, and what a broken limit calls for.

The workspace is locked while it is captured, not while the command is at work: the command may use putback
itself. Everything that decides about the run is in the ledger before the command starts, so that what it does
to a configuration has no effect on it, and so that a run whose supervisor was killed can be closed later.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import msgspec

from putback import paths, seams
from putback.config import RunSettings
from putback.errors import Cancelled, PutbackError, StorageError, UnknownStateError
from putback.git import refs
from putback.ops import recover
from putback.ops.session import Session
from putback.records.capture import Purpose
from putback.records.ledger import Instant, RunStarted, Snapshotted
from putback.records.run import Discipline, EndedBy, Exit, Limits, Survivor
from putback.runs import account, limits, processes, unfinished
from putback.runs.at_work import MARK
from putback.runs.close import Begun, RunResult, close
from putback.runs.folder import RunFolder
from putback.runs.ledger import LedgerWriter, timestamp
from putback.runs.sight import keep_rules
from putback.runs.supervisor import Ended, Leftovers, Supervision, find_command, supervise
from putback.runs.verification import verify
from putback.store import captures
from putback.store.captures import TreeState
from putback.store.layout import WorkspacePaths
from putback.version import __version__

UNCLOSED = "the command has ended, and its run is not closed; `putback recover` does that"

# Opens a session under the workspace's lock, for captures with contents or of digests alone.
Opener = Callable[[], AbstractContextManager[Session]]


class Request(msgspec.Struct, frozen=True):
    """What to run, and under which policy. `contents` keeps what is needed to put the tree back.

    `output` is a file descriptor to take the place of standard output, where there is one.
    """

    command: tuple[str, ...]
    cwd: Path
    contents: bool = False
    rollback_on_breach: bool = False
    limits: Limits = msgspec.field(default_factory=Limits)
    supervision: Supervision = msgspec.field(default_factory=Supervision)
    output: int | None = None

    @property
    def discipline(self) -> Discipline:
        return Discipline.CONTENTS if self.contents or self.rollback_on_breach else Discipline.DIGESTS


def configured_limits(settings: RunSettings) -> Limits:
    """The limits that the configuration sets."""
    return Limits(
        max_ms=None if settings.max_seconds is None else int(settings.max_seconds * 1000),
        max_files=settings.max_files,
        max_bytes=settings.max_bytes,
        protected=settings.protected,
        fail_on_error=int(settings.fail_on_error),
        verify=settings.verify,
    )


def request(
    settings: RunSettings,
    command: tuple[str, ...],
    cwd: Path,
    *,
    snapshot: bool | None,
    rollback_on_breach: bool | None,
    limits: Limits,
    leftovers: str | None,
    output: int | None,
) -> Request:
    """What to run; what is None comes from the configuration."""
    return Request(
        command=command,
        cwd=cwd,
        contents=settings.snapshot if snapshot is None else snapshot,
        rollback_on_breach=settings.rollback_on_breach if rollback_on_breach is None else rollback_on_breach,
        limits=limits,
        supervision=Supervision(
            timeout_seconds=None if limits.max_ms is None else limits.max_ms / 1000,
            grace_seconds=settings.grace_seconds,
            leftovers=Leftovers(leftovers or settings.leftovers),
            wait_seconds=settings.wait_seconds,
        ),
        output=output,
    )


def run(where: WorkspacePaths, open_session: Opener, request: Request) -> RunResult:
    """Run a command and account for it.

    Raises OverBudget before anything is stored and the command is started, and what the supervisor raises where
    it cannot be started; then nothing of the run remains. Raises UnknownStateError where an earlier run, or a
    restore, was interrupted. Whatever goes wrong once the command was started leaves a run that can be closed.
    """
    find_command(request.command, cwd=request.cwd)
    limits.check_patterns(request.limits.protected)
    with ExitStack() as stack:
        with open_session() as session:
            evidence, ledger, begun = _begin(stack, session, where, request)
        started = False

        def at_work(pid: int) -> None:
            nonlocal started
            started = True
            command = processes.find(pid)
            evidence.write_process(pid, 0 if command is None else command.started)
            seams.reach("run.command")

        try:
            seams.reach("run.started")
            how = _exit(_supervise(request, begun.started.run, at_work))
            ledger.append(how, sync=True)
            seams.reach("run.ended")
            verification = verify(request.limits.verify, request.cwd) if request.limits.verify else None
            with open_session() as session:
                return close(session, evidence, ledger, begun, how, verification)
        except (PutbackError, OSError, KeyboardInterrupt) as error:
            if started:
                raise _unclosed(error) from error
            evidence.discard(where.scratch)
            if begun.contents:
                with suppress(PutbackError), open_session() as session:
                    _release(session, begun.snapshot.capture)
            raise


def _unclosed(error: BaseException) -> PutbackError:
    """The same error, with the way out of what it left."""
    if isinstance(error, OSError):
        error = StorageError(f"the system refused: {error.strerror or error}")
    elif not isinstance(error, PutbackError):
        error = Cancelled("interrupted")
    if not isinstance(error, UnknownStateError):
        error.hint = UNCLOSED
    return error


def _begin(
    stack: ExitStack, session: Session, where: WorkspacePaths, request: Request
) -> tuple[RunFolder, LedgerWriter, Begun]:
    """Capture the tree and put down, durably, what is about to happen. The open ledger says that the run lives.

    The folder comes to its place last and in one step: whoever finds it there finds all of it.
    """
    recover.check_known(session)
    unfinished.check_closed(where)
    for folder in unfinished.folders(where):
        folder.tidy()
    words = _words(request)
    state = session.capturer.take(message=" ".join(words), purpose=Purpose.BEFORE)
    contents = request.discipline is Discipline.CONTENTS
    capture = captures.write(where, state) if contents else ""
    evidence = RunFolder(session.capturer.where.scratch / secrets.token_hex(32))
    try:
        return _write(stack, session, where, request, evidence, state, capture)
    except BaseException:
        for folder in (evidence, RunFolder(where.runs / evidence.id)):
            folder.discard(where.scratch)
        _release(session, capture)
        raise


def _release(session: Session, capture: str) -> None:
    """Give up the capture of a run that was never started."""
    if capture:
        with suppress(PutbackError):
            refs.release(session.git, session.where.name, [capture])


def _write(
    stack: ExitStack,
    session: Session,
    where: WorkspacePaths,
    request: Request,
    evidence: RunFolder,
    state: TreeState,
    capture: str,
) -> tuple[RunFolder, LedgerWriter, Begun]:
    """Write everything that has to be on disk before the command starts."""
    intake = session.capturer.intake
    started = RunStarted.at(
        where.root,
        run=evidence.id,
        command=_words(request),
        cwd=paths.text(os.fsencode(request.cwd)),
        discipline=request.discipline,
        rollback_on_breach=int(request.rollback_on_breach),
        limits=request.limits,
        tool=__version__,
    )
    evidence.create()
    files = account.listed(intake.records(), state)
    snapshot = Snapshotted(
        when=Instant.BEFORE,
        tree=state.files_tree,
        files=state.record.files,
        bytes=state.record.bytes,
        not_covered=len(state.record.not_covered),
        capture=capture,
        manifest=evidence.write_manifest(
            account.manifest(started.run, where.root, request.discipline, state, files)
        ),
        stored_bytes=intake.stored_bytes,
    )
    keep_rules(session, files, evidence.rules)
    evidence.keep_ignored(state.ignored)
    ledger = stack.enter_context(LedgerWriter(evidence.ledger))
    began = timestamp(time.time_ns())
    ledger.append(started, sync=False)
    ledger.append(snapshot, sync=True)
    if session.progress.cancelled():
        raise Cancelled("cancelled before the command was started")
    seams.reach("run.prepared")
    evidence = evidence.move(where.runs)
    sizes = {path: item.size for path, item in files.items()}
    return evidence, ledger, Begun(started, began, snapshot, state, sizes)


def _words(request: Request) -> tuple[str, ...]:
    return tuple(paths.text(os.fsencode(word)) for word in request.command)


def _supervise(request: Request, run_id: str, started: Callable[[int], None]) -> Ended:
    """Run the command. Its environment names the run, by which its processes are known wherever they go."""
    environment = {**os.environ, MARK: run_id}
    supervision = msgspec.structs.replace(request.supervision, mark=f"{MARK}={run_id}")
    return supervise(
        request.command,
        cwd=request.cwd,
        environment=environment,
        supervision=supervision,
        started=started,
        output=request.output,
    )


def _exit(ended: Ended) -> Exit:
    by = EndedBy.UNKNOWN if ended.code is None else EndedBy.EXIT
    if ended.signal is not None:
        by = EndedBy.SIGNAL
    if ended.timed_out:
        by = EndedBy.TIMEOUT
    survivors = tuple(
        Survivor(pid=process.pid, command=process.command, fate=process.fate) for process in ended.survivors
    )
    return Exit(by=by, code=ended.code, signal=ended.signal, duration_ms=ended.duration_ms, survivors=survivors)
