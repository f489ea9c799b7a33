"""Products of some rows of W at a time, the innermost loops of the dense passes, in LLVM's own vectors.

The rows of a tile share one reading of the vectors they are multiplied with. While rows that are in the cache already
are worked on, the memory would stand still, so the loops ask for what is read later: at half the speed, a line for two
that are worked on, since a tile is gone over twice for each time that it is fetched. A core with too many requests
under way drops some of them, so each line is asked for again a little later, and once more shortly before it is read.
LLVM does not vectorise loops that prefetch, and where it does vectorise keeps more sums than there are registers; so
the vectors are written out here. A term says what of an entry and of a number that goes with it is added up; the loops
around it are the same for all.

``reassoc`` lets sums be taken side by side; NaN and infinity keep their meaning, since a step that overflows must be
seen and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types

from forestmix.arrays import Array
from forestmix.engines.compiled.terms import FLAGS, Term, Value, declared, for_kernels, loop, variable


def _wide() -> bool:
    """Return whether Numba compiles for a processor with 32 registers of 64 bytes.

    Numba takes what this one has, unless ``NUMBA_CPU_FEATURES`` or ``NUMBA_ENABLE_AVX`` say otherwise.
    """
    config: Any = numba.config
    if config.CPU_FEATURES is not None:
        return "+avx512f" in config.CPU_FEATURES
    try:
        return bool(config.ENABLE_AVX and binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # LLVM does not know this processor
        return False


#: Bytes of a line of the cache.
LINE = 64
#: Rows of a tile, and bytes of the vectors that several sums are taken in. Three sums of each row, and what they are
#: multiplied with, stay in registers. The second-level cache hands out each row twice, and the vectors that it is
#: multiplied with and added to once for a tile: the more rows, the less of these.
ROWS, VECTOR = (8, LINE) if _wide() else (4, LINE // 2)
#: What LLVM calls the levels of the cache that a line can be fetched into.
FIRST_LEVEL, SECOND_LEVEL = 3, 2
#: Bytes by which the second request for a line comes after the first, and from a line that is worked on to one that is
#: asked for the last time.
AGAIN, SOON = 2048, 640


def adder(*terms: Term) -> Any:
    """Return a function for kernels, ``add(rows, ahead, factors, sums)``.

    For each term ``t`` it does ``sum[j] += t(a[j], f[0]) + t(b[j], f[1]) + ...`` for all j, over the rows ``a, b, ...``
    and with an array ``f`` of ``factors``. Meanwhile it asks for what is ``ahead``, a tuple of distances: so many
    entries from each of the rows on, half as many entries as a row has. Sums may be longer than rows.

    Args:
        terms: what of an entry and its row's factor is added to each of the sums.

    """
    vector = LINE if len(terms) == 1 else VECTOR

    def in_python(rows: Sequence[Array], ahead: object, factors: Sequence[Array], sums: Sequence[Array]) -> None:
        for term, numbers, total in zip(terms, factors, sums, strict=True):
            for row, number in zip(rows, numbers, strict=False):
                total[: row.size] += term.value(row, number)

    @for_kernels(in_python)
    def add(context, rows, ahead, factors, sums):  # type: ignore[no-untyped-def]
        def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
            rows, ahead, factors, sums = (
                _parts(context, builder, kind, value) for kind, value in zip(signature.args, given, strict=True)
            )
            numbers = [[one.entry_at(one.length.type(k)) for k in range(len(rows))] for one in factors]
            # With three sums the core has enough to do, and asking once more costs more than it saves.
            soon = rows if len(terms) < 3 else []
            body = partial(_add, builder, terms, rows, numbers, sums)
            _loop(builder, rows, rows[0].length, vector, ahead, soon, body)
            return context.get_dummy_value()

        return types.void(rows, ahead, factors, sums), build

    return add


def dotter(*terms: Term) -> Any:
    """Return a function for kernels, ``dot(rows, ahead, vectors, products)``.

    For each term ``t``, with its own of ``vectors`` and ``products``, it writes ``sum_j t(a[j], v[j])`` into
    ``product[0]``, ``sum_j t(b[j], v[j])`` into ``product[1]``, ... for the rows ``a, b, ...``. Meanwhile it asks for
    what is ``ahead``, as ``adder`` does.

    Args:
        terms: what of an entry of a row and of each of the vectors is added up.

    """
    vector = LINE if len(terms) == 1 else VECTOR

    def in_python(rows: Sequence[Array], ahead: object, vectors: Sequence[Array], products: Sequence[Array]) -> None:
        for term, one, product in zip(terms, vectors, products, strict=True):
            for k, row in enumerate(rows):
                product[k] = term.value(row[: one.size], one).sum()

    @for_kernels(in_python)
    def dot(context, rows, ahead, vectors, products):  # type: ignore[no-untyped-def]
        def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
            rows, ahead, vectors, products = (
                _parts(context, builder, kind, value) for kind, value in zip(signature.args, given, strict=True)
            )
            sums = Products(builder, terms, rows, vectors, vector)
            _loop(builder, rows, vectors[0].length, vector, ahead, rows, sums.add)
            sums.write(products)
            return context.get_dummy_value()

        return types.void(rows, ahead, vectors, products), build

    return dot


def _add(
    builder: Value, terms: Sequence[Term], rows: list[Line], factors: list[list[Value]], sums: list[Line],
    j: Value, width: int,
) -> None:  # fmt: skip
    """Build the sums of ``width`` entries from ``j`` on, see ``adder``."""
    read = [one.read(j, width) for one in rows]
    for term, numbers, one in zip(terms, factors, sums, strict=True):
        total = one.read(j, width)
        for w, number in zip(read, numbers, strict=True):
            total = _plus(builder, total, term.build(builder, w, repeated(builder, number, width)))
        one.write(j, total)


class Products:
    """Products of rows with vectors, see ``dotter``, which are added up by so many bytes."""

    def __init__(self, builder: Value, terms: Sequence[Term], rows: list[Line], vectors: list[Line], size: int) -> None:
        self.builder, self.terms, self.rows, self.vectors = builder, terms, rows, vectors
        self.wide = size // rows[0].size
        self.sums = {width: [[row.zeros(width) for row in rows] for _ in terms] for width in {1, self.wide}}

    def add(self, j: Value, width: int) -> None:
        """Build the part of ``width`` entries from ``j`` on."""
        multiplied = [one.read(j, width) for one in self.vectors]
        for k, row in enumerate(self.rows):
            w = row.read(j, width)
            for sums, term, v in zip(self.sums[width], self.terms, multiplied, strict=True):
                total = _plus(self.builder, self.builder.load(sums[k]), term.build(self.builder, w, v))
                self.builder.store(total, sums[k])

    def write(self, products: list[Line]) -> None:
        """Build the products as numbers, and write them."""
        builder = self.builder
        for one, narrow, broad in zip(products, self.sums[1], self.sums[self.wide], strict=True):
            for k in range(len(self.rows)):
                total = builder.fadd(builder.load(narrow[k]), _folded(builder, builder.load(broad[k])), flags=FLAGS)
                one.write(one.length.type(k), total)


class Line:
    """An array of a kernel, to be read and written in vectors."""

    def __init__(self, context: Any, builder: Value, kind: Any, array: Value) -> None:
        if kind.layout != "C":
            raise TypeError(f"rows and vectors must be contiguous, not {kind}")
        self.builder = builder
        self.entry, self.size = context.get_value_type(kind.dtype), kind.dtype.bitwidth // 8
        made = context.make_array(kind)(context, builder, array)
        self.data, self.length = made.data, builder.extract_value(made.shape, 0)

    def entry_at(self, j: Value) -> Value:
        """Return one entry, as a number."""
        return self.builder.load(self.builder.gep(self.data, [j]))

    def place(self, j: Value, pointed: Value) -> Value:
        """Return the address of entry ``j``, as that of something else."""
        return self.builder.bitcast(self.builder.gep(self.data, [j]), pointed.as_pointer())

    def read(self, j: Value, width: int) -> Value:
        """Return ``width`` entries from ``j`` on as a vector."""
        return self.builder.load(self.place(j, ir.VectorType(self.entry, width)), align=self.size)

    def write(self, j: Value, vector: Value) -> None:
        """Write a vector from ``j`` on."""
        self.builder.store(vector, self.place(j, vector.type), align=self.size)

    def fetch(self, j: Value, level: int) -> None:
        """Ask for a line that is read later, into a level of the cache."""
        place, number = self.place(j, ir.IntType(8)), ir.IntType(32)
        arguments = [place.type, number, number, number]
        fetch = declared(self.builder, "llvm.prefetch.p0", ir.VoidType(), arguments)
        to_read, data = number(0), number(1)
        self.builder.call(fetch, [place, to_read, number(level), data])

    def zeros(self, width: int) -> Value:
        """Return the place of a vector of zeros, which the compiler keeps in a register."""
        vector = ir.VectorType(self.entry, width)
        return variable(self.builder, ir.Constant(vector, None))


@for_kernels(lambda array, j: None)
def ask(context, array, j):  # type: ignore[no-untyped-def]
    """Ask for the line of the cache that an entry is in, which is read later."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        Line(context, builder, signature.args[0], given[0]).fetch(given[1], SECOND_LEVEL)
        return context.get_dummy_value()

    return types.void(array, j), build


