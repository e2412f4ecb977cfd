"""The harness that takes guards out: a sample of them here, all of them by `make guards`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


def guards(*arguments: str | Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "guards", *arguments], cwd=TESTS, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.requirement("H11", "H16")
def test_every_guard_of_a_selection_is_missed_by_a_test() -> None:
    files = [f"unit/test_turn_{name}.py" for name in ("refusals", "edges", "capture")]
    code, said = guards("--only", "turns/selection.py", *files)
    assert code == 0, said
    assert "guards are missed by a test" in said[-1]


def test_a_guard_that_no_test_reaches_or_misses_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_idle.py").write_text("def test_nothing():\n    pass\n")
    code, said = guards("--only", "turns/resolve.py", tmp_path / "test_idle.py")
    assert code == 1
    assert len(said) > 2 and all(line.startswith("src/putback/turns/resolve.py:") for line in said[:-1])
    assert all("refuses nothing in any test" in line for line in said[:-1])
    # It runs into the guard, and does not mind whether it is there.
    indifferent = """
from putback.turns.overlap import Mounts, overlap, survey

def test_indifferent():
    here = survey(b"/x", None, None, Mounts())
    overlap(here, here)
"""
    (tmp_path / "test_idle.py").write_text(indifferent)
    code, said = guards("--only", "overlap: one == other", tmp_path / "test_idle.py")
    assert code == 1 and said[0].startswith("src/putback/turns/overlap.py:") and "no test misses it" in said[0]
