"""The manifest of a run, `putback/snapshot/v1`: every path as it was before the command started."""

from __future__ import annotations

import msgspec

from putback.records.capture import NotCovered
from putback.records.change import Kind, Size, State
from putback.records.document import AtPath
from putback.records.run import Discipline


class Listed(AtPath, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """One file or symbolic link; the fields are those of `State`."""

    kind: Kind
    mode: int
    size: Size = 0
    digest: str

    @property
    def state(self) -> State:
        return State(kind=self.kind, mode=self.mode, size=self.size, digest=self.digest)


class ListedDirectory(AtPath, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """One directory with its permission bits."""

    mode: int

    @property
    def state(self) -> State:
        return State(kind=Kind.DIRECTORY, mode=self.mode)


class Manifest(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="format",
    tag="putback/snapshot/v1",
):
    """`root` is where the tree was, `tree` the git id of the tree of `files`; both lists are in path order.

    `discipline` says whether the contents were kept: where they were not, no path of the manifest can be put
    back. `ignored` counts the paths that ignore rules leave out, a directory as one.
    """

    run: str
    root: AtPath
    tree: str
    discipline: Discipline
    files: tuple[Listed, ...] = ()
    directories: tuple[ListedDirectory, ...] = ()
    not_covered: tuple[NotCovered, ...] = ()
    ignored: int = 0
