"""Plan from a run's documents alone what would put the tree back. Pure: no disk, no git, no store.

The documents are not trusted: anybody can have written them. They choose among what a confined writer may do
anyway. A path of which they say something that cannot be is refused with the reason, and the others go on; a plan
never names a path outside the root, a mode beyond the permission bits, or a source of content but a digest.

Not shown here: that the documents tell the truth. Where the store is at hand, compare each step with its captures.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from putback import paths
from putback.errors import IntegrityError
from putback.paths import RelPath, parents
from putback.records.change import LINK_MODE, PERMISSION_BITS, Kind, Node, State
from putback.records.document import AtPath
from putback.records.ledger import Changed
from putback.records.manifest import Manifest
from putback.records.plan import Action, Declined, Plan, Step
from putback.records.receipt import Receipt
from putback.records.run import Discipline
from putback.runs.faults import printable
from putback.runs.ledger import Ledger

_DIGEST = re.compile(r"[0-9a-f]{64}")
NOT_KEPT = "the run kept digests only, no contents"
MASKED = "the documents have more than permission bits"


class _Refused(Exception):
    """The path is not planned; carries the decline."""

    def __init__(self, declined: Declined) -> None:
        super().__init__(declined.reason)
        self.declined = declined


def plan_restore(manifest: Manifest, changes: Iterable[Changed]) -> Plan:
    """One action per changed path, in path order: a step, or a decline in `refused`.

    A decline with the code `not_covered` is of a path that cannot be put back though the documents are in order:
    its contents were not kept, or the manifest does not hold it. A step's `now` is what the run left, its `goal`
    what was there before.
    """
    refused: list[Declined] = []
    good: dict[RelPath, Changed] = {}
    listed = list(changes)
    seen = Counter(_key(change) for change in listed)
    for change in listed:
        try:
            path = change.raw
        except IntegrityError as error:
            refused.append(Declined.at(_key(change), reason=printable(error.message), code="unsafe_path"))
            continue
        if seen[path] > 1:
            refused.append(Declined.at(path, reason="changed more than once", code="duplicate"))
        else:
            good[path] = change
    planner = _Planner(manifest, listed, good)
    steps: list[Step] = []
    for path in sorted(good):
        try:
            steps.append(planner.step(path, good[path]))
        except _Refused as refusal:
            refused.append(refusal.declined)
    possible = tuple(_possible(steps, listed, refused))
    return Plan(steps=possible, refused=tuple(sorted(refused, key=lambda item: item.name)))


def _key(change: AtPath) -> bytes:
    """The path as bytes where it can be known, else its text, so that it can be named."""
    try:
        return change.name
    except IntegrityError:
        return change.path.encode("utf-8", "backslashreplace")


class _Planner:
    """What the documents say of all paths together."""

    def __init__(self, manifest: Manifest, listed: Iterable[Changed], good: Mapping[RelPath, Changed]) -> None:
        self._kept = manifest.discipline is Discipline.CONTENTS
        self._held = holdings(manifest)
        self._uncovered = {RelPath(_key(item)): item.reason for item in manifest.not_covered}
        leaves = {path for path, states in self._held.items() if any(_is_leaf(state) for state in states)}
        # Whatever any change says, also one that is refused, counts against the paths below it.
        said = {RelPath(_key(change)) for change in listed if _is_leaf(change.after)}
        gone = {path for path, change in good.items() if not _is_leaf(change.after)}
        self._leaves_before: set[RelPath] = leaves
        self._leaves_now: set[RelPath] = (leaves - gone) | said

    def step(self, path: RelPath, change: Changed) -> Step:
        """The step for one path. Raises _Refused."""
        before, after = change.before, change.after
        if before == after:
            raise _decline(path, "malformed", "nothing changed at it")
        goal, now = _node(path, before), _node(path, after)
        self._agree(path, before)
        if not self._kept:
            raise _decline(path, "not_covered", NOT_KEPT)
        self._reachable(path, now, goal)
        masked = any(state is not None and state.mode != state.mode & PERMISSION_BITS for state in (before, after))
        return Step.at(path, action=_action(now, goal), now=now, goal=goal, note=MASKED if masked else "")

    def _agree(self, path: RelPath, before: State | None) -> None:
        """What the change says was there before has to be what the manifest holds."""
        reason = next((self._uncovered[each] for each in (path, *parents(path)) if each in self._uncovered), None)
        if reason is not None:
            raise _decline(path, "not_covered", f"the manifest does not cover it: {reason}")
        states = self._held.get(path, [])
        if len(states) > 1:
            raise _decline(path, "contradiction", "the manifest lists it more than once")
        if before is None and states:
            raise _decline(path, "contradiction", "the ledger says that it was not there, the manifest lists it")
        if before is not None and not states:
            raise _decline(path, "not_covered", "not in the manifest")
        if before is not None and before != states[0]:
            ledger, manifest = _describe(before), _describe(states[0])
            raise _decline(path, "contradiction", f"the ledger says it was {ledger}, the manifest {manifest}")

    def _reachable(self, path: RelPath, now: Node | None, goal: Node | None) -> None:
        """Every name above the path has to be a directory, at each end at which the path is there."""
        for above in parents(path):
            if goal is not None and above in self._leaves_before:
                raise _decline(path, "blocked", f"{paths.quote(above)} above it was no directory before the run")
            if now is not None and above in self._leaves_now:
                raise _decline(path, "blocked", f"{paths.quote(above)} above it is no directory after the run")


def _possible(steps: Iterable[Step], listed: Iterable[Changed], refused: list[Declined]) -> Iterator[Step]:
    """Leave out, and refuse, what needs a directory above it that no other step makes, or that one removes."""
    fallen = {_key(change) for change in listed if change.after is None or _is_leaf(change.after)}
    planned: dict[bytes, Step] = {}
    for step in steps:
        for above in parents(step.raw) if step.goal is not None else ():
            maker = planned.get(above)
            if above in fallen and maker is None:
                reason = f"{paths.quote(above)} above it is not put back"
            elif maker is not None and maker.goal is None:
                reason = f"{paths.quote(above)} above it was not there before the run"
            else:
                continue
            refused.append(Declined.at(step.raw, reason=reason, code="blocked"))
            break
        else:
            planned[step.raw] = step
            yield step


def holdings(manifest: Manifest) -> dict[RelPath, list[State]]:
    """What the manifest says of each path, more than one state where it says several things.

    An entry without a usable path, or of a kind that its list is not for, says nothing.
    """
    held: dict[RelPath, list[State]] = {}
    states: list[tuple[AtPath, State]] = [(entry, entry.state) for entry in manifest.directories]
    states += [(entry, entry.state) for entry in manifest.files if entry.kind is not Kind.DIRECTORY]
    for entry, state in states:
        try:
            held.setdefault(entry.raw, []).append(state)
        except IntegrityError:
            continue
    return held


def _is_leaf(state: State | None) -> bool:
    """Whether nothing can be below it: a file or a link."""
    return state is not None and state.kind is not Kind.DIRECTORY


def state_fault(state: State) -> str | None:
    """Why nothing on a disk can be in this state, or None. Modes beyond permission bits are no such reason."""
    if state.mode < 0 or state.size < 0:
        return "a negative number"
    if state.kind is Kind.DIRECTORY:
        return "a directory with a digest or a size" if state.digest or state.size else None
    if not _DIGEST.fullmatch(state.digest):
        return "its digest is not 64 lowercase hexadecimal digits" if state.digest else "it has no digest"
    if state.kind is Kind.SYMLINK and state.mode & PERMISSION_BITS != LINK_MODE:
        return "a link with a mode of its own"
    return None


def _node(path: RelPath, state: State | None) -> Node | None:
    """The state with its mode masked. Raises _Refused for one that nothing can be in."""
    if state is None:
        return None
    fault = state_fault(state)
    if fault is not None:
        raise _decline(path, "malformed", fault)
    return Node(state.kind, state.mode & PERMISSION_BITS, state.digest)


def _action(now: Node | None, goal: Node | None) -> Action:
    if goal is None:
        return Action.REMOVE
    return Action.RECREATE if now is None else Action.RESTORE


def _decline(path: RelPath, code: str, reason: str) -> _Refused:
    return _Refused(Declined.at(path, reason=reason, code=code))


def _describe(state: State) -> str:
    return printable(f"{state.kind} {state.mode:04o} {state.digest}".rstrip())


class Agreed(msgspec.Struct, frozen=True):
    """The directory that all three documents name as the workspace, and the one the command was started in."""

    root: bytes
    cwd: str


class Named(msgspec.Struct, frozen=True):
    """What one document names; None where the document is absent, or the name is none."""

    document: str
    root: bytes | None
    cwd: str | None


def _words(named: Named) -> str:
    root = "no directory" if named.root is None else paths.quote(named.root)
    started = "" if named.cwd is None else f", started in '{printable(named.cwd)}'"
    return f"the {named.document} names {root}{started}"


class Disagreement(msgspec.Struct, frozen=True):
    """The documents do not name one directory; nobody but the user can say which is meant."""

    named: tuple[Named, ...]

    def __str__(self) -> str:
        return "; ".join(_words(each) for each in self.named)


def root_of(receipt: Receipt | None, ledger: Ledger | None, manifest: Manifest | None) -> Agreed | Disagreement:
    """The root that receipt, ledger and manifest agree on; a document that is absent agrees with nothing.

    Never a choice between them: where they differ, every value is in the answer.
    """
    started = ledger.started if ledger is not None else None
    session = receipt.session if receipt is not None else None
    named = (
        Named("receipt", _absolute(session.root) if session else None, session.cwd if session else None),
        Named("ledger", _absolute(started) if started else None, started.cwd if started else None),
        Named("manifest", _absolute(manifest.root) if manifest else None, None),
    )
    root, cwd = named[0].root, named[0].cwd
    if root is None or cwd is None or cwd != named[1].cwd or any(each.root != root for each in named):
        return Disagreement(named)
    return Agreed(root, cwd)


def _absolute(record: AtPath) -> bytes | None:
    """The absolute path in a record; None for anything but the normal form of one."""
    try:
        raw = record.name
    except IntegrityError:
        return None
    normal = raw.startswith(b"/") and not raw.startswith(b"//") and posixpath.normpath(raw) == raw
    return raw if normal and b"\0" not in raw else None
