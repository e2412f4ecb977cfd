"""Hooks put into the text of a settings file, and taken out of it: everything else stays as it is, byte for byte.

Pure. What was put in can be taken out exactly where it went into something that was there; an empty object or list
that was there before comes back exactly with the help of the text as it was (`taken_out`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from putback.agents.json_spans import Malformed, Node, parse

# What is put into the list of each event, by the event's name.
Entries = Mapping[str, Any]
# Whether a command line is one of ours.
Ours = Callable[[str], bool]

UNIT = "  "


class Unclear(ValueError):
    """The text is not of the form that can be edited safely; the message says why."""


def created(entries: Entries, beside: Mapping[str, Any]) -> str:
    """The text of a settings file with nothing but the hooks, and what must be beside them."""
    return json.dumps({**beside, "hooks": _lists(entries)}, indent=UNIT, ensure_ascii=False) + "\n"


def put_in(text: str, entries: Entries, beside: Mapping[str, Any]) -> str:
    """The text with the entries at the ends of their lists, and what must be beside them unless it is there.

    Raises Unclear where the text is no JSON, or where something else stands where the lists should be.
    """
    before = _parsed(text).plain()
    for name, value in beside.items():
        text = _named(text, (), name, value)
    root = _parsed(text)
    hooks = root.get("hooks")
    if hooks is None:
        text = _named(text, (), "hooks", _lists(entries))
    else:
        for event, entry in entries.items():
            text = _entry(text, event, entry)
    if _parsed(text).plain() != _expected(before, entries, beside):
        raise Unclear("it came out otherwise than it should")
    return text


def entries_of(text: str, ours: Ours) -> dict[str, Any]:
    """The entries whose commands are all ours, by event. Raises Unclear."""
    found: dict[str, Any] = {}
    for event, entry in _listed(_parsed(text)):
        if _handlers(entry) and all(_is_ours(handler, ours) for handler in _handlers(entry)):
            found[event] = entry.plain()
    return found


def names_any(text: str, ours: Ours) -> bool:
    """Whether any command in the text is ours. Raises Unclear."""
    return any(_is_ours(handler, ours) for _, entry in _listed(_parsed(text)) for handler in _handlers(entry))


def taken_out(text: str, ours: Ours, before: str | None, beside: Mapping[str, Any]) -> str | None:
    """The text without our commands; None where it was made for them and nothing else is in it.

    `before` is the text as it was before they were put in, as far as anybody knows: it is what comes out where
    putting them in would give this text. Raises Unclear.
    """
    entries = entries_of(text, ours)
    if before is None and entries and text == created(entries, beside):
        return None
    if before is not None and entries and _gives(before, entries, beside, text):
        return before
    while (shorter := _without_one(text, ours)) is not None:
        text = shorter
    return text


def _gives(before: str, entries: Entries, beside: Mapping[str, Any], text: str) -> bool:
    try:
        return put_in(before, entries, beside) == text
    except Unclear:
        return False


def _lists(entries: Entries) -> dict[str, list[Any]]:
    return {event: [entry] for event, entry in entries.items()}


def _expected(before: Any, entries: Entries, beside: Mapping[str, Any]) -> Any:
    after = {**beside, **copy.deepcopy(before)}
    hooks = after.setdefault("hooks", {})
    for event, entry in entries.items():
        hooks.setdefault(event, []).append(entry)
    return after


def _parsed(text: str) -> Node:
    try:
        root = parse(text)
    except Malformed as error:
        raise Unclear(f"it is no JSON: {error}") from error
    if not root.is_object:
        raise Unclear("it holds no object")
    hooks = root.get("hooks")
    if hooks is not None and not hooks.is_object:
        raise Unclear("its `hooks` is no object")
    for event, listed in hooks.items() if hooks else ():
        if not listed.is_array:
            raise Unclear(f"its hooks of {event} are no list")
    return root


def _named(text: str, above: tuple[str, ...], name: str, value: Any) -> str:
    """The text with a member more in the object at `above`, unless it has one of that name."""
    root = node = _parsed(text)
    for step in above:
        found = node.get(step)
        assert found is not None
        node = found
    if node.get(name) is not None:
        return text
    return _appended(text, root, node, f"{json.dumps(name, ensure_ascii=False)}: ", value)


def _entry(text: str, event: str, entry: Any) -> str:
    root = _parsed(text)
    hooks = root.get("hooks")
    assert hooks is not None
    listed = hooks.get(event)
    if listed is None:
        return _named(text, ("hooks",), event, [entry])
    return _appended(text, root, listed, "", entry)


def _appended(text: str, root: Node, parent: Node, label: str, value: Any) -> str:
    """The text with a child more at the end of `parent`, laid out as its siblings are."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _line_indent(text, root.begins[0]) or UNIT if root.begins else UNIT
    if parent.children:
        indent = _line_indent(text, parent.begins[0])
        at = parent.children[-1].end
        if indent is None:
            return f"{text[:at]}, {label}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
        return f"{text[:at]},{newline}{indent}{label}{_laid_out(value, indent, unit, newline)}{text[at:]}"
    at, inside = parent.start + 1, text[parent.start + 1 : parent.end - 1]
    if root.begins and _line_indent(text, root.begins[0]) is None:
        return f"{text[:at]}{label}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
    outer = _indent_of_line(text, parent.start)
    indent = outer + unit
    child = f"{newline}{indent}{label}{_laid_out(value, indent, unit, newline)}"
    if not inside.strip():
        return f"{text[:at]}{child}{newline}{outer}{text[parent.end - 1 :]}"
    return f"{text[:at]}{child}{text[at:]}"


