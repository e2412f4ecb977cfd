"""A command that does its worst to the workspace it runs in: taken back exactly, or refused in words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.killing import World
from putback.cli import main
from putback.errors import PutbackError, StorageError
from putback.fs.root import Root
from putback.records.run import Limits
from support.hostile import CONTROLS, START, Place, cli, no_controls
from support.trees import create, normal, read_back, same

HOSTILE = {
    "names": """n() { printf "$@"; }; printf x > "$(n 'a\\nb\\033[2Jc')"; mkdir "$(n 'd\\033]0;x\\007')";
        printf x > "$(n '\\233J')"; printf y > "$(n 'd\\033]0;x\\007/\\rq')"; rm gone""",
    "ignore file is a link": "ln -s ../outside/secret .gitignore; rm src/a; echo n > n",
    "ignore file is a directory": "mkdir .gitignore; echo x > .gitignore/x; rm src/a",
    "root emptied": "rm -rf *",
    "root replaced": "cd ..; mv tree aside; mkdir tree; echo x > tree/x",
    "root closed": "rm src/a; chmod 000 .",
    "many files": "mkdir many; cd many; seq 3000 | xargs touch",
    "deep": "i=0; while [ $i -lt 200 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > f",
    "git init": "git init -q; echo z > z; git add -A; rm app.py",
    "hard links": "ln ../outside/secret hard; ln app.py second; chmod 600 second; echo more >> second",
    "sparse": "truncate -s 60M sparse; printf x | dd of=sparse bs=1 seek=30000000 conv=notrunc 2>&-; rm gone",
    "git is a file": "echo 'gitdir: ../outside' > .git; rm src/a",
    "git is a link": "ln -s ../outside .git; rm src/a",
    "git is a pipe": "mkfifo .git; rm src/a",
}


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[World]:
    """A workspace, and a directory beside it that is nobody's business."""
    world = Place(tmp_path / "place")
    create(world.base / "outside", {"secret": "outside\n"})
    create(world.root, START)
    yield world
    if world.root.is_dir():
        world.root.chmod(0o755)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_command_did_is_taken_back(
    hostile: World, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = read_back(hostile.base / "outside")
    assert main.run(cli(hostile, "run", "--snapshot", "--", "sh", "-c", HOSTILE[name])) == 0
    assert no_controls(capsys.readouterr())
    for command in ("show", "plan", "verify"):
        assert main.run(cli(hostile, command)) == 0
        assert no_controls(capsys.readouterr()), command
    after = hostile.tree
    assert main.run(cli(hostile, "restore", "@1", "--yes")) == 0
    assert no_controls(capsys.readouterr())
    same(hostile.tree, START)
    assert read_back(hostile.base / "outside") == outside
    assert main.run(cli(hostile, "undo", "--yes")) == 0
    same(hostile.tree, after)


def test_a_command_line_with_control_characters(hostile: World, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("sh", "-c", "echo > n; exit 3", CONTROLS, "line\nbreak", os.fsdecode(b"\xff\xfe"))
    assert (
        main.run(cli(hostile, "run", "--snapshot", "--fail-on-error", "--verify", "exit 1; #\x1b[2J", *arguments))
        == 42
    )
    assert no_controls(capsys.readouterr())
    for command in (("show",), ("list",), ("verify",), ("restore", "@1", "--yes"), ("list",), ("undo", "--yes")):
        assert main.run(cli(hostile, *command)) == 0, command
        assert no_controls(capsys.readouterr()), command


def test_a_repository_that_the_command_made_is_left_whole_and_told(hostile: World) -> None:
    script = "mkdir sub; cd sub; git init -q; echo x > f; rm ../gone"
    run = hostile.workspace.run(("sh", "-c", script), snapshot=True)
    restored = hostile.workspace.restore(run.entry.id)
    assert {item.path for item in restored.plan.left} == {"sub", "sub/f"}
    assert hostile.tree.keys() - normal(START).keys() == {b"sub", b"sub/f"} and (hostile.root / "gone").exists()


def again(root: Path) -> None:
    root.unlink(missing_ok=True)
    root.mkdir()


OBSTRUCTED: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "ignore file is a pipe": (
        "rm gone; mkfifo .gitignore",
        "git would wait",
        lambda r: (r / ".gitignore").unlink(),
    ),
    "one below is": (
        "rm gone; mkfifo src/.gitignore",
        "git would wait",
        lambda r: (r / "src/.gitignore").unlink(),
    ),
    "root removed": ("cd ..; rm -r tree", "is no directory, or is gone", again),
    "root is a file": ("cd ..; mv tree aside; echo > tree", "is no directory, or is gone", again),
    "root is a link": ("cd ..; mv tree aside; ln -s outside tree", "symbolic link", again),
    "root is a link to nowhere": ("cd ..; mv tree aside; ln -s x tree", "is no directory, or is gone", again),
}


@pytest.mark.parametrize("rollback", [False, True], ids=["snapshot", "rollback"])
@pytest.mark.parametrize("name", OBSTRUCTED)
def test_what_cannot_be_captured_is_refused_and_taken_back_later(
    hostile: World, name: str, rollback: bool
) -> None:
    """The refusal says which run it is and what to do; nothing outside is read or written through the new root."""
    script, words, clear = OBSTRUCTED[name]
    outside = read_back(hostile.base / "outside")
    workspace = hostile.workspace
    options: dict[str, Any] = {"rollback_on_breach": True, "limits": Limits(max_files=0)} if rollback else {}
    with pytest.raises(PutbackError, match=words) as refusal:
        workspace.run(("sh", "-c", script), snapshot=True, **options)
    assert read_back(hostile.base / "outside") == outside
    found = re.search(r"`putback restore ([0-9a-f]{12})`", refusal.value.hint or "")
    assert found is not None, refusal.value.hint
    clear(hostile.root)
    assert not hostile.workspace.restore(found[1]).failed
    same(hostile.tree, START)
    assert read_back(hostile.base / "outside") == outside


def test_a_root_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="cannot open the workspace"):
        Root(os.fsencode(tmp_path / "link"))
