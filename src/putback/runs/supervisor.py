"""The one door to the user's command: it is started here, watched to its end, and nothing of it goes unnoticed.

The command has its own process group and, where we are in the foreground of the terminal on standard input,
that terminal, for as long as it runs: what is typed, Ctrl-C too, goes to it and not to us. When it stops we stop
with it, so that the user's shell sees one job. Standard input, output and error are passed on as they are.

From the main thread everything holds. In any other thread there are no signal handlers, so nothing is forwarded
and the terminal stays with the caller: a command that wants it is stopped by the kernel until its time is up.
No process is ever reaped that the command did not start.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from putback.errors import CommandNotFound, FailedError, NotExecutable, StorageError, UsageError
from putback.runs import terminal as terminals
from putback.runs.leftovers import Leftovers, Offspring, Survivor
from putback.runs.signals import ENDING, Mailbox
from putback.runs.terminal import Terminal

__all__ = ["Ended", "Leftovers", "Supervision", "Survivor", "find_command", "supervise"]

TICK_SECONDS = 0.25

# What the kernel stops a background process with when it turns to the terminal.
_WANTS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)


class Supervision(msgspec.Struct, frozen=True):
    """How long a command may take, and what becomes of what it leaves running.

    Times are in seconds by the monotonic clock, time spent stopped included. At the time limit the group gets
    SIGTERM, after the grace SIGKILL, and `leftovers` counts as END: a limit that lets part of the command go on
    is none. `mark` is a `NAME=value` of the environment that no other command's processes have: by it those
    are found that left the group while this process has several threads.
    """

    timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    leftovers: Leftovers = Leftovers.WAIT
    wait_seconds: float = 10.0
    mark: str | None = None


_USUAL = Supervision()


class Ended(msgspec.Struct, frozen=True):
    """How a command ended: by `code` or by `signal`; neither where another part of this program reaped it.

    `interrupted`: a signal that asks to end reached putback itself, and was forwarded. Start and end are in
    nanoseconds since the epoch; the end is the command's own, before anything was waited for.
    """

    code: int | None
    signal: int | None
    timed_out: bool
    interrupted: bool
    started_ns: int
    ended_ns: int
    duration_ms: int
    survivors: tuple[Survivor, ...]

    @property
    def exit_code(self) -> int:
        """As a shell tells it: the code, or 128 and the signal's number; 255 where nobody knows."""
        if self.code is not None:
            return self.code
        return 255 if self.signal is None else 128 + self.signal


def find_command(argv: Sequence[str | bytes], *, cwd: Path, environment: Mapping[str, str] | None = None) -> bytes:
    """The program that `argv` names, as it would be found from `cwd` with the PATH of `environment`.

    `environment` defaults to this process's own. Raises CommandNotFound, NotExecutable, UsageError for a command
    line that no system can run, and StorageError where `cwd` is no directory.
    """
    if not argv or any(b"\0" in os.fsencode(argument) for argument in argv):
        raise UsageError("no command to run" if not argv else "an argument of the command holds a NUL byte")
    if not cwd.is_dir():
        raise StorageError(f"cannot run there: no such directory: {str(cwd)!r}")
    name, shown = os.fsencode(argv[0]), os.fsdecode(argv[0])
    if b"/" in name:
        places = [name]
    else:
        folders = os.get_exec_path(None if environment is None else dict(environment))
        places = [os.path.join(os.fsencode(folder) or b".", name) for folder in folders if name]
    refused = []
    for place in places:
        whole = os.path.join(os.fsencode(cwd), place)
        if os.path.isfile(whole) and os.access(whole, os.X_OK):
            return place
        # As a shell does: a directory on PATH that is called so is not meant.
        if os.path.isfile(whole) or (place == name and os.path.exists(whole)):
            refused.append(os.fsdecode(place))
    if refused:
        raise NotExecutable(f"not an executable file: {refused[0]!r}")
    raise CommandNotFound(f"command not found: {shown!r}")


