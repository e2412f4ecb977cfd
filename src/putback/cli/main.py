"""The `putback` command."""

from __future__ import annotations

import sys

import click

from putback.errors import PutbackError
from putback.workspace import Workspace


@click.group()
@click.option("-C", "directory", default=".")
@click.option("--store")
@click.option("-c", "pairs", multiple=True)
@click.option("--json", "as_json", is_flag=True)
@click.pass_context
def cli(ctx, directory, store, pairs, as_json):
    ctx.obj = Workspace.open(directory, store=store)
    ctx.meta["json"] = as_json


@cli.command()
@click.option("-m", "message", default="")
@click.argument("paths", nargs=-1)
@click.pass_obj
def snapshot(ws, message, paths):
    s = ws.snapshot(message, paths=paths)
    print(s.id, s.capture.files, s.capture.bytes)
    for item in s.capture.not_covered:
        print("not covered", item.path, item.reason, item.detail)


@cli.command(name="list")
@click.pass_context
def list_(ctx):
    import json
    if ctx.meta["json"]:
        print(json.dumps({"entries": [{"id": e.id, "message": e.message} for e in ctx.obj.list()]}))
        return
    for e in ctx.obj.list():
        print(e.short_id, e.kind, e.created_at, e.message)


@cli.command()
@click.argument("asked")
@click.argument("paths", nargs=-1)
@click.option("--exact", is_flag=True)
@click.option("--yes", is_flag=True)
@click.pass_obj
def restore(ws, asked, paths, exact, yes):
    r = ws.restore(asked, paths=paths, exact=exact)
    for o in r.outcomes:
        print(o.status, o.path, o.reason)
    sys.exit(1 if r.failed else 0)


@cli.command()
@click.option("--yes", is_flag=True)
@click.pass_obj
def undo(ws, yes):
    r = ws.undo()
    for o in r.outcomes:
        print(o.status, o.path, o.reason)
    sys.exit(1 if r.failed else 0)


@cli.command()
@click.argument("asked")
@click.option("--name-only", is_flag=True)
@click.pass_obj
def diff(ws, asked, name_only):
    r = ws.diff(asked)
    for c in r.changes:
        print(c.path.decode("utf-8", "surrogateescape") if name_only else (c.status, c.path))


@cli.command()
@click.argument("asked")
@click.pass_obj
def ls(ws, asked):
    for p in ws.files(asked):
        sys.stdout.buffer.write(p + b"\n")


def main():
    try:
        cli()
    except PutbackError as e:
        print(type(e).__name__, e.message, e.hint, file=sys.stderr)
        sys.exit(e.exit_code)
