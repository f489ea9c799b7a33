"""Room for what is computed of a few rows at a time, several numbers of each: lines of a fixed width, in one piece.

A compiler that does not know how two arrays lie to each other tests that before every loop over them, which for a few
rows takes longer than the loop. Lines of a scratch lie where it can see: one after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import overload

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.terms import Value, for_kernels

#: Rows at most, and by how many at once loops go over them.
WIDTH, TOGETHER = 64, 8
#: What of a row is given: the mean and the spread of eta.
MEAN, SPREAD = 0, 1
#: What is found: its term of the objective, ``e`` and ``kappa``; or ``E a``, ``E a'`` and ``E a''``.
VALUE, ERROR, KAPPA = 2, 3, 4
#: What ``kernels.softplus`` needs in between.
WEIGHT, UP, DOWN, BEND, SCALE, START, REACH, RAMP, TAIL = range(5, 14)
_LINES = 14


@njit(nogil=True)
def new_scratch():  # type: ignore[no-untyped-def]
    """Return a scratch, flat, with zeros in it."""
    return np.zeros(_LINES * WIDTH)


def line(scratch: Array, which: int) -> Array:
    """Return a line of a scratch, (WIDTH,)."""
    return _place(scratch, which)[:WIDTH]


@for_kernels(lambda scratch, which: scratch[which * WIDTH :])
def _place(context, scratch, which):  # type: ignore[no-untyped-def]
    """Return where a line begins: its address, or in Python all from there on."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        return builder.gep(data, [builder.mul(given[1], given[1].type(WIDTH))])

    return types.CPointer(scratch.dtype)(scratch, types.intp), build


@overload(line, jit_options={"forceinline": True})
def _line(scratch, which):  # type: ignore[no-untyped-def]
    """Make a line in kernels: its length and its place are known to the compiler, which a slice would hide."""
    return lambda scratch, which: carray(_place(scratch, which), WIDTH)


@njit(forceinline=True, nogil=True)
def filled_up(count):  # type: ignore[no-untyped-def]
    """Return how many rows to go over, so that no vector is only partly full."""
    return (count + TOGETHER - 1) // TOGETHER * TOGETHER
