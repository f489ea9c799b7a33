"""What loops over W add up, as code for LLVM and as plain Python, and the decorator that chooses between the two.

Code is built by llvmlite; its loops and variables are here as well.

Functions written in LLVM's own vectors have no Python body, so without a compiler (``NUMBA_DISABLE_JIT=1``, which
debuggers and measures of coverage ask for) another function stands in for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir
from numba import config
from numba.extending import intrinsic

#: What the compiler may assume about sums; not all of ``fastmath``, which would assume that nothing overflows.
FAST = {"reassoc", "contract", "nsz", "arcp"}
FLAGS = sorted(FAST)

Value = Any  # of llvmlite, which has no types


def for_kernels(plain: Callable[..., Any]) -> Any:
    """Return a decorator for a function that builds code; ``plain`` does the same in Python where nothing is compiled.

    Kernels call either without the context.
    """
    without_compiler = getattr(config, "DISABLE_JIT", False)
    return lambda build: plain if without_compiler else intrinsic(build)


class Term(NamedTuple):
    """A function of an entry ``w`` and a number ``v``: its factors as code, and its value in Python."""

    build: Callable[[Value, Value, Value], list[Value]]
    value: Callable[[Any, Any], Any]


def declared(builder: Value, name: str, result: Value, arguments: list[Value]) -> Value:
    """Return a function of LLVM's."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def variable(builder: Value, value: Value) -> Value:
    """Build a variable that begins with a value, and return its place; the compiler keeps it in a register."""
    with builder.goto_entry_block():  # one place, also where the variable is inside a loop
        place = builder.alloca(value.type)
    builder.store(value, place)
    return place


@contextmanager
def loop(builder: Value, start: Value, stop: Value, step: Value) -> Iterator[Value]:
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


def _absolute(builder: Value, w: Value) -> Value:
    name = f"llvm.fabs.v{w.type.count}{w.type.element.intrinsic_name}"
    return builder.call(declared(builder, name, w.type, [w.type]), [w])


def _product(builder: Value, a: Value, b: Value) -> Value:
    return builder.fmul(a, b, flags=FLAGS)


itself = Term(lambda builder, w, v: [w, v], lambda w, v: w * v)
absolute_value = Term(lambda builder, w, v: [_absolute(builder, w), v], lambda w, v: abs(w) * v)
square = Term(lambda builder, w, v: [_product(builder, w, w), v], lambda w, v: w * w * v)
#: Beside ``squared_product`` this costs no multiplication.
absolute_product = Term(lambda builder, w, v: [_absolute(builder, _product(builder, w, v))], lambda w, v: abs(w * v))
squared_product = Term(lambda builder, w, v: [_product(builder, w, v)] * 2, lambda w, v: (w * v) ** 2)
