"""Nodes and weights for the integral over unknown scales, ``exp L(theta) d theta`` (after Rue et al. 2009, INLA).

One scale: an even grid in u, with ``theta = mode + width sinh(u / width)`` in standard deviations of the mode, so that
the long tail towards a scale of 0 takes few nodes. Its trapezoidal sum converges faster than any power of the step for
a smooth L, and its error at half the step is about the square of that at the whole. Several scales: importance sampling
with quasi-random (Sobol) points of a Student t around the mode, redrawn around the moments found until the effective
number of nodes suffices. Draws of all rounds are weighted by the mixture of their proposals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError

#: The grid ends where the density is below this share of its peak, as a logarithm.
LOG_TAIL = -18.0
#: Its first step, in standard deviations of the curvature at the mode, and how many of these the grid stays even for.
STEP, WIDTH = 0.7, 3.0
#: The integral may change by so much when every other node is left out; else the step is halved, at most so often.
GRID_ERROR, HALVINGS = 1e-3, 4
#: How far from its mode a scale may be, as a logarithm: beyond it the posterior has no end.
FARTHEST = 100.0
#: Degrees of freedom of the proposals.
DF = 5.0
#: Nodes of the first round of importance sampling, of all rounds at most, and the effective number that suffices.
FIRST_ROUND, MOST_NODES, ENOUGH = 128, 2048, 80.0


class Integral(NamedTuple):
    """Nodes (S, K), L there, log weights (S,) that sum to one, the log of the integral, and the effective number."""

    nodes: Array
    log_density: Array
    log_weights: Array
    log_integral: float
    effective: float


#: L at some theta, (K,); minus infinity where it cannot be computed.
LogDensity = Callable[[Array], float]


def grid(log_density: LogDensity, mode: float, sd: float) -> Integral:
    """Return the integral over one scale; the grid is refined until its sum no longer changes."""
    known = {0.0: log_density(np.array([mode]))}
    step = STEP
    for _ in range(1 + HALVINGS):
        for side in (1, -1):
            _extend(log_density, known, mode, sd, side * step)
        u = np.array(sorted(known))
        values = np.array([known[one] for one in u])
        log_terms = values + np.log(sd * np.cosh(u / WIDTH))
        fine = scipy.special.logsumexp(log_terms) + np.log(step)
        every_other = np.rint(u / step).astype(int) % 2 == 0
        coarse = scipy.special.logsumexp(log_terms[every_other]) + np.log(2 * step)
        if abs(fine - coarse) <= GRID_ERROR:
            break
        step /= 2
    weights = log_terms - scipy.special.logsumexp(log_terms)
    return Integral(_stretched(u, mode, sd)[:, None], values, weights, float(fine), _effective(weights))


def _stretched(u: Array, mode: float, sd: float) -> Array:
    """Return ``theta = mode + sd width sinh(u / width)``."""
    return mode + sd * WIDTH * np.sinh(u / WIDTH)


def _extend(log_density: LogDensity, known: dict[float, float], mode: float, sd: float, step: float) -> None:
    """Add nodes on the side of the step's sign until the density is below its tail, those between known ones too."""
    k = 0
    while known[k * step] >= max(known.values()) + LOG_TAIL:
        k += 1
        theta = _stretched(np.array([k * step]), mode, sd)
        if abs(float(theta[0]) - mode) > FARTHEST:
            raise ForestmixError(
                f"The posterior of an unknown scale does not end towards {'infinity' if step > 0 else '0'}: the data "
                "do not bound it and its prior does not either. Give a proper prior, such as scales.HalfNormal(1.0)."
            )
        if k * step not in known:
            known[k * step] = log_density(theta)


def importance(log_density: LogDensity, mode: Array, covariance: Array, seed: int = 0) -> Integral:
    """Return the integral over several scales, with more nodes until their effective number suffices."""
    proposals = [_StudentT(mode, covariance)]
    counts, rounds = [FIRST_ROUND], [proposals[0].draw(FIRST_ROUND, seed)]
    values = [np.array([log_density(theta) for theta in rounds[0]])]
    while True:
        nodes, log_target = np.concatenate(rounds), np.concatenate(values)
        densities = np.stack([proposal.log_density(nodes) for proposal in proposals])
        shares = np.log(np.array(counts) / np.sum(counts))
        log_ratio = log_target - scipy.special.logsumexp(densities + shares[:, None], axis=0)
        total = scipy.special.logsumexp(log_ratio)
        weights = log_ratio - total
        effective = _effective(weights)
        if effective >= ENOUGH or len(nodes) >= MOST_NODES:
            return Integral(nodes, log_target, weights, float(total - np.log(len(nodes))), effective)
        proposals.append(_StudentT(*_moments(nodes, np.exp(weights), covariance)))
        counts.append(len(nodes))
        rounds.append(proposals[-1].draw(len(nodes), seed + len(rounds)))
        values.append(np.array([log_density(theta) for theta in rounds[-1]]))


def _moments(nodes: Array, weights: Array, fallback: Array) -> tuple[Array, Array]:
    """Return weighted mean and covariance, with a part of the last covariance while few nodes count."""
    mean = weights @ nodes
    found = (weights[:, None] * (nodes - mean)).T @ (nodes - mean)
    trust = min(1.0, _effective(np.log(np.maximum(weights, 1e-300))) / (10 * nodes.shape[1]))
    return mean, trust * found + (1 - trust) * fallback + 1e-8 * np.eye(len(mean))


class _StudentT:
    """A multivariate t with ``DF`` degrees of freedom; ``covariance`` is that of the normal it comes from."""

    def __init__(self, centre: Array, covariance: Array) -> None:
        self.centre, self.root = centre, np.linalg.cholesky(covariance)

    def draw(self, count: int, seed: int) -> Array:
        """Return Sobol points, (count, K): normal ones over the root of a chi-squared one."""
        size = len(self.centre)
        # The last digit of a point on the border would be an infinite normal.
        points = scipy.stats.qmc.Sobol(size + 1, seed=seed).random(count).clip(1e-12, 1 - 1e-12)
        normal = scipy.special.ndtri(points[:, :size])
        spread = scipy.special.gammaincinv(0.5 * DF, points[:, size]) * 2 / DF
        return self.centre + (normal / np.sqrt(spread)[:, None]) @ self.root.T

    def log_density(self, theta: Array) -> Array:
        """Return the log density at each point of (S, K)."""
        size = len(self.centre)
        scaled = scipy.linalg.solve_triangular(self.root, (theta - self.centre).T, lower=True)
        constant = scipy.special.gammaln(0.5 * (DF + size)) - scipy.special.gammaln(0.5 * DF)
        constant -= 0.5 * size * np.log(np.pi * DF) + np.sum(np.log(np.diag(self.root)))
        return constant - 0.5 * (DF + size) * np.log1p(np.sum(scaled**2, axis=0) / DF)


def _effective(log_weights: Array) -> float:
    """Return ``1 / sum w^2``, the number of equal weights that would serve as well."""
    return float(np.exp(-scipy.special.logsumexp(2 * log_weights)))
