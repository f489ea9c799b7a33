"""Arrays: the checks that arguments pass on their way in, and sums in double precision in arrays of any library."""

from __future__ import annotations

from reprlib import repr as shown
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from forestmix.errors import ArgumentError
from forestmix.tables import REAL, plain_array

Array = npt.NDArray[Any]


def numbers(name: str, value: Any, *, missing: bool = False) -> Array:
    """Return ``value`` as an array of real numbers, or say why it is not one.

    Masked entries become NaN where entries may be ``missing``, and are refused elsewhere.
    """
    try:
        array = plain_array(name, value, missing=missing)
    except ArgumentError:
        raise
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"{name} must be an array of numbers; got nested sequences of unequal length.") from error
    working_dtype(name, array.dtype)
    return array


def host(array: Any) -> Array:
    """Return an array of any library as one of NumPy, copied from its device if it is on one."""
    return plain_array("array", array, missing=True)


def in_precision(name: str, array: Array, dtype: npt.DTypeLike, *, positive: bool = False) -> Array:
    """Return ``array`` in ``dtype``; a number that would become infinite there, or 0 if ``positive``, is refused."""
    dtype = np.dtype(dtype)
    if array.dtype.kind != "f" or array.dtype.itemsize <= dtype.itemsize:
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore", under="ignore"):
        converted = array.astype(dtype)
    lost = np.isfinite(array) & ((np.isinf(converted)) | (positive & (converted == 0)))
    if lost.any():
        where, limits = first_index(lost), np.finfo(dtype)
        advice = "Give float64 weights, or rescale" if dtype == np.float32 else "Rescale"
        raise ArgumentError(
            f"{name} does not fit {dtype}, whose numbers go from {limits.smallest_subnormal:.2g} to {limits.max:.2g}; "
            f"got {array[where]!s}{at_index(where)}. {advice}."
        )
    return converted


def in_range(array: Array, dtype: np.dtype) -> Array:
    """Return a result in the precision of its model, in which it may be infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return array.astype(dtype)


def finite(name: str, array: Array) -> Array:
    """Return ``array`` unchanged if every entry is finite; the error says how many are not and where the first is."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = first_index(bad)
        raise ArgumentError(
            f"{name} must be finite; got {int(bad.sum())} entries that are not, the first {array[where]}"
            f"{at_index(where)}."
        )
    return array


def first_index(chosen: Array) -> tuple[int, ...]:
    """Return the index of the first entry that is True."""
    return tuple(int(k) for k in np.argwhere(chosen)[0])


def at_index(where: tuple[int, ...]) -> str:
    """Return the words that say where an entry is: nothing for a number, one index for a vector."""
    return f" at index {where if len(where) > 1 else where[0]}" if where else ""


def per_variable(name: str, value: npt.ArrayLike, *, positive: bool = False) -> Array:
    """Return a parameter that is one number, or one number for each variable, as a float array of 0 or 1 axes."""
    array = numbers(name, value)
    if array.ndim > 1:
        raise ArgumentError(f"{name} must be a number or one number per variable; got an array of shape {array.shape}.")
    if array.ndim == 1 and array.size == 0:
        raise ArgumentError(f"{name} must be a number or one number per variable; got an empty array.")
    array = finite(name, in_precision(name, array, working_dtype(name, array.dtype)).copy())
    if positive and (array <= 0).any():
        raise ArgumentError(f"{name} must be greater than 0; got {array.min()}.")
    return array


def parameter_text(value: Array) -> str:
    """Return what a ``repr`` shows of a parameter: the number, or how many there are."""
    return str(value.item()) if value.ndim == 0 else f"<{value.size} values>"


def fits(name: str, array: Array, size: int, what: str) -> Array:
    """Return a checked parameter unchanged if it is one number or has one entry for each of ``size`` variables."""
    if array.ndim == 1 and array.shape[0] != size:
        raise ArgumentError(
            f"{name} must be a number or have one entry for each of the {size} {what}; got {array.shape[0]}."
        )
    return array


def double(xp: Any, device: Any) -> Any:
    """Return float64, or float32 for a library or device that has no other."""
    return xp.__array_namespace_info__().dtypes(device=device, kind="real floating").get("float64", xp.float32)


def total(terms: Any) -> Any:
    """Return the sum over the last axis, in double precision whatever the precision of the terms."""
    if isinstance(terms, np.ndarray):
        return np.asarray(np.sum(terms, axis=-1, dtype=np.float64))
    xp = array_api_compat.array_namespace(terms)
    return xp.sum(terms, axis=-1, dtype=double(xp, array_api_compat.device(terms)))


def inner(first: Any, second: Any) -> Any:
    """Return the sum of products over the last axis, in double precision; NumPy has no array of the products."""
    if isinstance(first, np.ndarray):
        # Not np.vecdot: BLAS wakes a thread for it, which on a busy machine takes longer than the sum.
        return np.asarray(np.einsum("...j,...j->...", first, second, dtype=np.float64))
    return total(first * second)


def form(vector: Any, weights: Any) -> Any:
    """Return ``sum_j vector_j^2 weights_j`` over the last axis, likewise; weights are (m,), (1, m) or (N, m)."""
    if isinstance(vector, np.ndarray):
        return np.asarray(np.einsum("...j,...j,...j->...", vector, vector, weights, dtype=np.float64))
    return total(vector * vector * weights)


def rms(values: Any) -> Array:
    """Return the root mean square of each observation on the host, (N,)."""
    return np.sqrt(host(inner(values, values)).astype(np.float64) / values.shape[1])


def working_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 and float64 stay, other real numbers become float64."""
    if dtype.kind not in REAL:
        raise ArgumentError(f"{name} must hold real numbers; got dtype {dtype}.")
    return np.dtype(np.float32) if dtype == np.float32 else np.dtype(np.float64)


def generator(rng: Any, name: str = "rng") -> np.random.Generator:
    """Return a random generator: the one given, or a new one from a seed."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None or (isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0):
        return np.random.default_rng(rng)
    raise ArgumentError(
        f"{name} must be a numpy.random.Generator, an integer seed of at least 0, or None; got {shown(rng)}."
    )
