"""A publication of the user's index killed at any seam: the index is wholly old or wholly new, the lock tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crash.killing import kill_at, reached
from putback.errors import LockedError
from putback.git.user_index import NewEntry
from putback.turns.index_lock import IndexLock, holder, remove_stale
from support.hermetic import git
from support.indexes import make, read

ID = "ab" * 32
BESIDE = b"index.putback-" + ID[:12].encode()
SEAMS = ["turn.index_locked", "turn.index_written", "turn.index_published"]
LEFT = [(b"index.lock",), (BESIDE, b"index.lock"), (b"index.lock",)]


@pytest.mark.slow
@pytest.mark.requirement("H27", "H34")
@pytest.mark.parametrize(("number", "left"), list(enumerate(LEFT)), ids=SEAMS)
def test_a_killed_publication_leaves_one_index_and_says_so(tmp_path: Path, number: int, left: object) -> None:
    root = make(tmp_path / "tree", version=4)
    where, index = os.fsencode(root / ".git"), read(root)
    oid = git(root, "hash-object", "-w", "--stdin", given=b"staged\n").strip().decode()
    changes = {b"changed": NewEntry(0o100644, oid), b"removed/x": None}

    def publish() -> None:
        with IndexLock(where, ID, 0o600) as lock:
            lock.publish(index, changes)

    dry = make(tmp_path / "dry", version=4)
    assert reached(lambda: publish_empty(dry)) == SEAMS
    kill_at(number, publish)

    published = SEAMS[number] == "turn.index_published"
    now = (root / ".git" / "index").read_bytes()
    assert now == (index.replaced(changes) if published else index.data)
    found = holder(where)
    assert found is not None and found.capture_id == ID and not found.alive
    assert git(root, "add", "changed", check=False) == b"", "git stays out"
    assert (root / ".git" / "index").read_bytes() == now
    with pytest.raises(LockedError, match="which has died"), IndexLock(where, "cd" * 32, 0o600):
        pass

    assert remove_stale(where, ID) == left
    assert (root / ".git" / "index").read_bytes() == now
    assert holder(where) is None
    git(root, "update-index", "--force-remove", "conflict")
    assert b"error" not in git(root, "fsck", "--strict")


def publish_empty(root: Path) -> None:
    with IndexLock(os.fsencode(root / ".git"), ID, 0o600) as lock:
        lock.publish(read(root), {b"changed": None})


@pytest.mark.slow
@pytest.mark.requirement("H27")
@pytest.mark.parametrize("number", range(2))
def test_what_a_killed_publication_left_does_not_stop_the_next(tmp_path: Path, number: int) -> None:
    """The user removed the lock by hand, as git tells them to."""
    root = make(tmp_path / "tree")
    kill_at(number, lambda: publish_empty(root))
    (root / ".git" / "index.lock").unlink()
    publish_empty(root)
    assert git(root, "ls-files", "changed") == b""
    assert sorted(name for name in os.listdir(root / ".git") if name.startswith("index")) == ["index"]
