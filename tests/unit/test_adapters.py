"""What each agent's hooks send, decoded: streams as the agents write them, and whatever else they might send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from putback.agents import registry
from putback.agents.adapter import patched
from putback.errors import UsageError
from putback.records.agent import MOST_TEXT, Call, Event, Point

# What an event is built from: an agent, its fields, and the event that they must become.
Said = dict[str, Any]
Row = tuple[str, Said, Event]

PATCH = """*** Begin Patch
*** Add File: src/new file.py
+*** Add File: not-this
+print("x")
*** Update File: src/old.py
*** Move to: src/moved.py
@@ def f():
 *** Delete File: nor-this
-    a
+    b
*** Delete File: docs/gone.md
*** End Patch
"""
PATCHED = ("src/new file.py", "src/old.py", "src/moved.py", "docs/gone.md")

CLAUDE = {
    "session_id": "s-1",
    "prompt_id": "p-1",
    "transcript_path": "/home/u/.claude/projects/x/s-1.jsonl",
    "cwd": "/work/tree",
    "permission_mode": "acceptEdits",
    "effort": {"level": "high"},
    "scratchpad_dir": "/tmp/scratch",
}
CODEX = {
    "session_id": "s-2",
    "turn_id": "t-2",
    "transcript_path": None,
    "cwd": "/work/tree",
    "model": "gpt-5",
    "permission_mode": "default",
}
GEMINI = {
    "session_id": "s-3",
    "transcript_path": "/home/u/.gemini/tmp/x/chat.json",
    "cwd": "/work/tree",
    "timestamp": "2026-08-21T10:00:00.000Z",
}
CURSOR = {
    "conversation_id": "c-4",
    "generation_id": "g-4",
    "workspace_roots": ["/work/tree", "/work/other"],
    "model": "auto",
    "cursor_version": "2.4.1",
    "user_email": "user@example.com",
}
CLINE = {
    "clineVersion": "3.36.0",
    "timestamp": "1767225600000",
    "taskId": "k-5",
    "workspaceRoots": ["/work/tree"],
    "userId": "u",
}
OPENCODE = {"session": "ses_6", "message": "msg_6", "directory": "/work/tree", "worktree": "/work/tree"}


def claude(point: Point, name: str, **fields: Any) -> Event:
    where = {"session": "s-1", "turn": "p-1", "cwd": "/work/tree"}
    return Event(agent="claude-code", point=point, name=name, **(where | fields))


def codex(point: Point, name: str, **fields: Any) -> Event:
    return Event(agent="codex", point=point, name=name, session="s-2", turn="t-2", cwd="/work/tree", **fields)


def gemini(point: Point, name: str, **fields: Any) -> Event:
    return Event(agent="gemini", point=point, name=name, session="s-3", cwd="/work/tree", **fields)


def cursor(point: Point, name: str, **fields: Any) -> Event:
    where = {"session": "c-4", "turn": "g-4", "cwd": "/work/tree"}
    return Event(agent="cursor", point=point, name=name, **(where | fields))


def cline(point: Point, name: str, **fields: Any) -> Event:
    return Event(agent="cline", point=point, name=name, session="k-5", cwd="/work/tree", **fields)


def opencode(point: Point, name: str, **fields: Any) -> Event:
    return Event(
        agent="opencode", point=point, name=name, session="ses_6", turn="msg_6", cwd="/work/tree", **fields
    )


def hook(name: str, **fields: Any) -> Said:
    return {"hook_event_name": name, **fields}


STREAMS: list[Row] = [
    (
        "claude-code",
        CLAUDE | hook("UserPromptSubmit", prompt="\n  tidy up  \nthe rest"),
        claude(Point.OPEN, "UserPromptSubmit", prompt="tidy up"),
    ),
    (
        "claude-code",
        CLAUDE
        | hook("PreToolUse", tool_name="Write", tool_input={"file_path": "/work/tree/a", "content": "x"})
        | {"tool_use_id": "toolu_1"},
        claude(
            Point.BEFORE, "PreToolUse", calls=(Call(tool="Write", paths=("/work/tree/a",), call_id="toolu_1"),)
        ),
    ),
    (
        "claude-code",
        CLAUDE
        | hook("PreToolUse", tool_name="Bash", tool_input={"command": "rm -rf build", "timeout": 5000})
        | {"cwd": "/work/tree/sub", "agent_id": "a-7", "agent_type": "Explore"},
        claude(
            Point.BEFORE,
            "PreToolUse",
            cwd="/work/tree/sub",
            actor="a-7",
            calls=(Call(tool="Bash", command="rm -rf build", actor="a-7"),),
        ),
    ),
    (
        "claude-code",
        CLAUDE | hook("PreToolUse", tool_name="Read", tool_input={"file_path": "/work/tree/a"}),
        claude(Point.BEFORE, "PreToolUse", calls=(Call(tool="Read"),)),
    ),
    (
        "claude-code",
        CLAUDE
        | hook(
            "PostToolBatch",
            tool_calls=[
                {
                    "tool_name": "Edit",
                    "tool_input": {"file_path": "/work/tree/b", "old_string": "1", "new_string": "2"},
                    "tool_use_id": "toolu_2",
                    "tool_response": {"filePath": "/work/tree/b", "success": True},
                },
                None,
                {"tool_name": "NotebookEdit", "tool_input": {"notebook_path": "/work/tree/n.ipynb"}},
                {"tool_input": {"file_path": "/work/tree/nameless"}},
            ],
        ),
        claude(
            Point.AFTER,
            "PostToolBatch",
            calls=(
                Call(tool="Edit", paths=("/work/tree/b",), call_id="toolu_2"),
                Call(tool="NotebookEdit", paths=("/work/tree/n.ipynb",)),
            ),
        ),
    ),
    ("claude-code", CLAUDE | hook("Stop", stop_hook_active=False), claude(Point.CLOSE, "Stop")),
    (
        "claude-code",
        CLAUDE | hook("StopFailure", error="rate_limit"),
        claude(Point.CLOSE, "StopFailure", failed=True),
    ),
    ("claude-code", CLAUDE | hook("SessionEnd", reason="clear"), claude(Point.END, "SessionEnd")),
    ("codex", CODEX | hook("UserPromptSubmit", prompt="go"), codex(Point.OPEN, "UserPromptSubmit", prompt="go")),
    (
        "codex",
        CODEX | hook("PreToolUse", tool_name="apply_patch", tool_input={"command": PATCH}, tool_use_id="call_1"),
        codex(Point.BEFORE, "PreToolUse", calls=(Call(tool="apply_patch", paths=PATCHED, call_id="call_1"),)),
    ),
    (
        "codex",
        CODEX
        | hook("PostToolUse", tool_name="apply_patch", tool_input={"command": PATCH.replace("\n", "\r\n")})
        | {"tool_response": "Success"},
        codex(Point.AFTER, "PostToolUse", calls=(Call(tool="apply_patch", paths=PATCHED),)),
    ),
    (
        "codex",
        CODEX
        | hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, agent_id="w", agent_type="worker"),
        codex(Point.BEFORE, "PreToolUse", actor="w", calls=(Call(tool="Bash", command="ls", actor="w"),)),
    ),
    (
        "codex",
        CODEX | hook("SubagentStop", agent_id="w", agent_type="worker", agent_transcript_path=None),
        codex(Point.SUB_END, "SubagentStop", actor="w"),
    ),
    ("codex", CODEX | hook("Interrupt"), codex(Point.CLOSE, "Interrupt", interrupted=True)),
    ("codex", CODEX | hook("Stop", last_assistant_message=None), codex(Point.CLOSE, "Stop")),
    (
        "gemini",
        GEMINI | hook("BeforeAgent", prompt="make it so"),
        gemini(Point.OPEN, "BeforeAgent", prompt="make it so"),
    ),
    (
        "gemini",
        GEMINI | hook("BeforeTool", tool_name="run_shell_command", tool_input={"command": "git clean -fd"}),
        gemini(Point.BEFORE, "BeforeTool", calls=(Call(tool="run_shell_command", command="git clean -fd"),)),
    ),
    (
        "gemini",
        GEMINI
        | hook("AfterTool", tool_name="replace", tool_input={"file_path": "/work/tree/a", "new_string": ""})
        | {"tool_response": {"llmContent": [{"text": "ok"}], "returnDisplay": None}},
        gemini(Point.AFTER, "AfterTool", calls=(Call(tool="replace", paths=("/work/tree/a",)),)),
    ),
    (
        "gemini",
        GEMINI | hook("AfterAgent", prompt="make it so", prompt_response="done"),
        gemini(Point.CLOSE, "AfterAgent", prompt="make it so"),
    ),
    ("gemini", GEMINI | hook("BeforeModel", llm_request={}), gemini(Point.OTHER, "BeforeModel")),
    (
        "cursor",
        CURSOR | hook("beforeSubmitPrompt", prompt="fix it", attachments=[{"type": "file"}]),
        cursor(Point.OPEN, "beforeSubmitPrompt", prompt="fix it"),
    ),
    (
        "cursor",
        CURSOR | hook("beforeShellExecution", command="make clean", cwd="/work/tree/sub"),
        cursor(
            Point.BEFORE,
            "beforeShellExecution",
            cwd="/work/tree/sub",
            calls=(Call(tool="Shell", command="make clean"),),
        ),
    ),
    (
        "cursor",
        CURSOR | hook("afterFileEdit", file_path="/work/tree/a", edits=[{"old_string": "", "new_string": "x"}]),
        cursor(Point.AFTER, "afterFileEdit", calls=(Call(tool="Edit", paths=("/work/tree/a",)),)),
    ),
    (
        "cursor",
        CURSOR | hook("preToolUse", tool_name="Shell", tool_input={"command": "ls"}, tool_use_id="u-1", cwd=""),
        cursor(Point.BEFORE, "preToolUse", calls=(Call(tool="Shell", command="ls", call_id="u-1"),)),
    ),
    (
        "cursor",
        CURSOR | hook("beforeMCPExecution", tool_name="query", tool_input='{"sql": "x"}', command="npx server"),
        cursor(Point.BEFORE, "beforeMCPExecution", calls=(Call(tool="query"),)),
    ),
    ("cursor", CURSOR | hook("stop", status="completed", loop_count=0), cursor(Point.CLOSE, "stop")),
    ("cursor", CURSOR | hook("stop", status="aborted"), cursor(Point.CLOSE, "stop", interrupted=True)),
    ("cursor", CURSOR | hook("stop", status="error"), cursor(Point.CLOSE, "stop", failed=True)),
    (
        "cline",
        CLINE | {"hookName": "UserPromptSubmit", "userPromptSubmit": {"prompt": "hello", "attachments": []}},
        cline(Point.OPEN, "UserPromptSubmit", prompt="hello"),
    ),
    (
        "cline",
        CLINE
        | {
            "hookName": "PreToolUse",
            "preToolUse": {"toolName": "write_to_file", "parameters": {"path": "src/a.ts", "content": "x"}},
        },
        cline(Point.BEFORE, "PreToolUse", calls=(Call(tool="write_to_file", paths=("src/a.ts",)),)),
    ),
    (
        "cline",
        CLINE
        | {
            "hookName": "PostToolUse",
            "postToolUse": {
                "toolName": "execute_command",
                "parameters": {"command": "npm test", "requires_approval": "false"},
                "result": "",
                "success": True,
                "executionTimeMs": 12,
            },
        },
        cline(Point.AFTER, "PostToolUse", calls=(Call(tool="execute_command", command="npm test"),)),
    ),
    (
        "cline",
        CLINE
        | {
            "hookName": "PreToolUse",
            "preToolUse": {"toolName": "run_commands", "parameters": {"commands": ["cd x", 3, "rm -rf y"]}},
        },
        cline(Point.BEFORE, "PreToolUse", calls=(Call(tool="run_commands", command="cd x\nrm -rf y"),)),
    ),
    (
        "cline",
        CLINE | {"hookName": "TaskCancel", "taskCancel": {"taskMetadata": {}}},
        cline(Point.CLOSE, "TaskCancel", interrupted=True),
    ),
    (
        "opencode",
        OPENCODE | {"event": "chat.message", "prompt": "do", "agent": "build"},
        opencode(Point.OPEN, "chat.message", prompt="do"),
    ),
    (
        "opencode",
        OPENCODE
        | {"event": "tool.execute.before", "tool": "edit", "call": "x", "args": {"filePath": "/work/tree/a"}}
        | {"actor": "ses_7"},
        opencode(
            Point.BEFORE,
            "tool.execute.before",
            actor="ses_7",
            calls=(Call(tool="edit", paths=("/work/tree/a",), call_id="x", actor="ses_7"),),
        ),
    ),
    (
        "opencode",
        OPENCODE | {"event": "tool.execute.after", "tool": "apply_patch", "args": {"patchText": PATCH}},
        opencode(Point.AFTER, "tool.execute.after", calls=(Call(tool="apply_patch", paths=PATCHED),)),
    ),
    (
        "opencode",
        OPENCODE | {"event": "tool.execute.before", "tool": "bash", "args": {"command": "ls"}},
        opencode(Point.BEFORE, "tool.execute.before", calls=(Call(tool="bash", command="ls"),)),
    ),
    ("opencode", OPENCODE | {"event": "session.idle"}, opencode(Point.CLOSE, "session.idle")),
    (
        "opencode",
        OPENCODE | {"event": "session.error", "error": "MessageAbortedError"},
        opencode(Point.CLOSE, "session.error", interrupted=True),
    ),
    (
        "opencode",
        OPENCODE | {"event": "session.error", "error": "ProviderAuthError"},
        opencode(Point.CLOSE, "session.error", failed=True),
    ),
]


@pytest.mark.parametrize(
    ("agent", "said", "event"), STREAMS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_an_agent_sends_becomes_an_event(agent: str, said: Said, event: Event) -> None:
    assert registry.adapter(agent).decode(json.dumps(said).encode()) == event


@pytest.mark.parametrize(
    ("agent", "said", "event"), STREAMS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_not_known_changes_nothing(agent: str, said: Said, event: Event) -> None:
    """Nor does it matter whether the name of the event is in what is sent or on the command line."""
    adapter = registry.adapter(agent)
    more = {"unheard_of": {"deep": [None, {"tool_name": "Bash"}]}, "": None, "a.b": 1}
    unnamed = {key: value for key, value in said.items() if key != adapter.event[0]}
    assert adapter.decode(json.dumps(more | said).encode()) == event
    assert adapter.decode(json.dumps(unnamed).encode(), event.name) == event


@pytest.mark.parametrize("agent", registry.NAMES)
@pytest.mark.parametrize("instead", [None, 7, True, "", [], {}, [[]], [None], {"prompt": {}}], ids=repr)
def test_what_is_missing_or_of_another_type_is_as_if_it_were_not_there(agent: str, instead: object) -> None:
    adapter = registry.adapter(agent)
    said = next(said for name, said, event in STREAMS if name == agent and event.calls)
    for gone in said:
        event = adapter.decode(json.dumps({**said, gone: instead}).encode())
        assert event.agent == agent
        for call in event.calls:
            assert call.tool and all(call.paths)


@pytest.mark.parametrize("agent", registry.NAMES)
@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b'"text"', b"1", b"{", b"{} {}", b"\xff", b'{"a":' * 100_000 + b"1" + b"}" * 100_000],
    ids=lambda data: repr(data[:8]),
)
def test_what_is_no_object_is_refused(agent: str, data: bytes) -> None:
    with pytest.raises(UsageError):
        registry.adapter(agent).decode(data)


def test_what_is_no_utf8_is_read_all_the_same() -> None:
    adapter = registry.adapter("claude-code")
    event = adapter.decode(b'\xef\xbb\xbf{"hook_event_name": "UserPromptSubmit", "prompt": "caf\xe9 \\ud83d"}')
    assert (event.point, event.prompt) == (Point.OPEN, "caf\ufffd ?")


def test_a_huge_prompt_is_cut_to_its_first_line() -> None:
    adapter = registry.adapter("gemini")
    said = json.dumps({"hook_event_name": "BeforeAgent", "prompt": "\n" * 1000 + "x" * 5_000_000 + "\ny"})
    assert adapter.decode(said.encode()).prompt == "x" * MOST_TEXT


@given(
    data=st.dictionaries(
        st.sampled_from(["tool_name", "tool_input", "preToolUse", "status", "cwd", "tool_calls", "prompt"])
        | st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["command", "toolName"]) | st.text(), inner)
            ),
            max_leaves=8,
        ),
    ),
    agent=st.sampled_from(registry.NAMES),
    name=st.sampled_from(["", "stop", "PreToolUse", "session.error", "beforeShellExecution"]),
)
def test_any_object_decodes(data: Said, agent: str, name: str) -> None:
    event = registry.adapter(agent).decode(json.dumps(data).encode(), name)
    assert isinstance(event, Event)


@given(st.binary(max_size=200), st.sampled_from(registry.NAMES))
def test_nothing_but_a_usage_error_is_raised(data: bytes, agent: str) -> None:
    try:
        registry.adapter(agent).decode(data)
    except UsageError:
        pass


def test_a_patch_names_each_path_once() -> None:
    assert patched("*** Update File: a\n*** Update File: a\r\n*** Add File:  \n") == ("a",)


def test_an_unknown_agent_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        registry.adapter("../codex")
    assert all(name in str(caught.value.hint) for name in registry.NAMES)


@pytest.mark.parametrize("agent", registry.NAMES)
def test_what_is_answered_is_what_the_agent_reads(agent: str) -> None:
    adapter = registry.adapter(agent)
    assert adapter.name == agent
    assert not adapter.silence or isinstance(json.loads(adapter.silence), dict)
    for answer in (
        adapter.context and adapter.context("Stop", "text"),
        adapter.notice and adapter.notice("text"),
        adapter.asks and adapter.asks("text"),
    ):
        assert answer is None or "text" in json.dumps(answer)
