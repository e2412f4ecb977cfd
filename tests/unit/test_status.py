"""How a workspace stands: protected by whom, at what cost, and in one line for a status bar."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from putback.agents import hook, install, registry
from putback.agents.draft import Site
from putback.agents.places import Scope
from putback.agents.protection import protectors
from putback.agents.registry import NAMES
from putback.cli import main
from putback.errors import OverBudget
from putback.fs import lock
from putback.progress import SILENT
from putback.records import document
from putback.records.history import Cause
from putback.records.journal import Published, Started
from putback.records.plan import Plan
from putback.store import usage
from putback.store.layout import Store
from support.agents import Agent
from support.hermetic import OpenWorkspace, settings
from support.trees import create


@pytest.fixture
def site(tree: Path, home: Path) -> Site:
    return Site(tree, home, ("/bin/putback",), {})


@pytest.mark.parametrize("agent", NAMES)
@pytest.mark.parametrize("scope", list(Scope))
def test_the_agents_that_are_told_to_call_are_named(agent: str, scope: Scope, site: Site) -> None:
    assert protectors(site) == []
    install.install(agent, scope, site)
    assert protectors(site) == [(agent, scope)]
    install.uninstall(agent, scope, site)
    assert protectors(site) == []


def test_settings_that_cannot_be_read_protect_nobody(site: Site) -> None:
    create(
        site.root, {".claude/settings.json": "{ not json", ".gemini/settings.json": "[]", ".codex/hooks.json": ""}
    )
    (site.root / ".cursor").mkdir()
    (site.root / ".cursor" / "hooks.json").symlink_to("/etc/passwd")
    create(site.root, {".opencode/plugins/putback.js": "// somebody else's\n"})
    assert protectors(site) == []


class Line:
    """`putback status --line` of one workspace."""

    def __init__(self, root: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._words = ["-C", str(root), "--store", str(store), "-c", "store.min_free_bytes=0"]
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main.run([*self._words, *words, "status", "--line"])
        out, err = self._capsys.readouterr()
        assert out.count("\n") == 1 and err == ""
        return code, out.strip()

    def whole(self) -> int:
        return main.run([*self._words, "status"])


@pytest.fixture
def line(tree: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(tree, store, capsys)


def test_the_line_says_whether_there_is_a_capture(line: Line, tree: Path, open_workspace: OpenWorkspace) -> None:
    assert line() == (0, "putback UNPROTECTED")
    open_workspace(tree).snapshot("first")
    code, text = line()
    assert code == 0 and text.startswith("putback ok  0 s ago  ") and text.endswith(" kB")


def test_the_line_is_printed_whatever_is_wrong(
    line: Line, tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    workspace = open_workspace(tree)
    workspace.snapshot("first")
    newest = next(workspace.paths.history.iterdir())
    record = newest.read_bytes()
    newest.write_bytes(b"{")
    assert line()[0] == line.whole() == 46 and line()[1].startswith("putback ! damaged")
    newest.write_bytes(record)
    marker = Store(store).marker
    kept = marker.read_bytes()
    marker.write_bytes(kept.replace(b'"version":1', b'"version":99'))
    assert line()[0] == line.whole() == 46 and "version 99" in line()[1]
    marker.write_bytes(kept)
    shutil.rmtree(tree)
    assert line() == (1, f"putback ! no such directory: '{tree}'")


def test_the_line_knows_a_restore_that_was_cut_short(
    line: Line, tree: Path, open_workspace: OpenWorkspace
) -> None:
    workspace = open_workspace(tree)
    taken = workspace.snapshot("first")
    journal = workspace.paths.journal
    first = document.encode(Started(before=taken.id, of=taken.id, cause=Cause.RESTORE, plan=Plan(), created_ns=1))
    published = document.encode(Published())
    journal.write_bytes(first + b"\n")
    assert line()[0] == 0, "nothing was changed yet"
    journal.write_bytes(first + b"\n" + published + b"\n")
    code, text = line()
    assert code == 44 and "recover" in text and journal.exists()
    with lock.hold(workspace.paths.lock, "restore", False, 0, SILENT):
        assert line()[0] == 0, "somebody is at work"
    journal.write_bytes(b"{}\n")
    assert line()[0] == 46


def test_the_line_tells_of_a_hook_that_failed(line: Line, tree: Path, store: Path) -> None:
    create(tree, {"a": "a\n"})
    agent = Agent(tree, store)
    agent.prompt("works")
    agent.stop()
    (tree / "a").write_text("b\n")
    event = {"session_id": "s", "cwd": str(tree), "hook_event_name": "UserPromptSubmit", "prompt": "p"}
    hook.Hook(registry.adapter("claude-code"), store, settings(max_bytes=1)).answer(json.dumps(event).encode())
    code, text = line()
    assert code == 0 and text.startswith("putback ! the hook of claude-code failed: too little room in the store")


def test_a_nearly_full_store_is_told_before_it_refuses(
    line: Line, tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "a\n" * 1000})
    open_workspace(tree).snapshot("first")
    used = open_workspace(tree).status().store_bytes
    tight = open_workspace(tree, max_bytes=used * 10 // 9)
    assert f"{used:,} bytes" in tight.status().warning and "90 %" in tight.status().warning
    assert open_workspace(tree, max_bytes=used * 2).status().warning == ""
    assert tight.snapshot("unchanged").warning and open_workspace(tree).snapshot("unchanged").warning == ""
    assert "% full" in line("-c", f"store.max_bytes={used * 10 // 9}")[1]
    (tree / "a").write_bytes(os.urandom(used))
    with pytest.raises(OverBudget) as refused:
        tight.snapshot("more")
    assert refused.value.hint is not None and "putback prune" in refused.value.hint
    assert all(number in refused.value.message for number in (f", {used:,} would", f"is {used * 10 // 9:,};"))


def test_what_is_remembered_of_the_size_ends_with_the_packs(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"a": "a\n"})
    open_workspace(tree).snapshot("first")
    place = Store(store)
    exact = usage.measure(place)
    (store / "lump").write_bytes(b"x" * 100_000)
    assert usage.recent(place) == exact, "nothing is walked to tell it"
    (place.objects / "pack" / "pack-1.pack").write_bytes(b"x" * 100_000)
    assert usage.recent(place) > exact + 200_000
    (store / usage.FILE).write_bytes(b"{")
    assert usage.recent(place) > exact + 200_000


def test_the_user_of_an_agent_is_told_once_a_day_of_a_store_that_fills(tree: Path, store: Path) -> None:
    create(tree, {"a": "a\n" * 1000})
    agent = Agent(tree, store)
    agent.prompt("first")
    used = usage.measure(Store(store))
    tight = hook.Hook(registry.adapter("claude-code"), store, settings(max_bytes=used * 10 // 9))
    event = {"session_id": "s", "cwd": str(tree), "hook_event_name": "UserPromptSubmit", "prompt": "p"}
    said = [tight.answer(json.dumps(event).encode()) for _ in range(2)]
    assert b"% of the limit" in said[0] and b"systemMessage" in said[0] and said[1] == b""
    assert hook.last_failure(Store(store)) is None, "a warning is no failure"
    told = store / hook.WARNED
    os.utime(told, (told.stat().st_mtime - 90_000,) * 2)
    assert b"% of the limit" in tight.answer(json.dumps(event).encode())
