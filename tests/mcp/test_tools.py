"""The tools without the protocol, and what `putback-mcp` says where it cannot serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crash.killing import World, kill_at, reached
from putback.mcp_server import bounds, tools
from putback.mcp_server.main import run
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace
from support.trees import create, read_back, same

pytestmark = pytest.mark.requirement("K15")


def refused(workspace: Workspace, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = tools.call(workspace, tool, arguments)
    assert answer.failed and "Traceback" not in answer.text
    return dict(answer.structured["error"])


@given(st.lists(st.text(max_size=9)), st.integers(0, 30), st.integers(1, 9))
def test_a_page_is_part_of_the_list_and_says_where_it_goes_on(items: list[str], offset: int, limit: int) -> None:
    made = bounds.page(items, lambda item: item, offset, limit)
    assert made.items == items[offset : offset + limit] and made.total == len(items)
    assert made.next_offset == (offset + limit if offset + limit < len(items) else None)
    assert made.truncated == (len(made.items) < len(items) or offset > 0)


def test_a_page_of_long_names_is_shorter_and_never_empty() -> None:
    names = ["x" * (bounds.PAGE_BYTES // 3)] * 5 + ["y" * bounds.PAGE_BYTES * 2]
    assert len(bounds.page(names, str, 0, 100).items) == 2
    assert len(bounds.page(names, str, 5, 100).items) == 1


@given(st.text(alphabet="aé€😀\n", max_size=60), st.integers(4, 20))
def test_pieces_of_a_patch_are_whole_characters_and_make_it_up(text: str, limit: int) -> None:
    patch, offset, found = text.encode(), 0, ""
    while True:
        piece = bounds.piece(patch, offset, limit)
        found += piece.text
        assert len(piece.text.encode()) <= limit and piece.total_bytes == len(patch)
        if piece.next_offset is None:
            break
        assert piece.truncated and piece.next_offset > offset
        offset = piece.next_offset
    assert found == text


@given(st.binary(max_size=60), st.integers(1, 20))
def test_a_patch_of_any_bytes_comes_to_its_end(patch: bytes, limit: int) -> None:
    offset: int | None = 0
    for _ in range(len(patch) + 1):
        offset = bounds.piece(patch, offset, limit).next_offset
        if offset is None:
            return
    pytest.fail("it goes on for ever")


def test_an_interrupted_restore_is_a_persons_to_resolve(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.become({"a": "1\n", "b": "1\n"})
    world.workspace.snapshot()
    world.become({"a": "2\n", "b": "2\n"})
    digest = world.workspace.restore("@1", dry_run=True).plan.digest
    world.save(tmp_path.name + "-before")
    seams = reached(lambda: world.workspace.restore("@1"))
    world.load(tmp_path.name + "-before")
    kill_at(seams.index("restore.put"), lambda: world.workspace.restore("@1"))
    for tool, more in (("snapshot_restore_plan", {}), ("snapshot_restore_apply", {"digest": digest})):
        fault = refused(world.workspace, tool, id="@1", **more)
        assert fault["code"] == "unknown_state" and "putback recover" in fault["hint"]
    status = tools.call(world.workspace, "snapshot_status", None)
    assert "2 paths undecided" in status.structured["interrupted"] and "putback recover" in status.text
    same(read_back(world.root), {"a": "2\n", "b": "2\n"})


def test_a_run_is_listed_shown_and_taken_back(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1\n"})
    workspace = open_workspace(tree)
    workspace.run([sys.executable, "-c", "open('a','w').write('2')"], snapshot=True)
    listed = tools.call(workspace, "snapshot_list", {})
    assert listed.structured["entries"]["items"][0]["status"] == "finished" and " run " in listed.text
    shown = tools.call(workspace, "snapshot_show", {"id": "@1"})
    assert shown.structured["changes"]["items"][0]["path"] == "a"
    made = tools.call(workspace, "snapshot_restore_plan", {"id": "@1"})
    done = tools.call(workspace, "snapshot_restore_apply", {"id": "@1", "digest": made.structured["digest"]})
    assert not done.failed and done.structured["applied"] == 1
    same(read_back(tree), {"a": "1\n"})


def test_a_plan_with_nothing_to_do_is_confirmed_by_its_digest_too(
    tree: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "1\n"})
    workspace = open_workspace(tree)
    workspace.snapshot()
    made = tools.call(workspace, "snapshot_restore_plan", {"id": "@1"}).structured
    assert made["would_change"] == 0
    done = tools.call(workspace, "snapshot_restore_apply", {"id": "@1", "digest": made["digest"]})
    assert not done.failed and "id" not in done.structured
    assert refused(workspace, "snapshot_restore_apply", id="@1", digest="0" * 64)["code"] == "stale"


def test_null_is_as_good_as_absent(tree: Path, open_workspace: OpenWorkspace) -> None:
    assert not tools.call(open_workspace(tree), "snapshot_list", {"limit": None, "offset": None}).failed
    assert not tools.call(open_workspace(tree), "snapshot_list", None).failed


def test_an_error_of_ours_names_its_log(
    tree: Path, open_workspace: OpenWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Workspace) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Workspace, "list", broken)
    fault = refused(open_workspace(tree), "snapshot_list")
    assert fault["code"] == "internal" and "secret" not in str(fault)
    assert "ZeroDivisionError: secret" in Path(fault["hint"].partition("in ")[2]).read_text()


def test_names_in_words_cannot_move_a_cursor(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"\x1b[2J": "1\n"})
    workspace = open_workspace(tree)
    workspace.snapshot("\x1b[31m")
    (tree / "\x1b[2J").unlink()
    for name in ("snapshot_list", "snapshot_show", "snapshot_status"):
        assert "\x1b" not in tools.call(workspace, name, {}).text
    plan = tools.call(workspace, "snapshot_restore_plan", {"id": "@1"})
    assert "\x1b" not in plan.text and plan.structured["effects"]["items"][0]["path"] == "\x1b[2J"
    assert "\x1b" not in str(refused(workspace, "snapshot_diff", paths=["../\x1b[2J"]))


def test_help_shows_how_a_client_is_configured(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "claude mcp add putback -- putback-mcp -C ." in capsys.readouterr().out


def test_without_the_sdk_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['mcp'] = None; from putback.mcp_server.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 69 and done.stdout == ""
    assert "pip install '.[mcp]'" in done.stderr and "Traceback" not in done.stderr


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run([]) == 69
    assert "Windows is not supported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["-C", "nowhere"], 1), (["--what"], 2), (["x"], 2), (["-c", "no.such=1"], 2), (["--store", "."], 2)],
)
def test_a_wrong_start_ends_with_a_message(
    arguments: list[str],
    code: int,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tree)
    assert run(arguments) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("putback: ")


def test_a_plan_that_merges_is_reviewed_and_applied(tree: Path, open_workspace: OpenWorkspace) -> None:
    workspace = open_workspace(tree)
    for text in ("1\n2\n3\n4\n5\n", "agent\n2\n3\n4\n5\n"):
        create(tree, {"a": text})
        workspace.snapshot()
    create(tree, {"a": "agent\n2\n3\n4\nmine\n"})
    asked = {"id": "@2..@1", "merge": True}
    made = tools.call(workspace, "snapshot_restore_plan", asked).structured
    assert made["counts"] == {"merge": 1}
    assert refused(workspace, "snapshot_restore_apply", id="@2..@1", digest=made["digest"])["code"] == "stale"
    assert refused(workspace, "snapshot_restore_plan", **asked, force=True)["code"] == "usage"
    done = tools.call(workspace, "snapshot_restore_apply", {**asked, "digest": made["digest"]})
    assert done.structured["outcomes"]["items"][0]["status"] == "merged" and "merged a" in done.text
    same(read_back(tree), {"a": "1\n2\n3\n4\nmine\n"})
