"""The `putback` command: global options, errors, exit codes. Each command is a module of its own."""

from __future__ import annotations

import importlib
import io
import itertools
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from putback import paths
from putback.cli.call import Call
from putback.errors import PutbackError
from putback.version import __version__

COMMANDS = {
    "snapshot": "capture the workspace",
    "list": "the history, newest first",
    "show": "one entry of the history",
    "ls": "the paths that a capture holds",
    "diff": "what a restore would change, or what happened",
    "restore": "put back a snapshot, or take back what happened",
    "run": "supervise a command, and take back what it did",
    "turn": "exact-path turns, staged and unstaged apart",
    "undo": "take back the newest run, turn or restore",
    "redo": "do again what undo took back",
    "plan": "what taking a run back would do, from its documents",
    "verify": "check the evidence of a run",
    "status": "protected or not, since when, at what cost",
    "recover": "leave the state of an interrupted restore or run",
    "check": "whether what the store lists can be restored",
    "prune": "drop old entries, by rules",
    "forget": "purge a path from every capture",
    "relocate": "this workspace was moved here from elsewhere",
    "agent": "protect a coding agent's turns",
    "hook": "what coding agents call at each event",
    "completion": "completion for your shell",
}

INTERRUPTED, INTERNAL = 130, 70
# Older versions of click print the help themselves.
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())


class Commands(click.Group):
    """Imports a command when it is called, so that none pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"putback.cli.commands.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  putback snapshot -m 'before the agent'\n  putback restore @1",
)
@click.option("-C", "directory", metavar="DIR", default=".", help="Work as if started in DIR.")
@click.option("--store", metavar="DIR", help="Where captures are kept ($PUTBACK_STORE, else the user's state).")
@click.option("-c", "pairs", metavar="KEY=VALUE", multiple=True, help="Set one configuration value for this call.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for programs.")
@click.option("-q", "--quiet", count=True, help="Print results only.")
@click.option("-v", "--verbose", count=True, help="Print every path, however many.")
@click.version_option(__version__, message="putback %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    directory: str,
    store: str | None,
    pairs: tuple[str, ...],
    as_json: bool,
    quiet: int,
    verbose: int,
) -> None:
    """Record what a command does to a folder, and put it back exactly. Your own git is never touched."""
    call = Call(directory, store, pairs, as_json, verbose - quiet)
    call.watch.silent = quiet > 0
    call.watch.install()
    ctx.obj = call
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    ctx.call_on_close(call.watch.close)


def main() -> None:
    """The console entry point: every error becomes a message and an exit code."""
    _open_streams()
    _forgive_names()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        _abandon_output()
        if not isinstance(error, BrokenPipeError):
            click.echo(
                f"putback: cannot write the output: {error.strerror}; what was asked for was done", err=True
            )
        code = 0 if isinstance(error, BrokenPipeError) else 1
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process at once: nothing is left to be done, and to take the interpreter apart would cost 15 ms."""
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    code = _run(arguments)
    # Many an agent takes 2 for a veto, and whatever else for a hook that failed.
    return min(code, 1) if _is_hook(arguments) else code


def _is_hook(arguments: list[str]) -> bool:
    words = iter(arguments)
    for word in words:
        if word in ("-C", "--store", "-c"):
            next(words, None)
        elif not word.startswith("-"):
            return word == "hook"
    return False


def _run(arguments: list[str]) -> int:
    as_json = "--json" in itertools.takewhile("--".__ne__, arguments)
    if as_json:
        # Accepted after the command, too, where people put it.
        ours = list(itertools.takewhile("--".__ne__, arguments))
        arguments = ["--json", *(word for word in ours if word != "--json"), *arguments[len(ours) :]]
    if sys.platform == "win32":
        return _report(as_json, "unsupported", "Windows is not supported", "use it inside WSL", INTERNAL - 1)
    try:
        code = cli.main(arguments, prog_name="putback", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PutbackError as error:
        return _report(
            as_json, error.code, _words(error.message), error.hint and _words(error.hint), error.exit_code
        )
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.UsageError as error:
        if isinstance(error, _NO_ARGUMENTS) and not as_json:
            click.echo(error.format_message(), err=True)
            return 2
        return _report(as_json, "usage", *_misused(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return _report(as_json, "cancelled", "interrupted", None, INTERRUPTED)
    except OSError:
        raise  # the output could not be written; whatever else the system refuses is a PutbackError
    except Exception:
        # Imported here because nobody but an error of ours needs it.
        from putback import faultlog

        kept = faultlog.write()
        return _report(
            as_json, "internal", "internal error; nothing more was done", f"details are in {kept}", INTERNAL
        )


def _misused(error: click.UsageError) -> tuple[str, str | None]:
    """What is wrong with a command line, and what would help."""
    said = error.format_message().rstrip(".")
    said = said[:1].lower() + said[1:]
    if error.ctx is None:
        return said, None
    path = error.ctx.command_path
    hint = f"`{path} --help` tells more"
    if isinstance(error, _NO_ARGUMENTS):
        return "no command was given", hint
    if isinstance(error, click.NoSuchOption) and any(error.option_name in known.opts for known in cli.params):
        hint = f"it goes before the command: `{path.replace(' ', f' {error.option_name} ', 1)}`"
    return said, hint


def _report(as_json: bool, code: str, message: str, hint: str | None, exit_code: int) -> int:
    if as_json:
        from putback.cli import jsonout

        error: dict[str, Any] = {"code": code, "message": message, "hint": hint}
        jsonout.write({"error": error})
    else:
        click.echo(f"putback: {message}", err=True)
        if hint:
            click.echo(f"  {hint}", err=True)
    return exit_code


def _words(text: str) -> str:
    """A message in which documents and workspaces may have a say: nothing in it can move a terminal's cursor."""
    return paths.printable(text.encode("utf-8", "backslashreplace"))


def _open_streams() -> None:
    """A stream that the caller closed is one that nobody reads."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _abandon_output() -> None:
    """What is still in the buffer cannot be written; keep the interpreter from trying once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _forgive_names() -> None:
    """A name that the terminal's encoding lacks is printed escaped; it never ends a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
