"""What a step does with vectors of latents, each in one reading of them.

NumPy would make an array of every intermediate result, and with millions of latents they take as long as the pass over
W. Every kernel works on a range of latents, for all observations of a batch, and adds up what it sums in float64, into
``totals`` of its own. Arrays are (N, m), and ``old`` and ``inverse`` may have one row that serves all observations; the
prior's are (m,).

A loop that adds up writes nothing: the compiler would have two forms of it, with sums in another order where what is
written lies close behind what is read, and a result would depend on where its arrays happen to be.
"""

from __future__ import annotations

import math

from numba import njit

from forestmix.arrays import Array
from forestmix.kernels.lines import FAST

#: Logarithms are taken of products of this many numbers: one logarithm costs as much as all else that a latent needs.
TOGETHER = 8
#: Latents that are gone over several times, while they are in the first-level cache.
AT_ONCE = 512


@njit(cache=True, nogil=True, fastmath=FAST)
def prior_slope(
    first: int, last: int, mean: Array, prior_mean: Array, precision: Array, rows: Array, slope: Array, totals: Array
) -> None:
    """Write ``rows - (mean - prior_mean) precision`` into ``slope``, and add up ``(mean - prior_mean)^2 precision``."""
    for k in range(mean.shape[0]):
        form = 0.0
        for start in range(first, last, AT_ONCE):
            stop = min(start + AT_ONCE, last)
            for j in range(start, stop):
                slope[k, j] = rows[k, j] - (mean[k, j] - prior_mean[j]) * precision[j]
            for j in range(start, stop):
                away = float(mean[k, j] - prior_mean[j])
                form += away * away * float(precision[j])
        totals[k, 0] = form


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
        for j in range(first, last):
            sd = 1 / math.sqrt(precision[j] + information[k, j])
            new[k, j] = sd
            # Written so that NaN counts as a change.
            changed += 0.0 if abs(new[k, j] - before[j]) <= unit * before[j] else 1.0
        totals[k, 0] = changed


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def step(
    first: int, last: int, precision: Array, curvature: Array, information: Array, gradient: Array, mean: Array,
    old: Array, unit: float, new_mean: Array, new: Array, totals: Array,
) -> None:  # fmt: skip
    """Write ``mean + gradient / (precision + curvature)`` and the new spreads, and count as ``spreads`` does."""
    spreads(first, last, precision, information, old, unit, new, totals)
    for k in range(mean.shape[0]):
        own = curvature[k if curvature.shape[0] > 1 else 0]
        for j in range(first, last):
            new_mean[k, j] = mean[k, j] + gradient[k, j] / (precision[j] + own[j])


@njit(nogil=True, fastmath=FAST)
def image_of(k, first, last, parts, reach, direction, precision, image):  # type: ignore[no-untyped-def]
    """Write ``A p`` of an observation: ``precision p``, and the parts of ``W^T K W p``, see ``passes.Parts``."""
    for j in range(first, last):
        image[k, j] = precision[j] * direction[k, j]
    for t in range(parts.shape[0]):
        for j in range(max(first, reach[t, 0]), min(last, reach[t, 1])):
            image[k, j] += parts[t, k, j]


@njit(cache=True, nogil=True, fastmath=FAST)
def add_image(
    first: int, last: int, parts: Array, reach: Array, direction: Array, precision: Array, image: Array, totals: Array
) -> None:
    """Write ``A p`` of all observations, and add up ``p^T diag(precision) p``."""
    for k in range(direction.shape[0]):
        form = 0.0
        for start in range(first, last, AT_ONCE):
            stop = min(start + AT_ONCE, last)
            image_of(k, start, stop, parts, reach, direction, precision, image)
            for j in range(start, stop):
                form += float(direction[k, j]) * float(direction[k, j]) * float(precision[j])
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
            stop = min(start + AT_ONCE, last)
            image_of(k, start, stop, parts, reach, direction, precision, new_gradient)
            for j in range(start, stop):
                new_mean[k, j] = mean[k, j] + far * direction[k, j]
                new_gradient[k, j] = gradient[k, j] - far * new_gradient[k, j]
            for j in range(start, stop):
                norm += float(new_gradient[k, j]) * float(new_gradient[k, j]) * float(weights[j])
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
        weights, kept, form, slope = inverse[k if inverse.shape[0] > 1 else 0], share[k], 0.0, 0.0
        for start in range(first, last, AT_ONCE):
            stop = min(start + AT_ONCE, last)
            for j in range(start, stop):
                direction[k, j] = gradient[k, j] * weights[j] + kept * direction[k, j]
            for j in range(start, stop):
                p = float(direction[k, j])
                form += p * p * float(precision[j])
                slope += p * float(gradient[k, j])
        totals[k, 0], totals[k, 1] = form, slope


@njit(cache=True, nogil=True, fastmath=FAST)
def advance(
    first: int, last: int, length: Array, direction: Array, measure: Array, vector: Array, totals: Array
) -> None:
    """Add ``length`` times the direction to a vector, and add up its product with ``measure`` there."""
    for k in range(vector.shape[0]):
        far, product = length[k], 0.0
        for start in range(first, last, AT_ONCE):
            stop = min(start + AT_ONCE, last)
            for j in range(start, stop):
                vector[k, j] += far * direction[k, j]
            for j in range(start, stop):
                product += float(vector[k, j]) * float(measure[k, j])
        totals[k, 0] = product
