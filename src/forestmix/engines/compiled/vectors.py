"""What a step does with vectors of latents, each in one reading of them.

NumPy would make an array of every intermediate result, and with millions of latents they take as long as the pass over
W. Every kernel works on a range of latents, for all observations of a batch, and adds up what it sums in float64, into
``totals`` of its own. Arrays are (N, m), and ``old`` and ``inverse`` may have one row that serves all observations; the
prior's are (m,).

Work is done by functions on a part of a row that fits the first-level cache. Their loops begin at 0: from elsewhere on,
an index might be negative, as far as the compiler can tell, and it would not use vectors. A loop that adds up writes
nothing: the compiler would have two forms of it, with sums in another order where what is written lies close behind
what is read, and a result would depend on where its arrays happen to be.
"""

from __future__ import annotations

import math

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.terms import FAST

#: Logarithms are taken of products of this many numbers: one logarithm costs as much as all else that a latent needs.
TOGETHER = 8
#: Latents that are gone over several times, while they are in the first-level cache.
AT_ONCE = 512


@njit(nogil=True)
def block(start, last):  # type: ignore[no-untyped-def]
    """Return the part of a range that is worked on together."""
    return slice(start, min(start + AT_ONCE, last))


@njit(nogil=True, fastmath=FAST)
def product(first, second):  # type: ignore[no-untyped-def]
    """Return ``first^T second``."""
    total = 0.0
    for j in range(first.size):
        total += float(first[j]) * float(second[j])
    return total


@njit(nogil=True, fastmath=FAST)
def squares(values, weights):  # type: ignore[no-untyped-def]
    """Return ``values^T diag(weights) values``."""
    total = 0.0
    for j in range(values.size):
        total += float(values[j]) * float(values[j]) * float(weights[j])
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def prior_slope(
    first: int, last: int, mean: Array, prior_mean: Array, precision: Array, rows: Array, slope: Array, totals: Array
) -> None:
    """Write ``rows - (mean - prior_mean) precision`` into ``slope``, and add up ``(mean - prior_mean)^2 precision``."""
    for k in range(mean.shape[0]):
        form = 0.0
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            form += slope_of(mean[k, at], prior_mean[at], precision[at], rows[k, at], slope[k, at])
        totals[k, 0] = form


@njit(nogil=True, fastmath=FAST)
def slope_of(mean, prior_mean, precision, rows, slope):  # type: ignore[no-untyped-def]
    """Do what ``prior_slope`` does, for a part of one observation, and return what it adds up."""
    for j in range(mean.size):
        slope[j] = rows[j] - (mean[j] - prior_mean[j]) * precision[j]
    form = 0.0
    for j in range(mean.size):
        away = float(mean[j] - prior_mean[j])
        form += away * away * float(precision[j])
    return form


