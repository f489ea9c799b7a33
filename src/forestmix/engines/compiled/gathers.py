"""Products with one row of a sparse W in LLVM's own vectors, with all that belongs to a latent in one of them.

An entry ``w`` meets the mean and the sd of its latent, which lie side by side, as ``(w, |w|)``: one load, one product
and one sum serve both. So it is with the sums it is added to. LLVM does not find these pairs by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from forestmix.arrays import Array
from forestmix.engines.compiled.lines import Line, add_product, repeated
from forestmix.engines.compiled.terms import FLAGS, Value, for_kernels, loop

#: Sums that are taken side by side, since each addition waits for the one before.
APART = 4
_LANE = ir.IntType(32)


def _gathered(columns: Array, values: Array, first: int, last: int, side_by_side: Array, width: int) -> list[Array]:
    """Return ``w``, and of its latent each of the numbers that lie side by side."""
    w, start = values[first:last], width * columns[first:last].astype(np.intp)
    return [w, *(side_by_side[start + k] for k in range(width))]


def _gather_two(columns: Array, values: Array, first: int, last: int, pairs: Array) -> tuple[Array, ...]:
    w, mean, sd = _gathered(columns, values, first, last, pairs, 2)
    return w @ mean, abs(w) @ sd


def _gather_three(columns: Array, values: Array, first: int, last: int, pairs: Array) -> tuple[Array, ...]:
    w, mean, sd = _gathered(columns, values, first, last, pairs, 2)
    return w @ mean, abs(w) @ sd, (w * w) @ (sd * sd)


def _scatter_two(columns: Array, values: Array, first: int, last: int, e: float, s: float, sums: Array) -> None:
    w, place = values[first:last], 2 * columns[first:last].astype(np.intp)
    np.add.at(sums, place, w * e)
    np.add.at(sums, place + 1, abs(w) * s)


def _scatter_three(
    columns: Array, values: Array, first: int, last: int, e: float, s: float, k: float, sums: Array
) -> None:
    w, place = values[first:last], 4 * columns[first:last].astype(np.intp)
    np.add.at(sums, place, w * e)
    np.add.at(sums, place + 1, abs(w) * s)
    np.add.at(sums, place + 2, w * w * k)


@for_kernels(_gather_two)
def gather_two(context, columns, values, first, last, pairs):  # type: ignore[no-untyped-def]
    """Return ``w . mean`` and ``|w| . sd`` of entries ``first`` to ``last``; ``pairs`` has mean and sd in turns."""
    result = types.UniTuple(values.dtype, 2)

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        row = _Row(context, builder, signature.args, given)
        pairs = Line(context, builder, signature.args[4], given[4])
        totals = [pairs.zeros(2) for _ in range(APART)]

        def body(p: Value, turn: int) -> None:
            w, j = row.entry(p, 2)
            total = add_product(builder, builder.load(totals[turn]), w, pairs.read(builder.shl(j, j.type(1)), 2))
            builder.store(total, totals[turn])

        row.loop(body, APART)
        return context.make_tuple(builder, signature.return_type, _lanes(builder, _sum(builder, totals), 2))

    return result(columns, values, types.intp, types.intp, pairs), build


@for_kernels(_gather_three)
def gather_three(context, columns, values, first, last, pairs):  # type: ignore[no-untyped-def]
    """Return ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2``."""
    result = types.UniTuple(values.dtype, 3)

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        row = _Row(context, builder, signature.args, given)
        pairs = Line(context, builder, signature.args[4], given[4])
        totals, squares = ([pairs.zeros(2) for _ in range(APART)] for _ in range(2))

        def body(p: Value, turn: int) -> None:
            w, j = row.entry(p, 2)
            product = builder.fmul(w, pairs.read(builder.shl(j, j.type(1)), 2), flags=FLAGS)
            builder.store(builder.fadd(builder.load(totals[turn]), product, flags=FLAGS), totals[turn])
            square = add_product(builder, builder.load(squares[turn]), product, product)
            builder.store(square, squares[turn])

        row.loop(body, APART)
        m, s = _lanes(builder, _sum(builder, totals), 2)
        _, v = _lanes(builder, _sum(builder, squares), 2)
        return context.make_tuple(builder, signature.return_type, [m, s, v])

    return result(columns, values, types.intp, types.intp, pairs), build


@for_kernels(_scatter_two)
def scatter_two(context, columns, values, first, last, e, s, sums):  # type: ignore[no-untyped-def]
    """Add ``w e`` and ``|w| s`` to the two sums of each latent, which lie side by side."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        row = _Row(context, builder, signature.args, given)
        sums = Line(context, builder, signature.args[6], given[6])
        factors = _vector(builder, [given[4], given[5]])

        def body(p: Value, turn: int) -> None:
            w, j = row.entry(p, 2)
            place = builder.shl(j, j.type(1))
            sums.write(place, add_product(builder, sums.read(place, 2), w, factors))

        row.loop(body, 1)
        return context.get_dummy_value()

    number = values.dtype
    return types.void(columns, values, types.intp, types.intp, number, number, sums), build


