"""The agents whose hooks we know."""

from __future__ import annotations

import importlib

from putback.agents.adapter import Adapter
from putback.errors import UsageError

AGENTS = ("claude-code",)


def find(name: str) -> Adapter:
    """The adapter of an agent. Raises UsageError for a name that nobody knows."""
    if name not in AGENTS:
        raise UsageError(f"unknown agent {name!r}", hint=f"there are {', '.join(AGENTS)}")
    adapter = importlib.import_module(f"putback.agents.{name.replace('-', '_')}").ADAPTER
    assert isinstance(adapter, Adapter)
    return adapter
