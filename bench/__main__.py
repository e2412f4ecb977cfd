"""Measure putback beside other ways to keep the state of a tree, and print one table.

    python -m bench [--sizes 1000,10000,100000] [--runs N] [--quick] [--json FILE] [--only NAME…]

The tools take turns within every round, so that whatever else the machine does falls on all of them. Progress
goes to stderr, the table to stdout. A missed target does not change the exit code.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench import measure, trees
from bench.measure import CommandFailed, disk_bytes, flush
from bench.table import OPERATIONS, STORE_FIRST, Results, render
from bench.tools import EVERY, STORING, Commands, Tool

CHANGED = 10
RESTORED = 1_000
REVISIONS = 50
MOST_FIRST_RUNS = 3
# Two seconds after a change, both git's index and putback's own can be trusted to see the next one.
QUIET_SECONDS = 2.2


class Bench:
    """All measurements on one tree."""

    def __init__(
        self, tree: trees.Tree, tools: Sequence[Tool], results: Results, runs: int, revisions: int
    ) -> None:
        self.tree = tree
        self.tools = list(tools)
        self.results = results
        self.runs = runs
        self.revisions = revisions
        self.turns = 0

    def run(self, wanted: set[str]) -> None:
        """Every wanted operation, in an order in which each finds what it needs."""
        self.first(MOST_FIRST_RUNS if "first" in wanted else 1)
        keys = ("warm", "changed", "diff", "restore", "supervised", "turn", "store", "pack", "list", "hook")
        for key in keys:
            if key in wanted:
                note(f"{self.tree.files:,} files: {key}")
                getattr(self, key)()

    def first(self, most: int) -> None:
        """A capture into an empty store, with the tree in the page cache."""
        note(f"{self.tree.files:,} files: first")
        subprocess.run(["grep", "-rqs", "not in any file \1", str(self.tree.root)], check=False)
        for _ in range(min(self.runs, most)):
            for tool in self.storing():
                shutil.rmtree(tool.place, ignore_errors=True)
                tool.place.mkdir(parents=True)
                self.quietly(tool, tool.prepare())
                flush(self.tree.root)
                self.timed("first", tool, tool.capture())
        for tool in self.storing():
            self.results.stores[STORE_FIRST, self.tree.files, tool.name] = disk_bytes(tool.store)

    def warm(self) -> None:
        """A capture with nothing changed since the last one."""
        self.settle()
        for _ in range(self.runs):
            for tool in self.repeating():
                self.timed("warm", tool, tool.capture())

    def changed(self) -> None:
        """A capture of ten changed files."""
        self.settle()
        for _ in range(self.runs):
            self.edit(salt=0)
            for tool in self.storing():
                if tool.patience:
                    self.timed("changed", tool, tool.capture())

    def diff(self) -> None:
        """The summary of ten changed files; each round changes them again, so that none finds its work done."""
        self.settle()
        for _ in range(self.runs):
            self.edit(salt=0)
            for tool in self.tools:
                self.timed("diff", tool, tool.diff())

    def restore(self) -> None:
        """Damage to 1,000 files put back, and the disk in step with it."""
        for _ in range(self.runs):
            for tool in self.tools:
                if tool.restore() is not None:
                    self.settle([tool])
                    before = self.tree.fingerprint()
                    self.turns += 1
                    self.tree.damage(RESTORED, self.turns)
                    flush(self.tree.root)
                    self.timed("restore", tool, tool.restore())
                    if self.tree.fingerprint() != before:
                        self.results.notes.append(f"{tool.name} did not put {self.tree.files:,} files back")
                        subprocess.run(["git", "reset", "-q", "--hard"], cwd=self.tree.root, check=True)

    def supervised(self) -> None:
        """A command that changes nothing, between two captures."""
        tools = [tool for tool in self.tools if tool.supervised() is not None]
        self.settle(tools)
        for _ in range(self.runs):
            for tool in tools:
                self.timed("supervised", tool, tool.supervised())

    def turn(self) -> None:
        """A turn of ten files, each changed and every other one staged: begun, sealed and taken back."""
        tools = [tool for tool in self.tools if (tool.begin(()), tool.seal()) != (None, None)]
        for tool in tools:
            self.quietly(tool, tool.bind())
        for _ in range(self.runs):
            for tool in tools:
                self.turns += 1
                paths = [str(path.relative_to(self.tree.root)) for path in self.tree.spread(CHANGED, self.turns)]
                before = self.tree.fingerprint()
                flush(self.tree.root)
                self.timed("turn.begin", tool, tool.begin(paths))
                if tool.seal() is None:
                    continue
                self.tree.edit(CHANGED, self.turns, self.turns)
                subprocess.run(["git", "add", "--", *paths[::2]], cwd=self.tree.root, check=True)
                flush(self.tree.root)
                self.timed("turn.seal", tool, tool.seal())
                self.quietly(tool, tool.after_seal())
                self.timed("turn.apply", tool, tool.apply(paths))
                staged = subprocess.run(["git", "diff", "--cached", "--quiet"], cwd=self.tree.root, check=False)
                if self.tree.fingerprint() != before or staged.returncode:
                    self.results.notes.append(f"{tool.name} did not take a turn of {self.tree.files:,} files back")
                    subprocess.run(["git", "reset", "-q", "--hard"], cwd=self.tree.root, check=True)

    def store(self) -> None:
        """What the stores grow by with fifty revisions of ten files each."""
        patient = [tool for tool in self.storing() if tool.patience >= self.tree.files]
        self.settle(patient)
        before = [disk_bytes(tool.store) for tool in patient]
        for salt in range(self.revisions):
            self.edit(salt)
            for tool in patient:
                self.quietly(tool, tool.capture())
        for tool, size in zip(patient, before, strict=True):
            grown = disk_bytes(tool.store) - size
            self.results.stores[f"store, +{self.revisions} revisions (MB)", self.tree.files, tool.name] = grown

    def pack(self) -> None:
        """What the whole stores take after revisions of ten files, and after each tool has packed its own."""
        self.revise(f"store, {self.revisions} revisions of {CHANGED} files")

    def revise(self, title: str) -> None:
        """Fifty captures, each of ten changes, into stores of their own; then everything packed, and timed."""
        patient = [tool for tool in self.storing() if tool.patience >= self.tree.files]
        for tool in patient:
            shutil.rmtree(tool.place, ignore_errors=True)
            tool.place.mkdir(parents=True)
            self.quietly(tool, tool.prepare())
        self.settle(patient)
        for salt in range(self.revisions):
            self.edit(salt)
            for tool in patient:
                self.quietly(tool, tool.capture())
        for tool in patient:
            self.results.stores[f"{title} (MB)", self.tree.files, tool.name] = disk_bytes(tool.store)
            self.timed("pack", tool, tool.pack())
            if tool.pack() is not None:
                self.results.stores[f"{title}, packed (MB)", self.tree.files, tool.name] = disk_bytes(tool.store)

    def list(self) -> None:
        """How long it takes to say anything at all."""
        for _ in range(max(5, self.runs)):
            for tool in self.tools:
                self.timed("list", tool, tool.list())

    def hook(self) -> None:
        """What an agent waits for at each prompt, tool call and stop, with ten files changed in between."""
        events = {"prompt": "UserPromptSubmit", "tool": "PreToolUse", "stop": "Stop"}
        tools = [tool for tool in self.tools if tool.hook("Stop")]
        for salt in range(max(20, self.runs)):
            for key, event in events.items():
                if key == "stop":
                    self.edit(salt)
                for tool in tools:
                    self.timed(f"hook.{key}", tool, tool.hook(event))
        for key in events:
            series = self.results.of(f"hook.{key}", self.tree.files, "putback")
            if series.seconds and series.slow_seconds:
                p50, p95 = series.seconds * 1000, series.slow_seconds * 1000
                said = f"hook, {key}, {self.tree.files:,} files: p50 {p50:.0f} ms, p95 {p95:.0f} ms"
                self.results.notes.append(said)

    def storing(self) -> Iterable[Tool]:
        return (tool for tool in self.tools if isinstance(tool, STORING))

    def repeating(self) -> Iterable[Tool]:
        """The tools for which a second capture is not the first one over again, and the references."""
        return (tool for tool in self.tools if tool.patience or not isinstance(tool, STORING))

    def settle(self, tools: Iterable[Tool] | None = None) -> None:
        """Let the tree grow old enough to be trusted, and everybody see it as it is."""
        flush(self.tree.root)
        time.sleep(QUIET_SECONDS)
        for tool in self.repeating() if tools is None else tools:
            self.quietly(tool, tool.capture())

    def edit(self, salt: int) -> None:
        self.turns += 1
        self.tree.edit(CHANGED, salt, self.turns)
        time.sleep(0.1)

    def quietly(self, tool: Tool, commands: Commands) -> None:
        """Run what is not measured."""
        try:
            measure.run(commands or ())
        except CommandFailed as failed:
            self.results.notes.append(f"{tool.name}: {failed}")

    def timed(self, key: str, tool: Tool, commands: Commands) -> None:
        """Run what is measured; a failure becomes a note."""
        if commands is None:
            return
        series = self.results.of(key, self.tree.files, tool.name)
        if series.failed:
            return
        try:
            sample = measure.run(commands)
        except CommandFailed as failed:
            series.failed = str(failed)
            self.results.notes.append(f"{key}, {tool.name}: {failed}")
            return
        series.samples.append(sample)
        note(f"  {tool.name}: {sample.seconds:.3f} s, {sample.peak_mb:.0f} MB")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sealed_environment(home: Path) -> dict[str, str]:
    """An environment without the user's configuration of any of the tools."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "LC_ALL": "C", "TZ": "UTC"}


