"""Put a workspace back: safety capture, plan, journal, stage, publish, verify, record.

A restore is a span of the history: the safety capture before, a capture after, and what became of each path.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from putback import paths, seams
from putback.errors import Cancelled, IntegrityError, StorageError, UsageError
from putback.fs.journal import Journal
from putback.fs.place import is_file
from putback.ops import diff, merge, plan
from putback.ops.apply import Applier
from putback.ops.follow import Followed, follow
from putback.ops.held import held_before
from putback.ops.plan import Wanted
from putback.ops.session import Session
from putback.ops.survey import Survey
from putback.paths import RelPath
from putback.records import document
from putback.records.capture import Purpose
from putback.records.change import LINK_MODE, PERMISSION_BITS, Change, Kind, Node
from putback.records.document import AtPath
from putback.records.history import Cause, Entry, EntryKind
from putback.records.journal import Published, Started
from putback.records.plan import Declined, Outcome, Outcomes, Plan, Policy, Status
from putback.store import captures
from putback.store.captures import TreeState, View


class Target(msgspec.Struct, frozen=True):
    """What the workspace is to become.

    `goal` is the capture to go to. For a span `recorded` is the capture that the tree should still be like; for
    a snapshot it is None, and the tree may be like anything. `only` bounds a span to what it did itself;
    `explicit` names the changes outright, `refused` paths that must not be touched whatever is there.
    """

    goal: View
    recorded: View | None
    of: str
    cause: Cause = Cause.RESTORE
    message: str = ""
    only: frozenset[RelPath] | None = None
    explicit: tuple[Change, ...] | None = None
    refused: tuple[Declined, ...] = ()

    def policy(self, *, force: bool, merge: bool) -> Policy:
        """A snapshot overwrites and reports. A span refuses each path that changed since, unless told otherwise.

        Raises UsageError where a snapshot is to be merged.
        """
        if self.recorded is None and self.explicit is None:
            if merge:
                raise UsageError(
                    "a snapshot is put back as it was, so there is nothing to merge",
                    hint="--merge is for what a run, a turn, a restore or A..B did",
                )
            return Policy.OVERWRITE
        if merge:
            return Policy.MERGE
        return Policy.FORCE if force else Policy.REFUSE


class Options(msgspec.Struct, frozen=True):
    """How a restore is done. `exact` also removes what no capture held before.

    `force` and `merge` are for spans, and say what becomes of paths that changed since: overwritten, or merged.
    Both together raise UsageError.
    """

    scope: frozenset[RelPath] = frozenset()
    force: bool = False
    exact: bool = False
    merge: bool = False

    def __post_init__(self) -> None:
        if self.force and self.merge:
            raise UsageError("--merge keeps what was changed since and --force overwrites it; give one of the two")


class Restored(msgspec.Struct, frozen=True):
    """The result: the plan, and, where it was carried out, one outcome per path and the history entry.

    `entry` is None for a dry run and where there was nothing to do. `superseded` says that an interrupted restore
    was given up for this one; it has an entry of its own in the history.
    """

    plan: Plan
    outcomes: tuple[Outcome, ...] = ()
    entry: Entry | None = None
    superseded: bool = False

    @property
    def applied(self) -> int:
        """How many paths went back."""
        return sum(outcome.status.applied for outcome in self.outcomes)

    @property
    def merged(self) -> int:
        """How many of them went back by a merge."""
        return sum(outcome.status is Status.MERGED for outcome in self.outcomes)

    @property
    def failed(self) -> bool:
        """Whether any path was refused or failed."""
        return any(outcome.status in (Status.REFUSED, Status.FAILED) for outcome in self.outcomes)


class Prepared(msgspec.Struct, frozen=True):
    """Everything that is decided before the first effect. `now` is stored, but not yet a capture."""

    target: Target
    options: Options
    now: TreeState
    plan: Plan


def prepare(session: Session, target: Target, options: Options) -> Prepared:
    """Capture the workspace as it is now and plan the restore. Writes nothing to the workspace.

    Raises UsageError where the options do not fit the target, and what a capture raises.
    """
    policy = target.policy(force=options.force, merge=options.merge)
    session.capturer.intake.seen = {}
    state = session.capturer.take(message="", purpose=Purpose.SAFETY)
    wanted = _wanted(session, target, options, state)
    survey = Survey(session, state, target.goal)
    survey.look(wanted, target.recorded, measure_all=target.explicit is not None)
    now = session.capturer.with_examined(state, survey.present, survey.examined)
    wanted = sorted([*wanted, *survey.missing_parents(wanted)], key=lambda change: change.path)
    hidden, inside = survey.inside(wanted, now)
    made = plan.make(
        Wanted(
            changes=wanted,
            now=survey.found,
            policy=policy,
            unheld=survey.unheld,
            kept=_kept(session, target, options, state, wanted),
            hidden=hidden,
            inside=inside,
            merged=merge.merged(session, wanted, survey) if policy is Policy.MERGE else {},
        )
    )
    refused = (item for item in target.refused if not options.scope or paths.within(item.name, options.scope))
    made = msgspec.structs.replace(made, refused=(*made.refused, *refused))
    return Prepared(target, options, now, made)


def carry_out(session: Session, prepared: Prepared) -> Restored:
    """Apply a prepared restore and record it. Raises before the workspace is touched, or not at all.

    A failure to take the capture afterwards leaves the state unknown, for `recover` to resolve.
    """
    made = prepared.plan
    declined = tuple(Outcome.at(item.name, status=Status.REFUSED, reason=item.reason) for item in made.refused)
    settled = (*made.settled, *declined)
    if not made.steps:
        return Restored(made, settled)
    before = captures.write(session.where, prepared.now)
    seams.reach("restore.safe")
    applier = Applier(
        session.root,
        made,
        os.urandom(4).hex(),
        lambda oid: session.reader.stream(oid, "blob"),
        session.progress,
        _read(session, made),
    )
    started = Started(
        before=before,
        of=prepared.target.of,
        cause=prepared.target.cause,
        message=prepared.target.message,
        scope=tuple(AtPath.at(path) for path in sorted(prepared.options.scope)),
        plan=made,
        staged=tuple(AtPath.at(path) for path in applier.staging_places()),
        created_ns=time.time_ns(),
    )
    publishing = False
    if session.progress.cancelled():
        raise Cancelled("cancelled before anything was put back")
    try:
        with Journal(session.where.journal) as journal:
            journal.append(document.encode(started))
            seams.reach("restore.started")
            session.reader.announce(applier.contents())
            applier.stage()
            session.progress.up = True
            journal.append(document.encode(Published()))
            publishing = True
            seams.reach("restore.publishing")
            outcomes = applier.publish()
    except BaseException as error:
        if not publishing:
            applier.discard()
            session.where.journal.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"cannot write the journal: {error.strerror}") from error
        raise
    followed = Followed(prepared.now, made, applier.verified) if applier.exact else None
    return finish(session, started, made, (*outcomes, *settled), applier.touched, followed)


def finish(
    session: Session,
    started: Started,
    made: Plan,
    outcomes: tuple[Outcome, ...],
    touched: set[RelPath],
    followed: Followed | None = None,
) -> Restored:
    """Capture the result, record the entry, and close the journal.

    `touched` are the paths that were changed; `followed` says how, where everything went as planned.
    """
    ordered = tuple(sorted(outcomes, key=lambda outcome: outcome.name))
    if not touched and started.cause is not Cause.RECOVER:
        session.where.journal.unlink(missing_ok=True)
        return Restored(made, ordered)
    state = _after(session, made, followed)
    changed = tuple(AtPath.at(path) for path in sorted(touched))
    after = captures.write(session.where, state, Outcomes(outcomes=ordered, touched=changed))
    entry = _entry(session, started, after, state, ordered, len(touched))
    session.history.add(entry, session.where.scratch)
    seams.reach("restore.recorded")
    with suppress(OSError):
        # The next command drops a journal whose restore is in the history.
        session.where.journal.unlink(missing_ok=True)
    return Restored(made, ordered, entry)


def _after(session: Session, made: Plan, followed: Followed | None) -> TreeState:
    """The workspace as it is after the steps of a plan."""
    if followed is not None:
        # A store that is damaged heals in a capture that looks at everything.
        with suppress(IntegrityError):
            state = follow(session.capturer, followed)
            if state is not None:
                return state
    state = session.capturer.take(message="", purpose=Purpose.AFTER)
    examined = {step.raw for step in made.steps}
    present = [path for path in examined if is_file(session.root.look(path))]
    return session.capturer.with_examined(state, present, examined)


def _entry(
    session: Session,
    started: Started,
    after: str,
    state: TreeState,
    outcomes: tuple[Outcome, ...],
    changed: int,
) -> Entry:
    bad = tuple(outcome for outcome in outcomes if outcome.status in (Status.REFUSED, Status.FAILED))
    entry = Entry(
        seq=session.history.next_seq(),
        id="",
        kind=EntryKind.RESTORE,
        created_ns=time.time_ns(),
        before=started.before,
        after=after,
        message=started.message,
        cause=started.cause,
        of=started.of,
        scope=started.scope,
        files=state.record.files,
        bytes=state.record.bytes,
        not_covered=len(state.record.not_covered),
        applied=sum(outcome.status.applied for outcome in outcomes),
        changed=changed,
        declined=bad,
    )
    return msgspec.structs.replace(entry, id=document.digest(entry))


def _wanted(session: Session, target: Target, options: Options, state: TreeState) -> list[Change]:
    """What the record says must change, per path, bounded by scope."""
    if target.explicit is not None:
        found = list(target.explicit)
    elif target.recorded is None:
        found = diff.toward(session.git, state, target.goal)
    else:
        found = diff.changes(session.git, target.recorded, target.goal)
    chosen = [change for change in found if not options.scope or paths.within(change.path, options.scope)]
    if target.only is not None:
        chosen = [change for change in chosen if change.path in target.only]
    return chosen


def _kept(
    session: Session, target: Target, options: Options, state: TreeState, wanted: Iterable[Change]
) -> dict[RelPath, Declined]:
    """The paths that may not be removed, each with the reason."""
    if target.cause is Cause.RECOVER:
        return {}
    doomed = [change.path for change in wanted if change.after is None]
    kept: dict[RelPath, Declined] = {}
    foreign = {
        repository
        for repository in state.nested_repositories
        if repository not in target.goal.nested_repositories and repository not in target.goal.directories
    }
    for path in doomed:
        if foreign and (paths.within(path, foreign) or any(path in set(paths.parents(r)) for r in foreign)):
            reason = "belongs to a repository that was not there then; left whole"
            kept[path] = Declined.at(path, reason=reason, code="nested_repository")
    if target.recorded is None and target.explicit is None and not options.exact:
        asked = set(doomed) - kept.keys()
        known = held_before(session.git, session.reader, session.snapshots(), target.goal.files_tree, asked)
        for path in asked - known:
            reason = "created since and never captured; --exact removes it"
            kept[path] = Declined.at(path, reason=reason, code="never_captured")
    return kept


def _read(session: Session, made: Plan) -> dict[RelPath, tuple[Node, os.stat_result]]:
    """What the safety capture read at the paths of a plan."""
    read: dict[RelPath, tuple[Node, os.stat_result]] = {}
    for step in made.steps:
        seen = (session.capturer.intake.seen or {}).get(step.raw)
        if seen is not None:
            kind, mode = (
                (Kind.SYMLINK, LINK_MODE) if stat.S_ISLNK(seen.st.st_mode) else (Kind.FILE, seen.st.st_mode)
            )
            read[step.raw] = (Node(kind, mode & PERMISSION_BITS, seen.oid.hex()), seen.st)
    return read
