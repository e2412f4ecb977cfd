"""The doctor finds each thing that keeps hooks from working; the commands around it, and the plugin."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from putback.agents import probe, registry
from putback.agents.doctor import Check, FireResult, Result, doctor, event
from putback.agents.draft import Site
from putback.agents.install import install
from putback.agents.places import Scope
from putback.cli import main
from putback.records.agent import Point
from support.hermetic import unmoved

PROJECT, USER = Scope.PROJECT, Scope.USER
GOOD = FireResult(0, b"", b"", captured=True)


@pytest.fixture
def site(tree: Path, home: Path, tmp_path: Path) -> Site:
    program = executable(tmp_path / "bin" / "putback", "exit 0")
    return Site(tree, home, (str(program),), {"PATH": str(tmp_path / "bin")})


def executable(path: Path, body: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def examined(agent: str, site: Site, fired: FireResult = GOOD, scope: Scope = PROJECT) -> dict[str, Check]:
    found = doctor(agent, scope, site, site.home / "store", lambda argv, event: fired, site.root)
    return {check.name: check for check in found}


@pytest.mark.parametrize("agent", registry.NAMES)
@pytest.mark.parametrize("scope", Scope)
def test_what_is_installed_and_works_passes(agent: str, scope: Scope, site: Site) -> None:
    install(agent, scope, site)
    found = examined(agent, site, scope=scope)
    assert [check for check in found.values() if check.result is Result.FAIL] == []
    assert {found[name].result for name in ("settings", "command", "git", "store", "hook")} == {Result.PASS}


@pytest.mark.parametrize("agent", registry.NAMES)
def test_what_is_not_installed_fails_with_the_command_that_would(agent: str, site: Site) -> None:
    found = examined(agent, site)
    assert found["settings"].result is Result.FAIL
    assert found["settings"].hint == f"putback agent install {agent} --project"
    assert found["command"].result is found["hook"].result is Result.FAIL


@pytest.mark.parametrize("agent", registry.NAMES)
def test_hooks_of_another_putback_are_told(agent: str, site: Site) -> None:
    install(agent, PROJECT, replace(site, program=("/elsewhere/putback",)))
    assert examined(agent, site)["settings"].result is Result.WARN


def test_a_command_that_is_gone_fails(site: Site) -> None:
    install("codex", PROJECT, site)
    Path(site.program[0]).unlink()
    assert examined("codex", site)["command"].result is Result.FAIL


def test_settings_that_are_malformed_fail(site: Site) -> None:
    path = site.root / ".cursor" / "hooks.json"
    path.parent.mkdir()
    path.write_text('{"version": 1, "hooks": [')
    assert "no JSON" in examined("cursor", site)["settings"].detail


def test_the_agents_own_version_is_told(site: Site, tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "codex", "echo codex-cli 9.9; echo more")
    assert examined("codex", site)["agent"].detail.endswith("codex: codex-cli 9.9")
    assert examined("gemini", site)["agent"].result is Result.WARN


def test_an_agent_that_does_not_answer_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("putback.agents.doctor.VERSION_SECONDS", 0.2)
    executable(Path(site.program[0]).parent / "codex", "/bin/sleep 60 & wait")
    began = time.monotonic()
    assert "no end after" in examined("codex", site)["agent"].detail
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("agent", "name", "text"),
    [
        ("claude-code", ".claude/settings.local.json", '{"disableAllHooks": true}'),
        ("claude-code", ".claude/settings.json", '{"disableAllHooks": true}'),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n"),
        ("codex", ".codex/config.toml", "[features]\ncodex_hooks = false\n"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"disabled": ["putback"]}}'),
    ],
)
@pytest.mark.parametrize("at", ["home", "root"])
def test_switches_that_turn_hooks_off_are_found(agent: str, name: str, text: str, at: str, site: Site) -> None:
    path: Path = getattr(site, "root" if "local" in name else at) / name
    path.parent.mkdir()
    path.write_text(text)
    found = examined(agent, site)["switches"]
    assert found.result is Result.FAIL and str(path) in found.detail
    path.write_text("neither \x00 JSON nor TOML")
    assert examined(agent, site)["switches"].result is Result.PASS


def test_trust_that_the_user_must_give_is_told(site: Site) -> None:
    assert examined("codex", site)["trust"].result is Result.WARN
    assert examined("gemini", site)["trust"].result is Result.WARN
    assert "trust" not in examined("claude-code", site)


@pytest.mark.parametrize(
    ("fired", "words"),
    [
        (FireResult(2, b"", b"no such command", captured=False), "ended with 2: no such command"),
        (FireResult(None, b"", b"no end after 60 s", captured=False), "did not end"),
        (FireResult(0, b"Hello", b"", captured=True), "no JSON"),
        (FireResult(0, b"{}", b"locked", captured=False), "no capture: locked"),
    ],
)
def test_a_hook_that_does_not_do_its_work_fails(fired: FireResult, words: str, site: Site) -> None:
    install("codex", PROJECT, site)
    found = examined("codex", site, fired)["hook"]
    assert found.result is Result.FAIL and words in found.detail


def test_a_store_that_cannot_be_written_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("putback.agents.doctor.os.access", lambda path, mode: False)
    assert examined("codex", site)["store"].result is Result.FAIL


def test_git_that_is_missing_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert examined("codex", site)["git"].result is Result.FAIL


@pytest.mark.parametrize("agent", registry.NAMES)
def test_the_fired_event_opens_a_turn(agent: str, tree: Path) -> None:
    found = registry.adapter(agent).decode(event(registry.adapter(agent), tree))
    assert (found.point, found.cwd, found.session, found.prompt) == (Point.OPEN, str(tree), "doctor", "doctor")


def test_a_program_that_is_asked_reads_and_is_read(tmp_path: Path) -> None:
    there = {"cwd": tmp_path, "environment": {}, "seconds": 10.0}
    assert probe.ask(["/bin/cat"], given=b"x" * 1_000_000, **there).output == b"x" * probe.KEPT_BYTES
    assert probe.ask(["/bin/true"], given=b"x" * 1_000_000, **there).code == 0
    assert probe.ask(["/nonexistent"], **there).code is None


# --- the commands


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_commands_install_show_and_remove(
    repository: Path, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    (repository / "sub").mkdir()
    here = ("-C", str(repository / "sub"))
    path = repository / ".claude" / "settings.local.json"
    with unmoved(repository):
        code, shown, _ = run(capsys, *here, "agent", "install", "claude-code", "--dry-run")
        assert (code, path.exists()) == (0, False) and '+    "Stop": [' in shown
        code, shown, _ = run(capsys, *here, "agent", "install", "claude-code")
        assert (code, shown) == (0, f"installed in {path}\n")
        assert run(capsys, *here, "agent", "install", "claude-code")[1] == "nothing to do\n"
        code, shown, _ = run(capsys, "--json", *here, "agent", "uninstall", "claude-code", "--dry-run")
        assert (json.loads(shown)["done"], path.exists()) == (False, True)
        code, shown, _ = run(capsys, *here, "agent", "uninstall", "claude-code", "--json")
        assert json.loads(shown)["changed"] == [{"path": str(path)}]
    assert not path.parent.exists()
    assert run(capsys, *here, "agent", "install", "codex", "--user")[0] == 0
    assert (home / ".codex" / "hooks.json").exists()


def test_the_commands_refuse_in_the_words_of_the_library(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / ".codex" / "hooks.json"
    path.parent.mkdir()
    path.write_text("[]")
    code, _, said = run(capsys, "-C", str(tree), "agent", "install", "codex")
    assert code == 43 and "holds no object" in said and '{"hooks": {"UserPromptSubmit"' in said
    assert run(capsys, "-C", str(tree), "agent", "install", "clippy")[0] == 2
    assert run(capsys, "-C", str(tree / "gone"), "agent", "install", "codex")[0] == 1


def test_the_doctor_answers_programs(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = run(capsys, "--json", "-C", str(tree), "agent", "doctor", "codex")
    answer = json.loads(shown)
    assert (code, answer["failed"]) == (1, True)
    assert {"name", "result", "detail", "hint"} == set(answer["checks"][0])
    assert list(tree.iterdir()) == []


# --- the plugin

DRIVER = """
import { Putback } from "./putback.mjs"
const parents = { inner: "outer" }
const client = { session: { get: async ({ path }) => {
  if (path.id === "lost") throw new Error("gone")
  return { data: { id: path.id, parentID: parents[path.id] } }
} } }
const hooks = await Putback({ client, directory: process.cwd(), worktree: process.cwd() })
const text = (text) => ({ message: { id: "m1" }, parts: [{ type: "text", text }, { type: "file" }] })
await hooks["chat.message"]({ sessionID: "outer" }, text("tidy up"))
const before = hooks["tool.execute.before"]
await before({ tool: "bash", sessionID: "outer", callID: "c1" }, { args: { command: "ls" } })
await hooks["chat.message"]({ sessionID: "inner" }, text("a part"))
await before({ tool: "edit", sessionID: "inner", callID: "c2" }, { args: { filePath: "/a" } })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "inner" } } })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "lost" } } })
await hooks.event({ event: { type: "session.error",
  properties: { sessionID: "outer", error: { name: "MessageAbortedError" } } } })