@for_kernels(_scatter_three)
def scatter_three(context, columns, values, first, last, e, s, k, sums):  # type: ignore[no-untyped-def]
    """Add ``w e``, ``|w| s`` and ``w^2 k`` to three of the four sums of each latent; the fourth stays as it is."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        row = _Row(context, builder, signature.args, given)
        sums = Line(context, builder, signature.args[7], given[7])
        nothing = ir.Constant(given[4].type, 0.0)
        factors = _vector(builder, [given[4], given[5], nothing, nothing])
        second = _vector(builder, [nothing, nothing, given[6], nothing])

        def body(p: Value, turn: int) -> None:
            w, j = row.entry(p, 4)
            place = builder.shl(j, j.type(2))
            factor = add_product(builder, factors, w, second)
            sums.write(place, add_product(builder, sums.read(place, 4), w, factor))

        row.loop(body, 1)
        return context.get_dummy_value()

    number = values.dtype
    return types.void(columns, values, types.intp, types.intp, number, number, number, sums), build


class _Row:
    """The entries of one row, from ``first`` to ``last``; the arguments of a function above begin with them."""

    def __init__(self, context: Any, builder: Value, kinds: Any, given: list[Value]) -> None:
        self.builder, self.first, self.last = builder, given[2], given[3]
        self.columns = Line(context, builder, kinds[0], given[0])
        self.values = Line(context, builder, kinds[1], given[1])

    def entry(self, p: Value, width: int) -> tuple[Value, Value]:
        """Return ``(w, |w|, |w|, ...)`` and the latent of entry ``p``."""
        builder, bits = self.builder, 8 * self.values.size
        column = self.columns.entry_at(p)
        j = builder.zext(column, p.type) if column.type.width < p.type.width else column
        w, whole = repeated(builder, self.values.entry_at(p), width), ir.VectorType(ir.IntType(bits), width)
        unsigned = ir.Constant(whole, [2**bits - 1] + [2 ** (bits - 1) - 1] * (width - 1))
        return builder.bitcast(builder.and_(builder.bitcast(w, whole), unsigned), w.type), j

    def loop(self, body: Callable[[Value, int], None], apart: int) -> None:
        """Build a loop over the entries, ``apart`` of them at a time."""
        builder, index = self.builder, self.first.type
        rest = builder.srem(builder.sub(self.last, self.first), index(apart))
        whole = builder.sub(self.last, rest)
        with loop(builder, self.first, whole, index(apart)) as p:
            for turn in range(apart):
                body(builder.add(p, index(turn)), turn)
        if apart > 1:
            with loop(builder, whole, self.last, index(1)) as p:
                body(p, 0)


def _vector(builder: Value, numbers: list[Value]) -> Value:
    vector: Value = ir.Constant(ir.VectorType(numbers[0].type, len(numbers)), ir.Undefined)
    for lane, number in enumerate(numbers):
        vector = builder.insert_element(vector, number, _LANE(lane))
    return vector


def _sum(builder: Value, places: list[Value]) -> Value:
    first, second, third, fourth = (builder.load(place) for place in places)
    pairs = builder.fadd(first, second, flags=FLAGS), builder.fadd(third, fourth, flags=FLAGS)
    return builder.fadd(*pairs, flags=FLAGS)


def _lanes(builder: Value, vector: Value, count: int) -> list[Value]:
    return [builder.extract_element(vector, _LANE(lane)) for lane in range(count)]
