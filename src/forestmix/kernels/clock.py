"""How long a run works, apart from what Numba needs to compile kernels or to load compiled ones."""

from __future__ import annotations

import time

from numba.core import event

# Numba holds this lock while it compiles a function or reads it from its cache.
_preparation = event.TimingListener()
event.register("numba:compiler_lock", _preparation)


class WorkClock:
    """Seconds since it was made, without those in which kernels were made ready, on whatever thread."""

    def __init__(self) -> None:
        self._began = time.perf_counter() - _prepared()

    def seconds(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - _prepared() - self._began


def _prepared() -> float:
    # The listener has no duration before the first event.
    return float(_preparation.duration) if _preparation.done else 0.0
