"""The command line of our hook: how putback is started again, and how it is known again in somebody's settings."""

from __future__ import annotations

import os
import shlex


def running(argv0: str, executable: str) -> tuple[str, ...]:
    """How to start putback again, from anywhere: `argv0` is what it was started as, `executable` its Python."""
    path = os.path.abspath(argv0)
    if os.path.basename(path) == "putback" and os.path.isfile(path) and os.access(path, os.X_OK):
        return (path,)
    # Hooks run where the agent works: without -P a directory there that is called putback would be imported.
    return (executable, "-P", "-m", "putback")


def is_ours(agent: str, command: str) -> bool:
    """Whether a command line in an agent's settings is one that we put there."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return words[-2:] == ["hook", agent] and any(os.path.basename(word) == "putback" for word in words[:-2])
