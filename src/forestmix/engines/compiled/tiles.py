"""Products with some rows of a dense W at a time, a tile, in LLVM's own vectors: the inner loops of the dense pass.

The rows of a tile share one reading of the vectors they are multiplied with. While rows that are in the cache already
are worked on, the memory would stand still, so the loops prefetch what is read later: at half the speed, a line for two
that are worked on, since a tile is gone over twice for each time that it is fetched. A core with too many requests
under way drops some of them, so each line is asked for again a little later, and once more shortly before it is read.
LLVM does not vectorise loops that prefetch, and where it does vectorise keeps more sums than there are registers; so
the vectors are written out here. That is worth a third of a pass and more: ``python -m benchmarks machine``.

``reassoc`` lets sums be taken side by side; NaN and infinity keep their meaning, since a step that overflows must be
seen and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from forestmix.engines.compiled.compiling import njit

#: What the compiler may assume about sums; not all of ``fastmath``, which would assume that nothing overflows.
FAST = {"reassoc", "contract", "nsz", "arcp"}
_FLAGS = sorted(FAST)
_config: Any = numba.config
_TILE = types.UniTuple(types.intp, 4)
_Value = Any  # of llvmlite, which has no types


def _wide() -> bool:
    """Return whether Numba compiles for a processor with 32 registers of 64 bytes.

    Numba takes what this one has, unless ``NUMBA_CPU_FEATURES`` or ``NUMBA_ENABLE_AVX`` say otherwise.
    """
    if _config.CPU_FEATURES is not None:
        return "+avx512f" in _config.CPU_FEATURES
    try:
        return bool(_config.ENABLE_AVX and binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # LLVM does not know this processor
        return False


#: Bytes of a line of the cache.
LINE = 64
#: Rows of a tile, and bytes of the vectors that three sums are taken in. Three sums of each row, and what they are
#: multiplied with, stay in registers.
ROWS, VECTOR = (8, LINE) if _wide() else (4, LINE // 2)
#: What LLVM calls the levels of the cache that a line can be fetched into.
FIRST_LEVEL, SECOND_LEVEL = 3, 2
#: Bytes by which the second request for a line comes after the first, and from a line that is worked on to one that is
#: asked for the last time.
AGAIN, SOON = 2048, 640
#: Bytes of a row from which on it is asked for while its tile is worked on already.
LONG = 2**15


def _for_kernels(plain: Callable[..., Any]) -> Any:
    """Return a decorator for a function that builds code; ``plain`` stands in where ``NUMBA_DISABLE_JIT`` is set."""
    without_compiler = getattr(_config, "DISABLE_JIT", False)
    return lambda build: plain if without_compiler else intrinsic(build)


def _tile_plain(W: Any, i: int, last: int, left: int, right: int) -> Any:
    """Return ``w``, ``|w|`` and ``w^2`` of a tile."""
    rows = W[np.minimum(np.arange(i, i + ROWS), last - 1), left:right]
    return rows, abs(rows), rows * rows


def _dot(count: int) -> Any:
    def plain(W: Any, tile: Any, ahead: int, vectors: Any, products: Any, at: int) -> None:
        for rows, vector, product in zip(_tile_plain(W, *tile)[:count], vectors, products, strict=False):
            product[at : at + ROWS] = rows @ vector[: rows.shape[1]]

    @_for_kernels(plain)
    def dot(context, W, tile, ahead, vectors, products, at):  # type: ignore[no-untyped-def]
        """Write ``sum_j w_j a_j`` of each row of a tile into ``products[0]`` from ``at`` on, with a of ``vectors[0]``.

        A ``tile`` is ``(i, last, left, right)``: rows ``i`` to ``i + ROWS`` of W, past the end at ``last`` the last one
        again, and columns ``left`` to ``right``. With a count of three ``sum_j |w_j| b_j`` and ``sum_j w_j^2 c_j`` as
        well. Meanwhile it prefetches what is ``ahead``, so many entries from each of the rows on, half as many entries
        as a row has.
        """

        def build(context: Any, builder: _Value, signature: Any, given: list[_Value]) -> _Value:
            W, vectors, products = (_Matrix(context, builder, signature.args[k], given[k]) for k in (0, 3, 4))
            (rows, length), ahead, at = W.tile(given[1]), given[2], given[5]
            factors, found = ([one.line(length.type(k)) for k in range(count)] for one in (vectors, products))
            widths = {_width(rows, factors), 1}
            sums = {width: [[row.zeros(width) for row in rows] for _ in factors] for width in widths}

            def body(j: _Value, width: int) -> None:
                multiplied = [one.read(j, width) for one in factors]
                for k, row in enumerate(rows):
                    for own, w, v in zip(sums[width], _maps(builder, row.read(j, width), count), multiplied, strict=True):  # fmt: skip  # noqa: E501
                        builder.store(_add_product(builder, builder.load(own[k]), w, v), own[k])

            _loop(builder, rows, length, max(widths), ahead, rows, body)
            for one, narrow, broad in zip(found, sums[1], sums[max(widths)], strict=True):
                for k in range(ROWS):
                    wide = _folded(builder, builder.load(broad[k]))
                    total = builder.fadd(builder.load(narrow[k]), wide, flags=_FLAGS)
                    one.write(builder.add(at, at.type(k)), total)
            return context.get_dummy_value()

        return types.void(W, _TILE, types.intp, vectors, products, types.intp), build

    return dot


def _add(count: int) -> Any:
    def plain(W: Any, tile: Any, ahead: int, factors: Any, at: int, sums: Any) -> None:
        for rows, factor, total in zip(_tile_plain(W, *tile)[:count], factors, sums, strict=False):
            total[: rows.shape[1]] += factor[at : at + ROWS] @ rows

    @_for_kernels(plain)
    def add(context, W, tile, ahead, factors, at, sums):  # type: ignore[no-untyped-def]
        """Add ``w_j f_k`` of each row k of a tile to ``sums[0]``, with f of ``factors[0]`` from ``at`` on.

        With a count of three ``|w_j| g_k`` and ``w_j^2 h_k`` to the others as well. All else is as in ``dot``.
        """

        def build(context: Any, builder: _Value, signature: Any, given: list[_Value]) -> _Value:
            W, factors, sums = (_Matrix(context, builder, signature.args[k], given[k]) for k in (0, 3, 5))
            (rows, length), ahead, at = W.tile(given[1]), given[2], given[4]
            parts, totals = ([one.line(length.type(k)) for k in range(count)] for one in (factors, sums))
            numbers = [[one.entry_at(builder.add(at, at.type(k))) for k in range(len(rows))] for one in parts]

            def body(j: _Value, width: int) -> None:
                added = [one.read(j, width) for one in totals]
                for k, row in enumerate(rows):
                    maps = _maps(builder, row.read(j, width), count)
                    repeated = [_repeated(builder, own[k], width) for own in numbers]
                    added = [_add_product(builder, *one) for one in zip(added, maps, repeated, strict=True)]
                for one, total in zip(totals, added, strict=True):
                    one.write(j, total)

            # With three sums the core has enough to do, and asking once more costs more than it saves.
            _loop(builder, rows, length, _width(rows, totals), ahead, rows if count == 1 else [], body)
            return context.get_dummy_value()

        return types.void(W, _TILE, types.intp, factors, types.intp, sums), build

    return add


class _Matrix:
    """An array of a kernel in row order."""

    def __init__(self, context: Any, builder: _Value, kind: Any, array: _Value) -> None:
        self.builder, self.entry, self.size = builder, context.get_value_type(kind.dtype), kind.dtype.bitwidth // 8
        made = context.make_array(kind)(context, builder, array)
        self.data, self.columns = made.data, builder.extract_value(made.shape, 1)

    def line(self, row: _Value, left: _Value | None = None) -> _Line:
        """Return a row from column ``left`` on."""
        start = self.builder.mul(row, self.columns)
        return _Line(self, self.builder.gep(self.data, [start if left is None else self.builder.add(start, left)]))

    def tile(self, given: _Value) -> tuple[list[_Line], _Value]:
        """Return the rows of a tile and their length; past the end the last is repeated, and its factors are zero."""
        builder = self.builder
        i, last, left, right = (builder.extract_value(given, k) for k in range(4))
        end = builder.sub(last, last.type(1))
        rows = [builder.add(i, i.type(k)) for k in range(ROWS)]
        there = [builder.select(builder.icmp_signed("<", row, end), row, end) for row in rows]
        return [self.line(row, left) for row in there], builder.sub(right, left)


class _Line:
    """A row of a matrix, to be read and written in vectors."""

    def __init__(self, matrix: _Matrix, data: _Value) -> None:
        self.builder, self.entry, self.size, self.data = matrix.builder, matrix.entry, matrix.size, data

    def entry_at(self, j: _Value) -> _Value:
        """Return one entry, as a number."""
        return self.builder.load(self._place(j))

    def _place(self, j: _Value, pointed: _Value = None) -> _Value:
        place = self.builder.gep(self.data, [j])
        return place if pointed is None else self.builder.bitcast(place, pointed.as_pointer())

    def read(self, j: _Value, width: int) -> _Value:
        """Return ``width`` entries from ``j`` on as a vector."""
        return self.builder.load(self._place(j, ir.VectorType(self.entry, width)), align=self.size)

    def write(self, j: _Value, vector: _Value) -> None:
        """Write a vector from ``j`` on."""
        self.builder.store(vector, self._place(j, vector.type), align=self.size)

    def fetch(self, j: _Value, level: int) -> None:
        """Prefetch a line that is read later, into a level of the cache."""
        place, number = self._place(j, ir.IntType(8)), ir.IntType(32)
        arguments = [place.type, number, number, number]
        fetch = _declared(self.builder, "llvm.prefetch.p0", ir.VoidType(), arguments)
        to_read, data = number(0), number(1)
        self.builder.call(fetch, [place, to_read, number(level), data])

    def zeros(self, width: int) -> _Value:
        """Return the place of a vector of zeros, which the compiler keeps in a register."""
        vector = ir.VectorType(self.entry, width)
        with self.builder.goto_entry_block():
            place = self.builder.alloca(vector)
        self.builder.store(ir.Constant(vector, None), place)
        return place


def _width(rows: list[_Line], sums: list[_Line]) -> int:
    """Return how many entries a vector has."""
    return (LINE if len(sums) == 1 else VECTOR) // rows[0].size


def _maps(builder: _Value, w: _Value, count: int) -> list[_Value]:
    """Build ``w`` or, for a count of three, ``w``, ``|w|`` and ``w^2``."""
    if count == 1:
        return [w]
    name = f"llvm.fabs.v{w.type.count}{w.type.element.intrinsic_name}"
    absolute = builder.call(_declared(builder, name, w.type, [w.type]), [w])
    return [w, absolute, builder.fmul(w, w, flags=_FLAGS)]


def _declared(builder: _Value, name: str, result: _Value, arguments: list[_Value]) -> _Value:
    """Return a function of LLVM's."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


