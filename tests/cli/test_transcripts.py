"""Whole terminal sessions: every line that a person would see, exit codes included.

A transcript is a file of `$ command` lines, each followed by what it prints on either stream and, unless it is
0, by its exit code. Ids and times are replaced by words. RECORD=1 writes what is printed now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
PREAMBLE = 'putback() { "$PYTHON" -m putback --store "$STORE" -c store.min_free_bytes=0 "$@"; }\n'


def normal(text: str, tree: Path, store: Path) -> str:
    text = text.replace(str(store), "STORE").replace(str(tree), "TREE")
    text = re.sub(r"\b[0-9a-f]{64}\b", "<whole id>", text)
    text = re.sub(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12}\b", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z?)?Z?", "<time>", text)
    text = re.sub(r"after \d+\.\d s|\d+ ms(?=, 100 ms)", "<duration>", text)
    return re.sub(r"\d+ s ago(  [\d.]+ kB)?|[\d.]+ kB of", lambda match: re.sub(r"[\d.]+", "N", match[0]), text)


def play(script: str, tree: Path, store: Path) -> str:
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "STORE": str(store),
        "COLUMNS": "100",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    shown: list[str] = []
    for line in script.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                ["bash", "-c", PREAMBLE + line[2:]],
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            shown.append(line)
            shown += normal(done.stdout.decode("utf-8", "backslashreplace"), tree, store).splitlines()
            if done.returncode:
                shown.append(f"[exit {done.returncode}]")
        elif line.startswith("# "):
            shown.append(line)
    return "\n".join(shown) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_session_prints_exactly_this(transcript: Path, tree: Path, store: Path) -> None:
    script = transcript.read_text()
    shown = play(script, tree, store)
    if os.environ.get("RECORD"):
        transcript.write_text(shown)
    assert shown == script
