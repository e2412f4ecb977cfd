"""What an operation on a turn holds while it works: the lease, the claims at rest, the workspace, and the proof.

The lease is taken first, because it may be held for as long as a turn lasts: nobody waits for it who holds
anything else. Then the gate of the claims registry (shared, so that no claim can be published meanwhile) and the
workspace's lock. Only then the binding is attested.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from putback.errors import AmbiguousId, MalformedId, OutOfOrder, UnknownId
from putback.ops.session import Session
from putback.records.turn import Binding, TurnEvent
from putback.runs import unfinished
from putback.turns import binding as bindings
from putback.turns.binding import BindingFolder
from putback.turns.evidence import BindingTurns, TurnFolder
from putback.turns.staged import Staged

SHORTEST = 7


@dataclass(frozen=True)
class Custody:
    """One attested binding, held. `session` is of the work tree that it binds, `folder` is the binding's own."""

    session: Session
    binding: Binding
    folder: BindingFolder
    staged: Staged

    @cached_property
    def turns(self) -> BindingTurns:
        """The turns of the binding."""
        return turns_of(self.folder, self.binding)

    @cached_property
    def administrative(self) -> frozenset[tuple[int, int]]:
        """The directories, by device and inode, whose files are nobody's source: the repository's, and our own."""
        ours = os.stat(self.session.where.store.root)
        bound = self.binding
        return frozenset({bound.git_dir.identity, bound.common_dir.identity, (ours.st_dev, ours.st_ino)})

    def log(self, event: TurnEvent) -> None:
        """Append to the log of the binding: on disk before the call returns."""
        bindings.append_event(self.folder, self.binding, event)

    def events(self) -> list[TurnEvent]:
        """The log of the binding, oldest first."""
        return bindings.events(self.folder, self.binding)

    def latest(self, asked: str) -> TurnFolder:
        """The turn that `asked` means, which no later one follows. Raises what `find` raises, and OutOfOrder."""
        turns = self.turns.all()
        found = find(turns, asked)
        newest = turns[-1].evidence.pending.turn
        if found.path != turns[-1].path:
            raise OutOfOrder(
                f"turn {found.evidence.pending.turn.turn_id!r} is not the latest:"
                f" {newest.turn_id!r} (generation {newest.generation}) came after it",
                hint="an older turn cannot undo a later one",
            )
        return found

    def check_inactive(self) -> None:
        """Raise OutOfOrder while a run is at work in the tree, and where nobody knows whether one is."""
        for run in unfinished.unfinished(self.session.where):
            if run.alive or run.processes:
                raise OutOfOrder(
                    f"run {run.id[:12]} is at work in the tree; nothing was touched", hint="wait for it to end"
                )
            raise OutOfOrder(
                f"run {run.id[:12]} was killed and is not closed: nobody knows what it did; nothing was touched",
                hint="`putback recover` closes it",
            )


def turns_of(folder: BindingFolder, binding: Binding) -> BindingTurns:
    """The turns in the folder of a binding."""
    return BindingTurns(folder.path / "turns", binding)


def find(turns: Sequence[TurnFolder], asked: str) -> TurnFolder:
    """The turn whose id is `asked`, or begins with it. Raises MalformedId, UnknownId or AmbiguousId."""
    hint = "`putback turn list` shows the turns of a binding"
    if len(asked) < SHORTEST or not set(asked) <= set("0123456789abcdef"):
        raise MalformedId(f"malformed turn id {asked!r}: {SHORTEST} to 64 lowercase hex digits", hint=hint)
    found = [turn for turn in turns if turn.capture_id.startswith(asked)]
    if not found:
        raise UnknownId(f"unknown turn {asked!r}", hint=hint)
    if len(found) > 1:
        raise AmbiguousId(f"ambiguous turn {asked!r}", hint="give more digits")
    return found[0]
