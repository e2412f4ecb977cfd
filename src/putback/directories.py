"""Where the platform wants a user's files to be, as `platformdirs` says it.

Not asked where the answer is plain: on Linux an absolute path in the environment decides. Loading `platformdirs`
takes a tenth of the time of a short command.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_config() -> Path:
    """The directory of the user's own settings, whether or not there is one."""
    plain = _plain("XDG_CONFIG_HOME", ".config")
    if plain is not None:
        return plain
    import platformdirs

    return platformdirs.user_config_path("putback")


def user_state() -> Path:
    """The directory for what is kept between calls, whether or not there is one."""
    plain = _plain("XDG_STATE_HOME", ".local/state")
    if plain is not None:
        return plain
    import platformdirs

    return platformdirs.user_state_path("putback")


def _plain(variable: str, usual: str) -> Path | None:
    if not sys.platform.startswith("linux") or "ANDROID_ROOT" in os.environ:
        return None
    chosen = os.environ.get(variable) or os.path.join(os.environ.get("HOME", ""), usual)
    return Path(chosen, "putback") if os.path.isabs(chosen) else None
