"""The `putback-mcp` command: its arguments, and what it says where it cannot serve. Standard output is the
protocol's alone; whatever there is to say goes to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType

import click

from putback import faultlog, paths
from putback.errors import PutbackError
from putback.version import __version__

UNAVAILABLE, INTERNAL, INTERRUPTED = 69, 70, 130
_OF_THE_EXTRA = ("mcp", "mcp_types", "anyio", "pydantic")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample, for Claude Code (docs/mcp.md has other clients):\n"
    "  claude mcp add putback -- putback-mcp -C .",
)
@click.option("-C", "directory", metavar="DIR", default=".", help="The workspace: the git work tree around DIR.")
@click.option("--store", metavar="DIR", help="Where captures are kept ($PUTBACK_STORE, else the user's state).")
@click.option("-c", "pairs", metavar="KEY=VALUE", multiple=True, help="Set one configuration value.")
@click.version_option(__version__, message="putback-mcp %(version)s")
def cli(directory: str, store: str | None, pairs: Sequence[str]) -> int:
    """Serve snapshots of one workspace, and their restore, to an agent: an MCP server on its standard streams.

    The workspace and the settings are those of the start. Tools cannot reach any other tree.
    """
    server = _server()
    if server is None:
        return _report(
            "the MCP server needs the package mcp, 2.3 or newer and older than 3",
            "`pip install '.[mcp]'` in a clone installs it",
            UNAVAILABLE,
        )
    # Imported here because it does not exist on Windows.
    from putback.workspace import Workspace

    server.serve(
        lambda progress: Workspace.open(
            directory,
            store=store or os.environ.get("PUTBACK_STORE") or None,
            overrides=pairs,
            forgive=lambda fault: _say(f"warning: settings ignored: {fault}"),
            progress=progress,
        )
    )
    return 0


def main() -> None:
    """The console entry point: every error becomes a message and an exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Serve, and return the exit code."""
    if sys.platform == "win32":
        return _report("Windows is not supported", "use it inside WSL", UNAVAILABLE)
    try:
        code = cli.main(arguments, prog_name="putback-mcp", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PutbackError as error:
        return _report(error.message, error.hint, error.exit_code)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.UsageError as error:
        return _report(error.format_message().rstrip("."), "`putback-mcp --help` tells more", 2)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception:
        return _report("internal error", f"details are in {faultlog.write()}", INTERNAL)


def _server() -> ModuleType | None:
    """The module that serves; None where the SDK is not installed, or another version of it."""
    try:
        from putback.mcp_server import server
    except ImportError as error:
        if (error.name or "").split(".")[0] in _OF_THE_EXTRA:
            return None
        raise
    return server


def _say(text: str) -> None:
    click.echo(f"putback: {paths.printable(text.encode('utf-8', 'backslashreplace'))}", err=True)


def _report(message: str, hint: str | None, exit_code: int) -> int:
    _say(message)
    if hint:
        click.echo(f"  {paths.printable(hint.encode('utf-8', 'backslashreplace'))}", err=True)
    return exit_code
