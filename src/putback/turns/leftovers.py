"""What a killed application of a turn left: files staged beside their targets, and git's index lock.

Whoever clears them holds the lease, so nobody else of ours is at work on the binding.
"""

from __future__ import annotations

from putback.ops.leftovers import remove_staged
from putback.records.turn import Deed
from putback.turns import index_lock
from putback.turns.custody import Custody


def clear(custody: Custody, capture_id: str) -> None:
    """Take away what an application of this turn staged and did not publish, and its index lock."""
    for event in custody.events():
        if event.deed is Deed.APPLY and event.capture_id == capture_id:
            for item in event.staged:
                remove_staged(custody.session.root, item.raw)
    index_lock.remove_stale(custody.binding.git_dir.raw, capture_id)
