"""Posterior predictive checks: simple statistics of x beside those of data drawn from the posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.posterior.component import Component
from forestmix.posterior.system import padded
from forestmix.weights.blocks import blocks_of

if TYPE_CHECKING:
    from forestmix.posterior.marginals import Mixture
    from forestmix.posterior.posterior import Posterior

#: Counts are drawn for natural parameters up to this: beyond, they would not fit integers.
LARGEST_ETA = 40.0
#: What is compared.
STATISTICS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda x: np.mean(x, axis=-1),
    "sd": lambda x: np.std(x, axis=-1),
    "largest": lambda x: np.max(x, axis=-1),
    "share of zeros": lambda x: np.mean(x == 0, axis=-1),
}


class Discrepancy(NamedTuple):
    """A statistic of x, its mean over replicated data, and ``P(replicated > observed)``, ties counted by half."""

    observed: float
    replicated: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.observed:.4g}, replicated {self.replicated:.4g}, p-value {self.p_value:.3f}"


def discrepancies(posterior: Posterior, rng: np.random.Generator, size: int) -> dict[str, Discrepancy]:
    """Return the statistics of one observation; that of zeros only where x or its replicates have some."""
    data, weights = posterior.data, posterior.mixture.weights[0]
    observed = np.ones(data.x.shape[1], bool) if data.observed is None else data.observed[0]
    x = data.x[0, observed].astype(np.float64)
    if not len(x):
        return {}
    counts = rng.multinomial(size, weights / np.sum(weights))
    parts = zip(posterior.mixture.components, counts, strict=True)
    drawn = np.concatenate([_replicated(part, observed, count, rng) for part, count in parts if count], axis=1)
    each = zip(STATISTICS, _statistics(x), drawn, strict=True)
    found = {name: _discrepancy(of_x, values) for name, of_x, values in each}
    if found["share of zeros"].observed == found["share of zeros"].replicated == 0:
        del found["share of zeros"]
    return found


def _replicated(component: Component, observed: Array, count: int, rng: np.random.Generator) -> Array:
    """Return the statistics of data drawn from one component, with its own scales, (statistics, count)."""
    draws = component.sample(count, rng)[:, 0]
    blocks = blocks_of(count, 32 * len(observed))
    found = [_statistics(_rows(component, draws[block], rng)[:, observed]) for block in blocks]
    return np.concatenate(found, axis=1)


def _statistics(x: Array) -> Array:
    return np.stack([statistic(x) for statistic in STATISTICS.values()])


def _discrepancy(observed: Array, replicated: Array) -> Discrepancy:
    # Means of many like values differ by rounding alone.
    near = np.isclose(replicated, observed, rtol=1e-9, atol=0)
    p_value = np.mean(np.where(near, 0.5, replicated > observed))
    return Discrepancy(float(observed), float(np.mean(replicated)), float(p_value))


def simulate(mixture: Mixture, size: int, rng: np.random.Generator) -> Array:
    """Return rows drawn from the posterior predictive distribution of one observation, (size, n)."""
    weights = mixture.weights[0] / mixture.weights[0].sum()
    chosen = rng.choice(len(weights), size, p=weights)
    drawn = np.empty((size, mixture.components[0].layer.size))
    for place in np.unique(chosen):
        part, rows = mixture.components[place], np.flatnonzero(chosen == place)
        drawn[rows] = _rows(part, part.sample(len(rows), rng)[:, 0], rng)
    return drawn


def _rows(component: Component, latents: Array, rng: np.random.Generator) -> Array:
    """Return rows drawn given latents, (S, n)."""
    layer = component.layer
    most = np.inf if layer.family.curvature_is_constant else LARGEST_ETA
    eta = padded(layer.weights.in_double(), 0, latents.shape[1]).forward(latents) + layer.bias
    return layer.family.sample(np.minimum(eta, most), rng)