def select(only: Sequence[str], results: Results) -> tuple[list[type[Tool]], set[str]]:
    """The tools and the operations to measure: those named, else all that are there."""
    operations = {*named_operations(), "store", "text"}
    tools = [tool for tool in EVERY if tool.name in only] or list(EVERY)
    for tool in tools:
        if not tool.available():
            results.notes.append(f"{tool.name} is not installed; skipped")
    return [tool for tool in tools if tool.available()], (operations & set(only)) or operations


def named_operations() -> Sequence[str]:
    """What can be asked for: `turn` is measured in several steps, which are rows of their own."""
    return list(dict.fromkeys(operation.key.partition(".")[0] for operation in OPERATIONS))


def as_json(results: Results, runs: int) -> str:
    """Every single measurement, for programs."""
    measured = [
        {
            "operation": key,
            "files": files,
            "tool": tool,
            "seconds": [round(sample.seconds, 4) for sample in series.samples],
            "median_seconds": series.seconds,
            "peak_mb": series.peak_mb,
            "failed": series.failed,
        }
        for (key, files, tool), series in results.series.items()
    ]
    stores = [
        {"what": what, "files": files, "tool": tool, "bytes": size}
        for (what, files, tool), size in results.stores.items()
    ]
    machine = {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    document = {"machine": machine, "runs": runs, "measured": measured, "stores": stores, "notes": results.notes}
    return json.dumps(document, indent=1)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    names = [*named_operations(), "store", "text", *(tool.name for tool in EVERY)]
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of files, with commas between")
    parser.add_argument(
        "--runs", type=int, default=5, help="measurements of each kind (first captures: at most 3)"
    )
    parser.add_argument("--quick", action="store_true", help="1,000 files, two runs, ten revisions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there, too")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", choices=names, help=", ".join(names))
    return parser.parse_args(arguments)


def compile_packages() -> None:
    """Compile what `putback` imports, as an installer does: a checkout may have run without writing caches."""
    for name in ("putback", "click", "msgspec", "isal", "platformdirs"):
        place = importlib.util.find_spec(name)
        if place is not None and place.origin is not None:
            compileall.compile_dir(Path(place.origin).parent, quiet=2)


def main(arguments: Sequence[str]) -> int:
    chosen = parse(arguments)
    sizes = [1_000] if chosen.quick else [int(size) for size in chosen.sizes.split(",")]
    runs = 2 if chosen.quick else chosen.runs
    results = Results()
    kinds, wanted = select(chosen.only, results)
    compile_packages()
    with tempfile.TemporaryDirectory(prefix="putback-bench-") as folder:
        top = Path(os.path.realpath(folder))
        (top / "home").mkdir()
        environment = sealed_environment(top / "home")
        for files in sizes:
            note(f"{files:,} files: building the tree")
            tree = trees.build(top / f"tree{files}", files, environment)
            tools = [kind(tree, top / "tools" / kind.name.replace(" ", ""), environment) for kind in kinds]
            Bench(tree, tools, results, runs, 10 if chosen.quick else REVISIONS).run(wanted)
            shutil.rmtree(top / "tools", ignore_errors=True)
            shutil.rmtree(tree.root)
        if "text" in wanted:
            note("one text: revisions")
            text = trees.build_text(top / "text")
            tools = [kind(text, top / "tools" / kind.name.replace(" ", ""), environment) for kind in kinds]
            bench = Bench(text, tools, results, runs, 10 if chosen.quick else REVISIONS)
            bench.revise(f"store, {bench.revisions} revisions of a 5 MB text")
    print(render(results))
    if chosen.json:
        chosen.json.write_text(as_json(results, runs) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
