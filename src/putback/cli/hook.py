"""`putback hook AGENT`: an event on standard input, an answer on standard output, and always success.

Agents call this at every prompt and every tool call, so nothing is imported that an event does not need. Many take
2 for a veto: however it is called, and whatever happens to it, it never ends with that.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import ModuleType
from typing import NoReturn, cast

MOST_BYTES = 32 << 20
# What any agent can read, where even the table of the one that asks cannot be had.
NOTHING = b"{}"


def main(arguments: list[str]) -> NoReturn:
    """Answer an event and end the process: the agent's name, and maybe that of the event, are `arguments`."""
    code = 0
    with suppress(BaseException):
        code = hook(*arguments)
    # To take the interpreter apart would cost as much as many an event.
    os._exit(code)


def hook(agent: str, name: str = "", store: str | None = None) -> int:
    """Answer one event of an agent; `name` is the event's, where the agent says it on the command line.

    Ends with 0 whatever happens to the event; with 1 for an agent that nobody knows.
    """
    signal.signal(signal.SIGTERM, _stop)
    _open_streams()
    answer, ours = NOTHING, None
    try:
        _import_records()
        from putback.agents import registry
        from putback.agents.hook import Hook
        from putback.store.layout import default_store

        if agent not in registry.MODULES:
            _say(2, f"putback: no such agent: {agent!r}\n".encode("utf-8", "backslashreplace"))
            return 1
        adapter = registry.adapter(agent)
        answer = adapter.silence
        ours = Hook(adapter, store or os.environ.get("PUTBACK_STORE") or default_store())
        answer = ours.answer(_given(), name)
    except KeyboardInterrupt:
        # The agent is being stopped, and has no ear for us any more; the user has.
        with suppress(BaseException):
            if ours is not None:
                ours.interrupted()
    except Exception:
        with suppress(Exception):
            from putback import faultlog  # nobody but an error of ours needs it

            faultlog.write()
    _say(1, answer)
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


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _open_streams() -> None:
    """What the agent has closed must not be taken by a file of ours: that would be read, or printed into."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)


def _given() -> bytes:
    """The event; of what is too long for one, the beginning. All is read: agents trip over one who does not."""
    parts: list[bytes] = []
    size = 0
    with suppress(OSError):
        while part := os.read(0, 1 << 20):
            size += len(part)
            if size <= MOST_BYTES:
                parts.append(part)
    return b"".join(parts)


def _say(number: int, said: bytes) -> None:
    with suppress(OSError):
        while said:
            said = said[os.write(number, said) :]
