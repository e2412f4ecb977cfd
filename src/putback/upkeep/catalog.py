"""What can be done about the store itself, from the point of view of one workspace."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from putback.config import Settings
from putback.paths import RelPath
from putback.progress import Progress
from putback.records.retention import Keep
from putback.records.upkeep import Checked, Forgotten, Pruned, Reclaimed, Relocated, Sizes
from putback.store.layout import WorkspacePaths


class Upkeep(msgspec.Struct, frozen=True):
    """The store, and the workspace at `where` in it. Each method is one operation, under the locks it needs."""

    where: WorkspacePaths
    settings: Settings
    progress: Progress

    def prune(self, keep: Keep, *, vanished: bool = False, dry_run: bool = False) -> Pruned:
        """Drop the entries of this workspace that `keep` does not keep, then reclaim what nothing needs.

        With `vanished`, also every workspace whose root is gone. What an unfinished state, undo or redo, a bound
        turn or an open turn needs stays whatever the policy says. Raises what opening a workspace raises.
        """
        from putback.upkeep import prune

        return prune.prune(self, keep, vanished=vanished, dry_run=dry_run)

    def reclaim(self, *, purge: frozenset[str] = frozenset()) -> Reclaimed:
        """Pack what is needed and drop what is not, beside other processes; clear away what killed ones left.

        `purge` are ids of objects that must be off the disk when the call returns, or LockedError is raised.
        """
        from putback.upkeep import reclaim

        return reclaim.reclaim(self, purge=purge)

    def check(self, *, read_share: float = 0.0, repair: bool = False, everything: bool = False) -> Checked:
        """Look whether everything that the history names is there and sound; hash that share of contents (0 to 1).

        With `repair`, set aside what is damaged and add again what the workspace still has. With `everything`,
        the histories of all workspaces of the store. Raises UnknownId where nothing was ever captured.
        """
        from putback.upkeep import check

        return check.check(self, read_share=read_share, repair=repair, everything=everything)

    def forget(self, paths: Iterable[RelPath], *, dry_run: bool = False) -> Forgotten:
        """Purge paths, with all below them, from every capture of this workspace, and their bytes from the disk.

        Raises OutOfOrder while a turn or a run that is not over holds one of them.
        """
        from putback.upkeep import forget

        return forget.forget(self, frozenset(paths), dry_run=dry_run)

    def relocate(self, old: bytes) -> Relocated:
        """Attach the history of the workspace that was at `old`. Raises UsageError where that is still there."""
        from putback.upkeep import relocate

        return relocate.relocate(self, old)

    def sizes(self) -> Sizes:
        """What the store costs, by workspace, and by entry of this one."""
        from putback.upkeep import sizes

        return sizes.sizes(self)
