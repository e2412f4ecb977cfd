"""The command under supervision at a real terminal, as a job of a shell: who has it, and in which modes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support import jobshell, supervised
from support.waiting import content, state, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

ECHO = termios.ECHO
LOCAL_MODES = 3

# Reads lines in raw mode and writes what it sees to files: signals, lines, the size of its window.
TUI = """
import os, signal, sys, termios, tty
def note(name, text):
    with open(name + ".new", "w") as file: file.write(text)
    os.rename(name + ".new", name)
def on(number, frame): note(signal.Signals(number).name, str(os.get_terminal_size(0).columns))
for number in (signal.SIGINT, signal.SIGWINCH, signal.SIGCONT): signal.signal(number, on)
modes = termios.tcgetattr(0); modes[3] &= ~termios.ECHO; termios.tcsetattr(0, termios.TCSANOW, modes)
note("ready", "%d %d" % (os.getpgrp(), os.tcgetpgrp(0)))
count = 0
while (line := sys.stdin.readline()) and line != "end\\n":
    count += 1
    note("line%d" % count, line)
sys.exit(3)
"""


class Session:
    """A pseudo-terminal with a shell on it that obeys us."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, jobshell.__file__, str(theirs.fileno())])
        theirs.close()
        ours.settimeout(10)
        self._connection = ours
        self._lines = ours.makefile("rw")

    def ask(self, *command: Any) -> Any:
        self._lines.write(json.dumps(command) + "\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def start(self, argv: list[str], *, foreground: bool = True, prefix: tuple[str, ...] = (), **spec: Any) -> int:
        file = self.folder / "spec.json"
        file.write_text(json.dumps({"folder": str(self.folder), "argv": argv, **spec}))
        job = self.ask("start", [*prefix, sys.executable, supervised.__file__, str(file)], foreground)
        assert isinstance(job, int)
        return job

    def type(self, text: bytes) -> None:
        os.write(self.terminal, text)

    def file(self, name: str) -> str:
        return until(lambda: content(self.folder / name))

    @property
    def child(self) -> int:
        return int(self.file("started"))

    def in_front(self) -> int:
        return int(self.ask("look")[0])

    def echoes(self) -> bool:
        return bool(self.ask("look")[1][LOCAL_MODES] & ECHO)

    def answer(self) -> dict[str, Any]:
        assert self.ask("change")[:2] == ["ended", 0]
        answer: dict[str, Any] = json.loads(self.file("answer"))
        return answer

    def close(self) -> None:
        with suppress(OSError):
            os.killpg(int(content(self.folder / "started") or self.pid), signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.terminal)
        os.waitpid(self.pid, 0)
        self._lines.close()
        self._connection.close()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.close()


def tui(session: Session, **options: Any) -> int:
    job = session.start([sys.executable, "-c", TUI], **options)
    session.file("ready")
    return job


def test_the_command_has_the_terminal_before_it_runs_and_we_have_it_afterwards(session: Session) -> None:
    # No program could look earlier than a shell that does nothing else.
    job = session.start(["sh", "-c", "read -r line < /proc/$$/stat; echo $line > stat"])
    how, code, (in_front, _) = session.ask("change")
    assert (how, code, in_front) == ("ended", 0, job)
    fields = session.file("stat").rpartition(")")[2].split()
    group, foreground = fields[2], fields[5]
    assert group == foreground == session.file("started")


def test_modes_that_the_command_leaves_changed_are_put_back(session: Session) -> None:
    before = session.ask("look")[1]
    job = session.start(["stty", "raw", "-echo"])
    how, _, (in_front, modes) = session.ask("change")
    assert (how, in_front, modes) == ("ended", job, before)


def test_what_is_typed_and_ctrl_c_go_to_the_command_alone(session: Session) -> None:
    tui(session)
    session.type(b"hello\n")
    assert session.file("line1") == "hello\n"
    session.type(b"\x03")
    session.file("SIGINT")
    session.type(b"end\n")
    answer = session.answer()
    assert answer["code"] == 3 and not answer["interrupted"] and answer["restored"]


def test_ctrl_c_that_ends_the_command_does_not_end_us(session: Session) -> None:
    session.start(["sleep", "1000"])
    until(lambda: session.in_front() == session.child)
    session.type(b"\x03")
    assert session.answer()["signal"] == signal.SIGINT


def test_the_command_learns_the_size_of_its_window(session: Session) -> None:
    tui(session)
    fcntl.ioctl(session.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 77, 0, 0))
    assert session.file("SIGWINCH") == "77"


def test_stopped_and_continued_in_the_foreground(session: Session) -> None:
    job = tui(session)
    child = session.child
    assert not session.echoes()
    session.type(b"\x1a")
    how, number, (in_front, modes) = session.ask("change")
    assert (how, number, in_front) == ("stopped", signal.SIGTSTP, job)
    assert modes[LOCAL_MODES] & ECHO
    assert state(child) == state(job) == "T"
    session.ask("foreground", True)
    session.file("SIGCONT")
    until(lambda: session.in_front() == child)
    assert not session.echoes()
    session.type(b"again\n")
    assert session.file("line1") == "again\n"
    session.type(b"end\n")
    assert session.answer()["code"] == 3
    assert session.echoes()


