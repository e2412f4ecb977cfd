"""`putback hook`."""

from __future__ import annotations

import click

from putback.cli import call, hook


@click.command(epilog="\b\nExample:\n  putback hook claude-code < event.json")
@click.argument("agent")
@click.argument("event", required=False, default="")
@call.command
def command(here: call.Call, agent: str, event: str) -> int:
    """Tell putback of an event of a coding agent, on standard input. Agents call it, once `agent install` is done.

    A turn is captured before its prompt is worked on and after the agent stops. Nothing is printed that the agent
    has no need of, and it always succeeds: what went wrong, `status` tells.
    """
    return hook.hook(agent, event, here.store)
