"""In which order the events of a run may stand.

    run.start  fs.snapshot(before)  run.exit  fs.snapshot(after)  fs.change*  limit.breach*  rollback  run.end

Changes are in path order, so that no path comes twice. A run that was killed has only the beginning of this, or
goes on from there to `run.end`. Events of other programs may stand anywhere between the first and the last.
"""

from __future__ import annotations

from putback.records.ledger import Instant

_START, _BEFORE, _EXIT, _AFTER, _CHANGE, _BREACH, _ROLLBACK, _END = range(8)
_PLACES = {
    "run.start": _START,
    "run.exit": _EXIT,
    "fs.change": _CHANGE,
    "limit.breach": _BREACH,
    "x-putback.rollback-applied": _ROLLBACK,
    "x-putback.rollback-refused": _ROLLBACK,
    "run.end": _END,
}
_NEEDS = {_BEFORE: _START, _EXIT: _BEFORE, _AFTER: _EXIT, _CHANGE: _AFTER, _BREACH: _EXIT, _ROLLBACK: _BREACH}
_MANY = {_CHANGE, _BREACH}
_NAMES = (
    *("run.start", "fs.snapshot of the tree before", "run.exit", "fs.snapshot of the tree after"),
    *("fs.change", "limit.breach", "the rollback", "run.end"),
)


class Order:
    """Takes the events one after the other."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._last = -1
        self._path: bytes | None = None
        self._gap = False

    @property
    def ended(self) -> bool:
        """Whether `run.end` has come."""
        return _END in self._seen

    def skip(self) -> None:
        """Take an event that could not be read: nothing can be called missing any more."""
        self._gap = True

    def take(self, kind: str, when: Instant | None = None, path: bytes | None = None) -> str | None:
        """Take the event, wherever it stands; returns what `fault` says of it."""
        fault = self.fault(kind, when, path)
        place = self._place(kind, when)
        if place is not None:
            self._seen.add(place)
            self._last = max(self._last, place)
        if path is not None:
            self._path = path
        return fault

    def fault(self, kind: str, when: Instant | None = None, path: bytes | None = None) -> str | None:
        """Why the event may not come next, or None where it may.

        `when` tells the two snapshots apart (None: whichever is due), `path` is that of a change.
        """
        misplaced = self._misplaced(kind, self._place(kind, when))
        if misplaced is None and path is not None and self._path is not None and path <= self._path:
            return "one path twice" if path == self._path else "changes not in path order"
        return misplaced

    def _place(self, kind: str, when: Instant | None) -> int | None:
        if kind != "fs.snapshot":
            return _PLACES.get(kind)
        if when is None:
            return _AFTER if _BEFORE in self._seen else _BEFORE
        return _BEFORE if when is Instant.BEFORE else _AFTER

    def _misplaced(self, kind: str, place: int | None) -> str | None:
        if self.ended:
            return f"{kind} after run.end"
        if place != _START and _START not in self._seen and not self._gap:
            return f"{kind} before run.start"
        if place is None:
            return None
        if place in self._seen and place not in _MANY:
            return f"{_NAMES[place]} for the second time"
        if place < self._last:
            return f"{_NAMES[place]} after {_NAMES[self._last]}"
        needed = _NEEDS.get(place)
        if needed is not None and needed not in self._seen and not self._gap:
            return f"{_NAMES[place]} without {_NAMES[needed]}"
        return None
