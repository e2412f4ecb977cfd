"""JSON with the place of everything in it, so that a file can be changed where it must and nowhere else.

Comments and commas before a closing bracket are taken, too, as some agents take them in their settings. Nothing
else that JSON forbids is, and no object may have a name twice: which one an agent reads is not ours to guess.
Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

DEEPEST = 100

_SKIPPED = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null", re.ASCII)
_MOST_DIGITS = 400


class Malformed(ValueError):
    """The text is no JSON; the message says where."""


@dataclass(slots=True, eq=False)
class Node:
    """A value from `start` to `end`. The children of an object have names; `begins` is where each begins, its name
    included, and `commas` are where the commas are, one after each child but perhaps the last."""

    start: int
    end: int = 0
    value: Any = None
    brackets: str = ""
    names: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    commas: list[int] = field(default_factory=list)

    @property
    def is_object(self) -> bool:
        return self.brackets == "{}"

    @property
    def is_array(self) -> bool:
        return self.brackets == "[]"

    def get(self, name: str) -> Node | None:
        """The child of an object by that name."""
        return self.children[self.names.index(name)] if self.is_object and name in self.names else None

    def items(self) -> Iterator[tuple[str, Node]]:
        """Names and children of an object."""
        return zip(self.names, self.children, strict=True) if self.is_object else iter(())

    def plain(self) -> Any:
        """The value as Python has it."""
        if self.is_object:
            return {name: child.plain() for name, child in self.items()}
        return [child.plain() for child in self.children] if self.is_array else self.value


def parse(text: str) -> Node:
    """The one value of the text. Raises Malformed."""
    reader = _Reader(text)
    reader.skip()
    root = reader.node(0)
    reader.skip()
    if reader.at != len(text):
        raise reader.malformed("something after the end")
    return root


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def malformed(self, what: str) -> Malformed:
        return Malformed(f"{what} on line {self.text.count(chr(10), 0, self.at) + 1}")

    def skip(self) -> None:
        found = _SKIPPED.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def node(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.malformed("nested too deeply")
        node = Node(self.at)
        char = self.text[self.at : self.at + 1]
        if char in ("{", "["):
            self._children(node, depth)
        elif char == '"':
            node.value = self._string()
        else:
            found = _SCALAR.match(self.text, self.at)
            if found is None or len(found[0]) > _MOST_DIGITS:
                raise self.malformed("no value")
            node.value = json.loads(found[0])
            self.at = found.end()
        node.end = self.at
        return node

    def _string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.malformed("no text in quotes")
        self.at = found.end()
        value = json.loads(found[0])
        assert isinstance(value, str)
        return value

    def _children(self, node: Node, depth: int) -> None:
        node.brackets = "{}" if self.text[self.at] == "{" else "[]"
        self.at += 1
        self.skip()
        known: set[str] = set()
        while not self.text.startswith(node.brackets[1], self.at):
            if len(node.commas) < len(node.children):
                raise self.malformed("no comma")
            node.begins.append(self.at)
            if node.is_object:
                node.names.append(self._name(known))
            node.children.append(self.node(depth + 1))
            self.skip()
            if self.text.startswith(",", self.at):
                node.commas.append(self.at)
                self.at += 1
                self.skip()
        self.at += 1

    def _name(self, known: set[str]) -> str:
        name = self._string()
        if name in known:
            raise self.malformed(f"{name!r} for the second time")
        known.add(name)
        self.skip()
        if not self.text.startswith(":", self.at):
            raise self.malformed("no colon")
        self.at += 1
        self.skip()
        return name
