"""Wait for conditions, and look at processes from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 6.0) -> T:
    """The first true answer of `condition`; fails the test when there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return answer


def content(path: Path) -> str:
    """The text of a file, empty while there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def state(pid: int) -> str:
    """One letter for what a process does (R, S, T stopped, Z ended), empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid: int) -> bool:
    return state(pid) in ("", "Z")
