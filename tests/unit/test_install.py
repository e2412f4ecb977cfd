"""Hooks put into settings and taken out again: to the byte, and not at all where that is not certain."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from putback.agents import registry, settings_text
from putback.agents.commands import is_ours, running
from putback.agents.draft import Site
from putback.agents.install import carry_out, draft, draft_removal, install, uninstall
from putback.agents.json_spans import Malformed, parse
from putback.agents.places import Scope, place
from putback.agents.settings_edits import BACKUP
from putback.agents.settings_files import LARGEST
from putback.errors import RefusedError, Stale, StorageError, UsageError

JSON_AGENTS = ("claude-code", "codex", "gemini", "cursor")
PROJECT, USER = Scope.PROJECT, Scope.USER


@pytest.fixture
def site(tree: Path, home: Path) -> Site:
    return Site(tree, home, ("/opt/put back/bin/putback",), {})


def state(root: Path) -> dict[str, Any]:
    """Everything below a directory: modes, contents, targets of links."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        is_file = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(root))] = (
            os.readlink(path) if path.is_symlink() else ((mode, path.read_bytes()) if is_file else mode)
        )
    return found


def settings_of(agent: str, site: Site, scope: Scope = PROJECT) -> Path:
    return place(agent).path(scope, site.root, site.home, site.environment)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- where it goes, and what goes there


@pytest.mark.parametrize(
    ("agent", "user", "project"),
    [
        ("claude-code", ".claude/settings.json", ".claude/settings.local.json"),
        ("codex", ".codex/hooks.json", ".codex/hooks.json"),
        ("gemini", ".gemini/settings.json", ".gemini/settings.json"),
        ("cursor", ".cursor/hooks.json", ".cursor/hooks.json"),
        ("cline", "Documents/Cline/Hooks/PreToolUse", ".clinerules/hooks/PreToolUse"),
        ("opencode", ".config/opencode/plugins/putback.js", ".opencode/plugins/putback.js"),
    ],
)
def test_hooks_go_where_the_agent_looks(agent: str, user: str, project: str, site: Site) -> None:
    assert site.home / user in install(agent, USER, site).changed
    assert site.root / project in install(agent, PROJECT, site).changed


