"""Running one command line and measuring it: wall time, and the peak memory of the largest process.

The peak is what the kernel keeps for the child and everything it has waited for. A child starts out with the
peak of the process that started it, so no reading can be below that of this process (some 20 MB).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO

TIME_LIMIT_SECONDS = 900.0


@dataclass(frozen=True)
class Command:
    """One process: its arguments, where and in which environment it runs, and what it reads."""

    arguments: Sequence[str]
    directory: Path
    environment: Mapping[str, str] = field(repr=False)
    given: bytes = b""


@dataclass(frozen=True)
class Sample:
    """One measurement: seconds on the wall, and the peak of the largest process in MB."""

    seconds: float
    peak_mb: float


class CommandFailed(Exception):
    """A command ended with another code than 0; says which one, and the last line of what it said."""


def run(commands: Sequence[Command]) -> Sample:
    """Run the commands one after the other and measure them as one. Raises CommandFailed."""
    peak = 0.0
    with tempfile.TemporaryFile() as said, ExitStack() as stack:
        inputs = [stack.enter_context(_input(command.given)) for command in commands]
        began = time.perf_counter()
        for command, given in zip(commands, inputs, strict=True):
            process = subprocess.Popen(
                command.arguments,
                cwd=command.directory,
                env=dict(command.environment),
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            watch = threading.Timer(TIME_LIMIT_SECONDS, process.kill)
            watch.start()
            _, status, usage = os.wait4(process.pid, 0)
            watch.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            peak = max(peak, usage.ru_maxrss / 1024)
            if process.returncode != 0:
                raise CommandFailed(_failure(command, process.returncode, said.fileno()))
        return Sample(time.perf_counter() - began, peak)


def _input(given: bytes) -> IO[bytes]:
    """A file that reads as this."""
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(given)
    file.seek(0)
    return file


def _failure(command: Command, code: int, said: int) -> str:
    text = os.pread(said, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
    line = text[-1] if text else "no message"
    return f"`{' '.join(command.arguments[:12])}` ended with code {code}: {line}"


@dataclass
class Series:
    """All measurements of one operation with one tool on one tree. `failed` says why there are none."""

    samples: list[Sample] = field(default_factory=list)
    failed: str = ""

    @property
    def slow_seconds(self) -> float | None:
        """What nineteen of twenty stayed below."""
        times = sorted(sample.seconds for sample in self.samples)
        return times[min(len(times) - 1, int(len(times) * 0.95))] if times else None

    @property
    def seconds(self) -> float | None:
        return median(sample.seconds for sample in self.samples) if self.samples else None

    @property
    def peak_mb(self) -> float | None:
        return median(sample.peak_mb for sample in self.samples) if self.samples else None


def disk_bytes(path: Path) -> int:
    """Bytes on disk of everything below `path`."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def flush(path: Path) -> None:
    """Bring everything dirty to the disk, so that one measurement does not pay for what came before it."""
    subprocess.run(["sync", "-f", str(path)], check=True)
