"""However the hook is called and whatever breaks it: never exit code 2, nothing that agents cannot read, and told.

An agent takes 2 for a veto: a hook that ends with it would hold up the work that it is to protect.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from putback.agents import hook as hooks
from putback.agents import registry
from putback.agents.hook import last_failure
from putback.agents.sessions import open_turns
from putback.cli import hook as command
from putback.cli import main as cli
from putback.fs import durable
from putback.records.agent import Failure
from putback.store import captures
from putback.store.layout import Store
from putback.workspace import Workspace
from support.agents import Agent
from support.hermetic import settings
from support.trees import create

MODULE = [sys.executable, "-P", "-m", "putback"]
HOOK = [*MODULE, "hook", "claude-code"]


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def prompt(root: Path) -> bytes:
    return json.dumps({"session_id": "s", "cwd": str(root), "hook_event_name": "UserPromptSubmit"}).encode()


def environment(home: Path, store: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PUTBACK_STORE": str(store)} | more


def run(argv: list[str], given: bytes, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, input=given, capture_output=True, check=False, **more)


def failed(store: Path) -> Failure:
    found = last_failure(Store(store))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["hook"],
        ["hook", "claude-code", "Stop", "more", "still more"],
        ["hook", "--bogus", "claude-code"],
        ["hook", "claude-code", "--bogus"],
        ["--json", "hook"],
        ["-c", "no.such=1", "hook", "claude-code", "--bogus"],
        ["-C", "/nonexistent", "--store", "/nonexistent/store", "hook"],
        ["hook", "no-such-agent"],
        ["--bogus", "hook", "claude-code"],
    ],
)
def test_a_wrong_command_line_is_no_veto(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 1


def test_an_unknown_agent_is_no_veto() -> None:
    done = run([*MODULE, "hook", "no-such-agent"], b"{}")
    assert (done.returncode, done.stdout) == (1, b"") and b"no-such-agent" in done.stderr


@pytest.mark.parametrize("agent", registry.NAMES)
@pytest.mark.parametrize("given", [b"", b"no JSON", b"\xff\xfe{", b'{"a": "' + b"x" * command.MOST_BYTES + b'"}'])
def test_what_is_no_event_is_answered_with_silence(
    agent: str, given: bytes, store: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    before = os.dup(0)
    os.dup2(reader, 0)
    os.close(reader)
    child = os.fork()
    if child == 0:
        os.close(0)
        with open(writer, "wb") as pipe:
            pipe.write(given)
        os._exit(0)
    os.close(writer)
    try:
        assert command.hook(agent, store=str(store)) == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert os.waitpid(child, 0)[1] == 0, "all of it was read"
    assert capfd.readouterr() == (registry.adapter(agent).silence.decode(), "")


def test_closed_streams_are_not_taken_by_files_of_ours(tree: Path, home: Path, store: Path) -> None:
    shell = 'exec "$@" <&- >&- 2>&-'
    done = run(["sh", "-c", shell, "sh", *HOOK], b"", env=environment(home, store), cwd=tree)
    assert done.returncode == 0
    shell = 'exec "$@" >&- 2>&-'
    done = run(["sh", "-c", shell, "sh", *HOOK], prompt(tree), env=environment(home, store), cwd=tree)
    assert done.returncode == 0
    assert len(open_turns(Workspace.open(tree, store=store).paths)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_hook_that_is_ended_says_so_to_the_user(number: int, tree: Path, home: Path, store: Path) -> None:
    Agent(tree, store).prompt("first")
    with subprocess.Popen(
        HOOK, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home, store)
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b" " * 200_000)  # more than a pipe holds: once it is taken, the hook is at work
        process.stdin.flush()
        process.send_signal(number)
        assert process.wait() == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    assert failed(store).code == "cancelled"


def test_git_that_is_missing_is_told_also_before_there_is_a_store(tree: Path, home: Path, store: Path) -> None:
    create(tree, {"a": "1\n"})
    without = environment(home, store, PATH="/nonexistent")
    done = run(HOOK, prompt(tree), env=without)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert failed(store).code == "git_unavailable" and not store.exists()
    done = run(HOOK, prompt(tree), env=environment(home, store))
    assert (done.returncode, done.stdout) == (0, b"") and last_failure(Store(store)) is None
    assert run(HOOK, prompt(tree), env=without).returncode == 0
    assert failed(store).code == "git_unavailable"


def test_a_package_that_is_missing_is_no_veto(tree: Path, home: Path, store: Path) -> None:
    program = "import sys; sys.modules['msgspec'] = None; sys.argv = ['putback', 'hook', 'gemini']\n"
    program += "from putback.__main__ import main; main()"
    done = run([sys.executable, "-P", "-c", program], prompt(tree), env=environment(home, store))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{}", b"")


def test_a_directory_that_is_gone_and_a_home_that_is_unknown(tree: Path, home: Path, store: Path) -> None:
    gone = tree / "gone"
    gone.mkdir()
    shell = 'rmdir "$PWD"; exec "$@"'
    done = run(
        ["sh", "-c", shell, "sh", *HOOK],
        b'{"hook_event_name": "UserPromptSubmit"}',
        cwd=gone,
        env=environment(home, store),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert failed(store).code == "storage"
    homeless = environment(home, store)
    del homeless["HOME"]
    done = run(HOOK, prompt(tree), env=homeless)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(open_turns(Workspace.open(tree, store=store).paths)) == 1


def answered(
    store: Path, given: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command, in this process, says nothing and succeeds."""
    monkeypatch.setattr(command, "_given", lambda: given)
    capfd.readouterr()
    assert command.hook("claude-code", store=str(store)) == 0
    assert capfd.readouterr() == ("", "")


