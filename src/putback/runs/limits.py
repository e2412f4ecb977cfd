"""Measure a run against its limits. Pure: what happened goes in, what was broken comes out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from putback import paths
from putback.errors import UsageError
from putback.records.change import Kind
from putback.records.ledger import Changed
from putback.records.receipt import Verification
from putback.records.run import Breach, EndedBy, Exit, Limit, Limits


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise UsageError where one of them is no gitignore pattern, or one that matches nothing."""
    for pattern in patterns:
        try:
            spec = _spec([pattern])
        except ValueError as error:
            raise UsageError(f"not a pattern: {pattern!r}: {error}") from error
        if not any(part.include is not None for part in spec.patterns):
            raise UsageError(
                f"a pattern that protects nothing: {pattern!r}", hint="example: --protect 'src/**/*.sql'"
            )


def breaches(
    limits: Limits, ended: Exit, changes: Sequence[Changed], verification: Verification | None
) -> tuple[Breach, ...]:
    """Every limit that was broken, each with what was allowed and what was measured."""
    found = (
        _time(limits, ended),
        _files(limits, changes),
        _bytes(limits, changes),
        _protected(limits, changes),
        _failure(limits, ended),
        _verification(verification),
    )
    return tuple(breach for breach in found if breach is not None)


def changed_files(changes: Iterable[Changed]) -> list[Changed]:
    """The changes without those that are about directories alone."""
    return [change for change in changes if not _is_directory(change)]


def _time(limits: Limits, ended: Exit) -> Breach | None:
    if ended.by is not EndedBy.TIMEOUT:
        return None
    return Breach(limit=Limit.TIME, allowed=f"{limits.max_ms} ms", measured=f"{ended.duration_ms} ms")


def _files(limits: Limits, changes: Sequence[Changed]) -> Breach | None:
    files = changed_files(changes)
    if limits.max_files is None or len(files) <= limits.max_files:
        return None
    return Breach(limit=Limit.FILES, allowed=str(limits.max_files), measured=f"{len(files)} changed")


def _bytes(limits: Limits, changes: Sequence[Changed]) -> Breach | None:
    written = [(change.after.size, change.path) for change in changes if change.after is not None]
    total = sum(size for size, _ in written)
    if limits.max_bytes is None or total <= limits.max_bytes:
        return None
    size, path = max(written)
    detail = f"largest: {path}, {size} bytes"
    return Breach(limit=Limit.BYTES, allowed=f"{limits.max_bytes} bytes", measured=f"{total} bytes", detail=detail)


def _protected(limits: Limits, changes: Sequence[Changed]) -> Breach | None:
    if not limits.protected:
        return None
    spec = _spec(limits.protected)
    hit = [change.raw for change in changes if spec.match_file(_for_matching(change))]
    if not hit:
        return None
    return Breach(
        limit=Limit.PROTECTED,
        allowed=f"none of {' '.join(limits.protected)}",
        measured=f"{len(hit)} changed",
        detail=paths.printable(hit[0]),
    )


def _failure(limits: Limits, ended: Exit) -> Breach | None:
    if not limits.fail_on_error or ended.status == 0 or (ended.code is None and ended.signal is None):
        return None  # what nobody saw is no breach
    how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.code}"
    return Breach(limit=Limit.FAILURE, allowed="exit code 0", measured=how)


def _verification(verification: Verification | None) -> Breach | None:
    if verification is None or verification.exit == 0:
        return None
    last = verification.output.strip().rpartition("\n")[2]
    return Breach(
        limit=Limit.VERIFICATION,
        allowed="exit code 0",
        measured=f"exit code {verification.exit}",
        detail=(f"{verification.command}: {last}" if last else verification.command)[:200],
    )


def _for_matching(change: Changed) -> str:
    name = os.fsdecode(change.raw)
    return name + "/" if _is_directory(change) else name


def _is_directory(change: Changed) -> bool:
    states = [state for state in (change.before, change.after) if state is not None]
    return all(state.kind is Kind.DIRECTORY for state in states)


def _spec(patterns: Iterable[str]):  # type: ignore[no-untyped-def]
    from pathspec import GitIgnoreSpec  # only who limits paths needs it

    return GitIgnoreSpec.from_lines(patterns)
