"""The turns of coding agents in one workspace: opened before the prompt is worked on, closed when the agent stops.

An interrupted turn has no end of its own; it is closed by the next prompt of its session, or with the session.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from putback.agents.sessions import SessionFolder, open_turns
from putback.errors import GitUnavailable, IntegrityError, StorageError, UnsafePath
from putback.fs import modes
from putback.fs.durable import write_file
from putback.git.command import Pending
from putback.git.user_repo import ANY_CODE
from putback.ops import diff
from putback.ops.diff import Lines
from putback.ops.session import Session
from putback.paths import RelPath, parents, parse
from putback.records import document
from putback.records.agent import AgentTurn, Attribution, Call, Ended, Event, OpenTurn
from putback.records.capture import Purpose
from putback.records.document import AtPath
from putback.records.history import Entry, EntryKind
from putback.records.plan import Outcomes
from putback.store import captures
from putback.store.captures import TreeState, View

# What is larger is no text whose lines anybody counts, and an agent is not kept waiting for a number.
_NO_LARGE_TEXT = ("core.bigFileThreshold", "1m")
_COUNT_SECONDS = 1.0
_RECENT = 500


def begin(session: Session, event: Event, is_late: Callable[[], bool] = lambda: False) -> OpenTurn:
    """Capture the workspace before a prompt is worked on. An open turn of the same session was interrupted.

    One in which nothing has happened is forgotten: some agents tell of a prompt twice. `is_late` says, once that
    is done, whether the agent has gone on meanwhile. Raises what a snapshot raises.
    """
    folder = SessionFolder(session.where, event.agent, event.session)
    staged = _ask_staged(session)
    state = session.capturer.take(message=event.prompt or event.agent, purpose=Purpose.BEFORE)
    index = _digest(staged)
    prompt = event.prompt
    try:
        if not prompt and (last := folder.load()) is not None and not folder.noted():
            prompt = last.prompt
        _close(session, folder, state, index, Ended.INTERRUPTED)
    except IntegrityError:
        # The record of a turn is a convenience; this prompt is not to go unprotected for the sake of the last one.
        folder.forget()
    opened = OpenTurn(
        agent=event.agent,
        session=event.session,
        turn=event.turn,
        prompt=prompt,
        before=captures.write(session.where, state),
        head="" if state.record.repository is None else state.record.repository.head,
        index=index,
        late=is_late(),
        began_ns=time.time_ns(),
    )
    try:
        modes.directory(session.where.agents)
        write_file(folder.record, document.encode(opened) + b"\n")
    except OSError as error:
        raise StorageError(f"cannot write {str(folder.record)!r}: {error.strerror}") from error
    return opened


def end(session: Session, event: Event, ended: Ended) -> Entry | None:
    """Capture the workspace after a turn and enter it into the history; None where none was open."""
    folder = SessionFolder(session.where, event.agent, event.session)
    if folder.load() is None:
        return None
    staged = _ask_staged(session)
    state = session.capturer.take(message=event.agent, purpose=Purpose.AFTER)
    return _close(session, folder, state, _digest(staged), ended)


def put_back(session: Session, event: Event) -> list[RelPath]:
    """The paths that were put back since the last turn of this agent's session, in path order.

    Nothing where the session has had no turn yet, or none for long: what was put back before is not news to it.
    """
    found: set[RelPath] = set()
    for entry in _recent(session, EntryKind.TURN, EntryKind.RESTORE):
        if _is_of(entry, event):
            return sorted(found)
        if entry.kind is EntryKind.RESTORE:
            found |= session.capture(entry.after).touched or set()
    return []


def last_prompt(session: Session, event: Event) -> str:
    """What the last turn of this agent's session was about; empty where it has had none here for long."""
    for entry in _recent(session, EntryKind.TURN):
        if entry.agent is not None and _is_of(entry, event):
            return entry.agent.prompt
    return ""


def _recent(session: Session, *kinds: EntryKind) -> Iterator[Entry]:
    """The newest entries of these kinds, as many as a prompt may be kept waiting for; newest first."""
    names = (name for name in session.history.names() if name.kind in kinds)
    return session.history.each(islice(names, _RECENT))


def _is_of(entry: Entry, event: Event) -> bool:
    """Whether it is a turn of the session that the event is of."""
    turn = entry.agent
    return turn is not None and (turn.agent, turn.session) == (event.agent, event.session)