@njit(cache=True, nogil=True)
def spread_divergence(first: int, last: int, sd: Array, precision: Array, totals: Array) -> None:
    """Add up ``v - 1 - log v`` with ``v = sd^2 precision``; where the precision is 0, ``-1 - log(2 pi sd^2)``."""
    for k in range(sd.shape[0]):
        plain, logarithms = 0.0, 0.0
        for start in range(first, last, TOGETHER):
            product = 1.0
            for j in range(start, min(start + TOGETHER, last)):
                v = float(sd[k, j]) * float(sd[k, j])
                v *= float(precision[j]) if precision[j] > 0 else 2 * math.pi
                plain += v - 1 if precision[j] > 0 else -1.0
                product *= v
            if 1e-280 < product < 1e280:
                logarithms += math.log(product)
                continue
            for j in range(start, min(start + TOGETHER, last)):
                scale = float(precision[j]) if precision[j] > 0 else 2 * math.pi
                logarithms += 2 * math.log(float(sd[k, j])) + math.log(scale)
        totals[k, 0] = plain - logarithms


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def spreads(
    first: int, last: int, precision: Array, information: Array, old: Array, unit: float, new: Array, totals: Array
) -> None:
    """Write ``1 / sqrt(precision + information)``, and count where it differs from ``old`` by more than ``unit``."""
    for k in range(information.shape[0]):
        changed = 0.0
        before = old[k if old.shape[0] > 1 else 0]
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            changed += new_spreads(precision[at], information[k, at], before[at], unit, new[k, at])
        totals[k, 0] = changed


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def new_spreads(precision, information, before, unit, new):  # type: ignore[no-untyped-def]
    """Do what ``spreads`` does, likewise."""
    for j in range(new.size):
        new[j] = 1 / math.sqrt(precision[j] + information[j])
    changed = 0.0
    for j in range(new.size):
        # Written so that NaN counts as a change.
        changed += 0.0 if abs(new[j] - before[j]) <= unit * before[j] else 1.0
    return changed


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def step(
    first: int, last: int, precision: Array, curvature: Array, information: Array, gradient: Array, mean: Array,
    old: Array, unit: float, new_mean: Array, new: Array, totals: Array,
) -> None:  # fmt: skip
    """Write ``mean + gradient / (precision + curvature)`` and the new spreads, and count as ``spreads`` does."""
    spreads(first, last, precision, information, old, unit, new, totals)
    for k in range(mean.shape[0]):
        own = curvature[k if curvature.shape[0] > 1 else 0]
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            move_means(precision[at], own[at], gradient[k, at], mean[k, at], new_mean[k, at])


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def move_means(precision, curvature, gradient, mean, new_mean):  # type: ignore[no-untyped-def]
    """Write ``mean + gradient / (precision + curvature)``."""
    for j in range(mean.size):
        new_mean[j] = mean[j] + gradient[j] / (precision[j] + curvature[j])


@njit(nogil=True, fastmath=FAST)
def image_of(k, start, stop, parts, reach, direction, precision, image):  # type: ignore[no-untyped-def]
    """Write ``A p`` of an observation: ``precision p``, and the parts of ``W^T K W p``, see ``passes.Parts``."""
    at = slice(start, stop)
    _multiply(precision[at], direction[k, at], image[k, at])
    for t in range(parts.shape[0]):
        at = slice(max(start, reach[t, 0]), min(stop, reach[t, 1]))
        if at.start < at.stop:
            add_to(parts[t, k, at], image[k, at])


@njit(nogil=True, fastmath=FAST)
def _multiply(first, second, result):  # type: ignore[no-untyped-def]
    for j in range(result.size):
        result[j] = first[j] * second[j]


@njit(nogil=True, fastmath=FAST)
def add_to(part, total):  # type: ignore[no-untyped-def]
    """Add a vector to another."""
    for j in range(total.size):
        total[j] += part[j]


@njit(nogil=True, fastmath=FAST)
def total_of(parts, side_by_side, reach, start, which, total):  # type: ignore[no-untyped-def]
    """Write one sum of all threads, in their order, from place ``start`` on.

    ``parts`` is (threads, places, sums) with all sums of a place side by side, else (threads, sums, places). A thread
    has sums for the places from ``reach[t, 0]`` to ``reach[t, 1]``. For others it has written nothing.
    """
    total[:] = 0
    for t in range(parts.shape[0]):
        low, high = max(start, reach[t, 0]), min(start + total.size, reach[t, 1])
        if low >= high:
            continue
        if side_by_side:
            add_to(parts[t, low:high, which], total[low - start : high - start])
        else:
            add_to(parts[t, which, low:high], total[low - start : high - start])


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def divide(values, by):  # type: ignore[no-untyped-def]
    """Divide a vector by another. To compile the same of whole arrays, Numba takes two seconds."""
    for j in range(values.size):
        values[j] /= by[j]


