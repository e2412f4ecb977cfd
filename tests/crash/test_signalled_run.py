"""Real processes and real signals: the supervisor, the command, both, or the whole group is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from putback.errors import LockedError
from putback.records.receipt import Receipt
from putback.records.run import EndedBy, RunStatus
from putback.runs import processes
from putback.runs.unfinished import Unfinished
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, make_repository, unmoved
from support.trees import create, read_back, same

pytestmark = pytest.mark.slow

# Says that it is at work, waits until it may go on, and breaks some more.
AGENT = """
echo broken > a; rm b; echo new > c
: > {signs}/at-work
while [ ! -e {signs}/go ]; do sleep 0.02; done
echo late > d
: > {signs}/over
"""
START = {"a": "a\n", "b": "b\n"}


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


@dataclass
class Supervised:
    """A supervisor in a process and group of its own, and the command below it."""

    tree: Path
    store: Path
    signs: Path
    workspace: Workspace
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *options: str, command: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        chosen = command or ("sh", "-c", AGENT.format(signs=self.signs))
        process = subprocess.Popen(
            [*self.putback, "run", *options, "--", *chosen],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self.started.append(process)
        until((self.signs / "at-work").exists)
        return process

    @property
    def putback(self) -> list[str]:
        fixed = ("-C", str(self.tree), "--store", str(self.store), "-c", "store.min_free_bytes=0")
        return [sys.executable, "-m", "putback", *fixed]

    def call(self, *arguments: str) -> tuple[int, dict]:
        done = subprocess.run([*self.putback, "--json", *arguments], capture_output=True, check=False)
        return done.returncode, json.loads(done.stdout)

    def sign(self, name: str) -> None:
        (self.signs / name).touch()

    @property
    def command(self) -> int:
        """The number of the command's process."""
        [folder] = self.store.glob("workspaces/*/runs/*")
        until((folder / "process").exists)  # the command may be faster than its supervisor
        return int((folder / "process").read_text().split()[0])

    def killed(self) -> Unfinished:
        [found] = self.workspace.runs.killed()
        return found

    def close(self) -> Receipt:
        until(lambda: not self.killed().processes)
        return self.workspace.runs.close(self.killed()).receipt


@pytest.fixture
def supervised(tree: Path, store: Path, tmp_path: Path, open_workspace: OpenWorkspace) -> Iterator[Supervised]:
    make_repository(tree, START)
    signs = tmp_path / "signs"
    signs.mkdir()
    made = Supervised(tree, store, signs, open_workspace(tree))
    with unmoved(tree):
        yield made
    made.sign("go")
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_while_the_command_goes_on_its_run_is_not_closed(supervised: Supervised) -> None:
    before = read_back(supervised.tree)
    process = supervised.start("--snapshot")
    assert [run.alive for run in supervised.workspace.runs.unfinished()] == [True]
    assert supervised.call("status")[0] == 0
    assert supervised.call("show", supervised.workspace.runs.unfinished()[0].id)[0] == 45
    command = supervised.command
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    found = supervised.killed()
    assert command in {each.pid for each in found.processes}
    for attempt in (
        lambda: supervised.workspace.runs.close(found),
        lambda: supervised.workspace.restore(found.id),
    ):
        with pytest.raises(LockedError) as refused:
            attempt()
        assert refused.value.exit_code == 45 and f"process {command}," in refused.value.message
    left = read_back(supervised.tree)
    code, said = supervised.call("recover", "--back", "--yes")
    assert code == 45 and str(command) in said["error"]["message"]
    code, said = supervised.call("status")
    assert code == 44 and command in said["runs"][0]["processes"]
    same(read_back(supervised.tree), left)
    supervised.sign("go")
    until((supervised.signs / "over").exists)
    receipt = supervised.close()
    assert receipt.session.status is RunStatus.INTERRUPTED and receipt.session.exit.by is EndedBy.UNKNOWN
    assert (supervised.tree / "d").read_text() == "late\n" and receipt.changes.total == 4
    supervised.workspace.restore(receipt.session.id)
    same(read_back(supervised.tree), before)


def test_a_process_that_lost_the_mark_is_known_by_its_number_and_by_its_parents(supervised: Supervised) -> None:
    script = f"exec env -i PATH=$PATH sh -c '{AGENT.format(signs=supervised.signs)}'"
    process = supervised.start(command=("sh", "-c", script))
    command = supervised.command
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert command in {each.pid for each in supervised.killed().processes}
    os.kill(command, signal.SIGKILL)
    supervised.close()


def test_a_daemon_that_left_the_command_is_known_by_the_mark(supervised: Supervised) -> None:
    """The command has ended, unseen; what it started goes on, and nothing connects the two but the mark."""
    script = f"setsid sh -c '{AGENT.format(signs=supervised.signs)}' & sleep 60"
    process = supervised.start(command=("sh", "-c", script))
    command = supervised.command
    for pid in (process.pid, command):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    for each in processes.table().values():
        if each.group == command:
            os.kill(each.pid, signal.SIGKILL)  # the sleep
    until(lambda: not any(each.group == command for each in processes.table().values()))
    found = supervised.killed()
    assert found.processes and command not in {each.pid for each in found.processes}
    with pytest.raises(LockedError):
        supervised.workspace.runs.close(found)
    supervised.sign("go")
    assert supervised.close().changes.total == 4
    assert (supervised.tree / "d").exists()


