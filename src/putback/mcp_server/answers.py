"""The engine's records as results of tools: bounded, and without what an agent has no use for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from putback import paths
from putback.errors import PutbackError
from putback.mcp_server import results
from putback.mcp_server.bounds import brief, page, piece
from putback.records.capture import Capture, NotCovered
from putback.records.change import Change, Node
from putback.records.history import Entry, EntryKind
from putback.records.plan import Outcome, Plan, Status

if TYPE_CHECKING:
    from putback.mcp_server import requests
    from putback.ops.compare import Comparison, Shown
    from putback.ops.restore import Restored
    from putback.ops.snapshot import Snapshot
    from putback.ops.status import WorkspaceStatus
    from putback.runs.unfinished import Unfinished

FEW = 20
BAD = (Status.REFUSED, Status.FAILED)


def failure(error: PutbackError) -> results.Failure:
    """An error as a result. What files and documents are called cannot move a terminal's cursor."""
    hint = None if error.hint is None else _words(error.hint)
    return results.Failure(results.Fault(error.code, _words(error.message), hint))


def created(item: Snapshot) -> results.Created:
    return results.Created(entry=entry(item.entry, "@1"), coverage=coverage(item.capture, 0, FEW))


def listed(entries: Sequence[Entry], asked: requests.List) -> results.Listed:
    """The history. A restore has no place: `@n` passes over them."""
    placed: list[tuple[Entry, str]] = []
    number = 0
    for item in entries:
        number += item.kind is not EntryKind.RESTORE
        placed.append((item, "" if item.kind is EntryKind.RESTORE else f"@{number}"))
    return results.Listed(entries=page(placed, lambda pair: entry(*pair), asked.offset, asked.limit))


def shown(item: Shown, asked: requests.Show) -> results.Shown:
    changes = None
    if item.comparison is not None:
        changes = page(item.comparison.changes, change, asked.offset, asked.limit)
    return results.Shown(
        entry=None if item.entry is None else entry(item.entry),
        coverage=None if item.capture is None else coverage(item.capture, asked.offset, asked.limit),
        changes=changes,
    )


def differs(item: Comparison, asked: requests.Diff) -> results.Differs:
    return results.Differs(
        before=brief(item.before),
        after=brief(item.after),
        changes=page(item.changes, change, asked.offset, asked.limit),
        patch=piece(item.patch, asked.patch_offset, asked.patch_bytes) if asked.patch else None,
    )


def planned(item: Plan, root: Path, asked: requests.Plan) -> results.Planned:
    effects = _effects(item)
    counts: dict[str, int] = {}
    for one in effects:
        counts[one.action] = counts.get(one.action, 0) + 1
    return results.Planned(
        root=paths.text(os.fsencode(root)),
        digest=item.digest,
        would_change=len(item.steps),
        counts=counts,
        effects=page(effects, lambda one: one, asked.offset, asked.limit),
    )


def applied(item: Restored, limit: int) -> results.Applied:
    """What a restore did; what did not go back comes first."""
    bad = [one for one in item.outcomes if one.status in BAD]
    good = [one for one in item.outcomes if one.status not in BAD]
    return results.Applied(
        applied=item.applied,
        not_applied=len(bad),
        outcomes=page([*bad, *good], outcome, 0, limit),
        id=item.entry.id if item.entry is not None else "",
    )


def status(item: WorkspaceStatus, runs: Sequence[Unfinished], turns: int, faults: Iterable[str]) -> results.Status:
    interrupted = ""
    if item.interrupted is not None:
        count = len(item.interrupted.paths)
        interrupted = f"{brief(item.interrupted.started.message)}: {count} paths undecided"
    return results.Status(
        protected=item.last is not None,
        root=paths.text(os.fsencode(item.root)),
        entries=item.entries,
        last=None if item.last is None else entry(item.last),
        store=results.Store(
            paths.text(os.fsencode(item.store)), item.store_bytes, item.store_limit, item.permissions
        ),
        damaged=[brief(_words(fault)) for fault in (*item.damaged, *faults)][:FEW],
        replaced=item.replaced,
        interrupted=interrupted,
        runs=[_unfinished(run) for run in runs[:FEW]],
        open_turns=turns,
    )


def entry(item: Entry, place: str = "") -> results.Entry:
    is_run, is_restore = item.kind is EntryKind.RUN, item.kind is EntryKind.RESTORE
    return results.Entry(
        id=item.id,
        kind=str(item.kind),
        message=brief(item.message),
        created_at=item.created_at,
        place=place,
        files=item.files,
        bytes=item.bytes,
        not_covered=item.not_covered,
        scoped=bool(item.scope),
        status=str(item.status or ""),
        exit_code=item.exit_code if is_run else 0,
        changed=item.changed,
        applied=item.applied,
        declined=len(item.declined),
        cause=str(item.cause) if is_restore else "",
        of=item.of if is_restore else "",
    )


def coverage(item: Capture, offset: int, limit: int) -> results.Coverage:
    warnings = [brief(_words(warning)) for warning in item.warnings[:FEW]]
    if item.privileged:
        warnings.append(f"setuid, setgid or sticky bits of {len(item.privileged)} paths are not kept")
    return results.Coverage(
        files=item.files,
        bytes=item.bytes,
        ignored=item.ignored,
        not_covered=page(item.not_covered, _missing, offset, limit),
        warnings=warnings,
    )


def change(item: Change) -> results.Change:
    return results.Change.at(item.path, status=item.status, before=_node(item.before), after=_node(item.after))


def outcome(item: Outcome) -> results.Outcome:
    return results.Outcome.at(item.name, status=str(item.status), reason=brief(item.reason))


def _effects(item: Plan) -> list[results.Effect]:
    """What a plan does, then what it refuses, then what it leaves alone."""
    found = [
        results.Effect.at(
            step.name, action=str(step.action), now=_node(step.now), goal=_node(step.goal), reason=brief(step.note)
        )
        for step in item.steps
    ]
    for action, some in (("refuse", item.refused), ("leave", item.left), ("keep", item.settled)):
        found += [results.Effect.at(one.name, action=action, reason=brief(one.reason)) for one in some]
    return found


def _missing(item: NotCovered) -> results.Missing:
    return results.Missing.at(item.name, reason=str(item.reason), detail=brief(item.detail), size=item.size)


def _unfinished(item: Unfinished) -> results.Unfinished:
    return results.Unfinished(
        item.id, brief(_words(" ".join(item.command))), item.alive, brief(_words(item.fault))
    )


def _node(item: Node | None) -> str:
    return "" if item is None else str(item)


def _words(text: str) -> str:
    return paths.printable(text.encode("utf-8", "backslashreplace"))
