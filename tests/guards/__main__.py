"""Take the guards of exact-path turns out one by one, and see that a test misses each.

    python -m guards [--only TEXT] [-j N] [test files]

The tests run once, and it is noted which guards refused something in which test. Then, for each guard, a child
process takes it out and runs those tests until one of them fails. Ends with 1 where a guard refused nothing in any
test, where no test misses it, or where a reason in `SPARE` is given for a guard that a test does miss.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from guards.instrument import GUARDS, PACKAGE, SWITCH, Guard, install
from guards.spare import SPARE

TESTS = Path(__file__).resolve().parent.parent
FILES = (
    *("test_turn_*.py", "test_claims.py", "test_bindings.py", "test_staged.py", "test_index_lock.py"),
    *("test_worktree_provider.py", "test_permissions.py"),
)
MOST_SECONDS = 60


class Harness:
    """A pytest plugin that runs what was collected in its own way."""

    def __init__(self, only: str, workers: int) -> None:
        self._only = only
        self._workers = workers
        self.proven: list[Guard] = []
        self.unreached: list[Guard] = []
        self.missed_by_none: list[Guard] = []
        self.failing: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for found in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__):
            importlib.import_module(f"{PACKAGE}.{found.name}")
        reached = self._reach(session.items)
        wanted = [guard for guard in GUARDS if self._only in str(guard)]
        self.unreached = [guard for guard in wanted if not reached.get(guard.number)]
        left = iter([guard for guard in wanted if reached.get(guard.number)])
        running: dict[int, Guard] = {}
        while True:
            while len(running) < self._workers and (guard := next(left, None)) is not None:
                running[_without(guard, reached[guard.number])] = guard
            if not running:
                return True
            pid, status = os.wait()
            guard = running.pop(pid)
            missed = os.waitstatus_to_exitcode(status) != 0
            (self.proven if missed else self.missed_by_none).append(guard)

    def _reach(self, items: list[pytest.Item]) -> dict[int, list[pytest.Item]]:
        """For each guard the tests in which it refused something, the quickest first."""
        shares = [_share(items, first, self._workers) for first in range(self._workers)]
        found: dict[int, list[tuple[float, int]]] = {}
        for source in shares:
            with open(source, "rb") as stream:
                for order, failed, spent, numbers in json.loads(stream.read() or b"[]"):
                    if failed:
                        self.failing.append(items[order].nodeid)
                    for number in numbers:
                        found.setdefault(number, []).append((spent, order))
        while shares:
            os.wait()
            shares.pop()
        return {number: [items[order] for _, order in sorted(places)] for number, places in found.items()}


def _share(items: list[pytest.Item], first: int, step: int) -> int:
    """A child that runs every so many of the tests, and writes what it found to the descriptor returned."""
    source, sink = os.pipe()
    if os.fork():
        os.close(sink)
        return source
    try:
        _silence()
        told = []
        for order in range(first, len(items), step):
            SWITCH.refused.clear()
            began = time.monotonic()
            failed = _fails(items[order])
            told.append((order, failed, time.monotonic() - began, [] if failed else sorted(SWITCH.refused)))
        with open(sink, "wb") as stream:
            stream.write(json.dumps(told).encode())
    finally:
        os._exit(0)


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)


def _fails(item: Any) -> bool:
    item._initrequest()  # so that a test can run more than once
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _without(guard: Guard, items: list[pytest.Item]) -> int:
    """A child without the guard, which ends with 0 where none of the tests fails."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _silence()
        # Whatever hangs without it, misses it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(MOST_SECONDS)
        SWITCH.out = guard.number
        code = int(any(_fails(item) for item in items))
    finally:
        os._exit(code)


def _report(harness: Harness) -> Iterator[str]:
    for name in harness.failing:
        yield f"{name}: fails with every guard in its place"
    for guard in harness.unreached:
        if guard.key not in SPARE:
            yield f"{guard}: refuses nothing in any test"
    for guard in harness.missed_by_none:
        if guard.key not in SPARE:
            yield f"{guard}: no test misses it"
    for guard in harness.proven:
        if guard.key in SPARE:
            yield f"{guard}: said to be spare, but a test misses it"
    known = {guard.key for guard in GUARDS}
    yield from (f"{key}: said to be spare, but there is no such guard" for key in SPARE if key not in known)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="guards")
    parser.add_argument("--only", default="", help="guards whose line has this in it")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 2, help="how many at a time")
    parser.add_argument("files", nargs="*", help="the tests to run; by default all that are about turns")
    chosen = parser.parse_args(arguments)
    files = chosen.files or [str(path) for name in FILES for path in sorted((TESTS / "unit").glob(name))]
    install()
    harness = Harness(chosen.only, chosen.j)
    began = time.monotonic()
    quiet = ["-s", "-p", "no:terminal", "-p", "no:cacheprovider", "-o", "addopts="]
    code = pytest.main([*quiet, "--rootdir", str(TESTS.parent), *files], plugins=[harness])
    problems = [f"pytest ended with {code}"] if code not in (0, 1) else []
    problems += _report(harness)
    total = len(harness.proven) + len(harness.unreached) + len(harness.missed_by_none)
    for problem in problems:
        print(problem)
    print(f"{len(harness.proven)} of {total} guards are missed by a test, {time.monotonic() - began:.0f} s")
    return 1 if problems or not total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
