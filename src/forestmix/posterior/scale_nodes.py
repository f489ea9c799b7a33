"""Nodes and weights for the integral over unknown scales, ``exp L(theta) d theta`` (after Rue et al. 2009, INLA).

Up to three scales: a lattice, even in u, with ``theta_k = mode_k + sd_k width sinh(u_k / width)``, so that the long
tail towards a scale of 0 takes few nodes. It grows from the mode to where the density is negligible. The trapezoidal
sum converges faster than any power of the step for a smooth L: its error at half the step is about the square of that
at the whole.

More scales: importance sampling with quasi-random (Sobol) points of a Student t around the mode, which on every axis of
its curvature is as wide on either side as L says there; redrawn around the moments found until the effective number of
nodes suffices. Draws of all rounds are weighted by the mixture of their proposals; ``scale_calibration.py`` makes the
weights better by what is known of the slopes of L.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError

#: How many standard deviations of the curvature at the mode a lattice stays nearly even for.
WIDTH = 3.0
#: Parts of a standard deviation that nodes of a lattice are laid at.
ROUND = 8
#: How far from its mode a scale may be, as a logarithm: beyond it the posterior has no end.
FARTHEST = 100.0
#: Degrees of freedom of the proposals; where their width is found, in standard deviations, and how wide they may be.
DF = 5.0
PROBE, NARROWEST, WIDEST = 2.0, 0.5, 4.0
#: Nodes of the first round of importance sampling, of all rounds at most, and the effective number that suffices.
FIRST_ROUND, MOST_NODES, ENOUGH = 256, 2048, 160.0


class Fineness(NamedTuple):
    """How fine a lattice is.

    ``step``: the first one, in standard deviations; ``tail``: the log of the density, relative to the peak, where it
    ends; ``error``: what the log integral may change by when every other node is left out, else the step is halved, at
    most ``halvings`` times.
    """

    step: float
    tail: float
    error: float
    halvings: int


#: By the number of scales: one costs little and is exact to about a millionth, three take some 200 nodes.
FINENESS = {1: Fineness(0.7, -18.0, 1e-3, 4), 2: Fineness(0.9, -12.0, 0.05, 1), 3: Fineness(1.1, -8.0, 0.1, 0)}


class Integral(NamedTuple):
    """Nodes (S, K), log weights (S,) that sum to one, the log of the integral, and the effective number of nodes.

    ``marginals``: for each scale places (P,) and the log of its marginal density there; ``None`` for scattered nodes.
    """

    nodes: Array
    log_weights: Array
    log_integral: float
    effective: float
    marginals: list[tuple[Array, Array]] | None


#: L at some theta, (K,); minus infinity where it cannot be computed.
LogDensity = Callable[[Array], float]


def lattice(log_density: LogDensity, mode: Array, sds: Array) -> Integral:
    """Return the integral over up to three scales; ``sds``: of each with the others held, at the mode."""
    step, tail, error, halvings = FINENESS[len(mode)]
    # On round numbers, so that rounding in the mode moves no node: the same data in another order have the same nodes.
    sds = np.exp(np.round(ROUND * np.log(sds)) / ROUND)
    mode = sds / ROUND * np.round(ROUND * mode / sds)
    known: dict[tuple[int, ...], float] = {}
    for halving in range(1 + halvings):
        if halving:
            known, step = {tuple(2 * k for k in place): value for place, value in known.items()}, step / 2
        _grow(lambda u: log_density(_stretched(u, mode, sds)), known, step, tail, FARTHEST / sds)
        places, values = np.array(list(known)), np.array(list(known.values()))
        stretch = np.log(step * sds * np.cosh(step * places / WIDTH))
        log_terms = values + np.sum(stretch, axis=1)
        fine = scipy.special.logsumexp(log_terms)
        coarse = scipy.special.logsumexp(log_terms[(places % 2 == 0).all(axis=1)]) + len(mode) * np.log(2)
        if abs(fine - coarse) <= error:
            break
    # One by one, as they were evaluated: to the last digit the same, by which their components are found.
    nodes, weights = np.array([_stretched(step * place, mode, sds) for place in places]), log_terms - fine
    return Integral(nodes, weights, float(fine), _effective(weights), _marginals(nodes, places, weights, stretch))


def _stretched(u: Array, mode: Array, sds: Array) -> Array:
    """Return ``theta_k = mode_k + sd_k width sinh(u_k / width)``."""
    return mode + sds * WIDTH * np.sinh(u / WIDTH)


def _grow(
    log_density: LogDensity, known: dict[tuple[int, ...], float], step: float, tail: float, farthest: Array
) -> None:
    """Add to the known places of a lattice the neighbours of all that are above the tail, from the mode outwards."""
    origin = (0,) * len(farthest)
    seen, waiting = {origin}, deque([origin])
    limits = WIDTH * np.arcsinh(farthest / WIDTH) / step
    peak = max(known.values(), default=-np.inf)
    while waiting:
        place = waiting.popleft()
        if place not in known:
            known[place] = log_density(step * np.array(place))
            peak = max(peak, known[place])
        if known[place] < peak + tail:
            continue
        if (np.abs(place) > limits).any():
            k = int(np.argmax(np.abs(place) / limits))
            raise _without_end(k, place[k] > 0)
        near = [(*place[:k], place[k] + side, *place[k + 1 :]) for k in range(len(place)) for side in (-1, 1)]
        waiting.extend(one for one in near if one not in seen)
        seen.update(near)


def _without_end(k: int, above: bool) -> ForestmixError:
    return ForestmixError(
        f"The posterior of unknown scale number {k} does not end towards {'infinity' if above else '0'}: the data do "
        "not bound it and its prior does not either. Give a proper prior, such as scales.HalfNormal(1.0)."
    )


def _marginals(nodes: Array, places: Array, log_weights: Array, stretch: Array) -> list[tuple[Array, Array]]:
    """Return each scale's places on the lattice, and the log of its marginal density there.

    That is the sum of the weights at a place, which has the stretch of its own axis in it, over that stretch.
    """
    found = []
    for theta, place, own in zip(nodes.T, places.T, stretch.T, strict=True):
        _, first, which = np.unique(place, return_index=True, return_inverse=True)
        sums = [scipy.special.logsumexp(log_weights[which == k]) for k in range(len(first))]
        found.append((theta[first], np.array(sums) - own[first]))
    return found


def importance(log_density: LogDensity, mode: Array, covariance: Array, seed: int = 0) -> Integral:
    """Return the integral over several scales, with more nodes until their effective number suffices."""
    proposals = [_skewed(log_density, _StudentT(mode, covariance))]
    counts, rounds, values = list[int](), list[Array](), list[Array]()
    while True:
        # Each round has as many as all before it.
        counts.append(sum(counts) or FIRST_ROUND)
        rounds.append(proposals[-1].draw(counts[-1], seed + len(rounds)))
        values.append(np.array([log_density(theta) for theta in rounds[-1]]))
        nodes, log_target = np.concatenate(rounds), np.concatenate(values)
        densities = np.stack([proposal.log_density(nodes) for proposal in proposals])
        shares = np.log(np.array(counts) / np.sum(counts))
        log_ratio = log_target - scipy.special.logsumexp(densities + shares[:, None], axis=0)
        total = scipy.special.logsumexp(log_ratio)
        weights = log_ratio - total
        effective = _effective(weights)
        if effective >= ENOUGH or len(nodes) >= MOST_NODES:
            return Integral(nodes, weights, float(total - np.log(len(nodes))), effective, None)
        proposals.append(_StudentT(*_moments(nodes, np.exp(weights), covariance)))


def _moments(nodes: Array, weights: Array, fallback: Array) -> tuple[Array, Array]:
    """Return weighted mean and covariance, with a part of the last covariance while few nodes count."""
    mean = weights @ nodes
    found = (weights[:, None] * (nodes - mean)).T @ (nodes - mean)
    trust = min(1.0, _effective(np.log(np.maximum(weights, 1e-300))) / (10 * nodes.shape[1]))
    return mean, trust * found + (1 - trust) * fallback + 1e-8 * np.eye(len(mean))


class _StudentT:
    """A multivariate t with ``DF`` degrees of freedom; ``covariance`` is that of the normal it comes from.

    With z a standard t, ``theta = centre + axes (width z)``: the axes are the covariance's own, and ``widths`` (2, K)
    are those for negative and for positive z.
    """

    def __init__(self, centre: Array, covariance: Array) -> None:
        values, vectors = np.linalg.eigh(covariance)
        self.centre, self.axes = centre, vectors * np.sqrt(values)
        self.widths = np.ones((2, len(centre)))

    def draw(self, count: int, seed: int) -> Array:
        """Return Sobol points, (count, K): normal ones over the root of a chi-squared one."""
        size = len(self.centre)
        # The last digit of a point on the border would be an infinite normal.
        points = scipy.stats.qmc.Sobol(size + 1, seed=seed).random(count).clip(1e-12, 1 - 1e-12)
        spread = scipy.special.gammaincinv(0.5 * DF, points[:, size]) * 2 / DF
        z = scipy.special.ndtri(points[:, :size]) / np.sqrt(spread)[:, None]
        return self.centre + (z * self._width(z)) @ self.axes.T

    def log_density(self, theta: Array) -> Array:
        """Return the log density at each point of (S, K)."""
        size = len(self.centre)
        along = np.linalg.solve(self.axes, (theta - self.centre).T).T
        width = self._width(along)
        constant = scipy.special.gammaln(0.5 * (DF + size)) - scipy.special.gammaln(0.5 * DF)
        constant -= 0.5 * size * np.log(np.pi * DF) + np.linalg.slogdet(self.axes)[1]
        tail = np.log1p(np.sum((along / width) ** 2, axis=1) / DF)
        return constant - np.sum(np.log(width), axis=1) - 0.5 * (DF + size) * tail

    def _width(self, z: Array) -> Array:
        return np.where(z < 0, self.widths[0], self.widths[1])


def _skewed(log_density: LogDensity, proposal: _StudentT) -> _StudentT:
    """Set the widths from L at ``PROBE`` standard deviations: a normal would have fallen by ``PROBE^2 / 2`` there."""
    peak = log_density(proposal.centre)
    for k, axis in enumerate(proposal.axes.T):
        for side, sign in enumerate((-1, 1)):
            # A fall of nothing, or of infinity, is as far as the width may be trusted.
            drop = np.clip(peak - log_density(proposal.centre + sign * PROBE * axis), 1e-3, 1e3)
            proposal.widths[side, k] = np.clip(PROBE / np.sqrt(2 * drop), NARROWEST, WIDEST)
    return proposal


def _effective(log_weights: Array) -> float:
    """Return ``1 / sum w^2``, the number of equal weights that would serve as well."""
    return float(np.exp(-scipy.special.logsumexp(2 * log_weights)))
