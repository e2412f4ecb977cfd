"""What a person at a terminal sees and is asked, and what programs get instead."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from putback.cli.main import COMMANDS
from support.trees import create, read_back

pytestmark = pytest.mark.slow


def command(store: Path, *arguments: str) -> list[str]:
    fixed = ["--store", str(store), "-c", "store.min_free_bytes=0"]
    return [sys.executable, "-m", "putback", *fixed, *arguments]


def putback(tree: Path, store: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(store, *arguments),
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def at_terminal(
    tree: Path, store: Path, *arguments: str, typed: bytes = b"", **environment: str
) -> tuple[int, str]:
    """Run under a pseudo-terminal of 80 columns; returns the exit code and everything shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tree)
        os.environ.update({"TERM": "xterm", "COLUMNS": "80", "PAGER": "cat", **environment})
        os.execvp(sys.executable, command(store, *arguments))
    shown = b""
    if typed:
        while b"?" not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, typed)
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, shown.decode(errors="replace").replace("\r\n", "\n")


@pytest.fixture
def changed(tree: Path, store: Path) -> Path:
    create(tree, {"a": "1\n", "b": "2\n"})
    assert putback(tree, store, "snapshot", "-m", "first").returncode == 0
    create(tree, {"a": "changed\n"})
    return tree


@pytest.mark.parametrize(("typed", "code", "content"), [(b"y\n", 0, b"1\n"), (b"n\n", 1, b"changed\n")])
def test_a_person_is_shown_the_plan_and_asked(
    changed: Path, store: Path, typed: bytes, code: int, content: bytes
) -> None:
    ended, shown = at_terminal(changed, store, "restore", "@1", typed=typed)
    assert "would restore   a" in shown
    assert ended == code
    assert (changed / "a").read_bytes() == content


def test_without_a_command_the_help_is_shown(tree: Path) -> None:
    alone = subprocess.run(
        [sys.executable, "-m", "putback"], cwd=tree, capture_output=True, text=True, check=False
    )
    assert alone.stderr.startswith("Usage: putback") and "putback: " not in alone.stderr
    assert alone.returncode == 2 and not alone.stdout


def test_colours_are_for_terminals_that_want_them(changed: Path, store: Path) -> None:
    assert "\x1b[31m-changed" in at_terminal(changed, store, "diff", "--no-pager")[1]
    assert "\x1b" not in at_terminal(changed, store, "diff", "--no-pager", NO_COLOR="1")[1]
    assert "\x1b" not in putback(changed, store, "diff").stdout


def test_the_diff_goes_through_the_pager_of_the_environment(changed: Path, store: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    assert "PAGED" in at_terminal(changed, store, "diff", PAGER=str(pager))[1]
    assert "PAGED" not in at_terminal(changed, store, "diff", "--no-pager", PAGER=str(pager))[1]


def test_a_huge_patch_is_cut_in_json_and_says_so(tree: Path, store: Path) -> None:
    create(tree, {"big": b"".join(b"line %d\n" % number for number in range(100_000))})
    assert putback(tree, store, "snapshot").returncode == 0
    (tree / "big").unlink()
    answer = json.loads(putback(tree, store, "--json", "diff").stdout)
    assert answer["truncated"]["patch_bytes"] > answer["truncated"]["shown_bytes"] == len(answer["patch"])


def test_a_binary_file_is_named_and_not_shown(tree: Path, store: Path) -> None:
    create(tree, {"b": b"\0\1\2"})
    assert putback(tree, store, "snapshot").returncode == 0
    create(tree, {"b": b"\0\1\3"})
    assert "Binary files a/b and b/b differ" in putback(tree, store, "diff").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("snapshot",),
        ("list",),
        ("show",),
        ("ls",),
        ("diff",),
        ("status",),
        ("restore", "@1", "--dry-run"),
        ("restore", "@1", "--yes"),
        ("undo", "--yes"),
        ("redo", "--yes"),
        ("recover",),
        ("completion", "bash"),
        ("restore", "@1"),
        ("restore", "nonsense"),
        ("nonsense",),
        ("-c", "x=1", "list"),
    ],
    ids=" ".join,
)
def test_json_is_one_object_and_nothing_else(changed: Path, store: Path, arguments: tuple[str, ...]) -> None:
    answer = json.loads(putback(changed, store, "--json", *arguments).stdout)
    assert isinstance(answer, dict)


def test_completion_knows_the_commands(tree: Path, store: Path) -> None:
    answer = putback(tree, store, COMP_WORDS="putback re", COMP_CWORD="1", _PUTBACK_COMPLETE="bash_complete")
    assert {"plain,restore", "plain,redo", "plain,recover"} <= set(answer.stdout.split())


def test_every_command_has_help_with_an_example(tree: Path, store: Path) -> None:
    for name in COMMANDS:
        assert "Example:" in putback(tree, store, name, "--help").stdout, name


def test_interrupting_a_first_capture_publishes_nothing(tree: Path, store: Path) -> None:
    for number in range(4000):
        (tree / f"f{number}").write_bytes(os.urandom(3000))
    running = subprocess.Popen(command(store, "snapshot"), cwd=tree, stderr=subprocess.PIPE, text=True)
    while not list(store.glob("workspaces/*/scratch/*")) and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    said = running.communicate()[1]
    if running.returncode != 0:
        assert running.returncode == 130
        assert "Traceback" not in said
        assert json.loads(putback(tree, store, "--json", "list").stdout) == {"entries": []}
    before = read_back(tree)
    assert putback(tree, store, "snapshot").returncode == 0
    assert read_back(tree) == before
