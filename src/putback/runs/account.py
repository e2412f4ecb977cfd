"""The account of a run: its manifest, its changes and its receipt, made from what was seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from putback import paths
from putback.git.index import EXECUTABLE, REGULAR, SYMLINK, record_mode, record_oid, record_size
from putback.paths import RelPath
from putback.records.change import LINK_MODE, Change, Kind, Node, State
from putback.records.document import AtPath
from putback.records.history import Entry
from putback.records.ledger import Changed, RollbackRefused, RolledBack, RunStarted
from putback.records.manifest import Listed, ListedDirectory, Manifest
from putback.records.plan import Outcome, Status
from putback.records.receipt import Verification
from putback.records.run import Breach, Discipline, EndedBy, Exit, Limit
from putback.runs.ledger import Ledger
from putback.store.captures import View

Sizes = Callable[[RelPath], int]

# What an entry of an index is, by git's mode.
_SHAPES = {
    REGULAR: (Kind.FILE, 0o644),
    EXECUTABLE: (Kind.FILE, 0o755),
    SYMLINK: (Kind.SYMLINK, LINK_MODE),
}

_LIMITS = (
    "The record says how paths differ between two instants, not who changed them: others may have been at work.",
    "What was changed and changed back within the run is not in it.",
    "Nothing inside a .git is captured: commits, the index and stashes are not put back.",
    "Times, owners, access lists, extended attributes and hard links are neither recorded nor put back.",
    "Consistency can be checked, authorship cannot: whoever can write all three documents can make them agree.",
)


def manifest(
    run: str, root: bytes, discipline: Discipline, view: View, files: Mapping[RelPath, Listed]
) -> Manifest:
    """The manifest of a tree: `view` is its capture, `files` what `listed` found in it."""
    return Manifest(
        run=run,
        root=AtPath.at(root),
        tree=view.files_tree,
        discipline=discipline,
        files=tuple(files[path] for path in sorted(files)),
        directories=tuple(ListedDirectory.at(path, mode=mode) for path, mode in sorted(view.directories.items())),
        not_covered=view.record.not_covered,
        ignored=len(view.ignored),
    )


def listed(records: Mapping[RelPath, bytes], view: View) -> dict[RelPath, Listed]:
    """Every file and link of an index, given as path and record; exact modes come from `view`."""
    exact = view.modes
    found: dict[RelPath, Listed] = {}
    for path, record in records.items():
        kind, mode = _SHAPES[record_mode(record)]
        size, digest = record_size(record), record_oid(record).hex()
        try:
            name, name_b64 = path.decode(), ""
        except UnicodeDecodeError:
            name, name_b64 = paths.text(path), paths.encode_b64(path)
        if path in exact:
            mode = exact[path]
        found[path] = Listed(path=name, path_b64=name_b64, kind=kind, mode=mode, size=size, digest=digest)
    return found


def changed(found: Iterable[Change], before: Sizes, after: Sizes) -> Iterator[Changed]:
    """The changes as the ledger has them; `before` and `after` tell the size of a path at either end."""
    for change in found:
        yield Changed.at(
            change.path,
            before=_state(change.before, change.path, before),
            after=_state(change.after, change.path, after),
        )


def _state(node: Node | None, path: RelPath, size: Sizes) -> State | None:
    if node is None:
        return None
    if node.kind is Kind.DIRECTORY:
        return State(kind=node.kind, mode=node.mode)
    return State(kind=node.kind, mode=node.mode, size=size(path), digest=node.digest)


def rollback(trigger: str, outcomes: tuple[Outcome, ...], entry: Entry | None) -> RolledBack | RollbackRefused:
    """What an automatic rollback came to. It was applied only where a path went back, whatever was tried."""
    applied = [outcome for outcome in outcomes if outcome.status.applied]
    refusals = tuple(outcome for outcome in outcomes if outcome.status in (Status.REFUSED, Status.FAILED))
    if not applied or entry is None:
        reason = "every path was refused or failed" if refusals else "nothing was left to take back"
        return RollbackRefused(trigger=trigger, reason=reason, refusals=refusals)
    return RolledBack(
        trigger=trigger,
        applied=len(applied),
        entry=entry.id,
        restored=sum(outcome.status is Status.RESTORED for outcome in applied),
        recreated=sum(outcome.status is Status.RECREATED for outcome in applied),
        removed=sum(outcome.status is Status.REMOVED for outcome in applied),
        paths=tuple(AtPath.at(outcome.raw) for outcome in applied),
        refusals=refusals,
    )


def disclosure(started: RunStarted, ended: Exit, ignored: int, lacking: str, whole: bool) -> tuple[str, ...]:
    """What the evidence of this run cannot show, in sentences."""
    said = [f"Nothing outside {started.path} was watched.", *_LIMITS]
    if ignored:
        said.append(f"{ignored} paths that ignore rules leave out were neither captured nor compared.")
    if started.discipline is Discipline.DIGESTS:
        said.append("Digests alone were kept: this run can be told, not taken back.")
    if lacking:
        said.append(f"What the command left was not kept: {lacking}.")
    if not whole:
        said.append("The list of changes is cut off: there may be more, and nobody can tell any longer.")
    if not ended.final:
        said.append("Something that the run started may still have been at work when the tree was captured.")
    return tuple(said)


class Meanwhile(msgspec.Struct, frozen=True):
    """Ids of other runs that were at work while a run was, and of restores that were made since it began."""

    runs: tuple[str, ...]
    restores: tuple[str, ...]


def meanwhile(found: Meanwhile) -> list[str]:
    """What the evidence cannot keep apart from the run, in sentences."""
    said = [f"Another run was at work in this workspace at the same time: {run[:12]}." for run in found.runs]
    said += [f"A restore was made before the run was closed: {restore[:12]}." for restore in found.restores]
    return said


def interruption(
    so_far: Ledger,
    ended: Exit,
    broken: Sequence[Breach],
    verification: Verification | None,
    rollback: RolledBack | RollbackRefused | None,
    recovered: Sequence[str],
) -> list[str]:
    """What is not known of a run whose supervisor came to no end, in sentences.

    `recovered` are the entries of the history in which a rollback of it that was cut short was resolved.
    """
    if ended.by is EndedBy.UNKNOWN:
        said = [
            "The supervisor was interrupted: how and when the command ended, if it began at all, is not known."
        ]
    else:
        said = ["The supervisor was interrupted after the command had ended."]
    if so_far.after is None:
        said.append(
            "The tree was captured when the run was closed: what was done to it until then is in the record."
        )
    assert so_far.started is not None
    if so_far.started.limits.verify and verification is None:
        lost = any(breach.limit is Limit.VERIFICATION for breach in broken)
        said.append(
            "The output of the verification command is lost."
            if lost
            else "Whether the verification command succeeded is not known."
        )
    if so_far.started.rollback_on_breach and broken and rollback is None:
        said.append(
            f"The rollback was interrupted, too; the history tells what became of it: {', '.join(recovered)}."
            if recovered
            else "A limit was broken, and the run was not taken back: nobody was there to do it."
        )
    return said


def root(started: RunStarted) -> AtPath:
    """The root of the tree, as the receipt has it."""
    return AtPath(path=started.path, path_b64=started.path_b64)
