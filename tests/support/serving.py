"""`putback-mcp` as a process, and the SDK's own client to it, for tests that are not asynchronous."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, Tool

from mcp import Client, StdioServerParameters


class Serving:
    """A server of the tree `base/tree` with the store `base/store`; `base/git` is what it finds as git.

    That git is the real one, until `hang` makes it hang.
    """

    def __init__(self, base: Path, *settings: str, path: str | None = None, mode: str = "auto") -> None:
        self.base, self.root, self.store = base, base / "tree", base / "store"
        self.root.mkdir(parents=True, exist_ok=True)
        self._hangs = base / "hangs"
        self.path = self._git() if path is None else path
        self.command = [
            sys.executable,
            "-m",
            "putback.mcp_server",
            "-C",
            str(self.root),
            "--store",
            str(self.store),
        ]
        for setting in ("store.min_free_bytes=0", *settings):
            self.command += ["-c", setting]
        self.environment = {"PATH": self.path, "HOME": str(base)}
        self._mode: Any = mode
        self._portal: BlockingPortal | None = None
        self._client: Client | None = None

    @contextmanager
    def served(self) -> Iterator[Serving]:
        """Start it, and end it the way that clients do: by the end of its input."""
        parameters = StdioServerParameters(
            command=self.command[0], args=self.command[1:], env=self.environment, cwd=self.base
        )
        with ExitStack() as stack:
            errors = stack.enter_context(open(self.base / "errors", "w"))
            self._portal = stack.enter_context(start_blocking_portal())
            client = Client(stdio_client(parameters, errlog=errors), mode=self._mode, read_timeout_seconds=60)
            self._client = stack.enter_context(self._portal.wrap_async_context_manager(client))
            yield self

    @property
    def errors(self) -> str:
        """What it wrote to standard error."""
        return (self.base / "errors").read_text()

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        """Call a tool; the client checks the result against the tool's schema."""
        assert self._portal is not None and self._client is not None
        return self._portal.call(self._client.call_tool, tool, arguments)

    def done(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a call that does not fail, and that has words, too."""
        result = self.call(tool, **arguments)
        assert not result.is_error, words(result)
        assert words(result)
        return dict(result.structured_content)

    def fault(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The error of a call that fails, which its words name."""
        return fault(self.call(tool, **arguments))

    def given_up(self, tool: str, after: float, **arguments: Any) -> bool:
        """Call a tool and cancel the call after some seconds; whether it was at work, and others were answered."""
        assert self._portal is not None and self._client is not None
        return self._portal.call(self._give_up, tool, after, arguments)

    async def _give_up(self, tool: str, after: float, arguments: dict[str, Any]) -> bool:
        assert self._client is not None
        answered = False
        with anyio.move_on_after(after) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._client.call_tool, tool, arguments)
                answered = bool((await self._client.list_tools()).tools)
        return scope.cancelled_caught and answered

    def listing(self) -> list[Tool]:
        """The tools that it offers."""
        assert self._portal is not None and self._client is not None
        return self._portal.call(self._client.list_tools).tools

    def hang(self) -> None:
        """From now on, every git of the server hangs."""
        self._hangs.touch()

    def mend(self) -> None:
        self._hangs.unlink(missing_ok=True)

    def clear(self) -> None:
        """A tree with nothing in it, and no store."""
        self.mend()
        for place in (self.root, self.store):
            shutil.rmtree(place, ignore_errors=True)
        self.root.mkdir()

    def _git(self) -> str:
        real = shutil.which("git")
        program = self.base / "git" / "git"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\n[ -e "{self._hangs}" ] && exec sleep 600\nexec "{real}" "$@"\n')
        program.chmod(0o755)
        return f"{program.parent}:{os.environ['PATH']}"


def words(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def fault(result: CallToolResult) -> dict[str, Any]:
    assert result.is_error, words(result)
    error = dict(result.structured_content["error"])
    assert error.keys() == {"code", "message", "hint"}
    assert words(result).startswith(f"{error['code']}: {error['message']}") and "Traceback" not in words(result)
    return error
