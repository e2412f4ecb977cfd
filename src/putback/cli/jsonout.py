"""Results for programs: one JSON object on standard output. The schemas are in docs/json.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from putback import paths
from putback.paths import RelPath
from putback.records.capture import Capture
from putback.records.change import Node
from putback.records.document import AtPath
from putback.records.history import Entry
from putback.records.plan import Plan

if TYPE_CHECKING:
    from putback.ops.compare import Comparison
    from putback.ops.recover import Interrupted
    from putback.ops.restore import Restored
    from putback.ops.status import WorkspaceStatus
    from putback.records.turn import TurnRollbackStatus
    from putback.records.upkeep import Checked
    from putback.runs.close import RunResult
    from putback.runs.unfinished import Unfinished
    from putback.store.history import Listed

PATCH_LIMIT_BYTES = 1_000_000


def write(result: Mapping[str, Any]) -> None:
    """Print one object."""
    click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))


def path_fields(raw: bytes) -> dict[str, str]:
    """`path`, and `path_b64` where the name is not UTF-8."""
    fields = {"path": paths.text(raw)}
    if not paths.is_text(raw):
        fields["path_b64"] = paths.encode_b64(raw)
    return fields


def at_paths(items: Iterable[AtPath]) -> list[Any]:
    """Records about paths, as they are stored."""
    return [msgspec.to_builtins(item) for item in items]


def entry(item: Entry) -> dict[str, Any]:
    """One entry of the history."""
    result: dict[str, Any] = {
        "id": item.id,
        "short_id": item.short_id,
        "kind": str(item.kind),
        "message": item.message,
        "created_at": item.created_at,
        "files": item.files,
        "bytes": item.bytes,
        "not_covered": item.not_covered,
        "scope": at_paths(item.scope),
        "after": item.after,
    }
    if item.status is not None:
        result |= {"status": str(item.status), "exit_code": item.exit_code, "changed": item.changed}
    if item.agent is not None:
        result |= {"changed": item.changed, "agent": msgspec.to_builtins(item.agent)}
    if item.before:
        result |= {
            "before": item.before,
            "cause": str(item.cause),
            "of": item.of,
            "applied": item.applied,
            "declined": at_paths(item.declined),
        }
    return result


def listed(item: Listed) -> dict[str, Any]:
    """An entry as `list` has it, with the n of its `@n`; a restore has none."""
    return entry(item.entry) | ({"number": item.number} if item.number else {})


def capture(record: Capture) -> dict[str, Any]:
    """What a capture covers and what not."""
    return {
        "files": record.files,
        "bytes": record.bytes,
        "ignored": record.ignored,
        "not_covered": at_paths(record.not_covered),
        "warnings": list(record.warnings),
        "privileged": at_paths(record.privileged),
        "nested_repositories": at_paths(record.nested_repositories),
        "repository": msgspec.to_builtins(record.repository),
        "scope": at_paths(record.scope),
        "root": record.root,
    }


def run(item: RunResult) -> dict[str, Any]:
    """A run that is over: its receipt, and where its documents are."""
    return {
        "id": item.entry.id,
        "short_id": item.entry.short_id,
        "exit_code": item.exit_code,
        "breached": item.breached,
        "folder": str(item.folder),
        "receipt": msgspec.to_builtins(item.receipt),
    }


def unfinished(items: Iterable[Unfinished]) -> list[dict[str, Any]]:
    """Runs without a receipt: under way (`alive`), or interrupted and waiting for `recover`."""
    return [
        {
            "id": item.id,
            "command": list(item.command),
            "alive": item.alive,
            "processes": [process.pid for process in item.processes],
            "fault": item.fault,
        }
        for item in items
    ]


def node(item: Node | None) -> Any:
    return msgspec.to_builtins(item)


def comparison(item: Comparison, *, patch: bool) -> dict[str, Any]:
    """A difference. A patch over the limit is cut, and `truncated` says so with both sizes."""
    result: dict[str, Any] = {
        "before": item.before,
        "after": item.after,
        "changes": [
            path_fields(change.path)
            | {"status": change.status, "before": node(change.before), "after": node(change.after)}
            for change in item.changes
        ],
        "stat": [path_fields(path) | {"added": added, "removed": removed} for path, added, removed in item.stat],
    }
    if patch:
        shown = item.patch[:PATCH_LIMIT_BYTES]
        result["patch"] = shown.decode("utf-8", "backslashreplace")
        if len(item.patch) > len(shown):
            result["truncated"] = {"patch_bytes": len(item.patch), "shown_bytes": len(shown)}
    return result


def plan(item: Plan) -> dict[str, Any]:
    return {"digest": item.digest} | dict(msgspec.to_builtins(item))


def restored(item: Restored, *, applied: bool) -> dict[str, Any]:
    """The result of restore, undo, redo and recover. `applied` is false where only a plan was made."""
    return {
        "done": applied,
        "id": item.entry.id if item.entry else None,
        "applied": item.applied,
        "failed": item.failed,
        "superseded": item.superseded,
        "outcomes": at_paths(item.outcomes),
        "left": at_paths(item.plan.left),
        "plan": plan(item.plan),
    }


def holdings(items: Mapping[RelPath, Node]) -> dict[str, Any]:
    return {"paths": [path_fields(path) | {"node": node(item)} for path, item in items.items()]}


def checked(item: Checked) -> dict[str, Any]:
    """What a check found; `failed` says whether damage is left."""
    return {
        "failed": not item.sound,
        "entries": item.entries,
        "objects": item.objects,
        "bytes_read": item.bytes_read,
        "damage": [
            {
                "part": str(damage.part),
                "problem": damage.problem,
                "workspace": damage.workspace,
                "entry": damage.entry,
                "capture": damage.capture,
                "whole": damage.whole,
                "lost": at_paths(damage.lost),
                "repaired": damage.repaired,
            }
            for damage in item.damage
        ],
        "unlisted": list(item.unlisted),
        "leftovers": item.leftovers,
    }


def interrupted(item: Interrupted | None) -> Any:
    if item is None:
        return None
    return {
        "message": item.started.message,
        "before": item.started.before,
        "paths": [path_fields(path) | {"standing": str(standing)} for path, standing in item.paths.items()],
    }


def status(
    item: WorkspaceStatus, runs: Iterable[Unfinished], turns: Iterable[TurnRollbackStatus]
) -> dict[str, Any]:
    return {
        "protected": item.last is not None,
        "root": str(item.root),
        "last": entry(item.last) if item.last else None,
        "entries": item.entries,
        "damaged": list(item.damaged),
        "replaced": item.replaced,
        "purging": item.purging,
        "moved_from": [path_fields(root) for root in item.moved_from],
        "store": {
            "path": str(item.store),
            "bytes": item.store_bytes,
            "limit": item.store_limit,
            "permissions": item.permissions,
        },
        "warnings": [item.warning] if item.warning else [],
        "interrupted": interrupted(item.interrupted),
        "runs": unfinished(runs),
        "turns": [msgspec.to_builtins(turn) for turn in turns],
    }
