"""The tools over the protocol, on standard input and output. The one place that knows the SDK."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from putback.mcp_server import schema, tools
from putback.mcp_server.turnstile import Stoppable, Turnstile
from putback.paths import quote
from putback.progress import Progress
from putback.version import __version__
from putback.workspace import Workspace

INSTRUCTIONS = """\
putback captures the files of one workspace and puts them back exactly, without touching the user's git.
The workspace is {root}; paths are relative to it. Take a snapshot before wide or risky changes. To put files
back, call snapshot_restore_plan, show the user what would change, then call snapshot_restore_apply with the same
arguments and the digest of the plan."""


def serve(opened: Callable[[Progress], Workspace]) -> None:
    """Serve until standard input ends. `opened` gives the workspace, with the progress that it is to have.

    Raises what `opened` raises, before anything is served.
    """
    progress = Stoppable()
    anyio.run(_serve, opened(progress), Turnstile(progress))


def make(workspace: Workspace, turnstile: Turnstile) -> Server[Any]:
    """The server, without a transport."""
    listing = [_describe(tool) for tool in tools.TOOLS]

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listing)

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        answer = await turnstile.run(partial(tools.call, workspace, params.name, params.arguments))
        return CallToolResult(
            content=[TextContent(type="text", text=answer.text)],
            structured_content=answer.structured,
            is_error=answer.failed,
        )

    return Server(
        "putback",
        version=__version__,
        title="putback",
        instructions=INSTRUCTIONS.format(root=quote(os.fsencode(workspace.root))),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _serve(workspace: Workspace, turnstile: Turnstile) -> None:
    server = make(workspace, turnstile)
    async with anyio.create_task_group() as group:
        group.start_soon(_leave_on_signal, turnstile)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        group.cancel_scope.cancel()


async def _leave_on_signal(turnstile: Turnstile) -> None:
    """End at the next safe place of the call at work. A thread that reads standard input cannot be stopped, so the
    process ends without waiting for it."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            await turnstile.close()
            os._exit(128 + number)


def _describe(tool: tools.Tool[Any]) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema.of_arguments(tool.takes),
        output_schema=schema.of_result(tool.gives),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.settled,
            open_world_hint=False,
        ),
        # Claude Code asks the user at every call of such a tool, whatever was allowed before.
        _meta={"anthropic/requiresUserInteraction": True} if tool.destroys else None,
    )
