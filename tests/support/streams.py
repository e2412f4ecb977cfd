"""Event streams of agents, in `tests/streams/<agent>/<what happens>.jsonl`: each line one thing that happens.

    {"note": TEXT}                                  what the agent does not tell, or why
    {"event": EVENT}                                as the agent sends it; "to": the script, where it has
                                                    another name than the event
    {"call": HOOK, "input": …, "output": …}         as opencode calls a plugin
    {"by": TURN or "user", "write": {path: text}, "remove": [path], "in": tree}
    {"turns": [{"of": TURN, "in": tree, "prompt": …, "ended": …, "paths": {path: [who]}, …}], "undo": [TURN]}

`{root}`, `{linked}` and `{home}` stand for the work tree, a linked one of its repository, and the home directory.
The last line says what must come of it, in the order in which the turns end, and in which order they are undone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from putback.agents import registry
from putback.agents.places import Form, place
from support.trees import Tree, normal

STREAMS = Path(__file__).parents[1] / "streams"
BASE = {"a": "a\n", "b": "b\n", "c": "c\n", "sub/d": "d\n"}

Line = dict[str, Any]


def names() -> list[str]:
    """Every stream, as `agent/name`."""
    return [f"{agent}/{path.stem}" for agent in registry.NAMES for path in sorted((STREAMS / agent).iterdir())]


def lines(name: str) -> list[Line]:
    return [json.loads(line) for line in (STREAMS / f"{name}.jsonl").read_text().splitlines()]


@dataclass
class Replay:
    """One stream, played in real trees. `send` gives an event to the hook and returns what it answers."""

    agent: str
    places: dict[str, Path]
    send: Callable[[bytes], bytes]
    acts: list[Line] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)

    def play(self, stream: list[Line], *, everything: bool = False) -> Line:
        """Send what the agent is asked to tell, or everything that it could; returns what must come of it."""
        for line in stream:
            if "event" in line and (everything or asked_for(self.agent, line)):
                self.answers.append(self.send(self._filled(line["event"])))
            elif "by" in line:
                self._act(line)
        return stream[-1]

    def without(self, undone: set[str], tree: str) -> Tree:
        """What the tree must hold, had the turns that are undone never been."""
        held = dict(BASE)
        for act in self.acts:
            if act.get("in", "root") == tree and act["by"] not in undone:
                held |= act.get("write", {})
                for path in act.get("remove", ()):
                    del held[path]
        return normal(held)

    def _act(self, act: Line) -> None:
        root = self.places[act.get("in", "root")]
        self.acts.append(act)
        for path, text in act.get("write", {}).items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text)
        for path in act.get("remove", ()):
            (root / path).unlink()

    def _filled(self, event: Line) -> bytes:
        text = json.dumps(event)
        for name, path in self.places.items():
            text = text.replace(f"{{{name}}}", str(path))
        return text.encode()


def asked_for(agent: str, line: Line) -> bool:
    """Whether what `agent install` writes has the agent send us this event."""
    where, adapter, event = place(agent), registry.adapter(agent), line["event"]
    if where.form is Form.PLUGIN:
        return True
    name = line.get("to") or event[adapter.event[0]]
    return any(
        hook.event == name and (not hook.matcher or bool(re.fullmatch(hook.matcher, event["tool_name"])))
        for hook in where.hooks
    )


DRIVER = """
import { appendFileSync, readFileSync } from "node:fs"
import { Putback } from "./putback.mjs"
const [streams, told, root] = process.argv.slice(2)
const client = { session: { get: async () => ({ data: {} }) } }
for (const stream of JSON.parse(readFileSync(streams, "utf8"))) {
  const plugins = new Map()
  for (const line of stream) {
    const directory = line.directory ?? root
    if (!plugins.has(directory)) plugins.set(directory, await Putback({ client, directory, worktree: directory }))
    await plugins.get(directory)[line.call]?.(line.input, line.output)
    appendFileSync(told, "--\\n")
  }
}
"""


def told(output: str, streams: list[list[Line]]) -> Iterator[list[Line]]:
    """The streams with the events that the plugin made of its calls in their place."""
    parts = iter(output.split("--\n"))
    for stream in streams:
        found: list[Line] = []
        for line in stream:
            if "call" in line:
                found += [{"event": json.loads(event)} for event in next(parts).splitlines() if event]
            else:
                found.append(line)
        yield found
