"""A mixture over the nodes of unknown scales: moments, quantiles and draws, on plain arrays.

Arrays of components have the nodes first: weights (S,), which sum to one, means and standard deviations (S, ...).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.model import Layer
from forestmix.posterior.factor import BlockFactor

#: Halvings of the bracket of a quantile: to the last digit of it.
HALVINGS = 80


@dataclass(frozen=True)
class Node:
    """The posterior at one set of scales: normal latents of each observation.

    ``theta``: logarithms of the scales, (K,); ``mean``: (N, m); ``covariance``: one for each observation, where many
    may be the same object; ``layer``: ``p(x | y)`` with these scales.
    """

    theta: Array
    mean: Array
    covariance: tuple[BlockFactor, ...]
    layer: Layer

    def variance(self) -> Array:
        """Return the variance of each latent, (N, m); of a covariance that observations share, computed once."""
        known = {id(one): one.variance() for one in {id(part): part for part in self.covariance}.values()}
        return np.stack([known[id(part)] for part in self.covariance])


def mixture_moments(weights: Array, means: Array, variances: Array) -> tuple[Array, Array]:
    """Return mean and variance by the laws of total mean and variance."""
    mean = np.tensordot(weights, means, 1)
    return mean, np.tensordot(weights, variances + (means - mean) ** 2, 1)


def mixture_quantile(p: float, weights: Array, means: Array, sds: Array) -> Array:
    """Return the quantile of a mixture of normal distributions, entry by entry, by bisection.

    It lies between those of the components.
    """
    ends = means + sds * scipy.special.ndtri(p)
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = np.tensordot(weights, scipy.special.ndtr((middle - means) / sds), 1) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def mixture_draws(weights: Array, nodes: tuple[Node, ...], size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return draws of the latents, (size, N, m), and the node that each comes from, (size,)."""
    chosen = rng.choice(len(weights), size, p=weights)
    drawn = np.empty((size, *nodes[0].mean.shape))
    for k in np.unique(chosen):
        places = np.flatnonzero(chosen == k)
        parts = [one.sample(len(places), rng) for one in nodes[k].covariance]
        drawn[places] = nodes[k].mean + np.stack(parts, axis=1)
    return drawn, chosen
