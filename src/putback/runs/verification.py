"""Run the command that says whether what a run left is any good, and keep what it printed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from putback.errors import FailedError
from putback.records.receipt import Verification

KEPT_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 16


def verify(command: str, cwd: Path) -> Verification:
    """Run a shell command to its end; of its output, both streams together, the last 64 KiB are kept.

    Raises FailedError where there is no shell to run it.
    """
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise FailedError(f"cannot start the verification command: {error.strerror}") from error
    tail, length = b"", 0
    with process:
        assert process.stdout is not None
        while block := os.read(process.stdout.fileno(), _BLOCK_BYTES):
            length += len(block)
            tail = (tail + block)[-KEPT_BYTES:]
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    output = tail.decode("utf-8", "backslashreplace")
    return Verification(command=command, exit=code, output=output, cut_bytes=length - len(tail))