def status(root: Path, store: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What `status` prints."""
    capfd.readouterr()
    code = cli.run(["-C", str(root), "--store", str(store), "status"])
    sys.stdout.flush()
    return code, "".join(capfd.readouterr())


@pytest.fixture
def agent(tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent whose first turn is over."""
    create(tree, {"a": "1\n"})
    found = Agent(tree, store)
    found.prompt("first")
    found.stop()
    return found


def test_a_hook_that_crashes_is_told_with_where_its_traceback_is(
    agent: Agent, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "_begin", lambda *arguments: 1 // 0)
        answered(agent.store, prompt(agent.root), patch, capfd)
    found = failed(agent.store)
    log = Path(found.message.rpartition(" ")[2])
    assert found.code == "internal" and "ZeroDivisionError" in log.read_text()
    code, said = status(agent.root, agent.store, capfd)
    assert code == 0 and "hook" in said and "internal error" in said


def test_a_first_capture_that_crashes_is_told(
    tree: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "_begin", lambda *arguments: 1 // 0)
        answered(store, prompt(tree), patch, capfd)
    assert failed(store).code == "internal"
    assert "internal error" in status(tree, store, capfd)[1]


def test_an_interrupt_in_the_middle_of_a_capture_is_told(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(captures, "write", interrupt)
        answered(agent.store, prompt(agent.root), patch, capfd)
    assert failed(agent.store).code == "cancelled"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_store_that_takes_nothing_is_told_where_it_takes_that(
    code: int, agent: Agent, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(durable, "_write_part", refuse)
        answered(agent.store, prompt(agent.root), patch, capfd)
    with monkeypatch.context() as patch:
        patch.setattr(captures, "write", refuse)
        answered(agent.store, prompt(agent.root), patch, capfd)
    assert failed(agent.store).code == "storage"
    assert os.strerror(code) in status(agent.root, agent.store, capfd)[1]


@pytest.mark.parametrize("store_is", ["a file", "below a file", "the workspace", "a newer version"])
def test_a_store_that_cannot_be_one_disturbs_nobody(
    store_is: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path, {"file": "1\n", "newer/store.json": '{"format": "putback/store", "version": 99}'})
    names = {"a file": "file", "below a file": "file/store", "the workspace": "tree", "a newer version": "newer"}
    store = tmp_path / names[store_is]
    answered(store, prompt(tree), monkeypatch, capfd)
    code, said = status(tree, store, capfd)
    assert code not in (0, 70) and str(store) in said
    assert not list(tree.iterdir()) and (tmp_path / "file").read_text() == "1\n"


def test_a_store_that_is_full_is_told(agent: Agent, capfd: pytest.CaptureFixture[str]) -> None:
    (agent.root / "big").write_bytes(os.urandom(5000))
    tight = settings(max_bytes=1)
    assert hooks.Hook(registry.adapter("claude-code"), agent.store, tight).answer(prompt(agent.root)) == b""
    assert failed(agent.store).code == "over_budget"
    assert failed(agent.store).message in status(agent.root, agent.store, capfd)[1]


def test_a_workspace_that_vanished_is_told(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answered(agent.store, prompt(tmp_path / "gone"), monkeypatch, capfd)
    assert f"no such directory: '{tmp_path}/gone'" in status(agent.root, agent.store, capfd)[1]


FAULTY = "[capture\nexclude = 7"


@pytest.mark.parametrize("file", ["malformed", "read-only", "a link", "a link to nowhere", "a pipe"])
def test_settings_of_the_workspace_that_are_faulty_disturb_no_turn(
    file: str, agent: Agent, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place, other = agent.root / ".putback.toml", agent.root.parent / "other.toml"
    if file == "a pipe":
        os.mkfifo(place)
    elif file.startswith("a link"):
        place.symlink_to(other)
        other.write_text(FAULTY)
        if file == "a link to nowhere":
            other.unlink()
    else:
        place.write_text(FAULTY)
        place.chmod(0o400 if file == "read-only" else 0o644)
    answered(agent.store, prompt(agent.root), monkeypatch, capfd)
    assert len(open_turns(agent.workspace.paths)) == 1
    code, said = status(agent.root, agent.store, capfd)
    ignored = f"settings ignored: {place}" in said
    assert code == 0 and ignored is (file not in ("a link to nowhere", "a pipe"))


@pytest.mark.parametrize("file", ["malformed", "a link"])
def test_settings_of_the_user_that_are_faulty_are_told(
    file: str, agent: Agent, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = home / ".config/putback/config.toml"
    place.parent.mkdir(parents=True)
    (home / "elsewhere.toml").write_text(FAULTY)
    if file == "a link":
        place.symlink_to(home / "elsewhere.toml")
    else:
        place.write_text(FAULTY)
    answered(agent.store, prompt(agent.root), monkeypatch, capfd)
    assert "config.toml" in failed(agent.store).message
    code, said = status(agent.root, agent.store, capfd)
    assert code == 2 and "config.toml" in said
