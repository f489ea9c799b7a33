"""Checks of the arguments that weights are built from. What is right costs no memory of the size of the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from forestmix.arrays import Array, first_index
from forestmix.checks import whole_number
from forestmix.errors import ArgumentError

# Every array of this many float64 must be addressable by one signed machine word.
LARGEST_COUNT = int(np.iinfo(np.intp).max) // 8


def floating_dtype(name: str, given: DTypeLike) -> np.dtype[Any]:
    """Return ``given`` as a dtype if it is float32 or float64."""
    wrong = ArgumentError(f"{name} must be float32 or float64; got {given!r}.")
    try:
        dtype = np.dtype(given)
    except TypeError as error:
        raise wrong from error
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise wrong
    return dtype


def check_matrix_shape(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return ``shape`` if it has two dimensions and neither is empty."""
    if len(shape) != 2:
        raise ArgumentError(f"{name} must be 2-d, (observed variables, latents); got {len(shape)}-d of shape {shape}.")
    if 0 in shape:
        raise ArgumentError(f"{name} must have at least one row and one column; it is empty, of shape {shape}.")
    return shape[0], shape[1]


def check_finite_matrix(name: str, array: Array) -> None:
    """Raise if an entry of the 2-d ``array`` is not finite, naming the first in C order and their number."""
    if sums_to_finite(array):
        return
    wrong = ~np.isfinite(array)
    if wrong.any():
        first = first_index(wrong)
        raise not_finite(name, int(np.count_nonzero(wrong)), first, array[first])


def sums_to_finite(entries: Array) -> bool:
    """Return whether all entries are finite, judged by their sum: True is certain, False may be an overflow.

    Adding up is several times faster than asking each entry, and takes no memory.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(entries)))


def not_finite(name: str, count: int, first: tuple[int, ...], value: object) -> ArgumentError:
    """Return the error for ``count`` entries that are NaN or infinite."""
    entries = "1 entry that is" if count == 1 else f"{count} entries that are"
    return ArgumentError(f"{name} must be finite; got {entries} not, the first {value} at index {first}.")


def positive_integers(name: str, values: object, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``values`` as a tuple of positive ints whose length is one of ``lengths``."""
    try:
        given: tuple[Any, ...] = tuple(values)  # type: ignore[arg-type]
    except TypeError:
        given = ()
    if len(given) not in lengths or isinstance(values, str):
        wanted = " or ".join(map(str, lengths))
        raise ArgumentError(f"{name} must be {wanted} positive integers; got {values!r}.")
    return tuple(whole_number(f"every entry of {name}", value) for value in given)


def check_counts(name: str, **counts: int) -> None:
    """Raise if a count, a Python int and so exact, is more than an array can have entries."""
    for what, count in counts.items():
        if count > LARGEST_COUNT:
            raise ArgumentError(
                f"{name} is too large: integer overflow of sizes, it would have {count} {what}, "
                f"and at most {LARGEST_COUNT} can be addressed."
            )
