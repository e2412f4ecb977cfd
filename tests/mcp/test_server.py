"""The MCP server over real standard streams, driven by the SDK's own client."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from putback.cli.main import run
from putback.workspace import Workspace
from support.hermetic import make_repository, unmoved
from support.serving import Serving, words
from support.trees import create, read_back, same
from support.waiting import until

pytestmark = pytest.mark.requirement("K15")

TREE = {"a": "1\n2\n", "d/b": "b\n", "run.sh": "#!/bin/sh\n"}
READING = {"snapshot_list", "snapshot_diff", "snapshot_show", "snapshot_restore_plan", "snapshot_status"}
NAMES = [
    "snapshot_create",
    "snapshot_list",
    "snapshot_diff",
    "snapshot_show",
    "snapshot_restore_plan",
    "snapshot_restore_apply",
    "snapshot_status",
]
NO_DIGEST = "0" * 64


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("mcp"), "store.lock_wait_seconds=0.2").served() as server:
        yield server
        assert server.errors == ""


@pytest.fixture
def server(shared: Serving) -> Iterator[Serving]:
    """The one server of all these tests, with a workspace that is new."""
    shared.clear()
    yield shared
    shared.mend()


def plan(server: Serving, **arguments: Any) -> dict[str, Any]:
    return server.done("snapshot_restore_plan", **arguments)


def everything(server: Serving, tool: str, field: str, **arguments: Any) -> list[dict[str, Any]]:
    """All pages of a list."""
    items: list[dict[str, Any]] = []
    offset: int | None = 0
    while offset is not None:
        page = server.done(tool, offset=offset, **arguments)[field]
        offset = page.get("next_offset")
        assert page["items"] and page["truncated"] == (offset is not None or bool(items))
        items += page["items"]
        assert page["total"] >= len(items)
    return items


def test_the_tools_are_listed_in_order_with_hints_and_schemas(server: Serving) -> None:
    tools = server.listing()
    assert [tool.name for tool in tools] == NAMES
    assert [tool.model_dump() for tool in server.listing()] == [tool.model_dump() for tool in tools]
    for tool in tools:
        hints = tool.annotations
        assert hints is not None and tool.title and tool.description
        assert hints.read_only_hint is (tool.name in READING)
        assert hints.destructive_hint is (tool.name == "snapshot_restore_apply")
        assert hints.idempotent_hint is (tool.name != "snapshot_create")
        assert hints.open_world_hint is False
        asks = tool.name == "snapshot_restore_apply"
        assert tool.meta == ({"anthropic/requiresUserInteraction": True} if asks else None)
        for schema in (tool.input_schema, tool.output_schema):
            assert schema is not None and schema["type"] == "object"
            Draft202012Validator.check_schema(schema)
        assert tool.input_schema["additionalProperties"] is False


def test_a_snapshot_is_taken_listed_compared_and_shown(server: Serving) -> None:
    make_repository(server.root, TREE)
    with unmoved(server.root):
        taken = server.done("snapshot_create", message="before")
        assert taken["entry"]["files"] == taken["coverage"]["files"] == 3
        server.done("snapshot_create", message="part", paths=["d/"])
        listed = server.done("snapshot_list")["entries"]
        assert [(entry["place"], entry["message"]) for entry in listed["items"]] == [
            ("@1", "part"),
            ("@2", "before"),
        ]
        assert listed["items"][1]["id"] == taken["entry"]["id"] and listed["items"][0]["scoped"]
        (server.root / "a").write_text("1\n3\n")
        differs = server.done("snapshot_diff", id="@2")
        assert differs["changes"]["items"][0]["status"] == "modified"
        assert "-3\n+2\n" in differs["patch"]["text"] and not differs["patch"]["truncated"]
        assert "patch" not in server.done("snapshot_diff", id="@2", patch=False)
        assert server.done("snapshot_diff", id="@2", paths=["d"])["changes"]["total"] == 0
        shown = server.done("snapshot_show", id=taken["entry"]["id"][:12])
        assert shown["entry"]["message"] == "before" and shown["coverage"]["not_covered"]["total"] == 0


def test_the_status_says_whether_and_where(server: Serving) -> None:
    status = server.done("snapshot_status")
    assert (status["protected"], status["root"], status["entries"]) == (False, str(server.root), 0)
    create(server.root, TREE)
    server.done("snapshot_create")
    status = server.done("snapshot_status")
    assert status["protected"] and status["last"]["kind"] == "snapshot"
    assert status["store"]["path"] == str(server.store) and status["store"]["bytes"] > 0


def test_what_was_reviewed_is_done_and_can_be_undone(server: Serving) -> None:
    make_repository(server.root, TREE)
    server.done("snapshot_create")
    (server.root / "a").write_text("wrong\n")
    (server.root / "d" / "b").unlink()
    (server.root / "new").write_text("new\n")
    broken = read_back(server.root)
    with unmoved(server.root):
        made = plan(server, id="@1")
        assert plan(server, id="@1")["digest"] == made["digest"]
        assert made["would_change"] == 2 and made["root"] == str(server.root)
        actions = [(effect["path"], effect["action"]) for effect in made["effects"]["items"]]
        assert actions == [("a", "restore"), ("d/b", "recreate"), ("new", "leave")]
        same(read_back(server.root), broken)
        done = server.done("snapshot_restore_apply", id="@1", digest=made["digest"])
        assert (done["applied"], done["not_applied"]) == (2, 0)
        same(read_back(server.root), {**TREE, "new": "new\n"})
        assert server.fault("snapshot_restore_apply", id="@1", digest=made["digest"])["code"] == "stale"
        assert run(["-C", str(server.root), "--store", str(server.store), "undo", "--yes"]) == 0
        same(read_back(server.root), broken)


def test_a_restore_is_bounded_by_paths_and_exact_removes(server: Serving) -> None:
    create(server.root, TREE)
    server.done("snapshot_create")
    create(server.root, {"a": "x\n", "d/b": "x\n", "new": "new\n"})
    asked = {"id": "@1", "paths": ["d", "new"], "exact": True}
    made = plan(server, **asked)
    assert made["counts"] == {"restore": 1, "remove": 1}
    assert server.fault("snapshot_restore_apply", id="@1", digest=made["digest"])["code"] == "stale"
    server.done("snapshot_restore_apply", digest=made["digest"], **asked)
    same(read_back(server.root), {**TREE, "a": "x\n"})


@pytest.mark.parametrize("change", ["content", "mode", "more", "less"])
def test_a_tree_that_changes_after_the_review_is_not_touched(server: Serving, change: str) -> None:
    create(server.root, TREE)
    server.done("snapshot_create")
    (server.root / "a").write_text("wrong\n")
    made = plan(server, id="@1")
    if change == "content":
        (server.root / "a").write_text("since\n")
    elif change == "mode":
        (server.root / "a").chmod(0o600)
    elif change == "more":
        (server.root / "d" / "b").write_text("since\n")
    else:
        (server.root / "a").write_text(TREE["a"])
    before = read_back(server.root)
    fault = server.fault("snapshot_restore_apply", id="@1", digest=made["digest"])
    assert fault["code"] == "stale" and made["digest"][:12] in fault["message"] and fault["hint"]
    same(read_back(server.root), before)
    assert [entry["kind"] for entry in server.done("snapshot_list")["entries"]["items"]] == ["snapshot"]


def test_drift_is_refused_as_a_whole_and_forced_when_asked(server: Serving) -> None:
    create(server.root, TREE)
    server.done("snapshot_create")
    (server.root / "a").write_text("changed\n")
    server.done("snapshot_create")
    (server.root / "a").write_text("since\n")
    made = plan(server, id="@2..@1")
    assert made["counts"] == {"refuse": 1} and "changed since" in made["effects"]["items"][0]["reason"]
    fault = server.fault("snapshot_restore_apply", id="@2..@1", digest=made["digest"])
    assert fault["code"] == "refused" and "changed since" in fault["message"]
    assert (server.root / "a").read_text() == "since\n"
    forced = plan(server, id="@2..@1", force=True)
    server.done("snapshot_restore_apply", id="@2..@1", force=True, digest=forced["digest"])
    same(read_back(server.root), TREE)


def test_failures_are_results(server: Serving) -> None:
    assert server.fault("snapshot_diff")["code"] == "unknown_id"
    create(server.root, TREE)
    server.done("snapshot_create")
    for tool in ("snapshot_show", "snapshot_diff", "snapshot_restore_plan"):
        for asked in ("@9", "f" * 12):
            assert server.fault(tool, id=asked)["code"] == "unknown_id", (tool, asked)
        for asked in ("-x", "HEAD", ""):
            assert server.fault(tool, id=asked)["code"] == "malformed_id", (tool, asked)
    assert server.fault("snapshot_diff", id="@1..")["code"] == "malformed_id"
    assert server.fault("snapshot_restore_plan", id="@1", paths=["nowhere"])["code"] == "unsafe_path"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("snapshot_list", {"limit": 0}),
        ("snapshot_list", {"limit": 1_000_000}),
        ("snapshot_list", {"offset": -1}),
        ("snapshot_list", {"limit": "many"}),
        ("snapshot_list", {"directory": "/etc"}),
        ("snapshot_create", {"message": "x" * 3000}),
        ("snapshot_create", {"paths": "a"}),
        ("snapshot_create", {"paths": [1]}),
        ("snapshot_diff", {"patch_bytes": 10**9}),
        ("snapshot_restore_plan", {}),
        ("snapshot_restore_apply", {"id": "@1"}),
        ("snapshot_restore_apply", {"id": "@1", "digest": "0123456"}),
        ("snapshot_restore_everything", {}),
    ],
)
def test_wrong_arguments_are_named(server: Serving, tool: str, arguments: dict[str, Any]) -> None:
    assert server.fault(tool, **arguments)["code"] == "usage"
    assert not server.store.exists()


HOSTILE = ["/etc/passwd", "/", "//", "..", "../x", "d/../../x", "./a", ".", "", "a//b", "a\0b"]
HOSTILE += [".git", "d/.git/config", ".GIT"]


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("snapshot_create", {}),
        ("snapshot_diff", {}),
        ("snapshot_restore_plan", {"id": "@1"}),
        ("snapshot_restore_apply", {"id": "@1", "digest": NO_DIGEST}),
    ],
)
def test_no_argument_names_another_tree(server: Serving, tool: str, more: dict[str, Any]) -> None:
    make_repository(server.root, TREE)
    Workspace.open(server.root, store=server.store).snapshot()
    with unmoved(server.root):
        for path in (*HOSTILE, str(server.root / "a")):
            assert server.fault(tool, paths=["a", path], **more)["code"] == "unsafe_path", path
        for encoded in ("Li4vYQ==", "not base64", ""):
            assert server.fault(tool, paths_b64=[encoded], **more)["code"] == "unsafe_path", encoded
    assert len(Workspace.open(server.root, store=server.store).list()) == 1


def test_names_that_are_no_text_come_and_go_in_base64(server: Serving) -> None:
    create(server.root, {b"\xff": "1\n", "x": "1\n"})
    server.done("snapshot_create")
    create(server.root, {b"\xff": "2\n", "x": "2\n"})
    change = server.done("snapshot_diff")["changes"]["items"][-1]
    assert change["path"] == "\\xff"
    asked = {"id": "@1", "paths_b64": [change["path_b64"]]}
    server.done("snapshot_restore_apply", digest=plan(server, **asked)["digest"], **asked)
    same(read_back(server.root), {b"\xff": "1\n", "x": "2\n"})


def test_thousands_of_changes_come_in_pages(server: Serving) -> None:
    create(server.root, {f"d{number % 7}/{number:04}": f"{number}\n" for number in range(2000)})
    server.done("snapshot_create")
    for path in server.root.glob("d?/*"):
        path.write_text("changed\n")
    result = server.call("snapshot_diff")
    assert len(words(result)) < 60_000 and "so far" in words(result)
    assert len(json.dumps(result.structured_content)) < 60_000
    assert server.done("snapshot_diff", patch=False, limit=1)["changes"]["total"] == 2000
    changes = everything(server, "snapshot_diff", "changes", patch=False, limit=1000, paths=["d0", "d6"])
    assert len({change["path"] for change in changes}) == len(changes) > 500
    first = plan(server, id="@1", limit=5)
    assert (len(first["effects"]["items"]), first["effects"]["next_offset"], first["would_change"]) == (5, 5, 2000)
    last = plan(server, id="@1", offset=1998)
    assert [effect["path"] for effect in last["effects"]["items"]] == [change["path"] for change in changes[-2:]]
    assert last["digest"] == first["digest"] and "next_offset" not in last["effects"]
    done = server.done("snapshot_restore_apply", id="@1", digest=first["digest"], limit=7)
    assert (done["applied"], len(done["outcomes"]["items"]), done["outcomes"]["total"]) == (2000, 7, 2000)


def test_a_long_patch_comes_in_pieces(server: Serving) -> None:
    create(server.root, {"text": "".join(f"line {number} ä\n" for number in range(8000)), "one": "é" * 9001})
    server.done("snapshot_create")
    create(server.root, {"text": "", "one": ""})
    text, offset = "", 0
    while True:
        piece = server.done("snapshot_diff", patch_offset=offset, patch_bytes=50_001)["patch"]
        assert len(piece["text"].encode()) <= 50_001 and piece["truncated"]
        text += piece["text"]
        if "next_offset" not in piece:
            break
        offset = piece["next_offset"]
    whole = Workspace.open(server.root, store=server.store).diff().patch
    assert text == whole.decode() and piece["total_bytes"] == len(whole)


def test_a_locked_workspace_is_said_to_be(server: Serving) -> None:
    create(server.root, TREE)
    server.done("snapshot_create")
    with open(Workspace.open(server.root, store=server.store).paths.lock) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for tool, more in (("snapshot_create", {}), ("snapshot_restore_plan", {"id": "@1"})):
            fault = server.fault(tool, **more)
            assert fault["code"] == "locked" and "another process" in fault["message"]
    server.done("snapshot_create")


def test_a_full_store_refuses_with_both_numbers(tmp_path: Path) -> None:
    with Serving(tmp_path, "store.max_bytes=200000").served() as server:
        create(server.root, {"a": os.urandom(300_000)})
        fault = server.fault("snapshot_create")
        assert fault["code"] == "over_budget" and fault["hint"]
        assert server.done("snapshot_list")["entries"]["total"] == 0


@pytest.mark.requirement("K14")
def test_without_git_it_serves_and_says_so(tmp_path: Path) -> None:
    with Serving(tmp_path, path="/nonexistent", mode="legacy").served() as server:
        assert [tool.name for tool in server.listing()] == NAMES
        needs = {"snapshot_show": {"id": "@1"}, "snapshot_restore_plan": {"id": "@1"}}
        needs["snapshot_restore_apply"] = {"id": "@1", "digest": NO_DIGEST}
        for name in NAMES:
            fault = server.fault(name, **needs.get(name, {}))
            assert fault["code"] == "git_unavailable" and "unavailable" in fault["message"], name


@pytest.mark.requirement("K16")
def test_a_call_that_is_given_up_stops_and_leaves_nothing(server: Serving) -> None:
    create(server.root, TREE)
    server.done("snapshot_create")
    (server.root / "a").write_text("wrong\n")
    digest = plan(server, id="@1")["digest"]
    before = read_back(server.root)
    server.hang()
    for tool, more in (("snapshot_create", {}), ("snapshot_restore_apply", {"id": "@1", "digest": digest})):
        assert server.given_up(tool, 1.0, **more)
    server.mend()
    same(read_back(server.root), before)
    assert server.done("snapshot_list")["entries"]["total"] == 1
    assert "interrupted" not in server.done("snapshot_status")
    server.done("snapshot_restore_apply", id="@1", digest=digest)


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


HELLO = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
)


def asking(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def started(server: Serving) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        server.command,
        env=server.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_standard_output_has_the_protocol_and_nothing_else(tmp_path: Path) -> None:
    server = Serving(tmp_path)
    create(server.root, {**TREE, ".putback.toml": "[capture]\nno-such-key = 1\n"})
    with started(server) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(lines(*HELLO, asking("snapshot_create")))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        rest, said = process.stdout.read(), process.stderr.read().decode()
    assert [answer["id"] for answer in answers] == [1, 2] and rest == b""
    assert str(server.root) in answers[0]["result"]["instructions"]
    assert answers[1]["result"]["isError"] is False
    assert "settings ignored" in said and "no-such-key" in said and "Traceback" not in said
    assert process.returncode == 0


@pytest.mark.requirement("K16")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "end"])
def test_a_server_that_is_ended_stops_what_is_at_work(tmp_path: Path, how: str) -> None:
    server = Serving(tmp_path)
    create(server.root, TREE)
    server.hang()
    with started(server) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(lines(*HELLO, asking("snapshot_create")))
            process.stdin.flush()
            until(lambda: children(process.pid), 20)
            if how == "end":
                process.stdin.close()
            else:
                process.send_signal(signal.Signals[how])
            code = process.wait(10)
        finally:
            process.kill()
    assert code == {"SIGTERM": 143, "SIGINT": 130, "end": 0}[how]
    server.mend()
    assert Workspace.open(server.root, store=server.store).list() == []


def children(pid: int) -> str:
    """The processes that any thread of a process has started."""
    return "".join(file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children"))
