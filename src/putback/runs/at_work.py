"""Which processes of a run's command live, although nobody may be watching them any more.

They are known by the mark in their environment, which every process inherits that does not clear it; the command
itself also by its number and when it was started; and whatever descends from one of these is the run's, too. A
process that cleared its environment and lost its parents is not found.
"""

from __future__ import annotations

import os

from putback.runs import processes
from putback.runs.processes import Process

# In the environment of a run's command: the id of the run.
MARK = "PUTBACK_RUN"


def at_work(run: str, command: tuple[int, int] | None) -> tuple[Process, ...]:
    """The living processes of a run, this one and what it started excepted; `command` is number and start."""
    mark = os.fsencode(f"{MARK}={run}")
    present = processes.table()
    mine = {
        pid
        for pid, process in present.items()
        if process.identity == command or processes.has_variable(process, mark)
    }
    mine |= processes.below(mine, present)
    mine -= {os.getpid()} | processes.below({os.getpid()}, present)
    return tuple(present[pid] for pid in sorted(mine) if not present[pid].dead)
