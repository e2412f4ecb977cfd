"""The tools: what each is called, takes, returns and does. Knows the engine, and nothing of the protocol."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from putback import faultlog
from putback.errors import (
    FailedError,
    IntegrityError,
    PutbackError,
    RefusedError,
    Stale,
    StorageError,
    UnknownStateError,
    UsageError,
)
from putback.mcp_server import answers, requests, results, wording
from putback.mcp_server.answers import BAD
from putback.records.plan import Plan, Status
from putback.workspace import Workspace

A = TypeVar("A", bound=requests.Request)


@dataclass(frozen=True)
class Tool(Generic[A]):
    """One tool.

    `reads` says that it changes nothing in the workspace, `destroys` that it may overwrite or remove, `settled`
    that calling it once more does no more.
    """

    name: str
    title: str
    description: str
    takes: type[A]
    gives: type[results.Result]
    act: Callable[[Workspace, A], results.Result]
    reads: bool = True
    destroys: bool = False
    settled: bool = True


@dataclass(frozen=True)
class Answer:
    """The result of a call, for programs and in words."""

    structured: dict[str, Any]
    text: str
    failed: bool


def call(workspace: Workspace, name: str, arguments: dict[str, Any] | None) -> Answer:
    """Call a tool. Whatever goes wrong is an answer, too."""
    try:
        tool = BY_NAME.get(name)
        if tool is None:
            raise UsageError(f"unknown tool {name!r}", hint=f"there are {', '.join(BY_NAME)}")
        result = tool.act(workspace, requests.read(arguments, tool.takes))
        return Answer(msgspec.to_builtins(result), wording.result(result), failed=False)
    except PutbackError as error:
        return _failed(answers.failure(error))
    except OSError as error:
        return _failed(answers.failure(StorageError(f"{name}: the system refused: {error.strerror}")))
    except Exception:
        fault = results.Fault(
            "internal", "internal error; nothing more was done", f"details are in {faultlog.write()}"
        )
        return _failed(results.Failure(fault))


def _failed(failure: results.Failure) -> Answer:
    return Answer(msgspec.to_builtins(failure), wording.failure(failure), failed=True)


def _create(workspace: Workspace, asked: requests.Create) -> results.Created:
    workspace.upkeep.make_room()
    taken = workspace.snapshot(asked.message, paths=_paths(workspace, asked))
    workspace.upkeep.retain()
    return answers.created(taken)


def _list(workspace: Workspace, asked: requests.List) -> results.Listed:
    return answers.listed(workspace.list(), asked)


def _show(workspace: Workspace, asked: requests.Show) -> results.Shown:
    return answers.shown(workspace.show(asked.id), asked)


def _diff(workspace: Workspace, asked: requests.Diff) -> results.Differs:
    found = workspace.diff(asked.id, paths=_paths(workspace, asked), patch=asked.patch)
    return answers.differs(found, asked)


def _plan(workspace: Workspace, asked: requests.Plan) -> results.Planned:
    _check_known(workspace)
    made = workspace.restore(
        asked.id,
        paths=_paths(workspace, asked),
        exact=asked.exact,
        force=asked.force,
        merge=asked.merge,
        dry_run=True,
    )
    return answers.planned(made.plan, workspace.root, asked)


def _apply(workspace: Workspace, asked: requests.Apply) -> results.Applied:
    def confirm(plan: Plan) -> bool:
        _check_reviewed(plan, asked.digest)
        return True

    _check_known(workspace)
    done = workspace.restore(
        asked.id,
        paths=_paths(workspace, asked),
        exact=asked.exact,
        force=asked.force,
        merge=asked.merge,
        confirm=confirm,
    )
    # A plan without steps is carried out without being asked about.
    _check_reviewed(done.plan, asked.digest)
    if done.failed and not done.applied:
        bad = [one for one in done.outcomes if one.status in BAD]
        some = "; ".join(f"{one.path}: {one.reason}" for one in bad[:3])
        kind = RefusedError if all(one.status is Status.REFUSED for one in bad) else FailedError
        raise kind(
            f"nothing was put back, {len(bad)} paths refused or failed: {some}",
            hint="snapshot_restore_plan lists them all; merge keeps what changed since, force overwrites it",
        )
    return answers.applied(done, asked.limit)


def _status(workspace: Workspace, asked: requests.Status) -> results.Status:
    found = workspace.status()
    turns, faults = 0, []
    if workspace.paths.store.claims.exists():
        try:
            turns = len(workspace.turns.open_here())
        except IntegrityError as error:
            faults.append(error.message)
    return answers.status(found, workspace.runs.unfinished(), turns, faults)


def _paths(
    workspace: Workspace, asked: requests.Create | requests.Diff | requests.Plan | requests.Apply
) -> list[bytes]:
    return requests.scope(os.fsencode(workspace.root), asked.paths, asked.paths_b64)


def _check_reviewed(plan: Plan, digest: str) -> None:
    if plan.digest != digest:
        raise Stale(
            f"the plan is {plan.digest[:12]} now, not {digest[:12]} as it was reviewed; nothing was changed",
            hint="snapshot_restore_plan makes a new one, to be reviewed again",
        )


def _check_known(workspace: Workspace) -> None:
    """Raise UnknownStateError where a restore was cut short: how to go on from there is a person's to say."""
    interrupted = workspace.interrupted()
    if interrupted is not None:
        raise UnknownStateError(
            f"an interrupted restore left {len(interrupted.paths)} paths undecided",
            hint="a person has to resolve that, with `putback recover`",
        )


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "snapshot_create",
        "Take a snapshot",
        "Capture every file of the workspace as it is now, so that it can be put back later. Take one before wide "
        "or risky changes. The workspace and its git repository are not touched.",
        requests.Create,
        results.Created,
        _create,
        reads=False,
        settled=False,
    ),
    Tool(
        "snapshot_list",
        "List the history",
        "List snapshots, runs, turns and restores of the workspace, newest first, with their ids.",
        requests.List,
        results.Listed,
        _list,
    ),
    Tool(
        "snapshot_diff",
        "Show a difference",
        "For a snapshot: what restoring it would change on disk. For a run, a turn, a restore or a range A..B: "
        "what happened in it. Returns the changed paths and a unified diff. Changes nothing.",
        requests.Diff,
        results.Differs,
        _diff,
    ),
    Tool(
        "snapshot_show",
        "Show one entry",
        "Show one entry of the history: what it was, what it changed, and which paths it does not cover and why.",
        requests.Show,
        results.Shown,
        _show,
    ),
    Tool(
        "snapshot_restore_plan",
        "Plan a restore",
        "Make the plan of a restore and change nothing: each path with what would be done to it, and the plan's "
        "digest. A snapshot is put back as it was; a run, a turn, a restore or a range A..B is taken back. Review "
        "the plan, then give its digest to snapshot_restore_apply.",
        requests.Plan,
        results.Planned,
        _plan,
    ),
    Tool(
        "snapshot_restore_apply",
        "Restore files",
        "Overwrite, recreate and remove files of the workspace as the reviewed plan says. Takes the arguments of "
        "snapshot_restore_plan and the digest that it returned; refuses, with nothing changed, where the plan "
        "would be another one now. What is replaced is captured first, so `putback undo` can take this back.",
        requests.Apply,
        results.Applied,
        _apply,
        reads=False,
        destroys=True,
    ),
    Tool(
        "snapshot_status",
        "Show the state of protection",
        "Whether the workspace is protected and since when, what the store costs, and what is undecided.",
        requests.Status,
        results.Status,
        _status,
    ),
)

BY_NAME = {tool.name: tool for tool in TOOLS}
