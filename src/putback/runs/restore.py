"""Take a run back by its documents, each step checked against the captures where the store has them.

The documents say what to do; they never say where, and they never name a file to copy from, nor the captures that
they are checked against. Where the history has the run, a step that its captures contradict is refused; where it
has not, only content that some capture of this workspace holds is put back, and no link that leads out of the
workspace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from putback import paths
from putback.errors import FailedError, IntegrityError, RootDisagreement
from putback.git import refs
from putback.ops import diff
from putback.ops.plan import describe
from putback.ops.restore import Target
from putback.ops.session import Session
from putback.paths import RelPath, quote
from putback.records.capture import Capture, Purpose
from putback.records.change import Change, Kind, Node
from putback.records.document import AtPath
from putback.records.history import Entry, EntryKind
from putback.records.manifest import Manifest
from putback.records.plan import Declined, Step
from putback.records.run import Discipline
from putback.runs.evidence import Documents, Evidence
from putback.runs.ledger import Ledger
from putback.runs.portable import Agreed, Disagreement, plan_restore, root_of
from putback.store.captures import StoredCapture, View
from putback.store.history import History
from putback.store.layout import WorkspacePaths

_FORGOTTEN = "its content was forgotten, and is in no capture any more"
# What git itself can tell of permission bits.
_USUAL = (0o644, 0o755)


def check(documents: Documents) -> tuple[Manifest, Ledger]:
    """The documents that a restore needs. Raises IntegrityError for damaged ones, FailedError for missing ones."""
    documents.check()
    manifest, ledger = documents.manifest, documents.ledger
    if manifest is None and ledger is None and documents.receipt is None:
        raise FailedError("there are no documents of a run; nothing was touched")
    if manifest is None or ledger is None or ledger.started is None or ledger.before is None:
        raise FailedError("the evidence of this run is not complete; nothing was touched")
    if manifest.discipline is not Discipline.CONTENTS:
        raise FailedError(
            "this run kept digests alone, so it cannot be taken back",
            hint="run it with --snapshot to keep contents",
        )
    if not ledger.complete:
        raise FailedError("the record of this run has no end: its supervisor was killed, or is at work")
    return manifest, ledger


def check_root(documents: Documents, root: bytes) -> None:
    """Raise RootDisagreement unless all documents name `root` as the tree of the run."""
    agreed = root_of(documents.receipt, documents.ledger, documents.manifest)
    hint = "say which tree you mean with --root DIR"
    if isinstance(agreed, Disagreement):
        raise RootDisagreement(f"the documents do not agree on the tree: {agreed}; nothing was touched", hint=hint)
    if agreed.root != root:
        raise RootDisagreement(
            f"this run was of {quote(agreed.root)}, and this is {quote(root)}; nothing was touched", hint=hint
        )


def of_entry(session: Session, entry: Entry, folder: Path) -> Target:
    """What taking back a run of this workspace's history aims at. Raises as `target` does."""
    documents = Evidence(folder).load()
    started = documents.ledger.started if documents.ledger is not None else None
    if started is not None and started.run != entry.id:
        raise IntegrityError(f"the documents of {entry.short_id} are those of another run; nothing was touched")
    # The history is what says that the run is this workspace's; where that was before, its documents may say.
    agreed = root_of(documents.receipt, documents.ledger, documents.manifest)
    known = session.where.identity()
    moved = isinstance(agreed, Agreed) and known is not None and agreed.root in known.former
    return target(session, documents, insist=moved)


def target(session: Session, documents: Documents, *, insist: bool) -> Target:
    """What taking the run back aims at. With `insist` the user named the workspace, whatever the documents say.

    Raises IntegrityError, FailedError and RootDisagreement.
    """
    manifest, ledger = check(documents)
    if not insist:
        check_root(documents, session.where.root)
    assert ledger.started is not None
    made = plan_restore(manifest, ledger.changes)
    run = ledger.started.run
    before, after = _captures(session, _where(session, documents), run)
    if before is None:
        judge = _by_content(session, made.steps)
    else:
        judge = _by_start(session, before) if after is None else _by_captures(session, before, after)
    refused = {item.name: item for item in made.refused}
    changes: list[Change] = []
    for step in made.steps:
        reason, code = judge(step), "contradiction"
        if reason is None and step.goal is not None:
            reason, code = _blocked(session, step.raw, refused), "blocked"
        if reason is None:
            changes.append(Change(step.raw, step.now, step.goal))
        else:
            refused[step.raw] = Declined.at(step.raw, reason=reason, code=code)
    command = " ".join(ledger.started.command)
    return Target(
        goal=before or ManifestView(manifest),
        recorded=None,
        of=run,
        message=f"took back {run[:12]}: {command}"[:_LONGEST_MESSAGE],
        explicit=tuple(changes),
        refused=tuple(refused.values()),
    )


