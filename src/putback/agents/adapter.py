"""How the hooks of one agent are read and answered: tables, and one decoder for all of them.

What an agent sends is decoded leniently, for its next version will send more: a field that is missing or of
another type is as if it were not there, and text that is no UTF-8 comes with replacement characters. Only what is
no JSON object at all, or nested deeper than any event, is refused.
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
_PATCHES = re.compile(r"\bapply_patch\b.*^\*\*\* Begin Patch$", re.MULTILINE | re.DOTALL)
_INNER = {Point.OPEN: Point.SUB_START, Point.CLOSE: Point.SUB_END}


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
    did. `child` is a field that only the events of a subagent have, where every event names who sends it: what
    opens and closes there is the subagent's work, not the turn. `acts` names the tool of an event that is a tool
    call itself; an empty place in `input` is the event. `batch` is the field of an event that lists several calls.
    `asks` is how the agent is told to ask its user, `context` how its model is told something, `notice` how its
    user is; None where it cannot. `silence` is what it wants to read where there is nothing to say.
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
    child: str = ""
    tool: Fields = ("tool_name",)
    input: Fields = ("tool_input",)
    call: Fields = ("tool_use_id",)
    acts: Mapping[str, str] = {}
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
            found = _decoded(data)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.title} sent what is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise UsageError(f"{self.title} sent {type(found).__name__}, not an object")
        name = name or _text(found, self.event)
        inner = not self.child or bool(_text(found, (self.child,)))
        actor = _text(found, self.actor) if inner else ""
        point = self.points.get(name, Point.OTHER)
        return Event(
            agent=self.name,
            point=_INNER.get(point, point) if self.child and inner else point,
            name=name,
            session=_text(found, self.session),
            turn=_text(found, self.turn),
            cwd=_text(found, self.cwd),
            prompt=first_line(_text(found, self.prompt)),
            actor=actor,
            calls=self._calls(found, self.acts.get(name, ""), actor),
            failed=self.failed(name, found),
            interrupted=self.interrupted(name, found),
        )

    def _calls(self, event: Mapping[str, Any], act: str, actor: str) -> tuple[Call, ...]:
        listed = event.get(self.batch) if self.batch else None
        each = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else [event]
        found = (self._call(item, act, actor) for item in each)
        return tuple(call for call in found if call is not None)

    def _call(self, event: Mapping[str, Any], act: str, actor: str) -> Call | None:
        name = _text(event, self.tool) or act
        if not name:
            return None
        paths: tuple[str, ...] = ()
        command = ""
        if tool := self.tools.get(name):
            given = _text(event, tuple(f"{place}.{tool.field}".lstrip(".") for place in self.input), whole=True)
            if tool.writes is Writes.SHELL:
                command = given
                # Models give a patch to the shell, too, and the agent takes it for one.
                paths = patched(given) if _PATCHES.search(given) else ()
            elif given:
                paths = patched(given) if tool.writes is Writes.PATCH else (given,)
        return Call(tool=name, paths=paths, command=command, call_id=_text(event, self.call), actor=actor)


def first_line(text: str) -> str:
    """What is kept of a prompt."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:MOST_TEXT]


def patched(patch: str) -> tuple[str, ...]:
    """The paths that a patch in the form of `apply_patch` names, each once, in its order."""
    return tuple(dict.fromkeys(path for found in _PATCHED.findall(patch) if (path := found.strip())))


def _decoded(data: bytes) -> Any:
    """Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # What JavaScript cuts in the middle of a character, and what a shell adds before it, is still an event.
        import json  # for an agent that does not keep to the format; hardly ever needed

        return json.loads(data.decode("utf-8-sig", "replace"))


def _text(event: Mapping[str, Any], fields: Fields, *, whole: bool = False) -> str:
    """The first of the fields that holds a string, or a list with one in it; empty where none does.

    `whole`: all strings of a list, one a line.
    """
    for place in fields:
        found: Any = event
        for name in place.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, list):
            texts = [text for text in found if isinstance(text, str)]
            found = "\n".join(texts) if whole else next(iter(texts), None)
        if isinstance(found, str) and found:
            return found.encode("utf-8", "replace").decode()
    return ""
