"""opencode: its hooks are functions in its own process; a plugin of ours sends what they are told.

The form of the events is our own: `agents/plugin.py` has the plugin. A child session is an actor of the session
that began it.
"""

from __future__ import annotations

from putback.agents.adapter import Adapter, Tool, Writes
from putback.records.agent import Point

# How opencode names the error of a session that its user has stopped.
ABORTED = "MessageAbortedError"

ADAPTER = Adapter(
    name="opencode",
    title="opencode",
    points={
        "session.created": Point.START,
        "chat.message": Point.OPEN,
        "tool.execute.before": Point.BEFORE,
        "tool.execute.after": Point.AFTER,
        "subagent.start": Point.SUB_START,
        "subagent.stop": Point.SUB_END,
        "session.idle": Point.CLOSE,
        "session.error": Point.CLOSE,
        "session.deleted": Point.END,
    },
    tools={
        "edit": Tool(Writes.PATH, "filePath"),
        "multiedit": Tool(Writes.PATH, "filePath"),
        "write": Tool(Writes.PATH, "filePath"),
        "apply_patch": Tool(Writes.PATCH, "patchText"),
        "patch": Tool(Writes.PATCH, "patchText"),
        "bash": Tool(Writes.SHELL, "command"),
    },
    event=("event",),
    session=("session",),
    turn=("message",),
    cwd=("directory",),
    actor=("actor",),
    tool=("tool",),
    input=("args",),
    call=("call",),
    failed=lambda name, event: name == "session.error" and event.get("error") != ABORTED,
    interrupted=lambda name, event: name == "session.error" and event.get("error") == ABORTED,
)
