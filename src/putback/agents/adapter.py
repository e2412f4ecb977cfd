"""How the hooks of one agent are read and answered: tables, and one decoder for all of them.

What an agent sends is decoded leniently, for its next version will send more: a field that is missing or of
another type is as if it were not there. Only what is no JSON object at all is refused.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from putback.errors import UsageError
from putback.records.agent import MOST_TEXT, Call, Event, Point

# Where an agent keeps something: fields of its event, dotted where they lie deeper; the first one there counts.
Fields = tuple[str, ...]
Answer = dict[str, Any]

_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)


class Writes(enum.StrEnum):
    """How a tool says what it writes: by a path, by a patch that names paths, or not at all, as a command."""

    PATH = "path"
    PATCH = "patch"
    SHELL = "shell"


class Tool(msgspec.Struct, frozen=True):
    """A tool that can write; `field` of its input says what."""

    writes: Writes
    field: str


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """The contract of one agent.

    `points` says what its events mean. `failed` and `interrupted` tell, of the event by which a turn ends, how it
    did. `batch` is the field of an event that lists several calls. `asks` is how the agent is told to ask its
    user, `context` how its model is told something, `notice` how its user is; None where it cannot. `silence` is
    what it wants to read where there is nothing to say.
    """

    name: str
    title: str
    points: Mapping[str, Point]
    tools: Mapping[str, Tool]
    event: Fields = ("hook_event_name",)
    session: Fields = ("session_id",)
    turn: Fields = ()
    cwd: Fields = ("cwd",)
    prompt: Fields = ("prompt",)
    actor: Fields = ("agent_id",)
    tool: Fields = ("tool_name",)
    input: Fields = ("tool_input",)
    call: Fields = ("tool_use_id",)
    batch: str = ""
    failed: Callable[[str, Mapping[str, Any]], bool] = lambda name, event: False
    interrupted: Callable[[str, Mapping[str, Any]], bool] = lambda name, event: False
    context: Callable[[str, str], Answer] | None = None
    notice: Callable[[str], Answer] | None = None
    asks: Callable[[str], Answer] | None = None
    silence: bytes = b""

    def decode(self, data: bytes, name: str = "") -> Event:
        """The event in what the agent sent; `name` is the event's where the agent says it on the command line.

        Raises UsageError where it is no JSON object.
        """
        try:
            found = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{self.title} sent what is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise UsageError(f"{self.title} sent {type(found).__name__}, not an object")
        name = name or _text(found, self.event)
        actor = _text(found, self.actor)
        return Event(
            agent=self.name,
            point=self.points.get(name, Point.OTHER),
            name=name,
            session=_text(found, self.session),
            turn=_text(found, self.turn),
            cwd=_text(found, self.cwd),
            prompt=first_line(_text(found, self.prompt)),
            actor=actor,
            calls=self._calls(found, actor),
            failed=self.failed(name, found),
            interrupted=self.interrupted(name, found),
        )

    def _calls(self, event: Mapping[str, Any], actor: str) -> tuple[Call, ...]:
        listed = event.get(self.batch) if self.batch else None
        each = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else [event]
        found = (self._call(item, actor) for item in each)
        return tuple(call for call in found if call is not None)

    def _call(self, event: Mapping[str, Any], actor: str) -> Call | None:
        name = _text(event, self.tool)
        if not name:
            return None
        tool = self.tools.get(name)
        given = "" if tool is None else _text(event, tuple(f"{place}.{tool.field}" for place in self.input))
        paths: tuple[str, ...] = ()
        if tool is not None and tool.writes is not Writes.SHELL and given:
            paths = tuple(_PATCHED.findall(given)) if tool.writes is Writes.PATCH else (given,)
        command = given if tool is not None and tool.writes is Writes.SHELL else ""
        return Call(tool=name, paths=paths, command=command, call_id=_text(event, self.call), actor=actor)


def first_line(text: str) -> str:
    """What is kept of a prompt."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:MOST_TEXT]


def _text(event: Mapping[str, Any], fields: Fields) -> str:
    """The first of the fields that holds a string, or a list that begins with one; empty where none does."""
    for place in fields:
        found: Any = event
        for name in place.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, str) and found:
            return found
    return ""
