"""The agents themselves, as the npm registry has them, with what `agent install` writes and a stand-in model.

A whole turn each: the agent reads our hooks, asks the model, is told to write a file, writes it, and stops; then
the turn is in the history with what its tool wrote, and undo takes it back. Not run unless AGENTS_REAL names a
directory with the agents' programs in it (the `node_modules/.bin` of `npm install @anthropic-ai/claude-code
@openai/codex @google/gemini-cli opencode-ai cline`). We send nothing anywhere; the agents may, by themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents_real.standin import StandIn, serving
from putback.agents.draft import Site
from putback.agents.install import install
from putback.agents.places import Scope
from putback.workspace import Workspace
from support.hermetic import make_repository, settings
from support.trees import read_back, same
from support.waiting import until

PROGRAMS = os.environ.get("AGENTS_REAL", "")
SECONDS = 180
WRAPPED = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: made\n+made\n*** End Patch\nEOF\n"

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="AGENTS_REAL names no directory with agents")


@dataclass
class Real:
    """How an agent is started without a terminal, and how its model asks for a file: @TARGET@ is its path.

    `files` of the home directory say where the model is (URL); `variables` too.
    """

    argv: list[str]
    tool: str
    arguments: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    by: str = ""


AGENTS = {
    "claude-code": Real(
        ["claude", "-p", "make a file", "--permission-mode", "acceptEdits"],
        "Write",
        {"file_path": "@TARGET@", "content": "made\n"},
        variables={
            "ANTHROPIC_BASE_URL": "@URL@",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    ),
    "codex": Real(
        [
            *("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"),
            "make a file",
        ],
        "exec_command",
        {"cmd": WRAPPED},
        files={
            ".codex/config.toml": 'model = "gpt-5.1-codex"\nmodel_provider = "standin"\n'
            '[model_providers.standin]\nname = "standin"\nbase_url = "@URL@/v1"\nwire_api = "responses"\n'
            '[projects."@ROOT@"]\ntrust_level = "trusted"\n'
        },
        by="Bash",
    ),
    "gemini": Real(
        ["gemini", "-p", "make a file", "-m", "gemini-2.5-flash", "--approval-mode", "yolo"],
        "write_file",
        {"file_path": "@TARGET@", "content": "made\n"},
        files={
            ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}},'
            ' "privacy": {"usageStatisticsEnabled": false}}'
        },
        variables={
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": "@URL@",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
    ),
    "opencode": Real(
        ["opencode", "run", "make a file"],
        "write",
        {"filePath": "@TARGET@", "content": "made\n"},
        files={
            ".config/opencode/opencode.json": json.dumps(
                {
                    "model": "standin/standin",
                    "small_model": "standin/standin",
                    "autoupdate": False,
                    "provider": {
                        "standin": {
                            "npm": "@ai-sdk/openai-compatible",
                            "name": "standin",
                            "options": {"baseURL": "@URL@/v1", "apiKey": "none"},
                            "models": {"standin": {"name": "standin", "tool_call": True}},
                        }
                    },
                }
            )
        },
        variables={"OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    "cline": Real(
        ["cline", "-P", "openai-compatible", "-m", "standin", "--timeout", "60", "make a file"],
        "editor",
        {"path": "@TARGET@", "new_text": "made\n"},
        before=["cline", "auth", "-p", "openai-compatible", "-k", "none", "-m", "standin", "-b", "@URL@/v1"],
    ),
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("scope", [Scope.USER, Scope.PROJECT])
def test_a_whole_turn(agent: str, scope: Scope, tree: Path, home: Path, store: Path, tmp_path: Path) -> None:
    real = AGENTS[agent]
    if not Path(PROGRAMS, real.argv[0]).exists():
        pytest.skip(f"no {real.argv[0]} in {PROGRAMS}")
    make_repository(tree, {"a": "a\n"})
    arguments = {key: value.replace("@TARGET@", f"{tree}/made") for key, value in real.arguments.items()}
    with serving(StandIn(real.tool, arguments)) as model:

        def here(text: str) -> str:
            return text.replace("@URL@", model.url).replace("@ROOT@", str(tree))

        for name, content in real.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(here(content))
        program = (sys.executable, "-P", "-m", "putback")
        assert install(agent, scope, Site(tree, home, program, {})).changed
        before = read_back(tree)
        environment = {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "HOME": str(home),
            "PUTBACK_STORE": str(store),
            # The tests may be run by root, which Claude Code and others want to be told of.
            "IS_SANDBOX": "1",
            **{name: here(value) for name, value in real.variables.items()},
        }
        log = tmp_path / "log"
        for argv in filter(None, ([here(word) for word in real.before], real.argv)):
            with open(log, "ab") as said:
                subprocess.run(
                    argv,
                    cwd=tree,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    timeout=SECONDS,
                    check=False,
                )
    assert (tree / "made").exists(), log.read_text()
    workspace = Workspace.open(tree, store=store, settings=settings())
    # opencode does not wait for what it tells of its end.
    (entry,) = until(lambda: [entry for entry in workspace.list() if entry.agent is not None])
    assert entry.agent is not None and entry.agent.agent == agent
    assert [(item.path, item.by) for item in entry.agent.written] == [("made", (real.by or real.tool,))]
    workspace.undo()
    # opencode installs packages for its plugins beside them.
    same(
        {
            path: node
            for path, node in read_back(tree).items()
            if path in before or not path.startswith(b".opencode/")
        },
        before,
    )