def test_continued_in_the_background_it_works_on_without_the_terminal(session: Session) -> None:
    job = session.start(["sh", "-c", "kill -TSTP $$; echo > went_on; read line; echo $line > out"])
    assert session.ask("change")[:2] == ["stopped", signal.SIGTSTP]
    session.ask("background")
    session.file("went_on")
    # Now it reads, which the kernel answers by stopping it; the shell learns that the job did.
    how, number, (in_front, _) = session.ask("change")
    assert (how, number) == ("stopped", signal.SIGTTIN) and in_front not in (job, session.child)
    session.ask("foreground", True)
    session.type(b"typed\n")
    assert session.file("out") == "typed\n"
    assert session.answer()["code"] == 0


def test_started_in_the_background_the_terminal_is_not_grabbed(session: Session) -> None:
    session.start(["sh", "-c", "echo > ready; until [ -e go ]; do sleep 0.01; done"], foreground=False)
    session.file("ready")
    (session.folder / "go").touch()
    how, code, (in_front, _) = session.ask("change")
    assert (how, code, in_front) == ("ended", 0, session.pid)


@pytest.mark.parametrize("command", [["sleep", "1000"], ["sh", "-c", "read line; exec sleep 1000"]])
def test_brought_to_the_foreground_without_a_word(session: Session, command: list[str]) -> None:
    """As shells do with a job that runs already. The second command has been stopped for want of the terminal."""
    session.start(command, foreground=False)
    child = session.child
    if command[0] == "sh":
        assert session.ask("change")[:2] == ["stopped", signal.SIGTTIN]
        session.ask("foreground", True)
        session.type(b"\n")
    else:
        session.ask("foreground", False)
    until(lambda: session.in_front() == child)
    until(lambda: "sleep" in content(Path(f"/proc/{child}/comm")))
    session.type(b"\x03")
    assert session.answer()["signal"] == signal.SIGINT


def test_what_reads_just_when_it_has_come_to_the_foreground_is_not_stopped(session: Session) -> None:
    session.start(
        ["sh", "-c", "echo > ready; until [ -e go ]; do :; done; read line; echo $line > out"], foreground=False
    )
    session.file("ready")
    session.type(b"typed\n")
    session.ask("foreground", False)
    (session.folder / "go").touch()
    assert session.answer()["code"] == 0
    assert session.file("out") == "typed\n"


def test_a_terminal_that_was_given_to_another_meanwhile_is_not_taken(session: Session) -> None:
    job = session.start(["sh", "-c", "until [ -e go ]; do sleep 0.01; done"])
    until(lambda: session.in_front() == session.child)
    os.kill(job, signal.SIGSTOP)
    assert session.ask("change")[0] == "stopped"
    session.ask("background")
    (session.folder / "go").touch()
    how, code, (in_front, _) = session.ask("change")
    assert (how, code, in_front) == ("ended", 0, session.pid)


def test_where_nobody_could_continue_us_ctrl_z_does_not_stop(session: Session) -> None:
    """As the first program of a container, or of `ssh -t host`: the leader of its session."""
    file = session.folder / "spec.json"
    file.write_text(json.dumps({"folder": str(session.folder), "argv": [sys.executable, "-c", TUI]}))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, supervised.__file__, str(file)])
    session.file("ready")
    os.write(terminal, b"\x1a")
    session.file("SIGCONT")
    os.write(terminal, b"still here\n")
    assert session.file("line1") == "still here\n"
    os.write(terminal, b"end\n")
    assert json.loads(session.file("answer"))["code"] == 3
    os.waitpid(pid, 0)
    os.close(terminal)


def test_a_command_that_cannot_be_run_leaves_the_terminal_where_it_was(session: Session) -> None:
    script = session.folder / "broken"
    script.write_text("#!/nonexistent\n")
    script.chmod(0o755)
    job = session.start([str(script)])
    how, code, (in_front, _) = session.ask("change")
    assert (how, code, in_front) == ("ended", 1, job)


def test_a_shell_with_jobs_of_its_own_works_below_us(session: Session) -> None:
    session.start(["bash", "--norc", "--noprofile", "-i"])
    session.type(b"sleep 1000\n")
    until(lambda: content(Path(f"/proc/{session.in_front()}/comm")) == "sleep\n")
    session.type(b"\x1a")
    until(lambda: session.in_front() == session.child)
    session.type(b"jobs > jobs; fg\n")
    until(lambda: content(Path(f"/proc/{session.in_front()}/comm")) == "sleep\n")
    session.type(b"\x03")
    until(lambda: session.in_front() == session.child)
    session.type(b"exit 7\n")
    assert session.answer()["code"] == 7
    assert "Stopped" in content(session.folder / "jobs")