def _laid_out(value: Any, indent: str, unit: str, newline: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _line_indent(text: str, at: int) -> str | None:
    """What stands before `at` on its line, if that is blank."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if "\n" in text[:at] and not before.strip() else None


def _indent_of_line(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _listed(root: Node) -> list[tuple[str, Node]]:
    hooks = root.get("hooks")
    return [(event, entry) for event, listed in hooks.items() for entry in listed.children] if hooks else []


def _handlers(entry: Node) -> list[Node]:
    """The commands of an entry: those in its own `hooks`, or itself where it has none."""
    inner = entry.get("hooks")
    return [entry] if inner is None else inner.children


def _is_ours(handler: Node, ours: Ours) -> bool:
    command = handler.get("command")
    return command is not None and isinstance(command.value, str) and ours(command.value)


def _without_one(text: str, ours: Ours) -> str | None:
    """The text without one of our commands, and without what that leaves empty; None where there is none."""
    root = _parsed(text)
    hooks = root.get("hooks")
    for listed in hooks.children if hooks else ():
        for place, entry in enumerate(listed.children):
            handlers = _handlers(entry)
            found = [number for number, handler in enumerate(handlers) if _is_ours(handler, ours)]
            if found and len(found) == len(handlers):
                return _cut(text, _emptied(root, hooks, listed, place))
            if found:
                inner = entry.get("hooks")
                assert inner is not None
                return _cut(text, (inner, found[0]))
    return None


def _emptied(root: Node, hooks: Node | None, listed: Node, place: int) -> tuple[Node, int]:
    """What to cut instead of a child, when nothing but it is in what is around it."""
    assert hooks is not None
    if len(listed.children) > 1:
        return listed, place
    if len(hooks.children) > 1:
        return hooks, hooks.children.index(listed)
    return root, root.children.index(hooks)


def _cut(text: str, what: tuple[Node, int]) -> str:
    parent, place = what
    start, end = parent.begins[place], parent.children[place].end
    if place > 0:
        comma = parent.commas[place - 1]
        if text[parent.children[place - 1].end : start].strip() == ",":
            return text[: parent.children[place - 1].end] + text[end:]
        # A comment of somebody's lies between; it stays.
        return text[:comma] + text[comma + 1 : start].rstrip(" \t\r\n") + text[end:]
    if place < len(parent.commas):
        end = parent.commas[place] + 1
    if len(parent.children) > 1:
        following = parent.begins[1]
        return text[:start] + text[following if not text[end:following].strip() else end :]
    inside = text[parent.start + 1 : start] + text[end : parent.end - 1]
    return text[: parent.start + 1] + (inside if inside.strip() else "") + text[parent.end - 1 :]
