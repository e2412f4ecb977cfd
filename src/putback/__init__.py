"""putback: record what a command does to a folder, and put it back exactly.

`Workspace` is the whole library; every error it raises is a `PutbackError`.
"""

from typing import TYPE_CHECKING, Any

from putback.version import __version__

__all__ = ["PutbackError", "Workspace", "__version__", "available"]

if TYPE_CHECKING:
    from putback.errors import PutbackError
    from putback.workspace import Workspace, available


def __getattr__(name: str) -> Any:
    # Imported when first used: whoever needs only the version should not pay for the engine.
    if name in ("Workspace", "available"):
        from putback import workspace

        return getattr(workspace, name)
    if name == "PutbackError":
        from putback.errors import PutbackError

        return PutbackError
    raise AttributeError(f"module 'putback' has no attribute {name!r}")