await hooks.event({ event: { type: "file.edited", properties: {} } })
await hooks.event({})
await hooks["chat.message"](undefined, undefined)
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_plugin_tells_what_the_agent_does(site: Site, tmp_path: Path) -> None:
    told = tmp_path / "told"
    teller = executable(tmp_path / "teller", f"cat >> {told}; echo >> {told}; exit 3")
    found, spoken = played(replace(site, program=(str(teller),)), tmp_path)
    assert (found, spoken) == (0, b"")
    decode = registry.adapter("opencode").decode
    events = [decode(line.encode()) for line in told.read_text().splitlines()]
    assert [(event.name, event.session, event.actor, event.turn) for event in events] == [
        ("chat.message", "outer", "", "m1"),
        ("tool.execute.before", "outer", "", "m1"),
        ("subagent.start", "outer", "inner", "m1"),
        ("tool.execute.before", "outer", "inner", "m1"),
        ("subagent.stop", "outer", "inner", "m1"),
        ("session.idle", "lost", "", ""),
        ("session.error", "outer", "", "m1"),
    ]
    assert events[0].prompt == "tidy up" and events[0].cwd == str(tmp_path)
    assert (events[1].calls[0].command, events[3].calls[0].paths) == ("ls", ("/a",))
    assert events[-1].interrupted


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_plugin_never_stands_in_the_agents_way(site: Site, tmp_path: Path) -> None:
    began = time.monotonic()
    assert played(replace(site, program=("/nonexistent/putback",)), tmp_path) == (0, b"")
    assert time.monotonic() - began < 30


def played(site: Site, tmp_path: Path) -> tuple[int, bytes]:
    (plugin,) = install("opencode", PROJECT, site).changed
    shutil.copy(plugin, tmp_path / "putback.mjs")
    (tmp_path / "driver.mjs").write_text(DRIVER)
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run([node, "driver.mjs"], cwd=tmp_path, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr
