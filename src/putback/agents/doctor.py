"""Whether the hooks of an agent do their work here, check by check; what cannot be known is a warning, not a pass.

Nothing is written. The hook itself is fired by the caller, who knows where a capture may be made.
"""

from __future__ import annotations

import enum
import json
import os
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from putback.agents import own_files, probe
from putback.agents.adapter import Adapter, Fields
from putback.agents.draft import NAME, Site
from putback.agents.json_spans import Malformed, parse
from putback.agents.places import Form, Place, Scope, place
from putback.agents.registry import adapter
from putback.agents.settings_edits import SettingsEdits
from putback.agents.settings_files import LARGEST, look
from putback.agents.settings_text import Unclear
from putback.errors import GitUnavailable, PutbackError
from putback.git import command as git
from putback.records.agent import Point

VERSION_SECONDS = 5

_BINARIES = {
    "claude-code": ("claude",),
    "codex": ("codex",),
    "gemini": ("gemini",),
    "cursor": ("cursor-agent", "cursor"),
    "cline": ("cline",),
    "opencode": ("opencode",),
}
_TRUST = {
    "codex": "it runs no hook that you have not trusted: start it and answer its question, or use /hooks",
    "gemini": "it warns of a project's hooks before it first runs them, and again whenever they change",
}
_CHECKPOINTS = {
    "claude-code": "its own /rewind knows what its edit tools wrote, not what commands did; both may be on",
    "codex": "it has none that a user can go back to",
    "gemini": "its own checkpoints (off unless general.checkpointing is on) reset files, too: undo with one",
    "cursor": "its own checkpoints know what its edit tools wrote, not what commands did; both may be on",
    "cline": "its own checkpoints keep a repository of their own; undo with one of both",
    "opencode": "its own snapshots undo by message; undo with one of both",
}


class Result(enum.StrEnum):
    """How a check came out; warn: it may work, and nobody can know."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One check; `hint` is what to do about it."""

    name: str
    result: Result
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True)
class FireResult:
    """What became of the fired hook: its exit code (None: it did not end), what it printed, if it captured."""

    code: int | None
    output: bytes
    error: bytes
    captured: bool


# Runs a command line, with an event on its standard input.
Fire = Callable[[list[str], bytes], FireResult]


def doctor(agent: str, scope: Scope, site: Site, store: Path, fire: Fire, scratch: Path) -> list[Check]:
    """Every check, always in the same order. Raises UsageError for an agent that is not known.

    `scratch` is the directory that the fired hook is told to be at work in.
    """
    known, where = adapter(agent), place(agent)
    site = site.within(where, scope)
    settings, command = _settings(known, where, scope, site)
    return [
        _version(known, site),
        settings,
        _command(command, site),
        *_switches(known, site),
        *_trust(known, scope, site, where),
        Check("checkpoints", Result.PASS, _CHECKPOINTS[agent]),
        _git(),
        _store(store),
        _fired(known, scratch, command, fire),
    ]


def event(known: Adapter, cwd: Path) -> bytes:
    """An event as the agent sends it when a prompt is about to be worked on in `cwd`."""
    name = next(name for name, point in known.points.items() if point is Point.OPEN)
    said: dict[str, Any] = {}
    values = ((known.event, name), (known.session, "doctor"), (known.turn, "doctor"), (known.prompt, "doctor"))
    for fields, value in (*values, (known.cwd, str(cwd))):
        _put(said, fields, value)
    return json.dumps(said).encode()


def _put(said: dict[str, Any], fields: Fields, value: str) -> None:
    if fields:
        *above, last = fields[0].split(".")
        for name in above:
            said = said.setdefault(name, {})
        said[last] = value


def _version(known: Adapter, site: Site) -> Check:
    path = site.environment.get("PATH")
    found = next((there for name in _BINARIES[known.name] if (there := shutil.which(name, path=path))), None)
    if found is None:
        hint = "it may be an extension of an editor, which is not looked for"
        return Check("agent", Result.WARN, f"{known.title} is not on PATH", hint)
    home = site.home if site.home.is_dir() else Path("/")
    said = probe.ask([found, "--version"], cwd=home, environment=site.environment, seconds=VERSION_SECONDS)
    line = (said.output or said.error).decode("utf-8", "replace").strip().partition("\n")[0][:100]
    return Check("agent", Result.PASS if said.code == 0 else Result.WARN, f"{found}: {line}")


def _settings(known: Adapter, where: Place, scope: Scope, site: Site) -> tuple[Check, list[str] | None]:
    """Whether our hooks are in place, and the command line that they run."""
    again = f"putback agent install {known.name} --{scope}"
    try:
        if where.form in (Form.SCRIPTS, Form.PLUGIN):
            return _own(known, where, scope, site, again)
        edits = SettingsEdits.at(known.name, where, scope, site)
        found = edits.found()
    except (PutbackError, Unclear, UnicodeError) as error:
        return Check("settings", Result.FAIL, str(error), again), None
    path = edits.file.path
    if not found:
        return Check("settings", Result.FAIL, f"no hooks of putback in {path}", again), None
    entry = next(iter(found.values()))
    command = shlex.split(entry["hooks"][0]["command"] if "hooks" in entry else entry["command"])
    if found != edits.entries:
        return Check("settings", Result.WARN, f"{path} has other hooks than this putback installs", again), command
    return Check("settings", Result.PASS, str(path)), command