def supervise(
    argv: Sequence[str | bytes],
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    supervision: Supervision = _USUAL,
    started: Callable[[int], None] = lambda pid: None,
    output: int | None = None,
) -> Ended:
    """Run a command to its end, deal with what it leaves running, and say how it ended.

    `output` is a descriptor to take the place of standard output.
    `started` is told the process number once the program runs; what it raises ends the command at once, and is
    raised. Raises what `find_command` raises, before anything has happened, and FailedError where the system
    cannot start another process.
    """
    program = find_command(argv, cwd=cwd, environment=environment)
    with Mailbox() as mailbox, Offspring(supervision.mark) as offspring:
        run = _Run(mailbox, offspring, supervision, Terminal.on_standard_input() if mailbox.open else None)
        process = run.start(program, argv, cwd, environment, output)
        try:
            started(process.pid)
            return run.to_the_end(process)
        except BaseException:
            run.abandon(process)
            raise


class _Run(msgspec.Struct):
    """One command at work."""

    mailbox: Mailbox
    offspring: Offspring
    supervision: Supervision
    terminal: Terminal | None
    pid: int = 0
    started_ns: int = 0
    began: float = 0.0
    deadline: float | None = None
    timed_out: bool = False
    interrupted: bool = False
    asked_to_stop: bool = False

    def start(
        self,
        program: bytes,
        argv: Sequence[str | bytes],
        cwd: Path,
        environment: Mapping[str, str] | None,
        output: int | None,
    ) -> subprocess.Popen[bytes]:
        lends = self.terminal is not None and self.terminal.note_modes()
        self.started_ns, self.began = time.time_ns(), time.monotonic()
        try:
            process = subprocess.Popen(
                list(argv),
                executable=program,
                cwd=cwd,
                env=environment,
                stdout=output,
                process_group=0,
                preexec_fn=_between(lends),
            )
        except OSError as error:
            if self.terminal is not None:
                self.terminal.take_back(0)
            raise _cannot_start(program, cwd, error) from error
        self.pid = process.pid
        self.offspring.of(self.pid)
        if self.supervision.timeout_seconds is not None:
            self.deadline = self.began + self.supervision.timeout_seconds
        return process

    def to_the_end(self, process: subprocess.Popen[bytes]) -> Ended:
        exited = self._watch()
        ended_ns, duration = time.time_ns(), time.monotonic() - self.began
        # Popen must not look for the process by itself: the number may be somebody else's by then.
        process.returncode = 255 if exited is None else exited
        if self.terminal is not None:
            self.terminal.take_back(self.pid)
        survivors = self.offspring.settle(
            Leftovers.END if self.timed_out else self.supervision.leftovers,
            wait_seconds=self.supervision.wait_seconds,
            grace_seconds=self.supervision.grace_seconds,
            pause=self._pause,
        )
        if self.terminal is not None:
            self.terminal.take_back(self.pid)  # one of them may have had it
        return Ended(
            code=exited if exited is not None and exited >= 0 else None,
            signal=-exited if exited is not None and exited < 0 else None,
            timed_out=self.timed_out,
            interrupted=self.interrupted,
            started_ns=self.started_ns,
            ended_ns=ended_ns,
            duration_ms=round(duration * 1000),
            survivors=survivors,
        )

    def abandon(self, process: subprocess.Popen[bytes]) -> None:
        """Something went wrong with us: the command does not go on without anybody who watches it."""
        if process.returncode is None:
            self._tell(signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            process.returncode = -signal.SIGKILL
        if self.terminal is not None:
            self.terminal.take_back(self.pid)

    def _watch(self) -> int | None:
        """Wait for the end; returns the code, the negated signal, or None if somebody else reaped the command."""
        while True:
            for number in self.mailbox.take():
                self._forward(number)
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return None
            if pid == 0:
                self._keep_time()
                self._hand_over()
                self.offspring.reap()
                left = TICK_SECONDS if self.deadline is None else self.deadline - time.monotonic()
                self.mailbox.wait(min(left, TICK_SECONDS))
            elif os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
            else:
                return os.waitstatus_to_exitcode(status)

    def _forward(self, number: int) -> None:
        if number == signal.SIGCONT:
            self._go_on()
        elif number != signal.SIGCHLD:
            self.interrupted |= number in ENDING
            self.asked_to_stop |= number == signal.SIGTSTP
            self._tell(number)

    def _hand_over(self) -> bool:
        """Lend the terminal where the user's shell has given it to us, of which it need not tell."""
        if self.terminal is None or not self.terminal.lend(self.pid):
            return False
        self._tell(signal.SIGCONT)  # it may have been stopped for want of the terminal
        return True

    def _go_on(self) -> None:
        if not self._hand_over():
            self._tell(signal.SIGCONT)

    def _stopped(self, number: int) -> None:
        """The command has stopped: so do we, that the user's shell sees the job stop, until we are continued."""
        asked, self.asked_to_stop = self.asked_to_stop, False
        if self.timed_out:
            self._tell(signal.SIGCONT)  # what is stopped does not end
        elif self.terminal is None:
            # Without a terminal others in our group may have nothing to do with it, and nobody may continue us:
            # we stop only where somebody has asked us, not the command, to.
            if asked and number == signal.SIGTSTP:
                self.mailbox.stop(number, whole_group=False)
                self._go_on()
        elif number not in _WANTS_TERMINAL:
            self.terminal.take_back(self.pid)
            self.mailbox.stop(signal.SIGTSTP, whole_group=True)
            self._go_on()
        elif not self._hand_over() and self.mailbox.stop(number, whole_group=True):
            self._go_on()

    def _keep_time(self) -> None:
        if self.deadline is None or time.monotonic() < self.deadline:
            return
        if self.timed_out:
            self.deadline = None
            self._tell(signal.SIGKILL)
        else:
            self.timed_out = True
            self.deadline = time.monotonic() + self.supervision.grace_seconds
            self._tell(signal.SIGTERM)
            self._tell(signal.SIGCONT)

    def _pause(self, seconds: float) -> bool:
        """Wait while leftovers are dealt with; True where somebody wants us to be done."""
        self.mailbox.wait(seconds)
        hurry = False
        for number in self.mailbox.take():
            hurry |= number in ENDING
            if number == signal.SIGTSTP:
                self.mailbox.stop(number, whole_group=False)
        self.interrupted |= hurry
        return hurry

    def _tell(self, number: int) -> None:
        """Send a signal to the command's group. It has not been reaped yet, so the number is still its own."""
        with suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                os.kill(self.pid, number)  # it has moved to another group


def _between(lends: bool) -> Callable[[], None] | None:
    """What only the new process can do, between fork and exec: None, nearly always, where nothing is to be done.

    Taking the terminal must happen before the program runs, or it might read, and be stopped, too early; if we
    did it after, we might take it from a job that a shell had started meanwhile. Signals that this process
    ignores, and signals that this thread blocks, would otherwise be so in the command. That SIGHUP is ignored
    was somebody's wish (nohup).
    """
    changed = [
        number for number in signal.valid_signals() if signal.getsignal(number) not in (signal.SIG_DFL, None)
    ]
    ignored = [number for number in changed if signal.getsignal(number) == signal.SIG_IGN]
    if signal.SIGHUP in ignored:
        changed.remove(signal.SIGHUP)
    # Python itself ignores two, and Popen knows.
    foreign = set(ignored) - {signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ}
    if not lends and not foreign and not signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        return None

    def prepare() -> None:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
        if lends:
            terminals.claim()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return prepare


def _cannot_start(program: bytes, cwd: Path, error: OSError) -> Exception:
    shown = os.fsdecode(program)
    if not cwd.is_dir():
        return StorageError(f"cannot run there: no such directory: {str(cwd)!r}")
    if error.errno == errno.ENOENT:
        return NotExecutable(f"cannot run {shown!r}: its interpreter does not exist")
    if error.errno == errno.ENOEXEC:
        return NotExecutable(
            f"cannot run {shown!r}: not a program of this system",
            hint="a script begins with a line like #!/bin/sh",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotExecutable(f"cannot run {shown!r}: {error.strerror}")
    return FailedError(f"cannot start {shown!r}: {error.strerror}")
