"""How long a run works, apart from what Numba needs to be loaded, to compile kernels and to load compiled ones."""

from __future__ import annotations

import time
from collections.abc import Callable

_left_out: list[Callable[[], float]] = []


def leave_out(seconds: Callable[[], float]) -> None:
    """Leave out of all clocks what this function returns: seconds so far that were not work."""
    _left_out.append(seconds)


class WorkClock:
    """Seconds since it was made, and ``passed`` before, without those that were left out, on whatever thread."""

    def __init__(self, passed: float = 0.0) -> None:
        self._began = _now() - passed

    def seconds(self) -> float:
        """Return the seconds so far."""
        return _now() - self._began


def _now() -> float:
    return time.perf_counter() - sum(seconds() for seconds in _left_out)
