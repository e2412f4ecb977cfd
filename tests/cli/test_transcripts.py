"""Whole terminal sessions: every line that a person would see, exit codes included.

A transcript is a file of `$ command` lines, each followed by what it prints on either stream and, unless it is
0, by its exit code. Ids and times are replaced by words. RECORD=1 writes what is printed now.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

import putback
from putback.__main__ import main

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
# What is nothing but a call of ours needs no shell, and no interpreter that imports everything anew.
PLAIN = re.compile(r"""putback( [\w@.,:=/+-]+| "[\w ]*"| '[\w ]*')*""")
PREAMBLE = 'putback() { "$PYTHON" -m putback --store "$STORE" -c store.min_free_bytes=0 "$@"; }\n'


def normal(text: str, tree: Path, store: Path) -> str:
    text = text.replace(str(store), "STORE").replace(str(tree), "TREE")
    text = re.sub(r"\b[0-9a-f]{64}\b", "<whole id>", text)
    text = re.sub(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12}\b", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z?)?Z?", "<time>", text)
    text = re.sub(r"after \d+\.\d s|\d+ ms(?=, 100 ms)", "<duration>", text)
    return re.sub(r"\d+ s ago(  [\d.]+ kB)?|[\d.]+ kB of", lambda match: re.sub(r"[\d.]+", "N", match[0]), text)


def run(line: str, tree: Path, environment: dict[str, str]) -> tuple[int, bytes]:
    """Run one line in `tree`; its exit code, and what it printed on either stream."""
    if not PLAIN.fullmatch(line):
        done = subprocess.run(
            ["bash", "-c", PREAMBLE + line],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout
    fixed = ["putback", "--store", environment["STORE"], "-c", "store.min_free_bytes=0"]
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        become([*fixed, *shlex.split(line)[1:]], tree, environment, sink)
    os.close(sink)
    with open(source, "rb") as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def become(words: list[str], tree: Path, environment: dict[str, str], sink: int) -> NoReturn:
    """Be, from here on, the command that was called like this."""
    try:
        os.chdir(tree)
        os.environ.clear()
        os.environ.update(environment)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(sink, number)
        os.close(sink)
        sys.stdin = os.fdopen(0, encoding="utf-8")
        # Buffered as the streams of a new interpreter are.
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace")
        sys.argv = words
        main()
    finally:
        os._exit(99)


def import_everything() -> None:
    """So that no child has to."""
    for module in pkgutil.walk_packages(putback.__path__, "putback."):
        if not module.name.startswith("putback.mcp_server") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def play(script: str, tree: Path, store: Path) -> str:
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "STORE": str(store),
        "COLUMNS": "100",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    import_everything()
    shown: list[str] = []
    for line in script.splitlines():
        if line.startswith("$ "):
            code, said = run(line[2:], tree, environment)
            shown.append(line)
            shown += normal(said.decode("utf-8", "backslashreplace"), tree, store).splitlines()
            if code:
                shown.append(f"[exit {code}]")
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
