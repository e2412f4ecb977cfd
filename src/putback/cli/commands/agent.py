"""`putback agent …`: protect the turns of a coding agent."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from putback import paths
from putback.agents import doctor as checks
from putback.agents import install as installing
from putback.agents import probe
from putback.agents.commands import running
from putback.agents.draft import Installed, Site
from putback.agents.places import Scope
from putback.agents.registry import NAMES
from putback.cli import call, jsonout
from putback.cli.call import Call
from putback.errors import StorageError
from putback.git import user_repo
from putback.store.layout import default_store

F = TypeVar("F", bound=Callable[..., Any])

OK, FAULTY = 0, 1
FIRE_SECONDS = 60
_COLOURS = {checks.Result.PASS: "green", checks.Result.WARN: "yellow", checks.Result.FAIL: "red"}


@click.group(
    epilog="\b\nExample:\n  putback agent install claude-code --user\n  putback agent doctor claude-code --user"
)
def command() -> None:
    """Have a coding agent tell putback of its turns, so that each can be shown and taken back.

    Its own settings are where that is said: only our lines are put in, and only they are taken out again.
    """


def _agent(function: F) -> F:
    user = click.option("--user", "scope", flag_value="user", help="In your own settings: all your projects.")
    project = click.option(
        "--project", "scope", flag_value="project", default="project", help="In this project's (the default)."
    )
    return click.argument("agent", metavar="AGENT", type=click.Choice(NAMES))(user(project(function)))


_DRY_RUN = click.option("--dry-run", "-n", is_flag=True, help="Show what would change, and change nothing.")


@command.command(
    "install",
    short_help="Put our hooks into the settings of AGENT.",
    epilog="\b\nExample:\n  putback agent install codex --user --dry-run",
)
@_agent
@_DRY_RUN
@call.command
def install(here: Call, agent: str, scope: str, dry_run: bool) -> int:
    """Put our hooks into the settings of AGENT; again, and nothing changes."""
    return _carried_out(here, installing.draft(agent, Scope(scope), site(here)), dry_run, "installed in")


@command.command(
    "uninstall",
    short_help="Take our hooks out of the settings of AGENT.",
    epilog="\b\nExample:\n  putback agent uninstall codex --user",
)
@_agent
@_DRY_RUN
@call.command
def uninstall(here: Call, agent: str, scope: str, dry_run: bool) -> int:
    """Take our hooks out of the settings of AGENT; everything else stays as it is."""
    return _carried_out(here, installing.draft_removal(agent, Scope(scope), site(here)), dry_run, "removed from")


@command.command(
    "doctor",
    short_help="Check that the hooks of AGENT are in place and work.",
    epilog="\b\nExample:\n  putback agent doctor gemini --user",
)
@_agent
@call.command
def doctor(here: Call, agent: str, scope: str) -> int:
    """Check that the hooks of AGENT are in place and work; exits with 1 where a check fails.

    The hook is fired in a directory of its own, with a store of its own: nothing of yours is captured.
    """
    store = Path(here.store or os.environ.get("PUTBACK_STORE") or default_store())
    with tempfile.TemporaryDirectory(prefix="putback-doctor-") as scratch:
        root = Path(scratch, "project")
        root.mkdir()
        (root / "file").write_bytes(b"1\n")
        found = checks.doctor(
            agent, Scope(scope), site(here), store, lambda argv, event: fire(argv, event, root), root
        )
    if here.json:
        fields = [
            {"name": item.name, "result": str(item.result), "detail": item.detail, "hint": item.hint}
            for item in found
        ]
        jsonout.write({"checks": fields, "failed": any(item.result is checks.Result.FAIL for item in found)})
    else:
        for item in found:
            word = click.style(f"{item.result.upper():<4}", fg=_COLOURS[item.result])
            click.echo(f"{word}  {item.name}{f': {_words(item.detail)}' if item.detail else ''}")
            if item.hint and item.result is not checks.Result.PASS:
                click.echo(f"      {_words(item.hint)}")
    return FAULTY if any(item.result is checks.Result.FAIL for item in found) else OK


def fire(argv: list[str], event: bytes, root: Path) -> checks.FireResult:
    """Run the command line of a hook as an agent does, in a project of its own whose store is beside it."""
    store = root.parent / "store"
    environment = {**os.environ, "PUTBACK_STORE": str(store)}
    said = probe.ask(argv, cwd=root, environment=environment, seconds=FIRE_SECONDS, given=event)
    captured = any(path.is_file() for path in (store / "objects.git" / "refs" / "putback").rglob("*"))
    return checks.FireResult(said.code, said.output, said.error, captured)


def site(here: Call) -> Site:
    """The project is the git work tree around the directory, else the directory; home and program are our own.

    Raises StorageError where there is no such directory.
    """
    start = os.path.realpath(os.fsencode(here.directory))
    if not os.path.isdir(start):
        raise StorageError(f"no such directory: {paths.quote(start)}")
    root = Path(os.fsdecode(user_repo.toplevel(start) or start))
    return Site(root, Path.home(), running(sys.argv[0], sys.executable), dict(os.environ))


def _carried_out(here: Call, drafted: Installed, dry_run: bool, done: str) -> int:
    if not dry_run:
        installing.carry_out(drafted)
    diffs = [edit.diff() for edit in drafted.edits if edit.changes and not edit.backup] if dry_run else []
    if here.json:
        fields = {"agent": drafted.agent, "scope": str(drafted.scope), "done": not dry_run, "notes": drafted.notes}
        files = [jsonout.path_fields(os.fsencode(path)) for path in drafted.changed]
        jsonout.write({**fields, "changed": files, "diff": "".join(diffs) if dry_run else None})
        return OK
    for diff in diffs:
        click.echo("\n".join(_words(line) for line in diff.splitlines()))
    for path in () if dry_run else drafted.changed:
        click.echo(f"{done} {_words(str(path))}")
    if not drafted.changed:
        click.echo("nothing to do")
    for note in drafted.notes:
        here.note(_words(note))
    return OK


def _words(text: str) -> str:
    return paths.printable(os.fsencode(text))