class ManifestView(View):
    """A manifest, seen as the capture that it tells of. It holds no content.

    What ignore rules left out is not in a manifest; `ignored` says it, where that is known.
    """

    def __init__(self, manifest: Manifest, ignored: frozenset[RelPath] = frozenset()) -> None:
        self.record = Capture(
            workspace="",
            root=manifest.root.path,
            created_ns=0,
            purpose=Purpose.BEFORE,
            files=len(manifest.files),
            bytes=sum(item.size for item in manifest.files),
            not_covered=tuple(item for item in manifest.not_covered if _is_safe(item)),
        )
        self.files_tree = manifest.tree
        self.directories = {item.raw: item.mode & 0o777 for item in manifest.directories if _is_safe(item)}
        self.modes = {
            item.raw: item.mode & 0o777
            for item in manifest.files
            if item.kind is Kind.FILE and item.mode not in _USUAL and _is_safe(item)
        }
        self.ignored = ignored


Judge = Callable[[Step], str | None]
Content = tuple[Kind, str]

# A command can be as long as a document; the history shows its beginning.
_LONGEST_MESSAGE = 1000


def _where(session: Session, documents: Documents) -> Iterator[WorkspacePaths]:
    """The workspaces whose history may have the run: this one, and the one that all documents name."""
    yield session.where
    agreed = root_of(documents.receipt, documents.ledger, documents.manifest)
    if isinstance(agreed, Agreed) and agreed.root != session.where.root:
        yield session.where.store.workspace(agreed.root)


def _captures(
    session: Session, places: Iterable[WorkspacePaths], run: str
) -> tuple[StoredCapture | None, StoredCapture | None]:
    """The captures of the run, as the history names them; that after it is None where it could not be held.

    What the documents name as such is of no account: it could be any two captures in the store, also those of
    another project.
    """
    for where in places:
        history = History(where.history)
        for name in history.names():
            if name.id == run and name.kind is EntryKind.RUN:
                entry = history.read(name)
                before = session.capture(entry.before) if entry.before else None
                return before, session.capture(entry.after) if before and entry.after else None
    return None, None


def _blocked(session: Session, path: RelPath, refused: Container[bytes]) -> str | None:
    """Why nothing can be put back at `path`: a directory above it is refused, and is not there."""
    for above in paths.parents(path):
        if above in refused and not session.root.is_directory(above):
            return f"{quote(above)} above it is not put back"
    return None


def _by_captures(session: Session, before: StoredCapture, after: StoredCapture) -> Judge:
    """Refuses what is not in the difference of the captures, exactly as it is there."""
    known = {change.path: change for change in diff.changes(session.git, before, after)}
    gone = before.forgotten | after.forgotten

    def judge(step: Step) -> str | None:
        if paths.within(step.raw, gone):
            return _FORGOTTEN
        change = known.get(step.raw)
        if change is not None and (change.before, change.after) == (step.goal, step.now):
            return None
        then = "no change" if change is None else f"{describe(change.before)}, then {describe(change.after)}"
        return f"the store's captures contradict the record: they have {then}"

    return judge


def _by_start(session: Session, before: StoredCapture) -> Judge:
    """Refuses to put back, or to remove, anything but what the capture before the run has, or has not, there."""
    held: dict[RelPath, Node] = dict(diff.listing(session.git, before))
    held |= {path: Node(Kind.DIRECTORY, mode) for path, mode in before.directories.items()}

    def judge(step: Step) -> str | None:
        if paths.within(step.raw, before.forgotten):
            return _FORGOTTEN
        then = held.get(step.raw)
        if then == step.goal and (then is not None or before.could_hold(step.raw)):
            return None
        return f"the store's capture contradicts the record: it has {describe(then)}"

    return judge


def _by_content(session: Session, steps: Iterable[Step]) -> Judge:
    """Refuses content that no capture of this workspace holds, and links that lead out of it."""
    needed = {(step.goal.kind, step.goal.digest) for step in steps if step.goal is not None and step.goal.digest}
    held = _held(session, needed)

    def judge(step: Step) -> str | None:
        goal = step.goal
        if goal is None or not goal.digest:
            return None
        if (goal.kind, goal.digest) not in held:
            return f"no capture of this workspace holds a {goal.kind} with its content {goal.digest[:12]}"
        if goal.kind is Kind.SYMLINK and _leads_out(step.raw, session.reader.read(goal.digest, "blob")):
            return "a link that leads out of the workspace, and no capture of the run is here to confirm it"
        return None

    return judge


def _held(session: Session, needed: set[Content]) -> set[Content]:
    """Those of the contents that a capture of this workspace holds. A damaged capture holds nothing here."""
    found: set[Content] = set()
    seen: set[str] = set()
    for capture in refs.anchored(session.git, session.where.name):
        if found >= needed:
            break
        with suppress(IntegrityError):
            view = session.capture(capture)
            if view.files_tree not in seen:
                seen.add(view.files_tree)
                nodes = diff.listing(session.git, view).values()
                found |= needed & {(node.kind, node.digest) for node in nodes}
    return found


def _leads_out(path: RelPath, text: bytes) -> bool:
    """Whether a link at `path` points outside the workspace, as far as its own text says."""
    whole = os.path.normpath(os.path.join(os.path.dirname(path), text))
    return text.startswith(b"/") or whole == b".." or whole.startswith(b"../")


def _is_safe(item: AtPath) -> bool:
    try:
        return paths.fault(item.name) is None
    except IntegrityError:
        return False
