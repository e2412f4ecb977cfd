"""One call of the command line: the global options, and how its commands reach the workspace and the person."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec

from putback.cli.watch import Watch
from putback.workspace import Workspace

P = ParamSpec("P")
R = TypeVar("R")


class Call(msgspec.Struct, dict=True):
    """What the global options say. The workspace is opened when a command first needs it.

    `strict` commands refuse to run with faulty settings; the others warn and go on without.
    """

    directory: str = "."
    store: str | None = None
    pairs: tuple[str, ...] = ()
    json: bool = False
    verbosity: int = 0
    strict: bool = False
    watch: Watch = msgspec.field(default_factory=Watch)

    @cached_property
    def workspace(self) -> Workspace:
        """The workspace of this call. Raises PutbackError."""
        return self.workspace_at(self.directory)

    def workspace_at(self, directory: str) -> Workspace:
        """The workspace around another directory, with the same options. Raises PutbackError."""
        return Workspace.open(
            directory,
            store=self.store or os.environ.get("PUTBACK_STORE") or None,
            overrides=self.pairs,
            forgive=None if self.strict else lambda fault: self.note(f"warning: settings ignored: {fault}"),
            progress=self.watch,
        )

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked: both ends are a terminal and the output is for people."""
        return not self.json and sys.stdin.isatty() and sys.stdout.isatty()

    def ask(self, question: str) -> bool:
        """Ask a person yes or no; Ctrl-C leaves the command."""
        with self.watch.interruptible():
            return click.confirm(question, default=False)

    def retain(self) -> None:
        """After a capture: let configured retention do its work, and tell once where it cannot."""
        news = self.workspace.upkeep.retain()
        if news:
            self.note(f"note: {news}")

    def note(self, text: str) -> None:
        """A line beside the result, on standard error; silent with -q."""
        if self.verbosity >= 0:
            click.echo(text, err=True)


def command(function: Callable[Concatenate[Call, P], R]) -> Callable[P, R]:
    """Give a click command the Call as its first argument."""

    def run(*args: Any, **options: Any) -> R:
        call = click.get_current_context().find_object(Call)
        assert call is not None
        return function(call, *args, **options)

    return update_wrapper(run, function)
