"""The one table that comes out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bench.measure import Series

COLUMNS = ("putback", "shadow", "restic", "borg", "cp -a", "git status", "git", "floor")
MEMORY_FILES, MEMORY_MB = 100_000, 200
NOTHING = "-"


@dataclass(frozen=True)
class Operation:
    """One row per size: its name, what putback is compared with, and the most it may take of that.

    The targets are those of DESIGN, section 9; each is set for trees of `target_files` files.
    """

    key: str
    title: str
    reference: str
    target: float | None = None
    target_files: int = 100_000


OPERATIONS = (
    Operation("first", "first capture", "shadow", 0.3),
    Operation("warm", "capture, nothing changed", "git status", 1.2),
    Operation("changed", "capture, 10 changed", "shadow", 0.6),
    Operation("diff", "diff, 10 changed", "shadow"),
    Operation("restore", "restore of 1,000", "shadow", 0.5),
    Operation("supervised", "run of `true`", "shadow"),
    Operation("turn.begin", "turn begin, 10 paths", "floor"),
    Operation("turn.seal", "turn seal, 10 changed", "git"),
    Operation("turn.apply", "turn apply, 10 changed", "git"),
    Operation("pack", "packing of 50 revisions", "shadow"),
    Operation("list", "list", "floor", 6.0, 1_000),
    Operation("hook.prompt", "hook, prompt", "floor", 6.0, 1_000),
    Operation("hook.tool", "hook, tool call", "floor", 6.0, 1_000),
    Operation("hook.stop", "hook, stop", "floor", 6.0, 1_000),
)
STORE_FIRST = "store, first capture (MB)"
FOOT = """Medians of wall seconds. `putback / reference` is the ratio of medians.
Targets (DESIGN 9) are for 100,000 files, of `list` and the hook for 1,000. Memory at 100,000: at most 200 MB.
shadow: git add -A && git commit in a second repository (sha1, no collector). cp -a: a copy, without `.git`.
run of `true`: with contents kept; for the shadow, a commit before and one after.
git: in the user's repository, `git stash` beside `turn seal`, `git reset` and `git checkout` of the same paths
beside `turn apply`. Neither keeps what was staged apart, and neither waits for the disk.
packed: putback has reclaimed, the shadow was collected (`git gc --prune=now`, which packs everything anew).
floor: a stat of every file (find -printf) beside captures, `putback --version` beside turns, `python -c pass`
beside `list` and the hook.
Peak memory is that of the largest process; nothing below some 20 MB can be seen. Both restores end with a sync."""


@dataclass
class Results:
    """Everything that was measured. Keys are (operation, files, tool), sizes are bytes of stores."""

    series: dict[tuple[str, int, str], Series] = field(default_factory=dict)
    stores: dict[tuple[str, int, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of(self, key: str, files: int, tool: str) -> Series:
        return self.series.setdefault((key, files, tool), Series())


def render(results: Results) -> str:
    """The table as text, with its notes."""
    head = ["operation", "files", *COLUMNS, "putback / reference", "target", "", "MB putback", "MB shadow"]
    rows = [head, *_times(results), *_stores(results)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, "", FOOT, *(f"note: {note}" for note in dict.fromkeys(results.notes))])


def _line(row: list[str], widths: list[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join(
        [first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    ).rstrip()


def _times(results: Results) -> Iterable[list[str]]:
    for operation in OPERATIONS:
        for files in sorted({size for key, size, _ in results.series if key == operation.key}):
            found = {
                tool: results.series[operation.key, files, tool]
                for tool in COLUMNS
                if (operation.key, files, tool) in results.series
            }
            cells = [_seconds(found.get(tool)) for tool in COLUMNS]
            verdict = _verdict(operation, files, found)
            memory = [_memory(found.get(tool), files, tool) for tool in ("putback", "shadow")]
            yield [operation.title, f"{files:,}", *cells, *verdict, *memory]


def _stores(results: Results) -> Iterable[list[str]]:
    for title in dict.fromkeys(key for key, _, _ in results.stores):
        for files in sorted({size for key, size, _ in results.stores if key == title}):
            found = {tool: results.stores.get((title, files, tool)) for tool in COLUMNS}
            cells = [NOTHING if size is None else f"{size / 1e6:.1f}" for size in found.values()]
            ours, theirs = found["putback"], found["shadow"]
            ratio = f"{ours / theirs:.2f} shadow" if ours and theirs else ""
            yield [title, f"{files:,}", *cells, ratio, "", "", "", ""]


def _seconds(series: Series | None) -> str:
    if series is None:
        return NOTHING
    if series.failed:
        return "failed"
    return NOTHING if series.seconds is None else f"{series.seconds:.3f}"


def _verdict(operation: Operation, files: int, found: Mapping[str, Series]) -> list[str]:
    """The ratio, the target where there is one for this size, and whether it was met."""
    ours, theirs = found.get("putback"), found.get(operation.reference)
    goal = operation.target if files == operation.target_files else None
    target = "" if goal is None else f"{goal:.1f}"
    if ours is None or theirs is None or not ours.seconds or not theirs.seconds:
        return ["", target, ""]
    ratio = ours.seconds / theirs.seconds
    verdict = "" if goal is None else "ok" if ratio <= goal else "MISSED"
    return [f"{ratio:.2f} {operation.reference}", target, verdict]


def _memory(series: Series | None, files: int, tool: str) -> str:
    if series is None or series.peak_mb is None:
        return ""
    missed = tool == "putback" and files <= MEMORY_FILES and series.peak_mb > MEMORY_MB
    return f"{series.peak_mb:.0f}" + (" MISSED" if missed else "")
