"""Products with some rows of a dense W at a time, a tile, in LLVM's own vectors: the inner loops of the dense pass.

The rows of a tile share one reading of the vectors they are multiplied with. While rows that are in the cache already
are worked on, the memory would stand still, so the loops prefetch what is read later: at half the speed, a line for two
that are worked on, since a tile is gone over twice for each time that it is fetched. A core with too many requests
under way drops some of them, so each line is asked for again a little later, and once more shortly before it is read.
LLVM does not vectorise loops that prefetch, and where it does vectorise keeps more sums than there are registers; so
the vectors are written out here. That is worth a third of a pass and more: ``python -m benchmarks passes``.

``reassoc`` lets sums be taken side by side; NaN and infinity keep their meaning, since a step that overflows must be
seen and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from forestmix.engines.compiled.compiling import njit

#: What the compiler may assume about sums; not all of ``fastmath``, which would assume that nothing overflows.
FAST = {"reassoc", "contract", "nsz", "arcp"}
_FLAGS = sorted(FAST)
_config: Any = numba.config
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


def _dot_plain(rows: Any, ahead: Any, vectors: Any, products: Any) -> None:
    for vector, product, f in zip(vectors, products, (lambda w: w, abs, lambda w: w * w), strict=False):
        for k, row in enumerate(rows):
            product[k] = (f(row[: vector.size]) * vector).sum()


def _add_plain(rows: Any, ahead: Any, factors: Any, sums: Any) -> None:
    for numbers, total, f in zip(factors, sums, (lambda w: w, abs, lambda w: w * w), strict=False):
        for k, row in enumerate(rows):
            total[: row.size] += f(row) * numbers[k]


@_for_kernels(_dot_plain)
def dot(context, rows, ahead, vectors, products):  # type: ignore[no-untyped-def]
    """Write ``sum_j w_j a_j`` of each row into ``products[0]``, for ``vectors`` of ``(a,)`` or ``(a, b, c)``.

    Of three vectors, ``sum_j |w_j| b_j`` and ``sum_j w_j^2 c_j`` as well. Meanwhile it prefetches what is ``ahead``, a
    tuple of distances: so many entries from each of the rows on, half as many entries as a row has.
    """

    def build(context: Any, builder: _Value, signature: Any, given: list[_Value]) -> _Value:
        rows, ahead, vectors, products = (_parts(context, builder, *one) for one in zip(signature.args, given, strict=True))  # fmt: skip  # noqa: E501
        widths = {_width(rows, vectors), 1}
        sums = {width: [[row.zeros(width) for row in rows] for _ in vectors] for width in widths}

        def body(j: _Value, width: int) -> None:
            multiplied = [one.read(j, width) for one in vectors]
            for k, row in enumerate(rows):
                for own, w, v in zip(sums[width], _maps(builder, row.read(j, width), len(vectors)), multiplied, strict=True):  # fmt: skip  # noqa: E501
                    builder.store(_add_product(builder, builder.load(own[k]), w, v), own[k])

        _loop(builder, rows, vectors[0].length, max(widths), ahead, rows, body)
        for one, narrow, broad in zip(products, sums[1], sums[max(widths)], strict=True):
            for k in range(len(rows)):
                total = builder.fadd(builder.load(narrow[k]), _folded(builder, builder.load(broad[k])), flags=_FLAGS)
                one.write(one.length.type(k), total)
        return context.get_dummy_value()

    return types.void(rows, ahead, vectors, products), build


@_for_kernels(_add_plain)
def add(context, rows, ahead, factors, sums):  # type: ignore[no-untyped-def]
    """Add ``w_j f_k`` of each row k to ``sums[0]``, for ``factors`` of ``(f,)`` or ``(f, g, h)``.

    Of three, ``|w_j| g_k`` and ``w_j^2 h_k`` to the others as well. Meanwhile it prefetches, as ``dot`` does.
    """

    def build(context: Any, builder: _Value, signature: Any, given: list[_Value]) -> _Value:
        rows, ahead, factors, sums = (_parts(context, builder, *one) for one in zip(signature.args, given, strict=True))
        numbers = [[one.entry_at(one.length.type(k)) for k in range(len(rows))] for one in factors]

        def body(j: _Value, width: int) -> None:
            totals = [one.read(j, width) for one in sums]
            for k, row in enumerate(rows):
                maps = _maps(builder, row.read(j, width), len(sums))
                repeated = [_repeated(builder, own[k], width) for own in numbers]
                totals = [_add_product(builder, *one) for one in zip(totals, maps, repeated, strict=True)]
            for one, total in zip(sums, totals, strict=True):
                one.write(j, total)

        # With three sums the core has enough to do, and asking once more costs more than it saves.
        _loop(builder, rows, rows[0].length, _width(rows, sums), ahead, rows if len(sums) == 1 else [], body)
        return context.get_dummy_value()

    return types.void(rows, ahead, factors, sums), build


class _Line:
    """An array of a kernel, to be read and written in vectors."""

    def __init__(self, context: Any, builder: _Value, kind: Any, array: _Value) -> None:
        self.builder = builder
        self.entry, self.size = context.get_value_type(kind.dtype), kind.dtype.bitwidth // 8
        made = context.make_array(kind)(context, builder, array)
        self.data, self.length = made.data, builder.extract_value(made.shape, 0)

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


def _parts(context: Any, builder: _Value, kind: Any, given: _Value) -> list[Any]:
    """Return the arrays or numbers of a tuple."""
    parts = [builder.extract_value(given, k) for k in range(len(kind))]
    return [
        _Line(context, builder, one, part) if isinstance(one, types.Array) else part
        for one, part in zip(kind, parts, strict=True)
    ]


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
    builder: _Value, rows: list[_Line], length: _Value, width: int, ahead: list[_Value], soon: list[_Line],
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
        for distance in ahead:
            far = [builder.add(place, distance) for place in places]
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


@njit(forceinline=True, nogil=True)
def _four(rows, i, last):  # type: ignore[no-untyped-def]
    return rows[min(i, last - 1)], rows[min(i + 1, last - 1)], rows[min(i + 2, last - 1)], rows[min(i + 3, last - 1)]


@njit(forceinline=True, nogil=True)
def _eight(rows, i, last):  # type: ignore[no-untyped-def]
    return _four(rows, i, last) + _four(rows, i + 4, last)


#: ``tile(rows, i, last)``: the rows of a tile from ``i`` on. Past the end the last is repeated; its factors are zero.
tile = _eight if ROWS == 8 else _four


@njit(forceinline=True, nogil=True)
def ahead_of(rows, tiles):  # type: ignore[no-untyped-def]
    """Return what to prefetch while so many tiles of these rows are multiplied, and what while they are added up.

    Long rows are taken one tile at a time, and followed so closely that little more than it has to stay in the cache:
    the second half of a tile is asked for while it is multiplied, the first half of the next one later. Of short rows
    the end would be asked for too late, so they are asked for earlier by half a tile.
    """
    length = rows.shape[1]
    if length * rows.itemsize > LONG:
        return (length // 2,), (ROWS * length,)
    return (tiles * ROWS * length,), (tiles * ROWS * length + length // 2,)
