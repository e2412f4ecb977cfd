"""What agents send, replayed: the right turns, with the right paths and owners, and each is undone by itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from putback.agents import registry
from putback.agents.draft import Site
from putback.agents.hook import Hook, last_failure
from putback.agents.install import install
from putback.agents.places import Scope
from putback.agents.sessions import open_turns
from putback.records.history import Entry
from putback.store.layout import Store
from putback.workspace import Workspace
from support import streams
from support.hermetic import git, make_repository, settings
from support.streams import BASE, Line, Replay
from support.trees import read_back, same

NODE = shutil.which("node")


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Line]]:
    """Every stream; those of opencode as our plugin, run by JavaScript, tells them."""
    found = {name: streams.lines(name) for name in streams.names()}
    plugged = {name: stream for name, stream in found.items() if name.startswith("opencode/")}
    if NODE is None:
        return {name: stream for name, stream in found.items() if name not in plugged}
    place = tmp_path_factory.mktemp("plugin")
    for name in ("root", "linked"):
        (place / name).mkdir()
    teller = place / "teller"
    teller.write_text(f"#!/bin/sh\ncat >> {place}/told\necho >> {place}/told\n")
    teller.chmod(0o755)
    site = Site(place, place, (str(teller),), {})
    (plugin,) = install("opencode", Scope.PROJECT, site).changed
    plugin.rename(place / "putback.mjs")
    (place / "driver.mjs").write_text(streams.DRIVER)
    calls = [[line for line in stream if "call" in line] for stream in plugged.values()]
    text = json.dumps(calls).replace("{root}", f"{place}/root").replace("{linked}", f"{place}/linked")
    (place / "streams").write_text(text)
    argv = [NODE, "driver.mjs", str(place / "streams"), str(place / "told"), str(place / "root")]
    subprocess.run(argv, cwd=place, check=True)
    output = (place / "told").read_text().replace(f"{place}/root", "{root}").replace(f"{place}/linked", "{linked}")
    return found | dict(zip(plugged, streams.told(output, list(plugged.values())), strict=True))


def places(tree: Path, home: Path, name: str) -> dict[str, Path]:
    make_repository(tree, BASE)
    found = {"root": tree, "home": home}
    if name.endswith("/worktree"):
        found["linked"] = tree.parent / "linked"
        git(tree, "worktree", "add", "-q", str(found["linked"]))
    return found


def turns(workspace: Workspace) -> list[Entry]:
    return [entry for entry in reversed(workspace.list()) if entry.agent is not None]


def check(replay: Replay, expected: Line, store: Path) -> None:
    """The turns are as they must be; undone in the order given, each takes back its own and nothing else."""
    trees = {name: path for name, path in replay.places.items() if name != "home"}
    there = {name: Workspace.open(path, store=store, settings=settings()) for name, path in trees.items()}
    entries: dict[tuple[str, str], Entry] = {}
    for name, workspace in there.items():
        assert open_turns(workspace.paths) == []
        asked = [turn for turn in expected["turns"] if turn.get("in", "root") == name]
        found = turns(workspace)
        assert [told(workspace, entry, turn) for entry, turn in zip(found, asked, strict=True)] == asked
        entries |= {(name, turn["of"]): entry for entry, turn in zip(found, asked, strict=True)}
    assert last_failure(Store(store)) is None
    undone: set[str] = set()
    for turn in expected["undo"]:
        undone.add(turn)
        for name, workspace in there.items():
            if (name, turn) in entries:
                workspace.undo(entries[name, turn].id)
        for name, path in trees.items():
            same(read_back(path), replay.without(undone, name))


def told(workspace: Workspace, entry: Entry, asked: Line) -> Line:
    """A turn in the form of the streams, as far as it is asked for."""
    turn = entry.agent
    assert turn is not None
    by = {item.path: list(item.by) for item in turn.written}
    changed = [os.fsdecode(change.path) for change in workspace.diff(entry.id).changes]
    known = {
        "paths": {path: by.get(path, []) for path in changed if path in asked["paths"] or path != "new"},
        "prompt": turn.prompt,
        "ended": str(turn.ended),
        "others": list(turn.others),
    }
    return {key: known.get(key, value) for key, value in asked.items()}


@pytest.mark.parametrize("name", streams.names())
def test_each_turn_has_its_own_and_is_undone_alone(
    name: str, spoken: dict[str, list[Line]], tree: Path, home: Path, store: Path
) -> None:
    if name not in spoken:
        pytest.skip("no JavaScript here")
    agent = name.partition("/")[0]
    hook = Hook(registry.adapter(agent), store, settings())
    replay = Replay(agent, places(tree, home, name), hook.answer)
    expected = replay.play(spoken[name])
    assert set(replay.answers) == {hook.adapter.silence}
    check(replay, expected, store)


@pytest.mark.parametrize("agent", registry.NAMES)
def test_what_agents_are_not_asked_to_tell_changes_nothing(
    agent: str, spoken: dict[str, list[Line]], tree: Path, home: Path, store: Path
) -> None:
    name = f"{agent}/subagents"
    if name not in spoken:
        pytest.skip("no JavaScript here")
    hook = Hook(registry.adapter(agent), store, settings())
    replay = Replay(agent, places(tree, home, name), hook.answer)
    check(replay, replay.play(spoken[name], everything=True), store)


@pytest.mark.parametrize("agent", registry.NAMES)
def test_the_command_does_it_too(
    agent: str, spoken: dict[str, list[Line]], tree: Path, home: Path, store: Path
) -> None:
    """The process as agents start it, in the default store of a home without settings."""
    name = f"{agent}/compaction"
    if name not in spoken:
        pytest.skip("no JavaScript here")

    def send(data: bytes) -> bytes:
        argv = [sys.executable, "-P", "-m", "putback", "hook", agent]
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        done = subprocess.run(argv, cwd=tree, env=environment, input=data, capture_output=True, check=True)
        assert done.stderr == b""
        return done.stdout

    replay = Replay(agent, places(tree, home, name), send)
    expected = replay.play(spoken[name])
    assert set(replay.answers) == {registry.adapter(agent).silence}
    check(replay, expected, home / ".local/state/putback")
