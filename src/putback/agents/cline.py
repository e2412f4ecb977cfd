"""Cline: one executable per event, which reads it on standard input; it names no turns.

Its extension and its command line give their events different names. The command line tells of a prompt without
its text, and of the work of subagents, whose events name the agent above them. Paths are as the agent has them:
often relative to the first of its workspace roots.
"""

from __future__ import annotations

from putback.agents.adapter import Adapter, Answer, Tool, Writes
from putback.records.agent import Point


def _context(event: str, text: str) -> Answer:
    return {"cancel": False, "contextModification": text}


ADAPTER = Adapter(
    name="cline",
    title="Cline",
    points={
        "TaskStart": Point.START,
        "TaskResume": Point.START,
        "UserPromptSubmit": Point.OPEN,
        "PreToolUse": Point.BEFORE,
        "PostToolUse": Point.AFTER,
        "TaskComplete": Point.CLOSE,
        "TaskCancel": Point.CLOSE,
        "TaskError": Point.CLOSE,
        "agent_start": Point.OPEN,
        "agent_resume": Point.OPEN,
        "prompt_submit": Point.OPEN,
        "tool_call": Point.BEFORE,
        "tool_result": Point.AFTER,
        "agent_end": Point.CLOSE,
        "agent_abort": Point.CLOSE,
        "agent_error": Point.CLOSE,
        "session_shutdown": Point.END,
    },
    tools={
        "write_to_file": Tool(Writes.PATH, "path"),
        "replace_in_file": Tool(Writes.PATH, "path"),
        "editor": Tool(Writes.PATH, "path"),
        "apply_patch": Tool(Writes.PATCH, "input"),
        "execute_command": Tool(Writes.SHELL, "command"),
        "run_commands": Tool(Writes.SHELL, "commands"),
    },
    event=("hookName",),
    session=("sessionContext.rootSessionId", "taskId"),
    cwd=("workspaceRoots",),
    prompt=("userPromptSubmit.prompt",),
    actor=("agent_id",),
    child="parent_agent_id",
    tool=("tool_call.name", "tool_result.name", "preToolUse.toolName", "postToolUse.toolName"),
    input=("tool_call.input", "tool_result.input", "preToolUse.parameters", "postToolUse.parameters"),
    call=("tool_call.id", "tool_result.id"),
    failed=lambda name, event: name in ("TaskError", "agent_error"),
    interrupted=lambda name, event: name in ("TaskCancel", "agent_abort"),
    context=_context,
    silence=b'{"cancel": false}',
)
