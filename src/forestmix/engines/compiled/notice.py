"""One line on the terminal while kernels are compiled, so that nobody takes the wait for a hang."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

from numba.core.event import Listener

TEXT = "forestmix: compiling kernels, once for this machine; this takes some seconds ..."
#: Seconds of compiling, in all, before the line is written.
PATIENCE = 1.0


class CompilingNotice(Listener):
    """A listener to ``numba:compile``, which Numba does not send for code from its cache.

    Only what forestmix compiles counts, and only while standard error is a terminal. Numba compiles on one thread at a
    time, and sends events of callees inside those of the caller.
    """

    def __init__(self) -> None:
        self._depth, self._spent, self._began, self._said = 0, 0.0, 0.0, False
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """Begin to wait."""
        self._depth += 1
        if self._depth == 1 and not self._said and _is_ours(event) and _is_terminal():
            self._began = time.perf_counter()
            self._timer = threading.Timer(max(PATIENCE - self._spent, 0.0), self._say)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        """Stop waiting; the next compilation has so much less time."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.perf_counter() - self._began

    def _say(self) -> None:
        self._said = True
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            print(TEXT, file=sys.stderr, flush=True)


def _is_ours(event: Any) -> bool:
    function = getattr(event.data["dispatcher"], "py_func", None)
    return getattr(function, "__module__", "").startswith("forestmix.")


def _is_terminal() -> bool:
    """Return whether somebody can see the line; a notebook's standard error is no terminal, and may be missing."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
