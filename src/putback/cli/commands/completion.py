"""`putback completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from putback.cli import call, jsonout


@click.command(epilog='\b\nExample:\n  eval "$(putback completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@call.command
def command(here: call.Call, shell: str) -> None:
    """Print the script that gives your shell completion for putback."""
    from putback.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "putback", "_PUTBACK_COMPLETE").source()
    if here.json:
        jsonout.write({"shell": shell, "script": script})
    else:
        click.echo(script)
