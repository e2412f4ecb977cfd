"""Print how many passing tests bear each number of docs/requirements.md, and which numbers have none.

    python tests/requirements.py [pytest arguments]

Ends with 0 unless a test failed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Tally:
    """A pytest plugin that counts passing tests by the requirement they bear."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        borne = {number for name, number in report.user_properties if name == "requirement"}
        if report.when == "call" and report.passed:
            self.passed.update(borne)
        elif report.failed:
            self.failed |= borne


def numbered(text: str) -> dict[str, str]:
    """Number and first words of each requirement, in the order of the document."""
    found = re.findall(r"^- ([KDH]\d+) (.*)$", text, re.MULTILINE)
    return {number: words if len(words) <= 80 else words[:77] + "..." for number, words in found}


def main(arguments: list[str]) -> int:
    known = numbered((ROOT / "docs" / "requirements.md").read_text())
    tally = Tally()
    code = pytest.main(["-n", "auto", "--rootdir", str(ROOT), str(ROOT / "tests"), *arguments], plugins=[tally])
    print()
    for number, words in known.items():
        note = "  (and failing ones)" if number in tally.failed else ""
        print(f"{number:>4} {tally.passed[number] or '-':>4}  {words}{note}")
    without = [number for number in known if not tally.passed[number]]
    print(f"\n{len(known) - len(without)} of {len(known)} requirements have passing tests")
    if without:
        print("none: " + " ".join(without))
    if unknown := sorted((tally.passed.keys() | tally.failed) - known.keys()):
        print("marks without a requirement: " + " ".join(unknown))
    return 1 if code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
