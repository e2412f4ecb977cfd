"""Named points at which a test may look on, swap a file or kill the process.

`reach` does nothing in production: no observer is installed and none can be installed from outside the
process. Names are stable and read `operation.step`; docs/architecture.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable

_observer: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Tell the observer, where there is one, that the process has come to the point `name`."""
    if _observer is not None:
        _observer(name)


def observe(observer: Callable[[str], None] | None) -> None:
    """Install the observer of this process, or remove it with None."""
    global _observer
    _observer = observer
