"""Programs that the doctor asks, and the only code to start them: an agent for its version, our hook for a word.

They get a time limit, after which their whole group is ended, and no terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT_BYTES = 64 << 10


@dataclass(frozen=True)
class Answer:
    """What a program said. `code` is None where it did not start, or not end in time; `error` says why."""

    code: int | None
    output: bytes = b""
    error: bytes = b""


def ask(
    argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str], seconds: float, given: bytes = b""
) -> Answer:
    """Run a program with `given` on its standard input. Never raises because of it."""
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Answer(None, error=str(error).encode("utf-8", "replace"))
    try:
        output, said = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # What has left the group may hold the pipes open: they are not waited for.
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        return Answer(None, error=f"no end after {seconds:g} s".encode())
    return Answer(process.returncode, output[:KEPT_BYTES], said[:KEPT_BYTES])
