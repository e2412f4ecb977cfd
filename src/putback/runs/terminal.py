"""Who has the terminal: lend it to a child's process group, and take it back as it was.

Only the controlling terminal on standard input counts. A program that redirected our input has not offered its
terminal, and may be reading from it at this moment.

Nothing here fails: a terminal that was hung up is one that nobody can lend any more.
"""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

INPUT = 0


class Terminal:
    """The controlling terminal, its modes while it is ours, and its modes while it is the child's."""

    def __init__(self) -> None:
        self._our_modes: list[Any] | None = None
        self._child_modes: list[Any] | None = None

    @classmethod
    def on_standard_input(cls) -> Terminal | None:
        """The terminal, or None where standard input is none or belongs to another session."""
        try:
            os.tcgetpgrp(INPUT)
        except OSError:
            return None
        return cls()

    def note_modes(self) -> bool:
        """Remember the modes to go back to. False, and nothing remembered, unless we are in the foreground."""
        try:
            if os.tcgetpgrp(INPUT) != os.getpgrp():
                return False
            self._our_modes = termios.tcgetattr(INPUT)
        except (OSError, termios.error):
            return False
        return True

    def lend(self, group: int) -> bool:
        """Make `group` the foreground group, with the modes it last had. False unless it was ours to give."""
        if not self.note_modes():
            return False
        with _from_any_group(), suppress(OSError, termios.error):
            if self._child_modes is not None:
                termios.tcsetattr(INPUT, termios.TCSANOW, self._child_modes)
            os.tcsetpgrp(INPUT, group)
            return True
        return False

    def take_back(self, group: int) -> None:
        """Return to the foreground and to our modes, if `group` is there, or one of which nobody is left.

        In any other case somebody else was given the terminal meanwhile, by the user's shell.
        """
        with _from_any_group(), suppress(OSError, termios.error):
            foreground = os.tcgetpgrp(INPUT)
            if foreground != group and _exists(foreground):
                return
            self._child_modes = termios.tcgetattr(INPUT)
            os.tcsetpgrp(INPUT, os.getpgrp())
            if self._our_modes is not None:
                # Not TCSADRAIN: it waits for ever where the output was stopped by Ctrl-S.
                termios.tcsetattr(INPUT, termios.TCSANOW, self._our_modes)


def claim() -> None:
    """For a new process, before its program runs: make its own group the foreground group."""
    with _from_any_group(), suppress(OSError):
        os.tcsetpgrp(INPUT, os.getpgrp())


@contextmanager
def _from_any_group() -> Iterator[None]:
    """The kernel stops a background process that changes its terminal, unless SIGTTOU is blocked or ignored.

    Blocked, not ignored: that concerns this thread only, and no other program can inherit it meanwhile.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
