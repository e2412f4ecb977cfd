"""The lines of the journal of a restore: what was decided, and that publishing began."""

from __future__ import annotations

import msgspec

from putback.records.document import AtPath
from putback.records.history import Cause
from putback.records.plan import Plan


class Started(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="putback/journal/v1/started"):
    """The first line. `before` is the safety capture, `staged` every path at which a file may be staged."""

    before: str
    of: str
    cause: Cause
    plan: Plan
    created_ns: int
    message: str = ""
    scope: tuple[AtPath, ...] = ()
    staged: tuple[AtPath, ...] = ()


class Published(msgspec.Struct, frozen=True, tag="putback/journal/v1/publishing"):
    """The second line: from here on targets may have changed."""


Line = Started | Published
