"""Codex: hooks in `hooks.json`, events as Claude Code's on standard input, file edits as patches.

What its hooks answer may hold no field that it does not know, and it takes no `ask` from them.
"""

from __future__ import annotations

from putback.agents.adapter import Adapter, Answer, Tool, Writes
from putback.records.agent import Point


def _context(event: str, text: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


ADAPTER = Adapter(
    name="codex",
    title="Codex",
    points={
        "SessionStart": Point.START,
        "UserPromptSubmit": Point.OPEN,
        "PreToolUse": Point.BEFORE,
        "PostToolUse": Point.AFTER,
        "SubagentStart": Point.SUB_START,
        "SubagentStop": Point.SUB_END,
        "Stop": Point.CLOSE,
        "StopFailure": Point.CLOSE,
        "Interrupt": Point.CLOSE,
        "SessionEnd": Point.END,
    },
    tools={
        "apply_patch": Tool(Writes.PATCH, "command"),
        "Bash": Tool(Writes.SHELL, "command"),
    },
    turn=("turn_id",),
    failed=lambda name, event: name == "StopFailure",
    interrupted=lambda name, event: name == "Interrupt",
    context=_context,
    notice=lambda text: {"systemMessage": text},
)