@contextmanager
def _range(builder: _Value, start: _Value, stop: _Value, step: _Value) -> Iterator[_Value]:
    """Build ``for index in range(start, stop, step)``, and give the index to what builds the body."""
    before = builder.basic_block
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    index = builder.phi(start.type)
    builder.cbranch(builder.icmp_signed("<", index, stop), body, after)
    builder.position_at_end(body)
    yield index
    index.add_incoming(start, before)
    index.add_incoming(builder.add(index, step), builder.basic_block)
    builder.branch(test)
    builder.position_at_end(after)


def _loop(
    builder: _Value, rows: list[_Line], length: _Value, width: int, ahead: _Value, soon: list[_Line],
    body: Callable[[_Value, int], None],
) -> None:  # fmt: skip
    """Build a loop over lines of the cache, in vectors of ``width`` entries, and one over the entries that are left.

    Meanwhile what is ``ahead`` of the rows is prefetched at half the speed, of every second row now and of the others
    with the next line, and in between again; and rows that are worked on ``soon``.
    """
    index, entry = length.type, rows[0].size
    line = LINE // entry
    whole = builder.sub(length, builder.srem(length, index(line)))
    with _range(builder, index(0), whole, index(line)) as j:
        new = builder.lshr(j, index(1))
        old = builder.sub(new, index(AGAIN // entry))
        odd = builder.trunc(builder.udiv(j, index(line)), ir.IntType(1))
        places = builder.select(odd, old, new), builder.select(odd, new, old)
        far = [builder.add(place, ahead) for place in places]
        for k, one in enumerate(rows):
            one.fetch(far[k % 2], SECOND_LEVEL)
        for one in soon:
            one.fetch(builder.add(j, index(SOON // entry)), FIRST_LEVEL)
        for start in range(0, line, width):
            body(builder.add(j, index(start)), width)
    with _range(builder, whole, length, index(1)) as j:
        body(j, 1)


def _folded(builder: _Value, vector: _Value) -> _Value:
    """Build the sum of a vector's entries, a vector of one, half on half."""
    while (width := vector.type.count) > 1:
        halves = [ir.Constant(ir.VectorType(ir.IntType(32), width // 2), list(range(start, start + width // 2)))
                  for start in (0, width // 2)]  # fmt: skip
        low, high = (builder.shuffle_vector(vector, vector, half) for half in halves)
        vector = builder.fadd(low, high, flags=_FLAGS)
    return vector


def _add_product(builder: _Value, total: _Value, w: _Value, v: _Value) -> _Value:
    """Build ``total + w v``."""
    return builder.fadd(total, builder.fmul(w, v, flags=_FLAGS), flags=_FLAGS)


def _repeated(builder: _Value, number: _Value, width: int) -> _Value:
    """Build a vector with the same number everywhere."""
    vector, index = ir.VectorType(number.type, width), ir.IntType(32)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, number, index(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(index, width), None))


#: ``dot`` and ``add`` for one sum of each row or latent, and for three.
dot_one, dot_three = _dot(1), _dot(3)
add_one, add_three = _add(1), _add(3)


@njit(inline="always")
def ahead_of(rows, tiles):  # type: ignore[no-untyped-def]
    """Return what to prefetch while so many tiles of these rows are multiplied, and what while they are added up.

    Long rows are taken one tile at a time, and followed so closely that little more than it has to stay in the cache:
    the second half of a tile is asked for while it is multiplied, the first half of the next one later. Of short rows
    the end would be asked for too late, so they are asked for earlier by half a tile.
    """
    length = rows.shape[1]
    if length * rows.itemsize > LONG:
        return length // 2, ROWS * length
    return tiles * ROWS * length, tiles * ROWS * length + length // 2
