"""The signals that reach this process while a child runs: kept, in order, for whoever watches the child.

No handler raises and none acts, so nothing that the watcher does is ever cut in two by Ctrl-C.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from types import FrameType

# The first is installed first and restored last: from then until then no KeyboardInterrupt is raised.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGTSTP, signal.SIGWINCH)

POLL_SECONDS = 0.02


class Mailbox:
    """A context: within it signals are kept and `take` hands them out. Outside the main thread none come."""

    def __init__(self) -> None:
        self.open = threading.current_thread() is threading.main_thread()
        self._kept: list[int] = []
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self._bell = self._ringer = self._bell_before = -1

    def __enter__(self) -> Mailbox:
        if not self.open:
            return self
        self._bell, self._ringer = os.pipe()
        os.set_blocking(self._ringer, False)
        # A handler alone would not wake `select` when the signal comes just before it.
        self._bell_before = signal.set_wakeup_fd(self._ringer, warn_on_full_buffer=False)
        try:
            for number in (*FORWARDED, signal.SIGCONT, signal.SIGCHLD):
                before = signal.getsignal(number)
                if _replaceable(number, before):
                    self._before[number] = before
                    signal.signal(number, self._keep)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        if not self.open:
            return
        signal.set_wakeup_fd(self._bell_before)
        for number, before in reversed(self._before.items()):
            signal.signal(number, before)
        os.close(self._bell)
        os.close(self._ringer)

    def take(self) -> list[int]:
        """What has come since the last call."""
        taken, self._kept = self._kept, []
        return taken

    def wait(self, seconds: float) -> None:
        """Wait until a signal comes or a child changes, at most so long. Returns early without a reason, too."""
        seconds = max(seconds, 0.0)
        if not self.open:
            time.sleep(min(seconds, POLL_SECONDS))
        elif select.select([self._bell], [], [], seconds)[0]:
            os.read(self._bell, 4096)

    def stop(self, number: int, whole_group: bool) -> bool:
        """Stop this process, or its group, as the stop signal `number` does by default.

        Returns once it was continued: True. False where it never stopped: the kernel does not let a signal of
        the terminal stop a group that no shell would ever continue.
        """
        self._kept = [kept for kept in self._kept if kept != signal.SIGCONT]
        before = signal.signal(number, signal.SIG_DFL)
        os.kill(0 if whole_group else os.getpid(), number)
        signal.signal(number, signal.SIG_DFL if before is None else before)
        continued = signal.SIGCONT in self._kept
        self._kept = [kept for kept in self._kept if kept != signal.SIGCONT]
        return continued

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._kept.append(number)


def _replaceable(number: signal.Signals, handler: signal._HANDLER) -> bool:
    """Whether to put our handler in the place of this one."""
    if handler is None:
        return False  # installed by other than Python code, so nobody could put it back
    if number == signal.SIGCHLD:
        # The application's own goes on minding its children. Where they are ignored, the kernel would throw
        # the child's exit code away.
        return not callable(handler)
    # What was ignored from outside (nohup) is not ours to hear.
    return handler != signal.SIG_IGN or number == signal.SIGCONT
