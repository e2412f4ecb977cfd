"""Where each agent looks for its hooks, in what form, and which of its events we ask for.

Timeouts are in the agent's own unit. A prompt may have to wait for the first capture of a large tree; what takes
longer than its timeout is given up by the agent, which goes on without it.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from putback.agents.registry import adapter

SECOND, MILLISECOND = 1, 1000
TURN, TOOL, SESSION = 120, 60, 30


class Scope(enum.StrEnum):
    """Whose sessions: all of this user's, or all in this project, whoever has it."""

    USER = "user"
    PROJECT = "project"


class Form(enum.StrEnum):
    """What the hooks are written as.

    nested: JSON, entries with a matcher and a list of commands. flat: JSON, entries that are commands. scripts: an
    executable per event. plugin: one file of JavaScript.
    """

    NESTED = "nested"
    FLAT = "flat"
    SCRIPTS = "scripts"
    PLUGIN = "plugin"


class Hook(NamedTuple):
    """One event that is asked for; `seconds` is how long it may take, `matcher` which of its kind are meant."""

    event: str
    seconds: int
    matcher: str = ""


@dataclass(frozen=True)
class Place:
    """Where hooks go. `user` is below `folder` in the home directory, or below what `variable` names.

    `shared`: others get the project's file with the repository, because the agent has none that is the user's
    alone. `unit` is how many of the agent's units of time make a second. `named` entries carry our name. `beside`
    is what a settings file cannot be without.
    """

    form: Form
    folder: str
    user: str
    project: str
    hooks: tuple[Hook, ...] = ()
    variable: str = ""
    shared: bool = True
    unit: int = SECOND
    named: bool = False
    beside: Mapping[str, Any] | None = None

    def path(self, scope: Scope, root: Path, home: Path, environment: Mapping[str, str]) -> Path:
        """The settings file, or the folder of scripts."""
        if scope is Scope.PROJECT:
            return root / self.project
        chosen = environment.get(self.variable) if self.variable else None
        # An agent would take a relative one from wherever it is started.
        return (Path(chosen) if chosen and os.path.isabs(chosen) else home / self.folder) / self.user

    def entries(self, command: str) -> dict[str, Any]:
        """What is put into the list of each event."""
        return {hook.event: self._entry(hook, command) for hook in self.hooks}

    def _entry(self, hook: Hook, command: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"matcher": hook.matcher} if hook.matcher else {}
        handler: dict[str, Any] = {"command": command, "timeout": hook.seconds * self.unit}
        if self.form is Form.FLAT:
            return {**handler, **entry}
        name = {"name": "putback"} if self.named else {}
        return {**entry, "hooks": [{"type": "command", **name, **handler}]}


_PLACES: Mapping[str, Place] = {
    "claude-code": Place(
        Form.NESTED,
        folder=".claude",
        variable="CLAUDE_CONFIG_DIR",
        user="settings.json",
        project=".claude/settings.local.json",
        shared=False,
        hooks=(
            Hook("UserPromptSubmit", TURN),
            Hook("PreToolUse", TOOL, "Bash|PowerShell|Write|Edit|NotebookEdit"),
            Hook("Stop", TURN),
            Hook("StopFailure", TURN),
            Hook("SessionEnd", SESSION),
        ),
    ),
    "codex": Place(
        Form.NESTED,
        folder=".codex",
        variable="CODEX_HOME",
        user="hooks.json",
        project=".codex/hooks.json",
        hooks=(
            Hook("UserPromptSubmit", TURN),
            Hook("PreToolUse", TOOL, "^(Bash|apply_patch)$"),
            Hook("Stop", TURN),
            # It gives these no more, and passes over events that it does not know.
            Hook("Interrupt", 3),
            Hook("SessionEnd", 3),
        ),
    ),
    "gemini": Place(
        Form.NESTED,
        folder=".gemini",
        user="settings.json",
        project=".gemini/settings.json",
        unit=MILLISECOND,
        named=True,
        hooks=(
            Hook("BeforeAgent", TURN),
            Hook("BeforeTool", TOOL, "^(run_shell_command|write_file|replace)$"),
            Hook("AfterAgent", TURN),
            Hook("SessionEnd", SESSION),
        ),
    ),
    "cursor": Place(
        Form.FLAT,
        folder=".cursor",
        user="hooks.json",
        project=".cursor/hooks.json",
        beside={"version": 1},
        # Its preToolUse tells of shell commands and edits, too, in newer versions: asked for both, it tells twice.
        hooks=(
            Hook("beforeSubmitPrompt", TURN),
            Hook("beforeShellExecution", TOOL),
            Hook("afterFileEdit", TOOL),
            Hook("stop", TURN),
            Hook("sessionEnd", SESSION),
        ),
    ),
    "cline": Place(
        Form.SCRIPTS,
        folder="Documents/Cline",
        user="Hooks",
        project=".clinerules/hooks",
        hooks=tuple(
            # Its command line has no prompt's event: there a prompt is the start of a task.
            Hook(event, TOOL)
            for event in (
                *("TaskStart", "TaskResume", "UserPromptSubmit", "PreToolUse"),
                *("TaskComplete", "TaskCancel", "TaskError"),
            )
        ),
    ),
    "opencode": Place(
        Form.PLUGIN,
        folder=".config/opencode",
        variable="OPENCODE_CONFIG_DIR",
        user="plugins/putback.js",
        project=".opencode/plugins/putback.js",
    ),
}


def place(agent: str) -> Place:
    """Where the hooks of an agent go. Raises UsageError for a name that no agent has."""
    return _PLACES[adapter(agent).name]