@pytest.mark.parametrize(("agent", "variable"), [("claude-code", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")])
def test_an_agents_own_variable_moves_its_folder(agent: str, variable: str, site: Site, tmp_path: Path) -> None:
    moved = replace(site, environment={variable: str(tmp_path / "elsewhere")})
    assert [path.parent for path in install(agent, USER, moved).changed] == [tmp_path / "elsewhere"]
    uninstall(agent, USER, moved)
    relative = replace(site, environment={variable: "elsewhere"})
    assert install(agent, USER, relative).changed[0].is_relative_to(site.home)


def test_claude_code_gets_what_it_reads(site: Site) -> None:
    install("claude-code", PROJECT, site)
    hooks = json.loads(settings_of("claude-code", site).read_text())["hooks"]
    command = {"type": "command", "command": "'/opt/put back/bin/putback' hook claude-code"}
    assert hooks == {
        "UserPromptSubmit": [{"hooks": [{**command, "timeout": 120}]}],
        "PreToolUse": [
            {"matcher": "Bash|PowerShell|Write|Edit|NotebookEdit", "hooks": [{**command, "timeout": 60}]}
        ],
        "Stop": [{"hooks": [{**command, "timeout": 120}]}],
        "StopFailure": [{"hooks": [{**command, "timeout": 120}]}],
        "SessionEnd": [{"hooks": [{**command, "timeout": 30}]}],
    }


def test_gemini_counts_in_milliseconds_and_wants_a_name(site: Site) -> None:
    install("gemini", PROJECT, site)
    (entry,) = json.loads(settings_of("gemini", site).read_text())["hooks"]["BeforeAgent"]
    assert entry["hooks"][0]["timeout"] == 120_000
    assert entry["hooks"][0]["name"] == "putback"


def test_cursor_gets_flat_entries_and_a_version(site: Site) -> None:
    install("cursor", PROJECT, site)
    found = json.loads(settings_of("cursor", site).read_text())
    assert found["version"] == 1
    assert found["hooks"]["stop"] == [{"command": "'/opt/put back/bin/putback' hook cursor", "timeout": 120}]


@pytest.mark.parametrize("agent", registry.NAMES)
def test_every_event_that_is_asked_for_means_something(agent: str) -> None:
    known = registry.adapter(agent).points
    assert {hook.event for hook in place(agent).hooks} <= set(known)


def test_a_script_gives_its_input_to_putback_and_is_silent_without_it(site: Site, tmp_path: Path) -> None:
    program = write(tmp_path / "a dir" / "putback", '#!/bin/sh\necho "$@"\ncat\n')
    program.chmod(0o755)
    install("cline", PROJECT, replace(site, program=(str(program),)))
    script = settings_of("cline", site) / "PreToolUse"
    done = subprocess.run([script], input=b"event", capture_output=True, check=True)
    assert done.stdout == b"hook cline\nevent"
    program.unlink()
    done = subprocess.run([script], input=b"event", capture_output=True, check=True)
    assert json.loads(done.stdout) == {"cancel": False}


@pytest.mark.parametrize("agent", registry.NAMES)
def test_a_file_that_others_get_calls_putback_by_its_name(agent: str, site: Site, tmp_path: Path) -> None:
    program = write(tmp_path / "bin" / "putback", "#!/bin/sh\n")
    program.chmod(0o755)
    site = replace(site, program=(str(program),), environment={"PATH": str(program.parent)})
    done = install(agent, PROJECT, site)
    named = str(program) in done.changed[0].read_text()
    assert named is (agent == "claude-code") and done.notes
    assert not install(agent, PROJECT, site).changed
    alone = install(agent, USER, site)
    assert str(program) in alone.changed[0].read_text() and not alone.notes
    uninstall(agent, PROJECT, site)
    assert not done.changed[0].exists()
    # Another putback than the one that installs may be found by that name: then it is the path after all.
    site = replace(site, program=("/opt/elsewhere/putback",))
    assert "/opt/elsewhere/putback" in install(agent, PROJECT, site).changed[0].read_text()


def test_an_unknown_agent_is_refused(site: Site) -> None:
    with pytest.raises(UsageError):
        install("clippy", PROJECT, site)


# --- in and out again

TEXTS = {
    "two spaces": '{\n  "model": "opus",\n  "permissions": {"allow": ["Bash(ls)"]}\n}\n',
    "four spaces, no newline": '{\n    "b": 1,\n    "a": [1, 2.50, 1e3]\n}',
    "tabs": '{\n\t"z": {"y": null}\n}\n',
    "carriage returns": '{\r\n  "model": "opus"\r\n}\r\n',
    "one line": '{"model":"opus","list":[1,2]}',
    "one line with hooks": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say"}]}]}, "a": 1}',
    "empty object": "{}",
    "empty object, spread": "{\n\n}\n",
    "empty hooks": '{\n  "hooks": {}\n}\n',
    "empty list": '{\n  "hooks": {\n    "Stop": [],\n    "BeforeAgent": [ ]\n  }\n}\n',
    "comments": '// mine\n{\n  "a": 1, // one\n  /* two */ "b": 2 // last\n}\n// end\n',
    "comment in an empty object": "{\n  // nothing yet\n}\n",
    "comma at the end": '{\n  "a": 1,\n  "hooks": {\n    "Stop": [\n      {"hooks": []},\n    ],\n  },\n}\n',
    "byte order mark": '\ufeff{\n  "a": "é \\u00e9 \\ud83d\\ude00"\n}\n',
    "others' hooks": """{
  "hooks": {
    "Stop": [
      { "hooks": [ { "type": "command", "command": "say done" } ] }
    ],
    "PreToolUse": [
      {
        "matcher": "Bash",
        "hooks": [{"type": "command", "command": "./check.sh", "timeout": 5}]
      }
    ],
    "stop": [{"command": "say done"}]
  },
  "zeta": true
}
""",
    "surrogates": '{\n  "a": "\\ud83d"\n}\n',
}


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("agent", JSON_AGENTS)
@pytest.mark.parametrize("name", TEXTS)
def test_out_again_gives_the_same_bytes(name: str, agent: str, scope: Scope, site: Site) -> None:
    path = write(settings_of(agent, site, scope), TEXTS[name])
    path.chmod(0o640)
    base = site.root if scope is PROJECT else site.home
    before = state(base)
    install(agent, scope, site)
    assert is_installed(agent, path.read_bytes())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    kept = path.with_name(path.name + BACKUP)
    assert (kept.read_bytes(), stat.S_IMODE(kept.stat().st_mode)) == (TEXTS[name].encode(), 0o640)
    uninstall(agent, scope, site)
    assert state(base) == before


def test_the_mode_stays_whatever_the_umask(site: Site) -> None:
    path = write(settings_of("claude-code", site), "{}")
    path.chmod(0o666)
    install("claude-code", PROJECT, site)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def is_installed(agent: str, data: bytes) -> bool:
    found = settings_text.entries_of(data.decode().removeprefix("\ufeff"), lambda command: is_ours(agent, command))
    return set(found) == {hook.event for hook in place(agent).hooks}


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_else_moves(name: str, site: Site) -> None:
    """What was there is there, in its order and in its layout: putting in only adds."""
    path = write(settings_of("claude-code", site), TEXTS[name])
    install("claude-code", PROJECT, site)
    before, after = TEXTS[name], path.read_bytes().decode()
    rest = iter(after)
    assert all(char in rest for char in before if not char.isspace())
    assert after.count("\r\n") == (after.count("\n") if "\r\n" in before else 0)


@pytest.mark.parametrize("name", [name for name in TEXTS if "empty" not in name])
def test_out_again_without_the_backup_gives_the_same_bytes(name: str, site: Site) -> None:
    path = write(settings_of("claude-code", site), TEXTS[name])
    install("claude-code", PROJECT, site)
    path.with_name(path.name + BACKUP).unlink()
    uninstall("claude-code", PROJECT, site)
    assert path.read_bytes().decode() == TEXTS[name]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("agent", registry.NAMES)
def test_what_was_made_goes_again(agent: str, scope: Scope, site: Site) -> None:
    base = site.root if scope is PROJECT else site.home
    before = state(base)
    assert install(agent, scope, site).changed
    assert state(base) != before
    uninstall(agent, scope, site)
    assert state(base) == before


@pytest.mark.parametrize("agent", registry.NAMES)
def test_what_was_there_stays_there_even_if_empty(agent: str, site: Site) -> None:
    path = settings_of(agent, site)
    (site.root / path.relative_to(site.root).parts[0]).mkdir()
    before = state(site.root)
    install(agent, PROJECT, site)
    uninstall(agent, PROJECT, site)
    assert state(site.root) == before


def test_what_others_put_beside_ours_stays(site: Site) -> None:
    empty = site.root / ".clinerules"
    empty.mkdir()
    install("cline", PROJECT, site)
    mine = write(empty / "hooks" / "TaskStart", "#!/bin/sh\n")
    uninstall("cline", PROJECT, site)
    assert sorted(empty.rglob("*")) == [mine.parent, mine]


@pytest.mark.parametrize("agent", registry.NAMES)
def test_installing_again_changes_nothing(agent: str, site: Site) -> None:
    install(agent, PROJECT, site)
    before = state(site.root)
    assert install(agent, PROJECT, site).changed == ()
    assert state(site.root) == before


@pytest.mark.parametrize("agent", JSON_AGENTS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_putback_that_moved_is_found_again(name: str, agent: str, site: Site) -> None:
    path = write(settings_of(agent, site), TEXTS[name])
    before = state(site.root)
    install(agent, PROJECT, site)
    moved = replace(site, program=("/usr/bin/python3", "-P", "-m", "putback"))
    install(agent, PROJECT, moved)
    assert path.read_text().count(f"putback hook {agent}") == len(place(agent).hooks)
    assert "/opt/put back" not in path.read_text()
    uninstall(agent, PROJECT, site)
    assert state(site.root) == before


@pytest.mark.parametrize("agent", registry.NAMES)
def test_a_putback_that_moved_leaves_no_file_of_its_own(agent: str, site: Site) -> None:
    before = state(site.root)
    install(agent, PROJECT, site)
    install(agent, PROJECT, replace(site, program=("/elsewhere/putback",)))
    assert uninstall(agent, PROJECT, site).changed
    assert state(site.root) == before


def test_what_the_user_wrote_meanwhile_stays(site: Site) -> None:
    path = write(settings_of("claude-code", site), '{\n  "a": 1\n}\n')
    install("claude-code", PROJECT, site)
    path.write_text(path.read_text().replace('"a": 1', '"a": 2,\n  "b": 3'))
    done = uninstall("claude-code", PROJECT, site)
    assert path.read_text() == '{\n  "a": 2,\n  "b": 3\n}\n'
    assert path.with_name(path.name + BACKUP).exists()
    assert any(BACKUP in note for note in done.notes)


def test_what_the_user_added_to_a_file_of_ours_stays(site: Site) -> None:
    install("claude-code", PROJECT, site)
    path = settings_of("claude-code", site)
    found = json.loads(path.read_text())
    found["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "say done"})
    found["model"] = "opus"
    path.write_text(json.dumps(found, indent=4))
    uninstall("claude-code", PROJECT, site)
    assert json.loads(path.read_text()) == {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]},
        "model": "opus",
    }


def test_comments_around_ours_stay(site: Site) -> None:
    path = write(settings_of("claude-code", site), '{\n  "a": 1\n}\n')
    install("claude-code", PROJECT, site)
    path.write_text(
        path.read_text().replace('"a": 1,\n', '"a": 1, // one\n').replace('"Stop"', '// why\n    "Stop"')
    )
    uninstall("claude-code", PROJECT, site)
    assert "// one" in path.read_text()
    assert parse(path.read_text()).plain() == {"a": 1}


def test_nothing_to_take_out_is_nothing_done(site: Site) -> None:
    path = write(settings_of("claude-code", site), TEXTS["others' hooks"])
    before = state(site.root)
    assert uninstall("claude-code", PROJECT, site).changed == ()
    assert state(site.root) == before
    path.unlink()
    assert uninstall("claude-code", PROJECT, site).changed == ()


def test_a_draft_writes_nothing_and_shows_everything(site: Site) -> None:
    path = write(settings_of("codex", site), '{\n  "hooks": {}\n}')
    before = state(site.root)
    shown = "".join(edit.diff() for edit in draft("codex", PROJECT, site).edits if not edit.backup)
    assert f"--- {path}\n" in shown and '+    "Stop": [\n' in shown
    assert state(site.root) == before
    install("codex", PROJECT, site)
    before = state(site.root)
    assert '-    "Stop": [\n' in "".join(edit.diff() for edit in draft_removal("codex", PROJECT, site).edits)
    assert state(site.root) == before


# --- what is refused, and then nothing is written

FAULTY = {
    "empty": b"",
    "blank": b" \n",
    "cut short": b'{"a": 1',
    "a list": b"[]",
    "text": b'"hooks"',
    "no UTF-8": b'{"a": "\xff"}',
    "hooks twice": b'{"hooks": {}, "hooks": {}}',
    "hooks are a list": b'{"hooks": []}',
    "hooks are null": b'{"hooks": null}',
    "an event is an object": b'{"hooks": {"Stop": {}, "stop": {}, "AfterAgent": {}}}',
    "two values": b"{}{}",
    "single quotes": b"{'a': 1}",
    "an unfinished comment": b"{} /* ",
    "control character": b'{"a": "\x01"}',
    "no comma": b'{"a": 1 "b": 2}',
    "two commas": b'{"a": 1,, "b": 2}',
    "a comma first": b'{,"a": 1}',
    "too deep": b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "not a number": b'{"a": NaN}',
    "digits": b'{"a": ' + b"1" * 5000 + b"}",
}


@pytest.mark.parametrize("agent", JSON_AGENTS)
@pytest.mark.parametrize("name", FAULTY)
def test_a_file_that_cannot_be_edited_is_refused_with_what_to_paste(name: str, agent: str, site: Site) -> None:
    write(settings_of(agent, site), FAULTY[name])
    before = state(site.root)
    with pytest.raises(RefusedError) as caught:
        install(agent, PROJECT, site)
    assert state(site.root) == before
    snippet = json.loads(str(caught.value.hint).partition(": ")[2])
    assert set(snippet["hooks"]) == {hook.event for hook in place(agent).hooks}
    with pytest.raises(RefusedError):
        uninstall(agent, PROJECT, site)
    assert state(site.root) == before


def refused(site: Site, agent: str = "claude-code", scope: Scope = PROJECT) -> str:
    """Assert that installing is refused and changes nothing; returns why."""
    before = state(site.root), state(site.home)
    with pytest.raises(RefusedError) as caught:
        install(agent, scope, site)
    assert (state(site.root), state(site.home)) == before
    return caught.value.message


def test_a_read_only_file_is_refused(site: Site) -> None:
    write(settings_of("claude-code", site), "{}").chmod(0o444)
    assert "read-only" in refused(site)


def test_a_hard_link_is_refused(site: Site) -> None:
    path = write(settings_of("claude-code", site), "{}")
    os.link(path, site.root / "other")
    assert "hard links" in refused(site)


def test_another_users_file_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    write(settings_of("claude-code", site), "{}")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert "another user" in refused(site)


def test_what_is_no_regular_file_is_refused(site: Site) -> None:
    path = settings_of("claude-code", site)
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(RefusedError, match="no regular file"):
        install("claude-code", PROJECT, site)
    path.unlink()
    path.mkdir()
    assert "no regular file" in refused(site)


def test_a_file_that_is_too_large_is_refused(site: Site) -> None:
    write(settings_of("claude-code", site), '{"a": "' + "x" * LARGEST + '"}')
    assert "at most" in refused(site)


def test_a_file_in_the_way_of_a_folder_is_an_error(site: Site) -> None:
    write(site.root / ".claude", "")
    with pytest.raises(StorageError):
        install("claude-code", PROJECT, site)


def test_a_link_inside_home_is_written_through(site: Site) -> None:
    real = write(site.home / "dotfiles" / "claude.json", TEXTS["two spaces"])
    path = settings_of("claude-code", site, USER)
    path.parent.mkdir()
    path.symlink_to("../dotfiles/claude.json")
    before = state(site.home)
    done = install("claude-code", USER, site)
    assert path.is_symlink() and is_installed("claude-code", real.read_bytes())
    assert any(str(real) in note for note in done.notes)
    uninstall("claude-code", USER, site)
    assert state(site.home) == before


def test_a_linked_folder_inside_home_is_written_through(site: Site) -> None:
    (site.home / "dotfiles").mkdir()
    settings_of("claude-code", site, USER).parent.symlink_to("dotfiles")
    before = state(site.home)
    assert install("claude-code", USER, site).notes
    assert (site.home / "dotfiles" / "settings.json").exists()
    uninstall("claude-code", USER, site)
    assert state(site.home) == before


@pytest.mark.parametrize("scope", Scope)
def test_a_link_that_leads_out_is_refused(scope: Scope, site: Site, tmp_path: Path) -> None:
    """A project may have been written by anybody: its links must not choose what we write elsewhere."""
    outside = write(tmp_path / "outside.json", "{}")
    path = settings_of("claude-code", site, scope)
    path.parent.mkdir()
    path.symlink_to(outside)
    assert "leads out of" in refused(site, scope=scope)
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    assert "leads out of" in refused(site, scope=scope)
    assert outside.read_text() == "{}"


def test_a_link_to_nothing_is_refused(site: Site) -> None:
    path = settings_of("claude-code", site)
    path.parent.mkdir()
    path.symlink_to("nothing.json")
    assert "where nothing is" in refused(site)


def test_a_backup_that_is_a_link_is_not_followed_out(site: Site, tmp_path: Path) -> None:
    path = write(settings_of("claude-code", site), "{}")
    path.with_name(path.name + BACKUP).symlink_to(tmp_path / "outside")
    assert "leads out of" in refused(site)


def test_somebody_elses_script_is_neither_replaced_nor_removed(site: Site) -> None:
    write(settings_of("cline", site) / "PreToolUse", "#!/bin/sh\necho mine\n")
    assert "not putback's" in refused(site, "cline")
    before = state(site.root)
    assert uninstall("cline", PROJECT, site).changed == ()
    assert state(site.root) == before


@pytest.mark.parametrize("agent", ["cline", "opencode"])
def test_a_file_of_ours_that_was_changed_is_neither_replaced_nor_removed(agent: str, site: Site) -> None:
    path = install(agent, PROJECT, site).changed[0]
    path.write_text(path.read_text() + "\n")
    assert "has been changed" in refused(site, agent)
    before = state(site.root)
    with pytest.raises(RefusedError, match="has been changed"):
        uninstall(agent, PROJECT, site)
    assert state(site.root) == before


@pytest.mark.parametrize("agent", ["claude-code", "opencode"])
def test_what_changes_meanwhile_is_not_written_over(agent: str, site: Site) -> None:
    path = write(settings_of(agent, site), "{}") if agent == "claude-code" else settings_of(agent, site)
    drafted = draft(agent, PROJECT, site)
    write(path, '{"a": 1}')
    with pytest.raises(Stale):
        carry_out(drafted)
    assert path.read_text() == '{"a": 1}'
    assert not [name for name in os.listdir(path.parent) if name.endswith("-part")]
    path.unlink()
    install(agent, PROJECT, site)
    drafted = draft_removal(agent, PROJECT, site)
    path.write_text('{"a": 2}')
    with pytest.raises(Stale):
        carry_out(drafted)
    assert path.read_text() == '{"a": 2}'


# --- the command line


def test_putback_is_started_by_its_whole_path_or_by_its_python(tmp_path: Path) -> None:
    program = write(tmp_path / "putback", "")
    assert running(str(program), "/usr/bin/python3") == ("/usr/bin/python3", "-P", "-m", "putback")
    program.chmod(0o755)
    assert running(str(program), "/usr/bin/python3") == (str(program),)
    other = write(tmp_path / "__main__.py", "")
    assert running(str(other), "/usr/bin/python3") == ("/usr/bin/python3", "-P", "-m", "putback")


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("putback hook codex", True),
        ("'/a b/putback' hook codex", True),
        ("/usr/bin/python3 -P -m putback hook codex", True),
        ("putback hook gemini", False),
        ("echo putback hook codex && rm x", False),
        ("my-putback hook codex", False),
        ("hook codex", False),
        ("putback 'hook codex", False),
        ("", False),
    ],
)
def test_our_command_is_known_again(command: str, ours: bool) -> None:
    assert is_ours("codex", command) is ours


# --- the text, whatever it is

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
LAYOUTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])


def ours(command: str) -> bool:
    return is_ours("codex", command)


@given(
    data=st.dictionaries(st.text(), VALUES, max_size=4),
    indent=LAYOUTS,
    lists=st.dictionaries(st.text(), st.just([])),
)
def test_any_object_comes_back(data: dict[str, Any], indent: Any, lists: dict[str, Any]) -> None:
    data.pop("hooks", None)
    if lists:
        data["hooks"] = lists
    text = json.dumps(data, indent=indent)
    entries = place("codex").entries("putback hook codex")
    after = settings_text.put_in(text, entries, {})
    assert settings_text.entries_of(after, ours) == entries
    assert settings_text.taken_out(after, ours, text, {}) == text
    plain = settings_text.taken_out(after, ours, None, {})
    assert plain is None or json.loads(plain) == data


@given(st.text(alphabet='{}[]",:/*\\ \n19eE.-+truefalsn\u00e9'))
def test_what_is_json_here_is_json_everywhere(text: str) -> None:
    try:
        found = parse(text).plain()
    except Malformed:
        with pytest.raises(ValueError):
            json.loads(text, object_pairs_hook=unique)
        return
    try:
        assert json.loads(text) == found
    except json.JSONDecodeError:
        assert "/" in text or "," in text


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)