@njit(cache=True, nogil=True, error_model="numpy")
def add_up(
    first: int, last: int, parts: Array, side_by_side: bool, reach: Array, sd: Array, absolute: bool, out: Array
) -> None:
    """Write the sums of all threads for a range of latents, see ``total_of``, each sum in a row of its own.

    With ``absolute`` the second sum is ``D_j sigma_j``, and is written as ``D_j``.
    """
    for start in range(first, last, AT_ONCE):
        at = block(start, last)
        for k in range(out.shape[0]):
            total_of(parts, side_by_side, reach, start, k, out[k, at])
        if absolute:
            divide(out[1, at], sd[at])


@njit(nogil=True, fastmath=FAST)
def _go(vector, far, direction, end):  # type: ignore[no-untyped-def]
    """Write ``vector + far direction``, which may take the vector's place."""
    for j in range(end.size):
        end[j] = vector[j] + far * direction[j]


@njit(cache=True, nogil=True, fastmath=FAST)
def add_image(
    first: int, last: int, parts: Array, reach: Array, direction: Array, precision: Array, image: Array, totals: Array
) -> None:
    """Write ``A p`` of all observations, and add up ``p^T diag(precision) p``."""
    for k in range(direction.shape[0]):
        form = 0.0
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            image_of(k, at.start, at.stop, parts, reach, direction, precision, image)
            form += squares(direction[k, at], precision[at])
        totals[k, 0] = form


@njit(cache=True, nogil=True, fastmath=FAST)
def move(
    first: int, last: int, length: Array, direction: Array, parts: Array, reach: Array, precision: Array,
    inverse: Array, mean: Array, gradient: Array, new_mean: Array, new_gradient: Array, totals: Array,
) -> None:  # fmt: skip
    """Go ``length`` along the direction, and add up ``gradient^T P^-1 gradient`` there; ``inverse`` is P^-1.

    The gradient falls by ``length`` times ``A p``, see ``image_of``.
    """
    for k in range(direction.shape[0]):
        far, weights, norm = length[k], inverse[k if inverse.shape[0] > 1 else 0], 0.0
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            image_of(k, at.start, at.stop, parts, reach, direction, precision, new_gradient)
            _go(mean[k, at], far, direction[k, at], new_mean[k, at])
            _go(gradient[k, at], -far, new_gradient[k, at], new_gradient[k, at])
            norm += squares(new_gradient[k, at], weights[at])
        totals[k, 0] = norm


@njit(cache=True, nogil=True, fastmath=FAST)
def turn(
    first: int, last: int, share: Array, gradient: Array, inverse: Array, precision: Array, direction: Array,
    totals: Array,
) -> None:  # fmt: skip
    """Write the next direction, ``P^-1 gradient + share direction``, over the last one.

    Add up ``p^T diag(precision) p`` and ``gradient^T p`` of it.
    """
    for k in range(direction.shape[0]):
        weights, form, slope = inverse[k if inverse.shape[0] > 1 else 0], 0.0, 0.0
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            _turn(gradient[k, at], weights[at], share[k], direction[k, at])
            form += squares(direction[k, at], precision[at])
            slope += product(direction[k, at], gradient[k, at])
        totals[k, 0], totals[k, 1] = form, slope


@njit(nogil=True, fastmath=FAST)
def _turn(gradient, inverse, share, direction):  # type: ignore[no-untyped-def]
    for j in range(direction.size):
        direction[j] = gradient[j] * inverse[j] + share * direction[j]


@njit(cache=True, nogil=True, fastmath=FAST)
def advance(
    first: int, last: int, length: Array, direction: Array, measure: Array, vector: Array, totals: Array
) -> None:
    """Add ``length`` times the direction to a vector, and add up its product with ``measure`` there."""
    for k in range(vector.shape[0]):
        far, total = length[k], 0.0
        for start in range(first, last, AT_ONCE):
            at = block(start, last)
            _go(vector[k, at], far, direction[k, at], vector[k, at])
            total += product(vector[k, at], measure[k, at])
        totals[k, 0] = total
