"""A program that runs one command under the supervisor: `python supervised.py SPEC.json`.

Tests start it where the supervisor needs a process of its own: with one thread, to be sent signals, or as a job
of a shell. It writes how the command ended, and what it found changed in itself afterwards, to `answer`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from putback.runs.leftovers import Offspring
from putback.runs.supervisor import Leftovers, Supervision, supervise


def dispositions() -> list[str]:
    return [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())]


def is_reaper() -> int:
    answer = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0)
    return answer.value


def announce_waiting(file: Path) -> None:
    """Make `file` once leftovers have been found and are waited for."""
    settle = Offspring.settle

    def announced(self: Offspring, choice: Leftovers, *, pause: Callable[[float], bool], **named: Any) -> Any:
        return settle(self, choice, pause=lambda seconds: file.touch() or pause(seconds), **named)

    Offspring.settle = announced  # type: ignore[method-assign]


def main(spec: dict[str, Any]) -> None:
    folder = Path(spec["folder"])
    options = dict(spec.get("supervision", {}))
    if "leftovers" in options:
        options["leftovers"] = Leftovers(options["leftovers"])
    others = [subprocess.Popen(argv) for argv in spec.get("others", [])]
    if spec.get("threads"):
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    def started(pid: int) -> None:
        (folder / "reaper").write_text(str(is_reaper()))
        (folder / "started.new").write_text(str(pid))
        (folder / "started.new").rename(folder / "started")

    announce_waiting(folder / "waiting")
    before = (dispositions(), signal.pthread_sigmask(signal.SIG_BLOCK, ()), is_reaper())
    ended = supervise(
        spec["argv"],
        cwd=folder,
        environment={**os.environ, **spec.get("environment", {})},
        supervision=Supervision(**options),
        started=started,
    )
    after = (dispositions(), signal.pthread_sigmask(signal.SIG_BLOCK, ()), is_reaper())
    answer = {
        **msgspec.to_builtins(ended),
        "exit_code": ended.exit_code,
        "restored": before == after and signal.set_wakeup_fd(-1) == -1,
        "others": [other.poll() for other in others],
    }
    for other in others:
        other.kill()
    (folder / "answer.new").write_text(json.dumps(answer))
    (folder / "answer.new").rename(folder / "answer")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
