"""Mean-field factors of a layer of latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from forestmix.arrays import Array, finite, inner, numbers, total
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, Prior


@dataclass(frozen=True)
class GaussianFactors:
    """``q_j = N(mean_j, sd_j^2)`` for a batch: ``mean`` is (N, m), ``sd`` is (N, m), or (1, m) if shared."""

    mean: Array
    sd: Array

    def take(self, keep: Array) -> GaussianFactors:
        """Return the factors of the chosen observations."""
        return GaussianFactors(self.mean[keep], take_rows(self.sd, keep))

    def divergence(self, prior: Prior) -> Array:
        """Return ``KL(q || p)`` of each observation, (N,).

        ``KL_j = (mean_j - m0_j)^2 / (2 s0_j^2) + (v - 1 - log v) / 2`` with ``v = sd_j^2 / s0_j^2``.
        """
        scaled = (self.mean - prior.bias) / prior_sd(prior)
        return 0.5 * inner(scaled, scaled) + self.spread_divergence(prior)

    def spread_divergence(self, prior: Prior) -> Array:
        """Return the part of it that comes from the standard deviations, (N or 1,)."""
        ratio = (self.sd / prior_sd(prior)) ** 2
        return 0.5 * total(ratio - 1 - np.log(ratio))


def take_rows(array: Array, keep: Array) -> Array:
    """Return the chosen rows of a batch array, or the array itself where one row serves the whole batch."""
    return array if array.shape[0] == 1 else array[keep]


def prior_sd(prior: Prior) -> Array:
    """Return the standard deviation of a Gaussian prior."""
    if not isinstance(prior.family, Gaussian):
        raise ArgumentError(f"prior must be Gaussian in this version of forestmix; got {prior.family!r}.")
    return prior.family.sd


def prior_factors(model: DEF, n_observations: int) -> GaussianFactors:
    """Return q at the prior, the default start of every algorithm."""
    m = model.n_latent
    mean = np.broadcast_to(model.prior.bias, (n_observations, m)).copy()
    return GaussianFactors(mean, np.broadcast_to(prior_sd(model.prior), (1, m)).copy())


def as_factors(name: str, q: Any, model: DEF, n_observations: int) -> GaussianFactors:
    """Return q as factors of a batch; ``q`` is a ``Result`` or a pair ``(mean, sd)``.

    ``mean`` and ``sd`` are (m,), or one row for each observation.
    """
    if hasattr(q, "mean") and hasattr(q, "sd"):
        given = (q.mean, q.sd)
    elif isinstance(q, tuple | list) and len(q) == 2:
        given = (q[0], q[1])
    else:
        raise ArgumentError(f"{name} must be a Result or a pair (mean, sd); got {type(q).__name__}.")
    mean = _batch_of_latents(f"mean of {name}", given[0], model, n_observations)
    sd = _batch_of_latents(f"sd of {name}", given[1], model, n_observations)
    if (sd <= 0).any():
        raise ArgumentError(f"sd of {name} must be greater than 0; got {sd.min()}.")
    return GaussianFactors(np.broadcast_to(mean, (n_observations, model.n_latent)).copy(), sd)


def _batch_of_latents(name: str, value: Any, model: DEF, n_observations: int) -> Array:
    array = numbers(name, value)
    m = model.n_latent
    rows = np.atleast_2d(array)
    if array.ndim > 2 or rows.shape[-1] != m or rows.shape[0] not in (1, n_observations):
        raise ArgumentError(f"{name} must have shape ({m},) or ({n_observations}, {m}); got {array.shape}.")
    return finite(name, rows.astype(model.dtype))
