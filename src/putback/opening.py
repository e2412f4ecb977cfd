"""Open a session on a workspace: git found, the store made where it may be, the locks held, errors translated.

What works on the store without a session takes the locks here, too.

Separate from the session itself, because git is set to work on its longest question before the modules that will
need the answer are imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from putback.config import Settings
from putback.errors import IntegrityError, StorageError, UnknownId
from putback.fs import lock
from putback.git import command
from putback.git.command import Git
from putback.paths import quote
from putback.progress import Progress, Shield
from putback.store.layout import Store, WorkspacePaths

if TYPE_CHECKING:
    from putback.ops.session import Session

_CAPTURING = frozenset({"snapshot", "diff", "restore", "undo", "redo", "run", "hook"})


@contextmanager
def session(
    where: WorkspacePaths,
    settings: Settings,
    progress: Progress,
    name: str,
    asked: str = "",
    *,
    create: bool = False,
    contents: bool = True,
) -> Iterator[Session]:
    """Everything an operation works with, under the locks. `name` is the command, `asked` the id it was given.

    Only `create` makes a store where there is none. Without `contents` captures keep digests alone. Raises
    GitUnavailable, UnknownId where nothing was ever captured, LockedError and StorageError.
    """
    shield = Shield(progress)
    git = command.find(cancelled=shield.cancelled)
    if not create and not where.exists():
        what = f"unknown id {asked!r}: " if asked else ""
        raise UnknownId(
            f"{what}nothing was ever captured of {quote(where.root)}",
            hint="`putback snapshot` takes the first capture",
        )
    _check_there(where.root)
    where.create(time.time_ns(), settings.store.permissions)
    git = git.writing(where.store.modes)
    wait = settings.store.lock_wait_seconds
    with refusals(name), ExitStack() as stack:
        stack.enter_context(locked(where.store, [where], git, name, wait, progress))
        if not contents:
            from putback.ops.session import seed

            seed(where)
        place = where if contents else where.digests()
        bound = git.on(place.store.git_dir, work_tree=where.root, index=place.index)
        early = bound.background(*command.MODIFIED) if name in _CAPTURING else None
        # Imported while git is at work on the question that takes longest.
        from putback.ops.session import open_session

        strict = name != "recover"
        yield open_session(stack, where, bound, settings, shield, early, strict=strict, contents=contents)


@contextmanager
def locked(
    store: Store,
    places: Sequence[WorkspacePaths],
    git: Git,
    name: str,
    wait_seconds: float,
    progress: Progress,
    *,
    shared: bool = True,
    strict: bool = True,
) -> Iterator[None]:
    """Hold the locks of workspaces, then that of their store; `shared` is about the store's.

    What an exchange of a history left that was cut short is brought to its end first. Unless `strict`, one that
    cannot be brought there is no obstacle. Raises LockedError, Cancelled, StorageError and IntegrityError.
    """
    with ExitStack() as stack:
        for where in places:
            stack.enter_context(lock.hold(where.lock, name, False, wait_seconds, progress))
        stack.enter_context(lock.hold(store.lock, name, shared, wait_seconds, progress))
        for where in places:
            if where.exchange.exists():
                # Before anything is asked of an index, or of a history, that it takes away.
                from putback.store import exchange

                with nullcontext() if strict else suppress(IntegrityError, StorageError):
                    exchange.settle(where, git.writing(store.modes).on(store.git_dir))
        yield


@contextmanager
def refusals(name: str) -> Iterator[None]:
    """An OSError within the block becomes a StorageError that says what the system refused to which command."""
    try:
        yield
    except OSError as error:
        culprit = f" {quote(os.fsencode(error.filename))}" if error.filename else ""
        raise StorageError(f"{name}: the system refused{culprit}: {error.strerror}") from error


def _check_there(root: bytes) -> None:
    """Refuse a root that is gone, or is a directory no more: nothing is looked for behind a link in its place."""
    if not os.path.isdir(root):
        problem = f"the workspace {quote(root)} is no directory, or is gone"
    elif os.path.realpath(root) != root:
        problem = f"a symbolic link was put in the place of the workspace {quote(root)}"
    else:
        return
    raise StorageError(f"{problem}; nothing was done", hint="put the directory back, or make an empty one there")
