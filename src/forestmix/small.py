"""What is small enough to be left to NumPy: there, loading or compiling kernels would take longer than the whole run.

Measured by ``python -m benchmarks engines``: at the limit an evaluation takes about 1 ms longer than a compiled one,
and a run has some tens of them. To load kernels takes 0.3 s, to compile them 10 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from forestmix.errors import unknown_name

#: Entries of W, times the number of observations, up to which W is read by products of NumPy and SciPy.
ENTRIES = 2**18
#: Latents, times the number of observations, up to which the vectors of a step are NumPy's.
LATENTS = 2**13

ENGINES = ("auto", "reference", "compiled")
_engine: ContextVar[str] = ContextVar("engine", default="auto")


@contextmanager
def chosen_engine(name: str) -> Iterator[None]:
    """Leave all to NumPy ("reference"), all to kernels ("compiled"), or to either by size ("auto"), for a while."""
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    token = _engine.set(name)
    try:
        yield
    finally:
        _engine.reset(token)


def few_entries(shape: tuple[int, int], observations: int = 1) -> bool:
    """Return whether W is small, for so many observations."""
    return _left_to_numpy(shape[0] * shape[1] * observations, ENTRIES)


def few_latents(shape: tuple[int, ...]) -> bool:
    """Return whether vectors of a batch are short."""
    return _left_to_numpy(shape[0] * shape[-1], LATENTS)


def _left_to_numpy(size: int, limit: int) -> bool:
    engine = _engine.get()
    return size <= limit if engine == "auto" else engine == "reference"
