"""Where the traceback of an error of ours goes: a file that a report can name."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path

import platformdirs


def write(error: BaseException | None = None) -> Path:
    """Write the traceback of an error, readable for its user alone; returns the file. Raises OSError.

    None: of the error that is being handled.
    """
    folder = platformdirs.user_log_path("putback")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="error-", suffix=".log", dir=folder)
    except OSError:
        descriptor, name = tempfile.mkstemp(prefix="putback-error-", suffix=".log")
    with open(descriptor, "w") as file:
        file.write(traceback.format_exc() if error is None else "".join(traceback.format_exception(error)))
    return Path(name)