def _close(session: Session, folder: SessionFolder, state: TreeState, index: str, ended: Ended) -> Entry | None:
    opened = folder.load()
    if opened is None:
        return None
    since = _since(session, opened)
    if any(entry.before == opened.before for entry in since):
        # Whoever closed it was killed before it could forget it.
        folder.forget()
        return None
    before = session.capture(opened.before)
    changed, lines = _changed(session, before, state)
    calls = folder.noted()
    written = _written(session.where.root, calls)
    if ended is Ended.INTERRUPTED and not changed and not calls:
        folder.forget()
        return None
    rivals = _rivals(session, opened, since)
    mine = [path for path in changed if path in written or not _claimed(path, rivals)]
    touched = Outcomes(touched=tuple(AtPath.at(path) for path in mine))
    after = captures.write(session.where, state, touched)
    head = "" if state.record.repository is None else state.record.repository.head
    turn = AgentTurn(
        agent=opened.agent,
        session=opened.session,
        turn=opened.turn,
        prompt=opened.prompt,
        ended=ended,
        calls=len(calls),
        added=None if lines is None else sum(lines[path][0] for path in mine if path in lines),
        removed=None if lines is None else sum(lines[path][1] for path in mine if path in lines),
        written=tuple(Attribution.at(path, by=written[path]) for path in mine if path in written),
        moved_head=head != opened.head,
        moved_index=index != opened.index,
        others=tuple(sorted(rivals)),
        late=opened.late,
    )
    entry = _entry(session, turn, opened.before, after, state, len(mine))
    session.history.add(entry, session.where.scratch)
    folder.forget()
    return entry


def _changed(session: Session, before: View, after: View) -> tuple[list[RelPath], Lines | None]:
    """The paths at which anything changed, and the lines of each; None where counting them would take too long."""
    counting = msgspec.structs.replace(session.git.configured(_NO_LARGE_TEXT), time_limit=_COUNT_SECONDS)
    lines: Lines = {}
    try:
        return [change.path for change in diff.changes(counting, before, after, lines=lines)], lines
    except (GitUnavailable, IntegrityError, StorageError):
        # The agent waits, or a content is damaged: the trees alone say what changed, and undo needs no more.
        return [change.path for change in diff.changes(session.git, before, after)], None


def _entry(session: Session, turn: AgentTurn, before: str, after: str, state: TreeState, changed: int) -> Entry:
    entry = Entry(
        seq=session.history.next_seq(),
        id="",
        kind=EntryKind.TURN,
        created_ns=time.time_ns(),
        before=before,
        after=after,
        message=turn.prompt or f"a turn of {turn.agent}",
        files=state.record.files,
        bytes=state.record.bytes,
        not_covered=len(state.record.not_covered),
        changed=changed,
        agent=turn,
    )
    return msgspec.structs.replace(entry, id=document.digest(entry))


def _since(session: Session, opened: OpenTurn) -> list[Entry]:
    """The entries that were made since the turn began, newest first."""
    found: list[Entry] = []
    for name in session.history.names():
        entry = session.history.read(name)
        if entry.created_ns < opened.began_ns:
            break
        found.append(entry)
    return found


def _rivals(session: Session, opened: OpenTurn, since: Iterable[Entry]) -> dict[str, set[RelPath]]:
    """The other sessions that were at work in the tree meanwhile, and what their tools name to have written."""
    found: dict[str, set[RelPath]] = {}
    own = (opened.agent, opened.session)
    for other in open_turns(session.where):
        if (other.agent, other.session) != own:
            calls = SessionFolder(session.where, other.agent, other.session).noted()
            found.setdefault(other.session, set()).update(_written(session.where.root, calls))
    for entry in since:
        turn = entry.agent
        if turn is not None and (turn.agent, turn.session) != own:
            found.setdefault(turn.session, set()).update(item.raw for item in turn.written)
    return found


def _claimed(path: RelPath, rivals: dict[str, set[RelPath]]) -> bool:
    """Whether another session's tools wrote it, or it is a directory that came with what they wrote."""
    return any(path in written or path in _above(written) for written in rivals.values())


def _above(written: set[RelPath]) -> set[RelPath]:
    return {parent for path in written for parent in parents(path)}


def _written(root: bytes, calls: Iterable[Call]) -> dict[RelPath, tuple[str, ...]]:
    """Who names each path as written: the tool, and the subagent if one made the call. None outside the tree."""
    found: dict[RelPath, tuple[str, ...]] = {}
    for call in calls:
        for named in call.paths:
            path = _relative(root, named)
            if path is not None:
                by = f"{call.tool} ({call.actor})" if call.actor else call.tool
                found[path] = tuple(dict.fromkeys((*found.get(path, ()), by)))
    return found


def _relative(root: bytes, named: str) -> RelPath | None:
    raw = os.path.join(root, named.encode("utf-8", "surrogatepass"))
    above, name = os.path.split(os.path.normpath(raw))
    full = os.path.join(os.path.realpath(above), name)
    if not full.startswith(root + b"/"):
        return None
    with suppress(UnsafePath):
        return parse(full[len(root) + 1 :])
    return None


def _ask_staged(session: Session) -> Pending | None:
    """Ask git, in the background, what the user has staged."""
    repository = session.capturer.repository
    return None if repository is None else repository.git.background("ls-files", "-s", "-z", accept=ANY_CODE)


def _digest(staged: Pending | None) -> str:
    """Over what is staged; the stat data in the index are not in it, for git renews them as it likes."""
    return "" if staged is None else hashlib.sha256(staged.result().out).hexdigest()
