"""Products of four rows of W at a time, the innermost loops of the dense passes, in LLVM's own vectors.

Four rows share one reading of the vectors they are multiplied with. While rows that are in the cache already are worked
on, the memory would stand still, so the loops ask for the rows that follow meanwhile. A core with too many requests
under way drops some, so rows are asked for again shortly before they are read. LLVM does not vectorise loops
that prefetch, and where it does vectorise keeps more sums than there are registers; so the vectors are written out
here. A term says what of an entry and of a number that goes with it is added up; the loops around it are the same for
all.

``reassoc`` lets sums be taken side by side; NaN and infinity keep their meaning, since a step that overflows must be
seen and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Bytes of a line of the cache, and of the vectors that several sums are taken in.
LINE, VECTOR = 64, 32
#: What LLVM calls the levels of the cache that a line can be fetched into.
FIRST_LEVEL, SECOND_LEVEL = 3, 2
#: Bytes from a line that is multiplied to one that is asked for again.
SOON = 2048
#: What the compiler may assume about sums; not all of ``fastmath``, which would assume that nothing overflows.
FAST = {"reassoc", "contract", "nsz", "arcp"}
FLAGS = sorted(FAST)

for_kernels: Any = intrinsic  # whose type does not say that callers leave out the context

Value = Any  # of llvmlite, which has no types
Term = Callable[[Value, Value, Value], list[Value]]


def itself(builder: Value, w: Value, v: Value) -> list[Value]:
    """Build the factors of ``w v``."""
    return [w, v]


def absolute_value(builder: Value, w: Value, v: Value) -> list[Value]:
    """Build the factors of ``|w| v``."""
    return [_absolute(builder, w), v]


def square(builder: Value, w: Value, v: Value) -> list[Value]:
    """Build the factors of ``w^2 v``."""
    return [builder.fmul(w, w, flags=FLAGS), v]


def absolute_product(builder: Value, w: Value, v: Value) -> list[Value]:
    """Build ``|w v|``. Beside ``squared_product`` it costs no multiplication."""
    return [_absolute(builder, builder.fmul(w, v, flags=FLAGS))]


def squared_product(builder: Value, w: Value, v: Value) -> list[Value]:
    """Build the factors of ``(w v)^2``."""
    return [builder.fmul(w, v, flags=FLAGS)] * 2


def adder(*terms: Term) -> Any:
    """Return a function for kernels, ``add(rows, ahead, factors, sums)``.

    For each term ``t`` it does ``sum[j] += t(a[j], f_a) + t(b[j], f_b) + ...`` for all j, over the rows ``a, b, ...``,
    and meanwhile asks for the rows ``ahead``. ``factors`` are those of all rows for the first term, then for the
    second, and so on. Sums may be longer than rows.

    Args:
        terms: what of an entry and its row's factor is added to each of the sums.

    """
    vector = LINE if len(terms) == 1 else VECTOR

    @intrinsic
    def add(context, rows, ahead, factors, sums):  # type: ignore[no-untyped-def]
        def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
            rows, ahead, factors, sums = (
                _parts(context, builder, kind, value) for kind, value in zip(signature.args, given, strict=True)
            )
            _loop(builder, rows[0], vector, ahead, partial(_add, builder, terms, rows, factors, sums))
            return context.get_dummy_value()

        return types.void(rows, ahead, factors, sums), build

    return add


def dotter(*terms: Term) -> Any:
    """Return a function for kernels, ``dot(rows, ahead, vectors)``.

    It gives ``sum_j t(a[j], v[j])``, ``sum_j t(b[j], v[j])``, ... over the rows ``a, b, ...`` for the first term ``t``
    and the first vector ``v``, then for the second, and so on, and meanwhile asks for the rows ``ahead``, and again for
    those that it is about to read.

    Args:
        terms: what of an entry of a row and of each of the vectors is added up.

    """
    vector = LINE if len(terms) == 1 else VECTOR

    @intrinsic
    def dot(context, rows, ahead, vectors):  # type: ignore[no-untyped-def]
        result = types.UniTuple(rows.dtype.dtype, len(rows) * len(terms))

        def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
            rows, ahead, vectors = (
                _parts(context, builder, kind, value) for kind, value in zip(signature.args, given, strict=True)
            )
            products = Products(builder, terms, rows, vectors, vector)
            _loop(builder, vectors[0], vector, ahead, products.add, rows)
            return context.make_tuple(builder, signature.return_type, products.totals())

        return result(rows, ahead, vectors), build

    return dot


def _add(
    builder: Value, terms: Sequence[Term], rows: list[Line], factors: list[Value], sums: list[Line],
    j: Value, width: int,
) -> None:  # fmt: skip
    """Build the sums of ``width`` entries from ``j`` on, see ``adder``."""
    read = [one.read(j, width) for one in rows]
    totals = [one.read(j, width) for one in sums]
    for s, term in enumerate(terms):
        for k, w in enumerate(read):
            factor = repeated(builder, factors[s * len(rows) + k], width)
            totals[s] = _plus(builder, totals[s], term(builder, w, factor))
    for one, total in zip(sums, totals, strict=True):
        one.write(j, total)


class Products:
    """Products of rows with vectors, see ``dotter``, which are added up by so many bytes."""

    def __init__(self, builder: Value, terms: Sequence[Term], rows: list[Line], vectors: list[Line], size: int) -> None:
        self.builder, self.terms, self.rows, self.vectors = builder, terms, rows, vectors
        self.wide = size // rows[0].size
        self.sums = {width: [rows[0].zeros(width) for _ in range(len(rows) * len(terms))] for width in {1, self.wide}}

    def add(self, j: Value, width: int) -> None:
        """Build the part of ``width`` entries from ``j`` on."""
        multiplied = [one.read(j, width) for one in self.vectors]
        for k, row in enumerate(self.rows):
            w = row.read(j, width)
            for s, (term, v) in enumerate(zip(self.terms, multiplied, strict=True)):
                place = self.sums[width][s * len(self.rows) + k]
                total = _plus(self.builder, self.builder.load(place), term(self.builder, w, v))
                self.builder.store(total, place)

    def totals(self) -> list[Value]:
        """Build the products, as numbers."""
        builder, totals = self.builder, []
        for narrow, broad in zip(self.sums[1], self.sums[self.wide], strict=True):
            total = builder.extract_element(builder.load(narrow), ir.IntType(32)(0))
            lanes = builder.load(broad)
            for lane in range(self.wide):
                total = builder.fadd(total, builder.extract_element(lanes, ir.IntType(32)(lane)), flags=FLAGS)
            totals.append(total)
        return totals


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
        return cgutils.alloca_once_value(self.builder, ir.Constant(vector, None))


def _parts(context: Any, builder: Value, kind: Any, given: Value) -> list[Any]:
    """Return the arrays or numbers of a tuple."""
    parts = [builder.extract_value(given, k) for k in range(len(kind))]
    return [
        Line(context, builder, one, part) if isinstance(one, types.Array) else part
        for one, part in zip(kind, parts, strict=True)
    ]


def _loop(
    builder: Value, over: Line, size: int, asked: list[Line], body: Callable[[Value, int], None],
    soon: Sequence[Line] = (),
) -> None:  # fmt: skip
    """Build a loop over lines of the cache, in vectors of ``size`` bytes, and one over the entries that are left.

    Meanwhile the same places of other lines are asked for, and places of the lines ``soon`` to be read.
    """
    index = over.length.type
    width, line = size // over.size, LINE // over.size
    whole = builder.sub(over.length, builder.srem(over.length, index(line)))
    with cgutils.for_range_slice(builder, index(0), whole, index(line), index) as (j, _):
        for one in asked:
            one.fetch(j, SECOND_LEVEL)
        for one in soon:
            one.fetch(builder.add(j, index(SOON // one.size)), FIRST_LEVEL)
        for start in range(0, line, width):
            body(builder.add(j, index(start)), width)
    with cgutils.for_range_slice(builder, whole, over.length, index(1), index) as (j, _):
        body(j, 1)


def _plus(builder: Value, total: Value, factors: list[Value]) -> Value:
    """Build the sum of a total and a product."""
    return builder.fadd(total, *factors, flags=FLAGS) if len(factors) == 1 else add_product(builder, total, *factors)


def _absolute(builder: Value, w: Value) -> Value:
    name = f"llvm.fabs.v{w.type.count}{w.type.element.intrinsic_name}"
    return builder.call(declared(builder, name, w.type, [w.type]), [w])


def add_product(builder: Value, total: Value, w: Value, v: Value) -> Value:
    """Build ``total + w v``."""
    return builder.fadd(total, builder.fmul(w, v, flags=FLAGS), flags=FLAGS)


def repeated(builder: Value, number: Value, width: int) -> Value:
    """Build a vector with the same number everywhere."""
    vector, index = ir.VectorType(number.type, width), ir.IntType(32)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, number, index(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(index, width), None))


def declared(builder: Value, name: str, result: Value, arguments: list[Value]) -> Value:
    """Return a function of LLVM's."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)
