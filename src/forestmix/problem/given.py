"""Factors that a user gave, checked against a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, finite, host, in_precision, numbers
from forestmix.errors import ArgumentError
from forestmix.latents import LATENTS, ArrayFactors, BernoulliFactors, Factors, GaussianFactors
from forestmix.model import DEF


def as_layers(name: str, q: Any, model: DEF, n_observations: int) -> tuple[Factors, ...]:
    """Return q as factors of a batch, for each latent layer from the lowest up.

    ``q`` is a ``Result``, or one entry for each layer: one of ``Result.layers``; a pair ``(mean, sd)`` for Gaussian
    latents; probabilities for Bernoulli latents. With one latent layer the entry may stand alone. Arrays are (m,), or
    one row for each observation.
    """
    count = len(model.layers)
    if hasattr(q, "layers"):
        entries = list(q.layers)
    elif count == 1 and not (isinstance(q, tuple | list) and len(q) == 1):
        entries = [q]
    else:
        entries = list(q) if isinstance(q, tuple | list) else []
    if len(entries) != count:
        raise ArgumentError(
            f"{name} must be a Result or hold one entry for each of the {count} latent layers; "
            f"got {f'{len(entries)} entries' if entries else type(q).__name__}."
        )
    layers = zip(entries, model.latent_families, model.latent_sizes, strict=True)
    names = [name] if count == 1 else [f"{name}[{k}]" for k in range(count)]
    return tuple(
        _layer_factors(label, entry, family, (n_observations, size), model.dtype)
        for label, (entry, family, size) in zip(names, layers, strict=True)
    )


def _layer_factors(name: str, entry: Any, family: Any, shape: tuple[int, int], dtype: np.dtype) -> Factors:
    """Return one layer of q, checked."""
    kind = LATENTS[type(family)]
    if hasattr(entry, "factors"):
        return _checked_factors(name, entry.factors, kind, shape)
    if kind is BernoulliFactors:
        probability = batch_of_latents(f"probabilities of {name}", entry, shape, dtype).astype(np.float64)
        wrong = probability[(probability < 0) | (probability > 1)]
        if wrong.size:
            raise ArgumentError(f"probabilities of {name} must lie between 0 and 1; got {wrong[0]}.")
        # A start at exactly 0 or 1 could never be left again.
        return BernoulliFactors(scipy.special.logit(np.clip(probability, 1e-12, 1 - 1e-12))).expanded(shape[0])
    if kind is not GaussianFactors:
        raise ArgumentError(f"{name} must be from a Result for {family!r} latents; got {type(entry).__name__}.")
    if hasattr(entry, "mean") and hasattr(entry, "sd"):
        given = (entry.mean, entry.sd)
    elif isinstance(entry, tuple | list) and len(entry) == 2:
        given = (entry[0], entry[1])
    else:
        raise ArgumentError(f"{name} must be a Result or a pair (mean, sd); got {type(entry).__name__}.")
    mean = batch_of_latents(f"mean of {name}", given[0], shape, dtype)
    sd = batch_of_latents(f"sd of {name}", given[1], shape, dtype, positive=True)
    return GaussianFactors(np.broadcast_to(mean, shape).copy(), sd)


def _checked_factors(name: str, factors: Factors, kind: type[Factors], shape: tuple[int, int]) -> Factors:
    if isinstance(factors, ArrayFactors):
        factors = GaussianFactors(host(factors.mean), host(factors.sd))
    if not isinstance(factors, kind):
        raise ArgumentError(f"{name} must hold {kind.__name__} for this model; got {type(factors).__name__}.")
    rows, size = factors.mean.shape
    if size != shape[1] or rows not in (1, shape[0]):
        raise ArgumentError(f"{name} must be a posterior of shape {shape} or (1, {shape[1]}); got {(rows, size)}.")
    if isinstance(factors, GaussianFactors):
        return GaussianFactors(np.broadcast_to(factors.mean, shape).copy(), factors.sd)
    return factors.expanded(shape[0])


def batch_of_latents(
    name: str, value: Any, shape: tuple[int, int], dtype: np.dtype, *, positive: bool = False
) -> Array:
    """Return the mean or the sd of the latents, (N, m) or (1, m), checked."""
    array = numbers(name, value)
    count, m = shape
    if array.ndim not in (1, 2) or array.shape[-1] != m or (array.ndim == 2 and array.shape[0] not in (1, count)):
        raise ArgumentError(f"{name} must have shape ({m},) or ({count}, {m}); got {array.shape}.")
    if positive and (array <= 0).any():
        raise ArgumentError(f"{name} must be greater than 0; got {array.min()}.")
    # Not the caller's own array, which may change.
    return np.array(in_precision(name, finite(name, array), dtype, positive=positive), ndmin=2)
