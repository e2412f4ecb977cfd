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

    def prune(
        self, keep: Keep, *, vanished: bool = False, unmounted: bool = False, dry_run: bool = False
    ) -> Pruned:
        """Drop the entries of this workspace that `keep` does not keep, then reclaim what nothing needs.

        With no rule, none of them goes. With `vanished`, also every workspace whose root is gone; with `unmounted`
        even where that may only be because a file system is not mounted. What an unfinished state, undo or redo, a
        bound turn or an open turn needs stays whatever the policy says. Raises LockedError, StorageError and
        GitUnavailable.
        """
        from putback.upkeep import prune

        return prune.prune(self, keep, vanished=vanished, unmounted=unmounted, dry_run=dry_run)

    def make_room(self) -> None:
        """Before a capture: have configured retention done first, where the store is over its cap and it is due.

        Frontends call this; a capture by itself never drops anything.
        """
        if self.settings.retention.is_set:
            from putback.upkeep import automatic

            automatic.make_room(self.where, self.settings)

    def retain(self) -> str:
        """After a capture: have configured retention done in a process of its own, for which nobody waits.

        Returns what a person should be told once: that it cannot keep the store below its cap; else empty.
        """
        if not self.settings.retention.is_set:
            return ""
        from putback.upkeep import automatic

        automatic.start(self.where, self.settings)
        return automatic.news(self.where, self.settings)

    def over_cap(self) -> str:
        """What a person should know where configured retention leaves the store above its cap; else empty."""
        if not self.settings.retention.is_set:
            return ""
        from putback.upkeep import automatic

        return automatic.over_cap(self.where, self.settings)

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
