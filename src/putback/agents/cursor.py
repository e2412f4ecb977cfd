"""Cursor: hooks in `hooks.json`, events on standard input; shell commands and edits are events of their own."""

from __future__ import annotations

from putback.agents.adapter import Adapter, Answer, Tool, Writes
from putback.records.agent import Point


def _asks(reason: str) -> Answer:
    return {"permission": "ask", "user_message": reason, "agent_message": reason}


ADAPTER = Adapter(
    name="cursor",
    title="Cursor",
    points={
        "sessionStart": Point.START,
        "beforeSubmitPrompt": Point.OPEN,
        "preToolUse": Point.BEFORE,
        "beforeShellExecution": Point.BEFORE,
        "beforeMCPExecution": Point.BEFORE,
        "postToolUse": Point.AFTER,
        "postToolUseFailure": Point.AFTER,
        "afterShellExecution": Point.AFTER,
        "afterMCPExecution": Point.AFTER,
        "afterFileEdit": Point.AFTER,
        "subagentStart": Point.SUB_START,
        "subagentStop": Point.SUB_END,
        "stop": Point.CLOSE,
        "sessionEnd": Point.END,
    },
    tools={
        "Write": Tool(Writes.PATH, "file_path"),
        "Edit": Tool(Writes.PATH, "file_path"),
        "Delete": Tool(Writes.PATH, "file_path"),
        "Shell": Tool(Writes.SHELL, "command"),
    },
    session=("conversation_id", "session_id"),
    turn=("generation_id",),
    cwd=("cwd", "workspace_roots"),
    actor=("subagent_id", "agent_id"),
    input=("tool_input", ""),
    acts={"beforeShellExecution": "Shell", "afterShellExecution": "Shell", "afterFileEdit": "Edit"},
    failed=lambda name, event: event.get("status") == "error",
    interrupted=lambda name, event: event.get("status") == "aborted",
    asks=_asks,
    # An object without a permission leaves the decision where it is; an empty answer is no JSON.
    silence=b"{}",
)