def test_what_the_command_left_running_on_purpose_is_no_obstacle(supervised: Supervised) -> None:
    """The end of the command is on record, with what it left; only then was the supervisor killed."""
    script = (
        f"sh -c '{AGENT.format(signs=supervised.signs)}' & while [ ! -e {supervised.signs}/at-work ]; do :; done"
    )
    process = supervised.start(
        "--leftovers",
        "leave",
        "--verify",
        f": > {supervised.signs}/verifying; sleep 60",
        command=("sh", "-c", script),
    )
    until((supervised.signs / "verifying").exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert supervised.killed().processes == ()
    receipt = supervised.workspace.runs.close(supervised.killed()).receipt
    assert receipt.session.exit.code == 0 and not receipt.session.exit.final
    assert "Whether the verification command succeeded is not known." in receipt.limits_disclosure


def test_the_signal_that_ended_the_command_alone_is_recorded(supervised: Supervised) -> None:
    process = supervised.start("--snapshot")
    os.kill(supervised.command, signal.SIGKILL)
    process.communicate()
    assert process.returncode == 137 and supervised.workspace.runs.unfinished() == []
    entry = supervised.workspace.list()[0]
    receipt = supervised.workspace.show(entry.id).receipt
    assert receipt is not None and receipt.session.status is RunStatus.FINISHED
    assert (receipt.session.exit.by, receipt.session.exit.signal, entry.exit_code) == (EndedBy.SIGNAL, 9, 137)


@pytest.mark.parametrize("victims", ["both", "groups"])
def test_supervisor_and_command_killed_together(supervised: Supervised, victims: str) -> None:
    before = read_back(supervised.tree)
    process = supervised.start("--snapshot")
    command = supervised.command
    for pid in (process.pid, command):
        (os.kill if victims == "both" else os.killpg)(pid, signal.SIGKILL)
    process.wait()
    left = read_back(supervised.tree)
    until(lambda: not supervised.killed().processes)
    code, said = supervised.call("recover", "--keep", "--yes")
    assert code == 0 and [run["receipt"]["session"]["status"] for run in said["closed"]] == ["interrupted"]
    same(read_back(supervised.tree), left)
    assert supervised.call("restore", "@1", "--yes")[0] == 0
    same(read_back(supervised.tree), before)


def test_two_runs_at_once_end_with_whole_evidence_that_names_the_other(supervised: Supervised) -> None:
    first = supervised.start("--snapshot")
    [outer] = [run.id for run in supervised.workspace.runs.unfinished()]
    second = supervised.workspace.run(("sh", "-c", "echo second > second"), snapshot=True)
    assert f"Another run was at work in this workspace at the same time: {outer[:12]}." in (
        second.receipt.limits_disclosure
    )
    supervised.sign("go")
    first.communicate()
    assert first.returncode == 0
    receipt = supervised.workspace.show(outer).receipt
    assert receipt is not None
    named = f"Another run was at work in this workspace at the same time: {second.entry.short_id}."
    assert named in receipt.limits_disclosure
    third = supervised.workspace.run(("true",))
    assert not [said for said in third.receipt.limits_disclosure if "Another run" in said]


def test_recover_closes_none_while_the_command_of_one_is_at_work(supervised: Supervised) -> None:
    idle = supervised.start(command=("sh", "-c", f": > {supervised.signs}/at-work; exec sleep 60"))
    command = supervised.command
    (supervised.signs / "at-work").unlink()
    busy = supervised.start()
    os.kill(command, signal.SIGSTOP)  # so that its supervisor does not see it end
    for pid in (idle.pid, busy.pid, command):
        os.kill(pid, signal.SIGKILL)
    for process in (idle, busy):
        process.wait()
    until(lambda: [bool(run.processes) for run in supervised.workspace.runs.killed()] == [False, True])
    assert supervised.call("recover", "--keep", "--yes")[0] == 45
    assert len(supervised.workspace.runs.killed()) == 2
    supervised.sign("go")
    until(lambda: not any(run.processes for run in supervised.workspace.runs.killed()))
    assert supervised.call("recover", "--keep", "--yes")[0] == 0
    assert supervised.workspace.runs.unfinished() == [] and len(supervised.workspace.list()) == 2


def test_a_restore_before_closing_is_told(supervised: Supervised) -> None:
    taken = supervised.workspace.snapshot("start")
    process = supervised.start("--snapshot")
    os.killpg(supervised.command, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not supervised.killed().processes)
    create(supervised.tree, {"a": "mine\n"})
    restored = supervised.workspace.restore(taken.id, force=True)
    assert restored.entry is not None
    said = supervised.close().limits_disclosure
    assert f"A restore was made before the run was closed: {restored.entry.short_id}." in said
