"""Room for what is computed of a few rows at a time, several numbers of each: lines of a fixed width, in one piece.

A compiler that does not know how two arrays lie to each other tests that before every loop over them, which for a few
rows takes longer than the loop. Lines of a scratch lie where it can see: one after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.np.arrayobj import populate_array

from forestmix.kernels.terms import Value, for_kernels

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


@for_kernels(lambda scratch, which: scratch[which * WIDTH : (which + 1) * WIDTH])
def line(context, scratch, which):  # type: ignore[no-untyped-def]
    """Return a line of a scratch, (WIDTH,); ``which`` is a constant."""
    if not isinstance(which, types.IntegerLiteral):
        return None  # Numba comes again with the number

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        kind = signature.args[0]
        whole = context.make_array(kind)(context, builder, given[0])
        part = context.make_array(kind)(context, builder)
        index = context.get_value_type(types.intp)
        data = builder.gep(whole.data, [index(which.literal_value * WIDTH)])
        populate_array(part, data, [index(WIDTH)], [index(8)], index(8), None)
        return part._getvalue()

    return scratch(scratch, which), build


@njit(forceinline=True, nogil=True)
def filled_up(count):  # type: ignore[no-untyped-def]
    """Return how many rows to go over, so that no vector is only partly full."""
    return (count + TOGETHER - 1) // TOGETHER * TOGETHER
