"""The command under supervision, without a terminal: how it starts, what reaches it, how it ends, what it
leaves running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from putback.errors import CommandNotFound, NotExecutable, PutbackError, StorageError, UsageError
from putback.runs import processes
from putback.runs.leftovers import Offspring
from putback.runs.supervisor import Ended, Leftovers, Supervision, find_command, supervise
from support import supervised
from support.waiting import content, gone, state, until

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


class Program:
    """A process of its own that supervises one command in `folder`."""

    def __init__(self, folder: Path, script: str, **spec: Any) -> None:
        self.folder = folder
        file = folder / "spec.json"
        file.write_text(json.dumps({"folder": str(folder), "argv": sh(script), **spec}))
        # A group of its own that a stop signal can stop: its parent, in the same session, could continue it.
        self.process = subprocess.Popen(
            [sys.executable, supervised.__file__, str(file)],
            process_group=0,
            stdin=subprocess.PIPE,
            stdout=(folder / "said").open("wb"),
            stderr=subprocess.STDOUT,
        )

    def answer(self) -> dict[str, Any]:
        self.process.communicate(timeout=6)
        assert self.process.returncode == 0, content(self.folder / "said")
        answer: dict[str, Any] = json.loads((self.folder / "answer").read_text())
        assert answer["restored"]
        return answer

    def kill(self) -> None:
        for number in (self.process.pid, int(content(self.folder / "started") or 0)):
            if number:
                try:
                    os.killpg(number, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.communicate()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    begun: list[Program] = []

    def begin(script: str, **spec: Any) -> Program:
        begun.append(Program(tmp_path, script, **spec))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


# How it starts


@pytest.mark.parametrize(
    ("script", "code", "number", "exit_code"),
    [
        ("exit 0", 0, None, 0),
        ("exit 7", 7, None, 7),
        ("kill -TERM $$", None, 15, 143),
        ("kill -9 $$", None, 9, 137),
    ],
)
def test_the_end_is_told_as_it_was(
    tmp_path: Path, script: str, code: int | None, number: int | None, exit_code: int
) -> None:
    before = time.time_ns()
    ended = supervise(sh(script), cwd=tmp_path)
    assert (ended.code, ended.signal, ended.exit_code) == (code, number, exit_code)
    assert before <= ended.started_ns <= ended.ended_ns <= time.time_ns()
    assert not ended.timed_out and not ended.interrupted and ended.survivors == ()


def test_folder_environment_and_arguments_are_passed_on(tmp_path: Path) -> None:
    script = 'printf "%s|" "$PWD" "$ONLY" "$HOME" "$@" > out'
    argv = ["sh", "-c", script, "zero", "a b", b"\xff", ""]
    supervise(argv, cwd=tmp_path, environment={"ONLY": "this", "PATH": os.environ["PATH"]})
    assert (tmp_path / "out").read_bytes() == os.fsencode(tmp_path) + b"|this||a b|\xff||"


def test_the_streams_are_ours(program: Callable[..., Program]) -> None:
    running = program("cat; echo err >&2")
    running.process.communicate(b"given\n", timeout=6)
    assert content(running.folder / "said") == "given\nerr\n"


def test_it_leads_a_group_of_its_own_and_is_announced(tmp_path: Path) -> None:
    told: list[int] = []
    supervise(sh('echo $$ "$(ps -o pgid= -p $$)" > out'), cwd=tmp_path, started=told.append)
    assert content(tmp_path / "out").split() == [str(told[0])] * 2


@linux
def test_no_descriptor_of_ours_is_inherited(tmp_path: Path) -> None:
    stray = os.dup2(1, 77, inheritable=True)
    try:
        supervise(sh("ls /proc/$$/fd > out"), cwd=tmp_path)
    finally:
        os.close(stray)
    found = content(tmp_path / "out").split()
    assert {"0", "1", "2"} <= set(found) and "77" not in found


def masks(file: Path) -> dict[str, int]:
    """The masks in the file, of the signals that are a program's business: two more are the C library's own."""
    ours = sum(1 << (number - 1) for number in signal.valid_signals())
    lines = [line.split() for line in content(file).splitlines()]
    return {name.rstrip(":"): int(value, 16) & ours for name, value in lines}


READ_MASKS = ["sed", "-n", "-e", "/^Sig[BI]/w out", "/proc/self/status"]


@linux
@pytest.mark.parametrize("in_main", [True, False])
def test_signals_are_as_a_program_expects_them(tmp_path: Path, in_main: bool) -> None:
    ignored = (signal.SIGINT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGPIPE, signal.SIGUSR1, signal.SIGCHLD)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})
    try:
        if in_main:
            assert supervise(READ_MASKS, cwd=tmp_path).code == 0
        else:
            thread = threading.Thread(target=supervise, args=(READ_MASKS,), kwargs={"cwd": tmp_path})
            thread.start()
            thread.join()
        assert all(signal.getsignal(number) == signal.SIG_IGN for number in ignored)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= {signal.SIGTERM, signal.SIGUSR2}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert masks(tmp_path / "out") == {"SigBlk": 0, "SigIgn": 0}


@linux
@pytest.mark.parametrize("also", [(), (signal.SIGUSR1,)])
def test_nohup_holds_for_the_command(tmp_path: Path, also: tuple[signal.Signals, ...]) -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, *also)}
    try:
        ended = supervise(READ_MASKS, cwd=tmp_path, started=lambda pid: os.kill(os.getpid(), signal.SIGHUP))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not ended.interrupted
    assert masks(tmp_path / "out")["SigIgn"] == 1 << (signal.SIGHUP - 1)


# What cannot be started


def write(path: Path, text: str, mode: int = 0o755) -> None:
    path.write_text(text)
    path.chmod(mode)


@pytest.mark.parametrize(
    ("argv", "error", "exit_code"),
    [
        (["no-such-command"], CommandNotFound, 127),
        (["./nothing"], CommandNotFound, 127),
        ([""], CommandNotFound, 127),
        (["folder-on-path"], CommandNotFound, 127),
        (["plain"], NotExecutable, 126),
        (["./plain"], NotExecutable, 126),
        (["./bin/folder-on-path"], NotExecutable, 126),
        (["./no-interpreter"], NotExecutable, 126),
        (["./no-program"], NotExecutable, 126),
        ([], UsageError, 2),
        (["sh", "a\0b"], UsageError, 2),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, argv: list[str], error: type, exit_code: int) -> None:
    (tmp_path / "bin/folder-on-path").mkdir(parents=True)
    for place in ("plain", "bin/plain"):
        write(tmp_path / place, "#!/bin/sh\n", 0o644)
    write(tmp_path / "no-interpreter", "#!/nonexistent/sh\n")
    write(tmp_path / "no-program", "echo\n")
    told: list[int] = []
    with pytest.raises(PutbackError) as caught:
        supervise(argv, cwd=tmp_path, environment={"PATH": "bin"}, started=told.append)
    assert type(caught.value) is error and caught.value.exit_code == exit_code
    assert told == []


def test_a_folder_that_vanished_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no such directory: .*gone"):
        supervise(["sh"], cwd=tmp_path / "gone")


def test_path_is_searched_as_a_shell_searches_it(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one/tool").mkdir()
    write(tmp_path / "two/tool", "", 0o644)
    write(tmp_path / "three/tool", '#!/bin/sh\necho "$0" > out\n')
    write(tmp_path / "here", "#!/bin/sh\n")
    environment = {"PATH": f"{tmp_path}/one:two::three"}
    assert find_command(["tool"], cwd=tmp_path, environment=environment) == b"three/tool"
    assert find_command(["here"], cwd=tmp_path, environment=environment) == b"./here"
    assert supervise(["tool"], cwd=tmp_path, environment=environment).code == 0
    assert content(tmp_path / "out") == "three/tool\n"


# What reaches it


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "WINCH"])
def test_signals_that_reach_us_are_passed_on(program: Callable[..., Program], tmp_path: Path, name: str) -> None:
    running = program(
        f"trap 'echo {name} > got' {name}; echo > ready; until [ -s got ]; do sleep 0.01; done; exit 9"
    )
    until(lambda: content(tmp_path / "ready"))
    running.process.send_signal(signal.Signals[f"SIG{name}"])
    answer = running.answer()
    assert content(tmp_path / "got") == f"{name}\n"
    assert answer["code"] == 9 and answer["interrupted"] is (name != "WINCH")


def test_the_whole_group_gets_a_signal(program: Callable[..., Program], tmp_path: Path) -> None:
    script = "sh -c 'echo $$ > inner; exec sleep 100'; echo > unreachable"
    running = program(script)
    inner = int(until(lambda: content(tmp_path / "inner").strip()))
    running.process.terminate()
    assert running.answer()["signal"] == signal.SIGTERM
    assert gone(inner)


def test_ctrl_c_while_the_command_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGINT)
        process = popen(*arguments, **named)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    ended = supervise(["sleep", "100"], cwd=tmp_path)
    assert ended.signal == signal.SIGINT and ended.interrupted


@pytest.mark.parametrize("how", ["callback", "handler"])
def test_when_we_fail_the_command_does_not_go_on(tmp_path: Path, how: str) -> None:
    told: list[int] = []

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    def started(pid: int) -> None:
        told.append(pid)
        if how == "callback":
            fail()
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    before = signal.signal(signal.SIGALRM, fail)
    try:
        with pytest.raises(ZeroDivisionError):
            supervise(["sleep", "100"], cwd=tmp_path, started=started)
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ProcessLookupError):
        os.kill(told[0], 0)
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_from_another_thread(tmp_path: Path) -> None:
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(supervise(sh("exit 4"), cwd=tmp_path)))
    thread.start()
    thread.join()
    assert ended[0].code == 4


def test_a_program_that_ignores_its_children_still_learns_the_code(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert supervise(sh("exit 4"), cwd=tmp_path).code == 4
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_command_that_somebody_else_reaped_ended_we_know_not_how(tmp_path: Path) -> None:
    ended = supervise(sh("exit 4"), cwd=tmp_path, started=lambda pid: os.waitpid(pid, 0) and None)
    assert (ended.code, ended.signal, ended.exit_code) == (None, None, 255)


@linux
def test_asked_to_stop_it_stops_with_the_command(program: Callable[..., Program], tmp_path: Path) -> None:
    # No loop in the shell: stopped just when it starts a program, dash waits in a way that no signal ends.
    running = program("exec sleep 1000")
    child = int(until(lambda: content(tmp_path / "started")))
    running.process.send_signal(signal.SIGTSTP)
    until(lambda: state(child) == "T" and state(running.process.pid) == "T")
    running.process.send_signal(signal.SIGCONT)
    until(lambda: state(child) == "S")
    running.process.terminate()
    assert running.answer()["signal"] == signal.SIGTERM


@linux
def test_a_command_that_stops_by_itself_does_not_stop_us(program: Callable[..., Program], tmp_path: Path) -> None:
    running = program("kill -STOP $$; exit 6")
    child = int(until(lambda: content(tmp_path / "started")))
    until(lambda: state(child) == "T")
    os.kill(child, signal.SIGCONT)
    assert running.answer()["code"] == 6


# The time limit


def test_at_the_limit_it_is_asked_to_end(tmp_path: Path) -> None:
    script = "trap 'echo > got; exit 5' TERM; while :; do sleep 0.01; done"
    ended = supervise(sh(script), cwd=tmp_path, supervision=Supervision(timeout_seconds=0.2))
    assert ended.timed_out and ended.code == 5 and not ended.interrupted
    assert (tmp_path / "got").exists()


@linux
def test_what_does_not_end_when_asked_is_killed_with_all_of_its_group(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 100 & echo $! > inner; while :; do sleep 0.01; done"
    limit = Supervision(timeout_seconds=0.2, grace_seconds=0.1, leftovers=Leftovers.LEAVE)
    ended = supervise(sh(script), cwd=tmp_path, supervision=limit)
    assert ended.timed_out and ended.signal == signal.SIGKILL
    assert gone(int(content(tmp_path / "inner")))


@linux
def test_no_part_of_it_goes_on_after_the_limit(tmp_path: Path) -> None:
    script = "(trap '' TERM; exec sleep 100) & echo $! > inner; exec sleep 100"
    limit = Supervision(timeout_seconds=0.2, grace_seconds=0.2, leftovers=Leftovers.LEAVE)
    ended = supervise(sh(script), cwd=tmp_path, supervision=limit)
    assert ended.signal == signal.SIGTERM
    assert [survivor.fate for survivor in ended.survivors] == ["ended"]
    assert gone(int(content(tmp_path / "inner")))


def test_a_stopped_command_is_continued_to_end(tmp_path: Path) -> None:
    script = "trap 'echo > got; exit 5' TERM; kill -STOP $$; exit 6"
    ended = supervise(sh(script), cwd=tmp_path, supervision=Supervision(timeout_seconds=0.2, grace_seconds=20))
    assert ended.timed_out and ended.code == 5


def test_what_stops_when_asked_to_end_is_continued_too(tmp_path: Path) -> None:
    script = "trap 'kill -STOP $$; echo > got; exit 5' TERM; while :; do sleep 0.01; done"
    ended = supervise(sh(script), cwd=tmp_path, supervision=Supervision(timeout_seconds=0.2, grace_seconds=20))
    assert ended.timed_out and ended.code == 5


# What it leaves running

# Until it runs the program that it is to be known by.
KNOWN = "grep -qs -e sleep -e patient /proc/$(cat inner)/comm"
BEGUN = f"; until [ -s inner ] && {KNOWN}; do sleep 0.01; done"
IN_GROUP = "sleep 100 & echo $! > inner" + BEGUN
IN_SESSION = "setsid sh -c 'echo $$ > inner; exec sleep 100' &" + BEGUN.replace(";", "", 1)
TWICE = "(setsid sh -c 'sleep 100 & echo $! > inner' &)" + BEGUN
BARE = "setsid env -i sh -c 'echo $$ > inner; exec sleep 100' &" + BEGUN.replace(";", "", 1)
KINDS = pytest.mark.parametrize(
    "script", [IN_GROUP, IN_SESSION, TWICE, BARE], ids=["group", "session", "twice", "bare"]
)


@linux
@KINDS
def test_leftovers_are_ended(program: Callable[..., Program], tmp_path: Path, script: str) -> None:
    answer = program(script, supervision={"leftovers": "end"}).answer()
    inner = int(content(tmp_path / "inner"))
    assert {"pid": inner, "command": "sleep 100", "fate": "ended"} in answer["survivors"]
    assert state(inner) == ""


@linux
@KINDS
def test_leftovers_are_waited_for(program: Callable[..., Program], tmp_path: Path, script: str) -> None:
    write(tmp_path / "patient", "#!/bin/sh\nuntil [ -e go ]; do sleep 0.01; done\necho > done\n")
    waiting = program(script.replace("sleep 100", "./patient"), supervision={"wait_seconds": 20})
    until((tmp_path / "waiting").exists)
    (tmp_path / "go").touch()
    answer = waiting.answer()
    inner = int(content(tmp_path / "inner"))
    assert {"pid": inner, "command": "/bin/sh ./patient", "fate": "waited"} in answer["survivors"]
    assert (tmp_path / "done").exists()


@linux
@KINDS
def test_leftovers_are_left(program: Callable[..., Program], tmp_path: Path, script: str) -> None:
    answer = program(script, supervision={"leftovers": "leave"}).answer()
    inner = int(content(tmp_path / "inner"))
    assert {"pid": inner, "command": "sleep 100", "fate": "left"} in answer["survivors"]
    assert not gone(inner)
    os.kill(inner, signal.SIGKILL)


@linux
def test_waiting_has_an_end(tmp_path: Path) -> None:
    ended = supervise(sh(IN_GROUP), cwd=tmp_path, supervision=Supervision(wait_seconds=0.05))
    assert [(one.command, one.fate) for one in ended.survivors] == [("sleep 100", "left")]
    os.kill(ended.survivors[0].pid, signal.SIGKILL)


@linux
def test_ctrl_c_ends_the_waiting(program: Callable[..., Program], tmp_path: Path) -> None:
    running = program(IN_GROUP, supervision={"wait_seconds": 1000})
    child = int(until(lambda: content(tmp_path / "started")))
    until(lambda: state(child) == "")
    running.process.send_signal(signal.SIGINT)
    answer = running.answer()
    assert answer["interrupted"] and answer["code"] == 0
    assert [one["fate"] for one in answer["survivors"]] == ["left"]


@linux
@pytest.mark.parametrize(
    "how", ["trap '' TERM; exec sleep 100", "kill -STOP $$; sleep 100"], ids=["deaf", "stopped"]
)
def test_leftovers_that_do_not_end_when_asked_are_ended(
    program: Callable[..., Program], tmp_path: Path, how: str
) -> None:
    write(tmp_path / "stubborn", f"#!/bin/sh\necho $$ > inner\n{how}\n")
    # What is stopped gets no grace to be killed after: continued, it ends when asked.
    options = {"leftovers": "end", "grace_seconds": 0.2 if "trap" in how else 1000}
    answer = program("./stubborn & until [ -s inner ]; do sleep 0.01; done", supervision=options).answer()
    assert [one["fate"] for one in answer["survivors"]] == ["ended"]
    assert gone(int(content(tmp_path / "inner")))


@linux
def test_names_are_printable_and_short(tmp_path: Path) -> None:
    rude = "\x1b[31m\n\u202e" + "x" * 1000
    script = [
        sys.executable,
        "-c",
        "import subprocess, sys; subprocess.Popen(['sleep', '100', sys.argv[1]])",
        rude,
    ]
    script[2] = script[2].replace("'sleep', '100'", "sys.executable, '-c', 'import time; time.sleep(100)'")
    ended = supervise(script, cwd=tmp_path, supervision=Supervision(leftovers=Leftovers.END))
    [survivor] = ended.survivors
    assert survivor.command.isprintable() and "?[31m??xxx" in survivor.command and len(survivor.command) == 200


@linux
@pytest.mark.parametrize("threads", [False, True])
def test_other_children_are_left_alone(program: Callable[..., Program], tmp_path: Path, threads: bool) -> None:
    others = [["sh", "-c", "exit 5"], ["sleep", "100"], ["sh", "-c", "sleep 100 & sleep 101"]]
    answer = program(IN_GROUP, supervision={"leftovers": "end"}, others=others, threads=threads).answer()
    inner = int(content(tmp_path / "inner"))
    assert {"pid": inner, "command": "sleep 100", "fate": "ended"} in answer["survivors"]
    assert not any("101" in one["command"] for one in answer["survivors"])
    assert answer["others"] == [5, None, None]


@linux
def test_children_that_other_threads_start_meanwhile_are_left_alone(tmp_path: Path) -> None:
    began: list[subprocess.Popen[bytes]] = []

    def started(pid: int) -> None:
        thread = threading.Thread(target=lambda: began.append(subprocess.Popen(["sleep", "100"], process_group=0)))
        thread.start()
        thread.join()
        (tmp_path / "go").touch()
        idle.start()

    over = threading.Event()
    idle = threading.Thread(target=over.wait)
    script = "until [ -e go ]; do sleep 0.01; done"
    ended = supervise(sh(script), cwd=tmp_path, started=started, supervision=Supervision(leftovers=Leftovers.END))
    over.set()
    idle.join()
    try:
        assert ended.survivors == () and began[0].poll() is None
    finally:
        began[0].kill()
        began[0].wait()


@linux
def test_in_a_program_with_threads_the_mark_tells(program: Callable[..., Program], tmp_path: Path) -> None:
    # The folder's name, for no other run of this test, at the same time, may have the same.
    mark = {"environment": {"RUN": str(tmp_path)}, "supervision": {"leftovers": "end", "mark": f"RUN={tmp_path}"}}
    answer = program(
        TWICE, threads=True, others=[["env", f"RUN={tmp_path.parent}", "sleep", "99"]], **mark
    ).answer()
    inner = int(content(tmp_path / "inner"))
    assert {"pid": inner, "command": "sleep 100", "fate": "ended"} in answer["survivors"]
    assert gone(inner) and answer["others"] == [None]


@linux
def test_a_process_between_two_programs_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([b"", b"", b"", b"A=1\0RUN=17\0"])
    monkeypatch.setattr(processes, "_contents", lambda pid, name: next(answers))
    assert processes.has_variable(processes.Process(7777, 1, 7777, False, 0), b"RUN=17")


@linux
def test_in_a_program_with_threads_what_descends_from_the_group_is_found(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    script = "sh -c 'setsid sleep 100 & echo $! > inner; wait' & until [ -s inner ]; do sleep 0.01; done" + BEGUN
    answer = program(script, threads=True, supervision={"leftovers": "end"}).answer()
    inner = int(content(tmp_path / "inner"))
    assert {"pid": inner, "command": "sleep 100", "fate": "ended"} in answer["survivors"]
    assert gone(inner)


@linux
@pytest.mark.parametrize("threads", [False, True])
def test_orphans_come_to_us_only_where_they_can_be_told_apart(
    program: Callable[..., Program], tmp_path: Path, threads: bool
) -> None:
    program("exit", threads=threads).answer()
    assert content(tmp_path / "reaper") == str(int(not threads))


def zombies(parent: int) -> list[int]:
    found = [process for process in processes.table().values() if process.parent == parent]
    return [process.pid for process in found if process.dead]


@linux
def test_orphans_that_end_meanwhile_are_cleared_away_and_no_others(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    orphans = (
        'for n in 1 2 3; do (setsid sh -c "echo \\$\\$ > pid$n" &); done; '
        "echo > ready; until [ -e go ]; do sleep 0.01; done"
    )
    running = program(orphans, others=[["sh", "-c", "exit 5"]])
    until(lambda: content(tmp_path / "ready"))
    until(lambda: all(content(tmp_path / f"pid{n}") for n in (1, 2, 3)))
    pids = [int(content(tmp_path / f"pid{n}")) for n in (1, 2, 3)]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    until(lambda: len(zombies(running.process.pid)) == 1)
    (tmp_path / "go").touch()
    assert running.answer()["others"] == [5]


@linux
def test_the_number_of_a_group_means_nothing_once_it_is_empty(tmp_path: Path) -> None:
    later = subprocess.Popen(["sleep", "100"], process_group=0)
    try:
        with Offspring(None) as offspring:
            offspring.of(0x7FFFFFFF)
            assert offspring.settle(Leftovers.LEAVE, wait_seconds=0, grace_seconds=0, pause=lambda _: False) == ()
            assert offspring._group == 0
    finally:
        later.kill()
        later.wait()


@linux
def test_a_signal_goes_to_the_process_that_was_seen_and_to_no_later_one() -> None:
    running = subprocess.Popen(["sleep", "100"])
    try:
        seen = processes.table()[running.pid]
        earlier = processes.Process(seen.pid, seen.parent, seen.group, False, seen.started - 1)
        processes.send(earlier, signal.SIGKILL)
        processes.send(seen, signal.SIGTERM)
        assert running.wait() == -signal.SIGTERM
    finally:
        running.kill()


def test_where_there_is_no_proc_ps_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "alone", lambda: False)
    monkeypatch.setattr(processes, "table", processes._ask_ps)
    monkeypatch.setattr(processes, "send", lambda process, number: os.kill(process.pid, number))
    ended = supervise(sh(IN_GROUP), cwd=tmp_path, supervision=Supervision(leftovers=Leftovers.END))
    assert [(one.command, one.fate) for one in ended.survivors] == [("sleep 100", "ended")]
