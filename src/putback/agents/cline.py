"""Cline: one executable per event, which reads it on standard input; it names neither turns nor calls.

Paths are as the agent has them: often relative to the first of its workspace roots.
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
    session=("taskId",),
    cwd=("workspaceRoots",),
    prompt=("userPromptSubmit.prompt",),
    actor=(),
    tool=("preToolUse.toolName", "postToolUse.toolName"),
    input=("preToolUse.parameters", "postToolUse.parameters"),
    call=(),
    interrupted=lambda name, event: name == "TaskCancel",
    context=_context,
    silence=b'{"cancel": false}',
)
