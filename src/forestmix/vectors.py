"""What a step does with vectors of latents: by NumPy where they are short, else compiled, in one reading of them.

Arrays are (N, m), and those of q's spread may have one row that serves all observations; the prior's are (m,). Sums are
in float64. ``kernels.vectors`` has the same functions for many latents.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from forestmix import memory
from forestmix.arrays import Array, inner
from forestmix.small import few_latents


def prior_slope(mean: Array, prior_mean: Array, precision: Array, rows: Array) -> tuple[Array, Array]:
    """Return ``rows - (mean - prior_mean) precision`` and ``sum_j (mean_j - prior_mean_j)^2 precision_j``, (N,)."""
    if few_latents(mean.shape):
        away = mean - prior_mean
        return rows - away * precision, _form(away, precision)
    slope = memory.empty(mean.shape, mean.dtype)
    return slope, _compiled("prior_slope", mean.shape, 1, mean, prior_mean, precision, rows, slope)[:, 0]


def spread_divergence(sd: Array, precision: Array) -> Array:
    """Return ``sum_j v_j - 1 - log v_j`` with ``v = sd^2 precision``; with precision 0, ``-1 - log(2 pi sd^2)``."""
    if not few_latents(sd.shape):
        return _compiled("spread_divergence", sd.shape, 1, sd, precision)[:, 0]
    wide, proper = sd.astype(np.float64), precision > 0
    logarithm = 2 * np.log(wide) + np.log(np.where(proper, precision, 2 * math.pi))
    return np.sum(wide * wide * precision - 1 - logarithm, axis=1)


def spreads(precision: Array, information: Array, old: Array, unit: float) -> Array:
    """Return ``1 / sqrt(precision + information)``, or ``old`` itself where none differs from it by over ``unit``."""
    if few_latents(information.shape):
        with np.errstate(all="ignore"):
            new = 1 / np.sqrt(precision + information)
            changed = not np.all(np.abs(new - old) <= unit * old)
    else:
        new = memory.empty(information.shape, information.dtype)
        changed = bool(_compiled("spreads", new.shape, 1, precision, information, old, unit, new).any())
    return new if changed or new.shape != old.shape else old


def step(
    precision: Array, curvature: Array, information: Array, gradient: Array, mean: Array, old: Array, unit: float
) -> tuple[Array, Array]:
    """Return ``mean + gradient / (precision + curvature)``, and the spreads as ``spreads`` does."""
    if few_latents(mean.shape):
        with np.errstate(all="ignore"):
            return mean + gradient / (precision + curvature), spreads(precision, information, old, unit)
    new_mean, new = (memory.empty(part.shape, part.dtype) for part in (mean, information))
    arguments = (precision, curvature, information, gradient, mean, old, unit, new_mean, new)
    changed = _compiled("step", mean.shape, 1, *arguments).any()
    return new_mean, new if changed or new.shape != old.shape else old


def advance(vector: Array, length: Array, direction: Array, measure: Array) -> Array:
    """Move a vector by ``length`` times the direction, in place, and return its product with ``measure``, (N,)."""
    length = length.astype(vector.dtype)
    if few_latents(vector.shape):
        vector += length[:, np.newaxis] * direction
        return inner(vector, measure)
    return _compiled("advance", vector.shape, 1, length, direction, measure, vector)[:, 0]


def turn(share: Array, gradient: Array, inverse: Array, precision: Array, direction: Array) -> tuple[Array, Array]:
    """Write the next direction ``p = P^-1 gradient + share p`` over the last; ``inverse`` is ``P^-1``.

    Return ``p^T diag(precision) p`` and ``gradient^T p``, (N,).
    """
    if few_latents(gradient.shape):
        direction *= share[:, np.newaxis]
        direction += gradient * inverse
        return _form(direction, precision), inner(gradient, direction)
    sums = _compiled("turn", gradient.shape, 2, share, gradient, inverse, precision, direction)
    return sums[:, 0], sums[:, 1]


def move(
    length: Array, direction: Array, parts: Any, precision: Array, inverse: Array, mean: Array, gradient: Array
) -> tuple[Array, Array, Array]:
    """Go ``length`` along the direction p, on which the gradient falls by ``length`` times ``A p``.

    ``parts`` are those of ``W^T K W p`` (``passes.Parts``). Return mean, gradient, and ``gradient^T P^-1 gradient``.
    """
    length = length.astype(mean.dtype)
    if few_latents(direction.shape):
        far, image = length[:, np.newaxis], add_image(parts, direction, precision)[0]
        new = gradient - far * image
        norm = np.einsum("kj,kj,kj->k", *np.broadcast_arrays(new, new, inverse), dtype=np.float64)
        return mean + far * direction, new, np.asarray(norm)
    new_mean, new_gradient = (memory.empty(direction.shape, direction.dtype) for _ in range(2))
    given = (length, direction, *parts, precision, inverse, mean, gradient, new_mean, new_gradient)
    return new_mean, new_gradient, _compiled("move", direction.shape, 1, *given)[:, 0]


def add_image(parts: Any, direction: Array, precision: Array) -> tuple[Array, Array]:
    """Return ``A p``, the parts of ``W^T K W p`` and ``precision p`` added up, and ``p^T diag(precision) p``, (N,)."""
    if few_latents(direction.shape):
        image = direction * precision
        for sums, (first, last) in zip(parts.sums, parts.reach, strict=True):
            image[:, first:last] += sums[:, first:last]
        return image, _form(direction, precision)
    image = memory.empty(direction.shape, direction.dtype)
    return image, _compiled("add_image", image.shape, 1, *parts, direction, precision, image)[:, 0]


def _form(vector: Array, precision: Array) -> Array:
    """Return ``sum_j vector_j^2 precision_j``, (N,)."""
    return np.asarray(np.einsum("kj,kj,j->k", vector, vector, precision, dtype=np.float64))


def _compiled(kernel: str, shape: tuple[int, int], sums: int, *arguments: Any) -> Array:
    """Run a kernel of ``kernels.vectors`` on threads."""
    from forestmix.engines.compiled import threaded, vectors

    return threaded.summed(getattr(vectors, kernel), shape, sums, *arguments)
