"""`putback hook AGENT`: an event on standard input, an answer on standard output, and always success.

Agents call this at every prompt and every tool call, so nothing is imported that an event does not need.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import NoReturn, cast

from putback.errors import UsageError

MOST_BYTES = 32 << 20


def main(arguments: list[str]) -> NoReturn:
    """Answer an event and end the process: the agent's name, and maybe that of the event, are `arguments`."""
    code = hook(*arguments)
    # To take the interpreter apart would cost as much as many an event.
    os._exit(code)


def hook(agent: str, name: str = "", store: str | None = None) -> int:
    """Answer one event of an agent; `name` is the event's, where the agent says it on the command line.

    Ends with 0 whatever happens to the event; with 1 for an agent that nobody knows: many take 2 for a veto.
    """
    _import_records()
    from putback.agents import registry
    from putback.agents.hook import Hook
    from putback.store.layout import default_store

    try:
        adapter = registry.adapter(agent)
    except UsageError as error:
        os.write(2, f"putback: {error.message}\n".encode())
        return 1
    place = store or os.environ.get("PUTBACK_STORE") or default_store()
    try:
        answer = Hook(adapter, place).answer(sys.stdin.buffer.read(MOST_BYTES), name)
    except Exception:
        from putback import faultlog  # nobody but an error of ours needs it

        faultlog.write()
        answer = adapter.silence
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return 0


def _import_records() -> None:
    """Import what records are made of, without what that would like to have and does not need.

    Where some other package has brought `typing_extensions` along, importing it takes a tenth of an event's time,
    for names that `typing` has as well.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = cast(ModuleType, None)
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[name]