def _own(known: Adapter, where: Place, scope: Scope, site: Site, again: str) -> tuple[Check, list[str] | None]:
    paths, within = site.paths(where, scope)
    command = site.command(known.name)
    text = own_files.content(known.name, where.form, command)
    files = [look(path, within) for path in paths]
    missing = [str(file.path) for file in files if file.data is None]
    if missing:
        return Check("settings", Result.FAIL, f"missing: {', '.join(missing)}", again), None
    if any(file.data != text.encode("utf-8", "surrogateescape") for file in files):
        return Check("settings", Result.WARN, f"{files[0].path} is not as this putback writes it", again), command
    return Check("settings", Result.PASS, str(files[0].path)), command


def _command(command: list[str] | None, site: Site) -> Check:
    if not command:
        return Check("command", Result.FAIL, "no command is installed")
    named = command[0] == NAME and shutil.which(NAME, path=site.environment.get("PATH", ""))
    there = os.path.isabs(command[0]) and os.path.isfile(command[0]) and os.access(command[0], os.X_OK)
    if not there and not named:
        return Check(
            "command", Result.FAIL, f"no program: {command[0]}", "install again with the putback that is there"
        )
    return Check("command", Result.PASS, shlex.join(command))


def _switches(known: Adapter, site: Site) -> Iterator[Check]:
    """Whether the user has turned hooks off in one of the agent's settings."""
    home = place(known.name).path(Scope.USER, site.root, site.home, site.environment).parent
    off: list[str] = []
    if known.name == "claude-code":
        files = (home / "settings.json", *(site.root / ".claude" / name for name in _CLAUDE_PROJECT))
        off = [f"disableAllHooks in {path}" for path in files if _json(path).get("disableAllHooks") is True]
    elif known.name == "codex":
        for path in (home / "config.toml", site.root / ".codex" / "config.toml"):
            features = _toml(path).get("features")
            for key in ("hooks", "codex_hooks"):
                if isinstance(features, dict) and features.get(key) is False:
                    off.append(f"features.{key} in {path}")
    elif known.name == "gemini":
        for path in (home / "settings.json", site.root / ".gemini" / "settings.json"):
            switches = _json(path).get("hooksConfig")
            if isinstance(switches, dict):
                off += [f"hooksConfig.enabled in {path}"] * (switches.get("enabled") is False)
                disabled = switches.get("disabled")
                off += [f"hooksConfig.disabled in {path}"] * (isinstance(disabled, list) and "putback" in disabled)
    else:
        return
    yield (
        Check("switches", Result.FAIL, f"hooks are turned off: {'; '.join(off)}")
        if off
        else Check("switches", Result.PASS, "hooks are not turned off")
    )


_CLAUDE_PROJECT = ("settings.json", "settings.local.json")


def _trust(known: Adapter, scope: Scope, site: Site, where: Place) -> Iterator[Check]:
    if known.name == "gemini" and scope is Scope.USER:
        return
    if known.name in _TRUST:
        yield Check("trust", Result.WARN, _TRUST[known.name])


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none that can be read."""
    try:
        found = parse(_read(path).removeprefix("\ufeff")).plain()
    except (OSError, UnicodeError, Malformed):
        return {}
    return found if isinstance(found, dict) else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read(path))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}


def _read(path: Path) -> str:
    """Raises OSError and UnicodeError."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(LARGEST).decode()


def _git() -> Check:
    try:
        git.find()
    except GitUnavailable as error:
        return Check("git", Result.FAIL, error.message, error.hint or "")
    return Check("git", Result.PASS)


def _store(store: Path) -> Check:
    there = store
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Check("store", Result.PASS, str(store))
    return Check("store", Result.FAIL, f"not writable: {there}", "choose another with PUTBACK_STORE")


def _fired(known: Adapter, scratch: Path, command: list[str] | None, fire: Fire) -> Check:
    if not command:
        return Check("hook", Result.FAIL, "nothing to fire")
    done = fire(command, event(known, scratch))
    said = done.error.decode("utf-8", "replace").strip()[:200]
    if done.code != 0:
        ended = "did not end" if done.code is None else f"ended with {done.code}"
        return Check("hook", Result.FAIL, f"the hook {ended}{f': {said}' if said else ''}")
    if done.output.strip() and not _is_object(done.output):
        return Check("hook", Result.FAIL, f"the hook printed what is no JSON: {done.output[:80]!r}")
    if not done.captured:
        return Check("hook", Result.FAIL, f"the hook made no capture{f': {said}' if said else ''}")
    return Check("hook", Result.PASS, "the hook made a capture")


def _is_object(output: bytes) -> bool:
    try:
        return isinstance(json.loads(output), dict)
    except (ValueError, RecursionError):
        return False
