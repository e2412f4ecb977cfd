"""The coding agents that are known by name. Only the one that is asked for is imported: hooks start often."""

from __future__ import annotations

import importlib

from putback.agents.adapter import Adapter
from putback.errors import UsageError

# What users call an agent, and the module that has its contract.
MODULES = {
    "claude-code": "claude_code",
    "codex": "codex",
    "gemini": "gemini",
    "cursor": "cursor",
    "cline": "cline",
    "opencode": "opencode",
}
NAMES = tuple(MODULES)


def adapter(name: str) -> Adapter:
    """The contract of the agent of that name. Raises UsageError for a name that no agent has."""
    if name not in MODULES:
        raise UsageError(f"no such agent: {name!r}", hint=f"known are {', '.join(NAMES)}")
    found = importlib.import_module(f"putback.agents.{MODULES[name]}").ADAPTER
    assert isinstance(found, Adapter)
    return found
