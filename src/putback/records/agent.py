"""What a coding agent did, as its hooks tell it: events, tool calls, and the turn that they add up to."""

from __future__ import annotations

import enum

import msgspec

from putback.records.document import AtPath, Strict

# What is kept of a prompt and of a command: enough to know it again.
MOST_TEXT = 200


class Point(enum.StrEnum):
    """What an event of an agent means to us.

    open: a prompt is about to be worked on. close: the agent has stopped. before and after: of one tool call.
    start and end: of a session. sub_start and sub_end: of a subagent. other: nothing to us.
    """

    OPEN = "open"
    CLOSE = "close"
    BEFORE = "before"
    AFTER = "after"
    START = "start"
    END = "end"
    SUB_START = "sub_start"
    SUB_END = "sub_end"
    OTHER = "other"


class Ended(enum.StrEnum):
    """How a turn came to its end; an interrupted one is noticed at the next prompt or at the session's end."""

    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Call(Strict, frozen=True, kw_only=True):
    """One tool call. `paths` are what it names to write, as the agent has them; `command` is a shell command.

    `actor` is the subagent that made it, empty for the agent itself.
    """

    tool: str
    paths: tuple[str, ...] = ()
    command: str = ""
    call_id: str = ""
    actor: str = ""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event of an agent in our terms. `cwd` is where the agent works at that moment.

    `turn` is the agent's own name for the turn, where it has one; `prompt` is what the user asked. `failed` and
    `interrupted` tell how a turn ended.
    """

    agent: str
    point: Point
    name: str
    session: str = ""
    turn: str = ""
    cwd: str = ""
    prompt: str = ""
    actor: str = ""
    calls: tuple[Call, ...] = ()
    failed: bool = False
    interrupted: bool = False


class Attribution(AtPath, frozen=True, omit_defaults=True, kw_only=True):
    """Who a changed path names as its writer: tools by name, empty where no named tool wrote it."""

    by: tuple[str, ...] = ()


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What went wrong in a hook last; the agent was not told. `at_ns` is in nanoseconds since the epoch."""

    agent: str
    event: str = ""
    code: str
    message: str
    at_ns: int


class AgentTurn(Strict, frozen=True, kw_only=True):
    """The part of a history entry that only a turn of an agent has.

    `prompt` is the first line of what the user asked. `added` and `removed` count the lines that came and went in
    what is text; None where nobody counted. `moved_head` and `moved_index` say that the user's repository did not
    stand still. `others` names the sessions that were at work in the tree at the same time. A turn is `late` whose
    beginning was captured after the agent had gone on.
    """

    agent: str
    session: str
    turn: str = ""
    prompt: str = ""
    ended: Ended = Ended.STOPPED
    calls: int = 0
    added: int | None = None
    removed: int | None = None
    written: tuple[Attribution, ...] = ()
    moved_head: bool = False
    moved_index: bool = False
    others: tuple[str, ...] = ()
    late: bool = False


class OpenTurn(Strict, frozen=True, kw_only=True, tag_field="format", tag="putback/open-turn/v1"):
    """A turn of an agent that has begun. `before` is the capture at its beginning.

    `head` and `index` are what HEAD named and a digest of what was staged then. `began_ns` is in nanoseconds
    since the epoch.
    """

    agent: str
    session: str
    turn: str = ""
    prompt: str = ""
    before: str
    head: str = ""
    index: str = ""
    late: bool = False
    began_ns: int
