"""A shell with job control and nothing else, to be the leader of a terminal's session: `python jobshell.py FD`.

It obeys one JSON list a line on the socket FD and answers each with one line. Unlike real shells it leaves the
modes of the terminal as they are, so that a test sees what the job left.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import termios
from typing import Any

job = 0


def start(argv: list[str], foreground: bool) -> int:
    global job
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        if foreground:
            os.tcsetpgrp(0, os.getpgrp())
        for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)
    return job


def change() -> list[Any]:
    """Wait until the job stops or ends. Answers how, and with which foreground group and modes it was then."""
    status = os.waitpid(job, os.WUNTRACED)[1]
    seen = look()
    os.tcsetpgrp(0, os.getpgrp())
    how = (
        ["stopped", os.WSTOPSIG(status)] if os.WIFSTOPPED(status) else ["ended", os.waitstatus_to_exitcode(status)]
    )
    return [*how, seen]


def look() -> list[Any]:
    modes = termios.tcgetattr(0)
    return [os.tcgetpgrp(0), modes[:6]]


def foreground(tell: bool) -> None:
    os.tcsetpgrp(0, job)
    if tell:
        os.killpg(job, signal.SIGCONT)


def background() -> None:
    os.killpg(job, signal.SIGCONT)


def main() -> None:
    for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    commands = {one.__name__: one for one in (start, change, look, foreground, background)}
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rw") as lines:
        for line in lines:
            name, *arguments = json.loads(line)
            lines.write(json.dumps(commands[name](*arguments)) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
