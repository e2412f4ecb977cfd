"""Gemini CLI: hooks in its settings files, events on standard input; it names neither turns nor calls."""

from __future__ import annotations

from putback.agents.adapter import Adapter, Answer, Tool, Writes
from putback.records.agent import Point


def _context(event: str, text: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


ADAPTER = Adapter(
    name="gemini",
    title="Gemini CLI",
    points={
        "SessionStart": Point.START,
        "BeforeAgent": Point.OPEN,
        "BeforeTool": Point.BEFORE,
        "AfterTool": Point.AFTER,
        "AfterAgent": Point.CLOSE,
        "SessionEnd": Point.END,
    },
    tools={
        "write_file": Tool(Writes.PATH, "file_path"),
        "replace": Tool(Writes.PATH, "file_path"),
        "run_shell_command": Tool(Writes.SHELL, "command"),
    },
    context=_context,
    notice=lambda text: {"systemMessage": text},
    # A version that knows no "ask" goes on as if nothing had been said.
    asks=lambda reason: {"decision": "ask", "reason": reason, "systemMessage": reason},
    # Where standard output is empty it reads standard error in its place.
    silence=b"{}",
)
