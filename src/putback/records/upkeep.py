"""What looking after the store found and did: reclaimed bytes, damage, forgotten paths, a moved workspace."""

from __future__ import annotations

import enum

from putback.records.document import AtPath, Strict
from putback.records.exchange import Id
from putback.records.retention import Judged


class Reclaimed(Strict, frozen=True, kw_only=True):
    """Sizes of the whole store in bytes on disk. `waiting` says that something is left for the next time, because
    other processes were at work, or there was no room. `unreadable` counts objects that are needed and damaged or
    missing: while there are any nothing is dropped that was not to be purged. `still_needed` are ids that were to
    be purged and were not, because captures or indexes name them."""

    bytes_before: int
    bytes_after: int
    objects_dropped: int = 0
    leftovers_removed: int = 0
    waiting: bool = False
    unreadable: int = 0
    still_needed: tuple[str, ...] = ()


class Vanished(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """A workspace whose root, at `path`, is gone. `workspace` is its name in the store.

    `bytes` are those of the content that its newest capture holds. `kept` says why it cannot be dropped,
    `unmounted` that its root may only be on a file system that is not mounted now.
    """

    workspace: str
    entries: int
    bytes: int
    kept: str = ""
    unmounted: bool = False


class Pruning(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/pruning/v1"):
    """What is about to be dropped, on disk before anything is: captures and runs, by id. The next prune ends what
    this one was killed at."""

    captures: tuple[Id, ...] = ()
    runs: tuple[Id, ...] = ()


class Settled(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/settled/v1"):
    """What automatic retention came to last: under which rules, up to which entry, and what the store then took.

    Times are in nanoseconds since the epoch. `over` is true where the store is larger than its cap even so, and
    `told` where a person has been told of it.
    """

    newest: str
    rules: str
    at_ns: int
    reclaimed_ns: int
    store_bytes: int
    over: bool = False
    told: bool = False


class Pruned(Strict, frozen=True, kw_only=True):
    """What a policy came to in one workspace; `done` is false for a dry run. `bare` counts captures without an
    entry that are dropped, too. `vanished` names the workspaces whose root is gone; those not kept are dropped."""

    judged: tuple[Judged, ...] = ()
    bare: int = 0
    vanished: tuple[Vanished, ...] = ()
    done: bool = False
    reclaimed: Reclaimed | None = None

    @property
    def dropped(self) -> tuple[Judged, ...]:
        return tuple(item for item in self.judged if not item.kept)


class Part(enum.StrEnum):
    """Which part of the store is damaged."""

    STORE = "store"
    OBJECT = "object"
    PACK = "pack"
    REF = "ref"
    ENTRY = "entry"
    RUN = "run"
    TURN = "turn"
    JOURNAL = "journal"
    INDEX = "index"
    WORKSPACE = "workspace"


class Lost(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """A path of an entry that cannot come back. `object` is the id of the content that is missing or damaged.

    With `below` the path is a directory, of which nothing can come back. A `staged` path is lost as the user's
    index had it.
    """

    object: str = ""
    below: bool = False
    staged: bool = False


class Damage(Strict, frozen=True, kw_only=True):
    """One fault. `entry` and `capture` are the ids of what it is about, empty where it is about none.

    `lost` names what cannot come back, and is empty where nothing is lost; `whole` says that nothing of it can.
    `repaired` says what repair did about it; what is lost all the same is in the other fields.
    """

    part: Part
    problem: str
    workspace: str = ""
    entry: str = ""
    capture: str = ""
    whole: bool = False
    lost: tuple[Lost, ...] = ()
    repaired: str = ""


class Checked(Strict, frozen=True, kw_only=True):
    """The result of a check: what was looked at, and every fault. `bytes_read` is of contents that were hashed.

    `unlisted` are ids of captures that somebody asked for and that no entry names: a snapshot that was killed at
    its end, or whose record was deleted. They can be restored by id. `leftovers` counts temporary files of
    processes that were killed; they are no damage.
    """

    entries: int
    objects: int
    bytes_read: int
    damage: tuple[Damage, ...] = ()
    unlisted: tuple[str, ...] = ()
    leftovers: int = 0

    @property
    def sound(self) -> bool:
        """Whether there is no damage, or none that is left."""
        return all(item.repaired and not item.whole and not item.lost for item in self.damage)


class Forgotten(Strict, frozen=True, kw_only=True):
    """What was purged. `captures` counts those that were rewritten, `entries` the entries that named them, `turns`
    the exact-path turns that can no longer be taken back; `elsewhere` says where the same bytes are still held."""

    paths: tuple[AtPath, ...]
    captures: int
    entries: int
    turns: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    done: bool = False
    reclaimed: Reclaimed | None = None


class Relocated(Strict, frozen=True, kw_only=True):
    """A workspace that was moved: its history is now that of `root`. `joined` counts entries that were there."""

    old_root: AtPath
    root: AtPath
    entries: int
    joined: int = 0


class Size(Strict, frozen=True, kw_only=True):
    """What something costs. `logical` is the bytes of content it stands for, `physical` what it takes on disk and
    nothing else needs: what dropping it would free."""

    name: str
    logical: int
    physical: int


class Sizes(Strict, frozen=True, kw_only=True):
    """The whole store, each workspace, and each entry of this one; in bytes."""

    total: int
    limit: int
    workspaces: tuple[Size, ...]
    entries: tuple[Size, ...]
