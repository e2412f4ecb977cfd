"""Claude Code: hooks in its settings files, events on standard input."""

from __future__ import annotations

from putback.agents.adapter import Adapter, Answer, Tool, Writes
from putback.records.agent import Point


def _context(event: str, text: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def _asks(reason: str) -> Answer:
    said = {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": said}


ADAPTER = Adapter(
    name="claude-code",
    title="Claude Code",
    points={
        "SessionStart": Point.START,
        "UserPromptSubmit": Point.OPEN,
        "PreToolUse": Point.BEFORE,
        "PostToolUse": Point.AFTER,
        "PostToolUseFailure": Point.AFTER,
        "PostToolBatch": Point.AFTER,
        "SubagentStart": Point.SUB_START,
        "SubagentStop": Point.SUB_END,
        "Stop": Point.CLOSE,
        "StopFailure": Point.CLOSE,
        "SessionEnd": Point.END,
    },
    tools={
        "Write": Tool(Writes.PATH, "file_path"),
        "Edit": Tool(Writes.PATH, "file_path"),
        "NotebookEdit": Tool(Writes.PATH, "notebook_path"),
        "Bash": Tool(Writes.SHELL, "command"),
        "PowerShell": Tool(Writes.SHELL, "command"),
    },
    turn=("prompt_id",),
    batch="tool_calls",
    failed=lambda name, event: name == "StopFailure",
    context=_context,
    notice=lambda text: {"systemMessage": text},
    asks=_asks,
)
