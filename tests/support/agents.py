"""An agent as the hook sees it: the events of Claude Code, one method each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from putback.agents import registry
from putback.agents.hook import Hook
from putback.workspace import Workspace
from support.hermetic import settings


@dataclass
class Agent:
    """One session of an agent that works in `root`."""

    root: Path
    store: Path
    session: str = "s1"
    name: str = "claude-code"

    @property
    def workspace(self) -> Workspace:
        return Workspace.open(self.root, store=self.store, settings=settings())

    def send(self, event: str, **fields: Any) -> dict[str, Any]:
        """Send an event and return what is answered; an agent reads nothing else than an object or nothing."""
        sent = {"session_id": self.session, "cwd": str(self.root), "hook_event_name": event, **fields}
        hook = Hook(registry.adapter(self.name), self.store, settings())
        answer = hook.answer(json.dumps(sent).encode())
        said = json.loads(answer) if answer else {}
        assert isinstance(said, dict)
        return said

    def prompt(self, text: str, **fields: Any) -> dict[str, Any]:
        return self.send("UserPromptSubmit", prompt=text, **fields)

    def write(self, path: str, content: str, tool: str = "Write", **fields: Any) -> None:
        """A file tool writes, announced before and after."""
        given = {
            "tool_name": tool,
            "tool_input": {"file_path": str(self.root / path)},
            "tool_use_id": path,
            **fields,
        }
        assert self.send("PreToolUse", **given) == {}
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(content)
        assert self.send("PostToolUse", **given) == {}

    def shell(self, command: str, path: str, content: str) -> dict[str, Any]:
        """A shell command writes, and does not say what."""
        answer = self.send("PreToolUse", tool_name="Bash", tool_input={"command": command})
        (self.root / path).write_text(content)
        return answer

    def stop(self, event: str = "Stop", **fields: Any) -> None:
        assert self.send(event, **fields) == {}
