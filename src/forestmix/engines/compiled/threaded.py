"""Threads for compiled kernels that release the interpreter's lock, each call with a range of its own.

Sums over rows go to accumulators that are private to a call and are added up in the order of the ranges, so that a
result depends on the number of threads and on nothing else. Python's own thread pool starts them. Numba's parallel
loops wait for each other in a spin, which on a busy machine makes small passes slower by an order of magnitude
(``python -m benchmarks launch``). They also must not be entered by two threads at once, or after a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numba

from forestmix.arrays import Array

#: Entries of W for each thread: to wake one takes up to 0.3 ms, in which about this many are read.
WORTH_A_THREAD = 2**19

#: Entries of a dense W that a pass takes as long for as for the terms of a row.
ENTRIES_OF_ROW = 128

_config: Any = numba.config  # which has its settings from the environment
_pool: ThreadPoolExecutor


def threads(entries: int) -> int:
    """Return how many threads to use for a pass over so many entries.

    At most as many as ``NUMBA_NUM_THREADS`` or ``numba.set_num_threads`` allow.
    """
    wanted = entries // WORTH_A_THREAD
    return 1 if wanted < 2 else min(_allowed(), wanted)


def _allowed() -> int:
    """Return what ``numba.get_num_threads`` does, which starts Numba's own threads if nobody has needed them yet."""
    try:
        numba.threading_layer()
    except ValueError:  # they have not been started
        return int(_config.NUMBA_NUM_THREADS)
    return int(numba.get_num_threads())


def even_cuts(length: int, count: int) -> list[int]:
    """Return the bounds of ``count`` ranges of about the same length."""
    return [length * k // count for k in range(count + 1)]


def run_all(calls: Sequence[Callable[[], object]]) -> None:
    """Make all calls at once, the first on the calling thread, and return when all have ended."""
    if len(calls) == 1:
        calls[0]()
        return
    started = [_pool.submit(call) for call in calls[1:]]
    try:
        calls[0]()
    finally:
        for future in started:
            future.exception()  # waits, and sooner than ``concurrent.futures.wait`` does
    for future in started:
        future.result()


def over_ranges(kernel: Callable[..., object], cuts: Sequence[int], *given: Any, parts: Sequence[Any] = ()) -> None:
    """Call a kernel for each range between two cuts, with what is given and with its own of each of the ``parts``."""
    run_all([partial(kernel, *cut, *given, *own) for cut, *own in zip(pairwise(cuts), *parts, strict=True)])


def total(parts: Array) -> Array:
    """Return the sum of what all threads made, added up in their order in the place of the first."""
    for own in parts[1:]:
        parts[0] += own
    return parts[0]


def _new_pool() -> None:
    """Make a pool, whose threads start with its first call; a child process needs its own, since it has no threads."""
    global _pool
    _pool = ThreadPoolExecutor(_config.NUMBA_NUM_THREADS, thread_name_prefix="forestmix")


_new_pool()
os.register_at_fork(after_in_child=_new_pool)
