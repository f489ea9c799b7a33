"""Sums over the nodes of a grid with normal weights, four nodes up and four down at a time, in LLVM's own vectors.

The weights of neighbouring nodes follow ``w <- w r``, ``r <- r q``, which one after another takes longer than all else
that an expectation needs. Weights four nodes apart follow the same rule with other numbers, so four of them go on side
by side; and the two directions do not wait for each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from forestmix.arrays import Array
from forestmix.engines.compiled.lines import Line, add_product, repeated
from forestmix.engines.compiled.terms import FLAGS, Value, for_kernels, loop, variable

#: Nodes that are taken at once.
LANES = 4


def _march_in_python(
    value: Array, slope: Array, curvature: Array, up: int, down: int, last: int, steps: int, weight: float,
    up_ratio: float, down_ratio: float, bend: float,
) -> tuple[float, ...]:  # fmt: skip
    node = np.arange(LANES * steps)
    above, below = (
        (np.minimum(start + node - node % LANES, last) + node % LANES, weight * np.cumprod(ratio * bend**node))
        for start, ratio in ((up, up_ratio), (down, down_ratio))
    )
    signs = ((value, 1), (slope, -1), (curvature, 1))
    return tuple(table[above[0]] @ above[1] + sign * (table[below[0]] @ below[1]) for table, sign in signs)


@for_kernels(_march_in_python)
def march(  # type: ignore[no-untyped-def]
    context, value, slope, curvature, up, down, last, steps, weight, up_ratio, down_ratio, bend
):  # fmt: skip
    """Return the sums of three tables with the weights of the nodes on both sides of a node.

    ``4 steps`` nodes are added up on each side: with those from ``up`` on, and with those from ``down`` on, where
    ``slope`` counts negative. The tables are 0 from ``last`` on, and four entries there are read for all beyond.

    Args:
        context: Numba's.
        value: a table, as are ``slope`` and ``curvature``.
        slope: see there.
        curvature: see there.
        up: where the nodes on one side begin in the tables.
        down: where those on the other side begin; the tables are read forwards for them, too.
        last: where the tables end.
        steps: how many times four nodes are taken.
        weight: of the node between the two sides.
        up_ratio: of the first weight on one side to it.
        down_ratio: of the first weight on the other.
        bend: q.

    """
    result = types.UniTuple(types.float64, 3)

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        tables = [
            Line(context, builder, kind, array) for kind, array in zip(signature.args[:3], given[:3], strict=True)
        ]
        up, down, last, steps, weight, up_ratio, down_ratio, bend = given[3:]
        sides = [Side(builder, start, weight, ratio, bend) for start, ratio in ((up, up_ratio), (down, down_ratio))]
        # The sides have sums of their own, since each addition waits for the one before.
        sums = [[table.zeros(LANES) for table in tables] for _ in sides]
        with loop(builder, steps.type(0), steps, steps.type(1)) as turn:
            ahead = builder.mul(turn, turn.type(LANES))
            for side, own in zip(sides, sums, strict=True):
                place = builder.add(side.start, ahead)
                place = builder.select(builder.icmp_signed("<", place, last), place, last)
                weights = side.advance()
                for table, total in zip(tables, own, strict=True):
                    product = add_product(builder, builder.load(total), weights, table.read(place, LANES))
                    builder.store(product, total)
        both = (builder.fadd, builder.fsub, builder.fadd)
        totals = [
            _added(builder, put(builder.load(above), builder.load(below), flags=FLAGS))
            for put, above, below in zip(both, *sums, strict=True)
        ]
        return context.make_tuple(builder, signature.return_type, totals)

    return result(value, slope, curvature, up, down, last, steps, weight, up_ratio, down_ratio, bend), build


class Side:
    """The weights of four nodes on one side, and what they are multiplied with to get those of the next four."""

    def __init__(self, builder: Value, start: Value, weight: Value, ratio: Value, bend: Value) -> None:
        self.builder, self.start = builder, start
        second = self._times(bend, bend)
        fourth = self._times(second, second)
        eighth = self._times(fourth, fourth)
        # The first of four weights is w r; r^4 q^(1 + 2 + 3 + 4) leads from it to the first of the next four.
        twice = self._times(ratio, ratio)
        leap = self._times(self._times(twice, twice), self._times(eighth, second))
        weights, leaps = [], []
        for _ in range(LANES):
            weight = self._times(weight, ratio)
            ratio = self._times(ratio, bend)
            weights.append(weight)
            leaps.append(leap)
            leap = self._times(leap, fourth)
        self.weights, self.leaps = (variable(builder, _vector(builder, part)) for part in (weights, leaps))
        self.fall = repeated(builder, self._times(eighth, eighth), LANES)

    def advance(self) -> Value:
        """Build the weights of the next four nodes, and go on."""
        weights, leaps = self.builder.load(self.weights), self.builder.load(self.leaps)
        self.builder.store(self._times(weights, leaps), self.weights)
        self.builder.store(self._times(leaps, self.fall), self.leaps)
        return weights

    def _times(self, a: Value, b: Value) -> Value:
        return self.builder.fmul(a, b, flags=FLAGS)


def _vector(builder: Value, numbers: list[Value]) -> Value:
    """Build a vector of these numbers."""
    vector = ir.Constant(ir.VectorType(numbers[0].type, len(numbers)), ir.Undefined)
    for lane, number in enumerate(numbers):
        vector = builder.insert_element(vector, number, ir.IntType(32)(lane))
    return vector


def _added(builder: Value, vector: Value) -> Value:
    """Build the sum of a vector's entries."""
    total = builder.extract_element(vector, ir.IntType(32)(0))
    for lane in range(1, LANES):
        total = builder.fadd(total, builder.extract_element(vector, ir.IntType(32)(lane)), flags=FLAGS)
    return total