def _parts(context: Any, builder: Value, kind: Any, given: Value) -> list[Any]:
    """Return the arrays or numbers of a tuple."""
    parts = [builder.extract_value(given, k) for k in range(len(kind))]
    return [
        Line(context, builder, one, part) if isinstance(one, types.Array) else part
        for one, part in zip(kind, parts, strict=True)
    ]


def _loop(
    builder: Value, rows: list[Line], length: Value, size: int, ahead: list[Value], soon: list[Line],
    body: Callable[[Value, int], None],
) -> None:  # fmt: skip
    """Build a loop over lines of the cache, in vectors of ``size`` bytes, and one over the entries that are left.

    Meanwhile what is ``ahead`` of the rows is asked for at half the speed, of every second row now and of the others
    with the next line, and in between again; and rows that are worked on ``soon``.
    """
    index, entry = length.type, rows[0].size
    width, line = size // entry, LINE // entry
    whole = builder.sub(length, builder.srem(length, index(line)))
    with loop(builder, index(0), whole, index(line)) as j:
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
    with loop(builder, whole, length, index(1)) as j:
        body(j, 1)


def _plus(builder: Value, total: Value, factors: list[Value]) -> Value:
    """Build the sum of a total and a product."""
    return builder.fadd(total, *factors, flags=FLAGS) if len(factors) == 1 else add_product(builder, total, *factors)


def _folded(builder: Value, vector: Value) -> Value:
    """Build the sum of a vector's entries, a vector of one, half on half."""
    while (width := vector.type.count) > 1:
        halves = [ir.Constant(ir.VectorType(ir.IntType(32), width // 2), list(range(start, start + width // 2)))
                  for start in (0, width // 2)]  # fmt: skip
        low, high = (builder.shuffle_vector(vector, vector, half) for half in halves)
        vector = builder.fadd(low, high, flags=FLAGS)
    return vector


def add_product(builder: Value, total: Value, w: Value, v: Value) -> Value:
    """Build ``total + w v``."""
    return builder.fadd(total, builder.fmul(w, v, flags=FLAGS), flags=FLAGS)


def repeated(builder: Value, number: Value, width: int) -> Value:
    """Build a vector with the same number everywhere."""
    vector, index = ir.VectorType(number.type, width), ir.IntType(32)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, number, index(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(index, width), None))
