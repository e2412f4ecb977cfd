"""Runs for people: how one came out, what it did, and whether its evidence holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from putback.cli.render import count, outcome, path, size, words
from putback.records.receipt import Receipt, RollbackPart
from putback.records.run import Discipline, EndedBy, Exit, RunStatus
from putback.runs import processes

if TYPE_CHECKING:
    from putback.runs.close import RunResult
    from putback.runs.unfinished import Unfinished
    from putback.runs.verify import Check

_COLOURS = {"PASS": "green", "FAIL": "red", "SKIP": "yellow"}


def broken(receipt: Receipt) -> Iterator[str]:
    """The limits that a run broke, and what came of it: said whether or not one wants to hear of runs."""
    for breach in receipt.breaches:
        yield click.style(f"breach: {words(str(breach))}", fg="red")
    if receipt.ops.rollback is not None:
        yield from rollback(receipt.ops.rollback)


def run(item: RunResult) -> Iterator[str]:
    """What `putback run` prints when the command is over."""
    for process in item.receipt.session.exit.survivors:
        yield f"outlived the command: {process.pid} {words(process.command)} ({process.fate})"
    yield summary(item)


def summary(item: RunResult) -> str:
    """A run in one line, with the command that takes it back where one does."""
    receipt = item.receipt
    name = f"run {item.entry.short_id}: {_changes(receipt)}"
    if receipt.session.discipline is Discipline.DIGESTS:
        return f"{name}; only digests were kept, so nothing can be put back (--snapshot keeps contents)"
    if receipt.ops.rollback is None and receipt.changes.total:
        return f"{name}; `putback undo` takes it back"
    return name


def rollback(item: RollbackPart) -> Iterator[str]:
    """What an automatic rollback came to."""
    for refusal in item.refusals:
        yield click.style(outcome(refusal), fg="red")
    if not item.applied:
        yield click.style(f"not rolled back: {words(item.reason)}", fg="red")
        return
    parts = ((item.restored, "restored"), (item.recreated, "recreated"), (item.removed, "removed"))
    said = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    yield f"rolled back: {count(item.applied, 'path')} put back ({said})"


def receipt(item: Receipt) -> Iterator[str]:
    """A receipt, as `putback show` prints it."""
    session = item.session
    yield f"  command   {words(' '.join(session.command))}"
    yield f"  in        {words(session.cwd)}"
    yield f"  from      {words(session.start)} to {words(session.end)}"
    yield f"  ended     {_ending(session.exit)}{_status(session.status)}"
    yield f"  changed   {_changes(item)}"
    part = item.ops.snapshot
    kept = f"contents ({size(part.bytes_stored)} stored)" if part.taken else "digests alone"
    yield f"  kept      {kept}, of {count(part.files, 'file')}"
    yield f"  ledger    {count(item.ledger.events, 'event')}, head {words(item.ledger.head[:12])}"
    for process in session.exit.survivors:
        yield f"  outlived  {process.pid} {words(process.command)} ({words(process.fate)})"
    for breach in item.breaches:
        yield click.style(f"  breach    {words(str(breach))}", fg="red")
    if item.verification is not None:
        yield f"  verify    {words(item.verification.command)}: exit code {item.verification.exit}"
        yield from (f"    {words(line)}" for line in item.verification.output.splitlines()[-10:])
    if item.ops.rollback is not None:
        yield from (f"  {line}" for line in rollback(item.ops.rollback))
    for missing in item.ops.snapshot.not_covered:
        yield f"  not covered: {missing.reason} {path(missing)}"
    yield "  what this evidence cannot show:"
    yield from (f"    {words(sentence)}" for sentence in item.limits_disclosure)


def checks(items: Iterable[Check]) -> Iterator[str]:
    """What `putback verify` prints."""
    for item in items:
        name = item.result.upper()
        word = click.style(f"{name:<4}", fg=_COLOURS[name])
        yield f"{word}  {item.name}{f': {item.detail}' if item.detail else ''}"


def unfinished(items: Iterable[Unfinished]) -> Iterator[str]:
    """Runs that have no receipt."""
    for item in items:
        command = words(" ".join(item.command))
        if item.alive:
            yield f"run {item.id[:12]} under way: {command}"
            continue
        yield click.style(f"run {item.id[:12]} interrupted, `putback recover` closes it: {command}", fg="red")
        for process in item.processes:
            yield f"  still at work: {process.pid} {words(processes.command_line(process))}"
        if item.fault:
            yield click.style(f"  damaged: {words(item.fault)}", fg="red")


def _changes(item: Receipt) -> str:
    changes = item.changes
    parts = ((changes.created, "created"), (changes.modified, "modified"), (changes.deleted, "deleted"))
    said = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    return f"{count(changes.total, 'path')} changed ({said})" if said else "nothing changed"


def _ending(how: Exit) -> str:
    if how.by is EndedBy.UNKNOWN:
        return "nobody saw how"
    after = f" after {how.duration_ms / 1000:.1f} s"
    if how.by is EndedBy.TIMEOUT:
        return f"stopped at its time limit{after}"
    return (f"killed by signal {how.signal}" if how.signal is not None else f"exit code {how.code}") + after


def _status(status: RunStatus) -> str:
    return "" if status is RunStatus.FINISHED else f", {status}"
