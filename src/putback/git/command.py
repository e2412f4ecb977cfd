"""The one door to git: every git process of putback is started here, sealed.

Sealed means: an environment built from nothing, no system or global configuration, no hooks, filters, signing,
monitors, prompts, replace refs or network, literal pathspecs, untranslated messages. Configuration that a
repository brings along is overridden on the command level for every key that could run a program or change a
byte. A process that does not end within its time limit, or whose caller gave up, is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from putback.errors import Cancelled, GitUnavailable, IntegrityError, StorageError
from putback.fs.modes import PRIVATE, Modes

OLDEST = (2, 34)
TIME_LIMIT_SECONDS = 900.0
POLL_SECONDS = 0.2

# Which files of the bound index look different in the bound work tree: NUL after each path.
MODIFIED = ("diff-files", "--name-only", "-z", "--no-renames")

_INHERITED = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")

_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TRACE2": "0",
    "GIT_TRACE2_EVENT": "0",
    "GIT_TRACE2_PERF": "0",
}

_CONFIGURATION = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.attributesFile", os.devnull),
    ("core.autocrlf", "false"),
    ("core.eol", "lf"),
    ("core.safecrlf", "false"),
    ("core.fileMode", "true"),
    ("core.symlinks", "true"),
    ("core.ignoreCase", "false"),
    ("core.precomposeUnicode", "false"),
    ("core.protectNTFS", "false"),
    ("core.protectHFS", "false"),
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.sparseCheckout", "false"),
    ("core.compression", "1"),
    ("core.logAllRefUpdates", "false"),
    ("core.quotePath", "false"),
    ("index.version", "2"),
    ("index.sparse", "false"),
    ("index.threads", "true"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("diff.external", ""),
    ("diff.renames", "false"),
    ("diff.orderFile", ""),
    ("diff.suppressBlankEmpty", "false"),
    ("color.ui", "false"),
    ("commit.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("protocol.allow", "never"),
    ("credential.helper", ""),
    ("submodule.recurse", "false"),
    ("advice.detachedHead", "false"),
)

NOTHING: frozenset[int] = frozenset({0})


class Result(msgspec.Struct, frozen=True):
    """What a git process answered."""

    code: int
    out: bytes
    err: bytes


class Git(msgspec.Struct, frozen=True):
    """How to call git on one repository: immutable, cheap to derive from (`on`, `configured`)."""

    program: str
    cancelled: Callable[[], bool] = lambda: False
    time_limit: float = TIME_LIMIT_SECONDS
    git_dir: bytes | None = None
    work_tree: bytes | None = None
    index: bytes | None = None
    settings: tuple[tuple[str, str], ...] = ()
    open_home: bool = False
    literal: bool = True
    modes: Modes = PRIVATE
    as_user: bool = False

    def on(
        self, git_dir: Path | bytes, *, work_tree: bytes | None = None, index: Path | bytes | None = None
    ) -> Git:
        """The same git, bound to a repository, and to a work tree and an index where the command needs them."""
        chosen = None if index is None else os.fsencode(index)
        return msgspec.structs.replace(self, git_dir=os.fsencode(git_dir), work_tree=work_tree, index=chosen)

    def configured(self, *settings: tuple[str, str]) -> Git:
        """The same git with more configuration on the command level."""
        return msgspec.structs.replace(self, settings=(*self.settings, *settings))

    def writing(self, modes: Modes) -> Git:
        """The same git, which gives these modes to what it makes."""
        return msgspec.structs.replace(self, modes=modes)

    def without_literal_pathspecs(self) -> Git:
        """For commands that take paths but refuse to be told that they are literal."""
        return msgspec.structs.replace(self, literal=False)

    def with_users_umask(self) -> Git:
        """For what goes into the user's own repository: with the umask that their own git would have."""
        return msgspec.structs.replace(self, as_user=True)

    def with_users_home(self) -> Git:
        """For the one question that needs it: where the user's own configuration puts a file."""
        return msgspec.structs.replace(self, open_home=True)

    def run(
        self, *arguments: str | bytes, given: bytes | None = None, accept: frozenset[int] | set[int] = NOTHING
    ) -> Result:
        """Run git to its end and return what it answered.

        `given` goes to its standard input. An exit code outside `accept` raises: StorageError where the system
        refused a read or a write, else IntegrityError. Raises Cancelled, and GitUnavailable at the time limit.
        """
        if self.cancelled():
            raise Cancelled("cancelled")
        with self.start(*arguments, reads=given is not None) as process:
            out, err = self._communicate(process, given)
        result = Result(process.returncode, out, err)
        if result.code not in accept:
            raise failure(arguments, result)
        return result

    def background(self, *arguments: str | bytes, accept: frozenset[int] = NOTHING) -> Pending:
        """Run git in a thread of its own; `result` of what this returns waits for it."""
        return Pending(self, arguments, accept)

    def start(self, *arguments: str | bytes, reads: bool) -> subprocess.Popen[bytes]:
        """Start git with pipes on its output, and on its input where it `reads` any."""
        try:
            return subprocess.Popen(
                [self.program, *arguments],
                stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment(),
                cwd=self.work_tree or b"/",
                umask=-1 if self.as_user else 0o777 & ~self.modes.directory,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            if self.work_tree and not os.path.isdir(self.work_tree):
                raise StorageError(f"no such directory: {os.fsdecode(self.work_tree)!r}") from error
            raise missing() from error
        except OSError as error:
            raise StorageError(f"cannot start git: {error.strerror}") from error

    def environment(self) -> dict[bytes, bytes]:
        """The whole environment of the process; nothing else of ours reaches it."""
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | _ENVIRONMENT
        if not self.literal:
            del environment["GIT_LITERAL_PATHSPECS"]
        if self.open_home:
            for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", "HOME"):
                del environment[name]
            kept = ("HOME", "XDG_CONFIG_HOME")
            environment |= {name: os.environ[name] for name in kept if name in os.environ}
        shared = ("core.sharedRepository", f"0{self.modes.file:o}")
        settings = (*_CONFIGURATION, shared, *self.settings) if not self.open_home else self.settings
        environment["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        encoded = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        bound = {b"GIT_DIR": self.git_dir, b"GIT_WORK_TREE": self.work_tree, b"GIT_INDEX_FILE": self.index}
        return encoded | {variable: path for variable, path in bound.items() if path is not None}

    def _communicate(self, process: subprocess.Popen[bytes], given: bytes | None) -> tuple[bytes, bytes]:
        deadline = time.monotonic() + self.time_limit
        if given is not None:
            # `communicate` does not go on sending after a time-out, so the input gets a thread of its own.
            pipe, process.stdin = process.stdin, None
            assert pipe is not None
            threading.Thread(target=_send, args=(pipe, given), daemon=True).start()
        while True:
            try:
                return process.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            except BaseException:
                kill(process)
                raise
            if self.cancelled():
                kill(process)
                process.communicate()
                raise Cancelled("cancelled while git was at work")
            if time.monotonic() > deadline:
                kill(process)
                process.communicate()
                raise GitUnavailable(
                    f"git did not answer within {self.time_limit:g} s and was stopped",
                    hint="nothing was published; run the command again",
                )


class Pending:
    """A git process at work in the background."""

    def __init__(self, git: Git, arguments: Sequence[str | bytes], accept: frozenset[int]) -> None:
        self._outcome: Result | BaseException | None = None
        self._abandoned = False
        inner = git.cancelled
        git = msgspec.structs.replace(git, cancelled=lambda: self._abandoned or inner())
        self._thread = threading.Thread(target=self._work, args=(git, arguments, accept), name="git", daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Wait for the process and return its answer, or raise what `Git.run` raises."""
        self._thread.join()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def abandon(self) -> None:
        """Nobody waits for the answer any more: the process is ended."""
        self._abandoned = True

    def _work(self, git: Git, arguments: Sequence[str | bytes], accept: frozenset[int]) -> None:
        try:
            self._outcome = git.run(*arguments, accept=accept)
        except BaseException as error:
            self._outcome = error


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a git process and whatever it has started: they are a process group of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()


def _send(pipe: IO[bytes], given: bytes) -> None:
    """Write and close. A process that ends without reading it all says why by itself."""
    with suppress(OSError), pipe:
        pipe.write(given)


def failure(arguments: Sequence[str | bytes], result: Result) -> StorageError | IntegrityError:
    """The error for a git process that failed, with the first line of what it said."""
    said = result.err.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in said if line.startswith("fatal:")]
    words = (fatal or said or [f"ended with code {result.code}"])[0]
    line = "".join(c for c in words if c.isprintable())
    message = f"git {os.fsdecode(arguments[0])}: {line}"
    disk = rb"No space left|Read-only file system|Permission denied|Input/output error|File too large|quota"
    if result.code < 0 or re.search(disk, result.err):
        return StorageError(message, hint="nothing was published; earlier captures are as they were")
    return IntegrityError(message, hint="`putback status` shows the state of the store")


def missing() -> GitUnavailable:
    return GitUnavailable("unavailable: git is not on PATH", hint="install git 2.34 or newer")


def find(*, cancelled: Callable[[], bool] = lambda: False, time_limit: float = TIME_LIMIT_SECONDS) -> Git:
    """The git on PATH. Raises GitUnavailable where there is none or it is too old."""
    # A relative directory on PATH would be one of the workspace's, and the program in it anybody's.
    places = (os.path.join(folder, "git") for folder in os.get_exec_path() if os.path.isabs(folder))
    program = next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)
    if program is None:
        raise missing()
    git = Git(program, cancelled, time_limit)
    answer = git.run("version", accept={*range(-64, 256)})
    found = re.match(rb"git version (\d+)\.(\d+)", answer.out)
    if found is None:
        raise GitUnavailable("unavailable: git does not tell its version", hint="install git 2.34 or newer")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST:
        raise GitUnavailable(
            f"unavailable: git {version[0]}.{version[1]} is too old", hint="install git 2.34 or newer"
        )
    durable = (
        ("core.fsync", "loose-object,pack,pack-metadata,reference")
        if version >= (2, 36)
        else ("core.fsyncObjectFiles", "true")
    )
    return git.configured(durable)
