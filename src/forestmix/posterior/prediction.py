"""Posterior predictive of rows.

Under each component of a posterior the natural parameter of row i is normal, ``eta_i ~ N(m_i, s_i^2)`` with
``m_i = b_i + w_i . mu`` and ``s_i^2 = w_i^T Sigma w_i``. The predictive distribution of x_i mixes its family over it::

    P(x_i <= y) = E_z F(y; m_i + s_i z),  F(y; eta) = P(Y <= y | eta),  z ~ N(0, 1)

Gaussian rows give a normal distribution again. For 0 or 1 what is of interest is the probability of 1, so its interval
is given. For counts the integral is a quadrature over the interval in which F falls from 1 to 0, however narrow that is
beside the spread; below it F is 1, so that part is ``Phi``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array, numbers
from forestmix.checks import between_zero_and_one
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Family, Gaussian, Mixed
from forestmix.families.base import smallest_count
from forestmix.families.unknown import scales_of, with_scales
from forestmix.model import Layer
from forestmix.posterior.component import Component, mixture_moments, mixture_quantile
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.new_rows import check_names, is_frame, rows_of_frame
from forestmix.posterior.system import padded
from forestmix.weights.blocks import MEMORY_BUDGET

#: Beyond these many standard deviations a normal distribution has no mass in double precision, or 1e-12 of it.
REACH, OUTSKIRTS = 8.5, 7.0
#: F is taken as 1 above 1 - TAIL and as 0 below TAIL; an error in probability.
TAIL = 1e-10
#: Nodes of the quadrature: its error is 1e-10 at most, where F is widest. The few are for a first guess.
NODES, FEW_NODES = 96, 16
#: The ends of F's fall are found to this share of its length, or to a length that no longer matters.
END_SHARE, END_HALVINGS = 0.1, 31


@dataclass(frozen=True)
class Prediction:
    """Posterior of the natural parameter and predictive distribution of rows: each (r,), or (N, r) for a batch.

    ``eta_mean``, ``eta_sd``: mean and standard deviation of ``eta_i``; ``eta_lower``, ``eta_upper``: its central
    interval; ``mean``: predictive mean of x_i; ``lower``, ``upper``: its central interval. For counts both ends belong
    to the interval, and its probability is at least the level. For rows of 0 and 1 ``mean`` is the probability of 1,
    and ``lower`` and ``upper`` are the interval of that probability.
    """

    eta_mean: Array
    eta_sd: Array
    eta_lower: Array
    eta_upper: Array
    mean: Array
    lower: Array
    upper: Array


class _Eta(NamedTuple):
    """Natural parameters under each of S components: mean and sd, (S, N, r), their families, and weights (N, S)."""

    mean: Array
    sd: Array
    families: tuple[Family, ...]
    weights: Array

    def take(self, rows: Array, parts: tuple[Family, ...]) -> _Eta:
        """Return the chosen rows, with their families."""
        return _Eta(self.mean[..., rows], self.sd[..., rows], parts, self.weights)

    def average(self, values: Sequence[Array]) -> Array:
        """Return the weighted mean over components of arrays (N, r)."""
        return mixture_moments(self.weights, np.stack(values), np.zeros((len(values), *values[0].shape)))[0]


def predict(mixture: Mixture, rows: Any, level: float, single: bool) -> Prediction:
    """Return the posterior of ``eta`` and the predictive distribution of rows, see ``Posterior.predict``."""
    between_zero_and_one("level", level)
    layers = [_chosen_layer(part, rows) for part in mixture.components]
    # A rate beyond the range of the precision is infinite, and so is a count.
    with np.errstate(over="ignore", invalid="ignore"):
        parts = _parts(mixture, layers, 0.5 * (1 - level))
        return Prediction(*((part[0] if single else part).astype(layers[0].dtype) for part in parts))


def _parts(mixture: Mixture, layers: list[Layer], tail: float) -> tuple[Array, ...]:
    """Return the fields of a prediction, (N, r) each."""
    m = mixture.components[0].mean.shape[1]
    C = padded(layers[0].weights.in_double(), 0, m)
    mean = np.stack([C.forward(part.mean) + layers[0].bias for part in mixture.components])
    sd = np.sqrt(np.stack([part.covariance.quadratic(C) for part in mixture.components]))
    eta = _Eta(mean, np.broadcast_to(sd, mean.shape), tuple(layer.family for layer in layers), mixture.weights)
    centre, variance = mixture_moments(mixture.weights, mean, eta.sd**2)
    ends = [mixture_quantile(p, mixture.weights, mean, eta.sd) for p in (tail, 1 - tail)]
    return (centre, np.sqrt(variance), *ends, *_predictive(eta, ends, tail))


def _chosen_layer(component: Component, rows: Any) -> Layer:
    """Return the layer whose rows are predicted: the model's own, some of its rows, or a new one."""
    own = component.layer
    if rows is None:
        return own.with_family(own.family.unweighted)
    if is_frame(rows):
        return rows_of_frame(own, rows)
    if isinstance(rows, Layer):
        if rows.n_parents != own.n_parents:
            raise ArgumentError(
                f"rows must be a Layer with {own.n_parents} columns of W, one for each latent; got {rows.n_parents}."
            )
        check_names(own, rows)
        return _with_own_scales(component, rows)
    chosen = _row_numbers(rows, own.size)
    bias = own.bias if own.bias.ndim == 0 else own.bias[chosen]
    return Layer(own.family.unweighted.take(chosen), own.weights.take_rows(chosen), bias)


def _with_own_scales(component: Component, rows: Layer) -> Layer:
    """Return new rows with a component's numbers in the place of unknown scales, and of an sd that was left out."""
    family = rows.family
    if isinstance(family, Gaussian) and family.sd_left_out:
        own = component.layer.family.unweighted
        if not isinstance(own, Gaussian) or own.sd.size > 1:
            raise ArgumentError("rows must say the sd of new Gaussian rows where those of the model have several.")
        return rows.with_family(own)
    unknown = [scale for scale in scales_of(family) if scale not in component.scales]
    if unknown:
        raise ArgumentError(f"rows must have scales of the model, the same objects, or numbers; got {unknown[0]!r}.")
    return rows.with_family(with_scales(family, component.scales))


def _row_numbers(rows: Any, n: int) -> Array:
    """Return a mask or a sequence of row numbers as numbers in [0, n)."""
    try:
        given = numbers("rows", rows)
    except ArgumentError as error:
        raise ArgumentError(f"rows must be None, row numbers, a mask, a data frame or a Layer: {error}") from error
    if given.dtype == bool and given.shape == (n,):
        chosen = np.flatnonzero(given)
    elif given.dtype.kind in "iu" and given.ndim <= 1:
        chosen = np.atleast_1d(given)
    else:
        raise ArgumentError(
            f"rows must be None, row numbers, a mask of shape ({n},), a data frame or a Layer; "
            f"got dtype {given.dtype} and shape {given.shape}."
        )
    if not len(chosen):
        raise ArgumentError("rows must choose at least one row; got none.")
    if chosen.min() < 0 or chosen.max() >= n:
        worst = chosen.min() if chosen.min() < 0 else chosen.max()
        raise ArgumentError(f"rows must lie in [0, {n}), the rows of the model; got {worst}.")
    return chosen


def _predictive(eta: _Eta, ends: list[Array], tail: float) -> Array:
    """Return the predictive mean of x_i and both ends of its interval, (3, N, r)."""
    outcome = np.empty((3, *eta.mean.shape[1:]))
    n = eta.mean.shape[-1]
    for parts in zip(*(row_families(family, n) for family in eta.families), strict=True):
        rows = parts[0][1]
        own = eta.take(rows, tuple(family for family, _ in parts))
        if isinstance(parts[0][0], Gaussian):
            outcome[..., rows] = _normal(own, tail)
        elif isinstance(parts[0][0], Bernoulli):
            expected = own.average(
                [parts[0][0].expected_log_partition(*pair).slope for pair in zip(*own[:2], strict=True)]
            )
            outcome[..., rows] = expected, *(scipy.special.expit(end[..., rows]) for end in ends)
        else:
            outcome[..., rows] = _counts(own, tail)
    return outcome


def row_families(family: Family, n: int) -> Iterator[tuple[Family, Array]]:
    """Yield each family of rows with its row numbers, the family itself unless the layer mixes them."""
    yield from family.parts() if isinstance(family, Mixed) else [(family, np.arange(n))]


def _normal(eta: _Eta, tail: float) -> tuple[Array, Array, Array]:
    """Return the mean and the interval of ``N(m, sd^2 + s^2)``, mixed over components."""
    sds = [np.asarray(family.sd, np.float64) for family in eta.families if isinstance(family, Gaussian)]
    noise = np.stack([np.hypot(sd, spread) for sd, spread in zip(sds, eta.sd, strict=True)])
    low, high = (mixture_quantile(p, eta.weights, eta.mean, noise) for p in (tail, 1 - tail))
    return eta.average(list(eta.mean)), low, high


def _counts(eta: _Eta, tail: float) -> tuple[Array, Array, Array]:
    """Return the predictive mean ``E a'`` and the interval of counts."""
    each = list(zip(eta.families, eta.mean, eta.sd, strict=True))
    expected = eta.average([family.expected_log_partition(m, s).slope for family, m, s in each])
    low, high = (_count_quantile(eta, p) for p in (tail, 1 - tail))
    return expected, low, high


def _count_quantile(eta: _Eta, p: float) -> Array:
    """Return the smallest y with ``sum_s w_s E_z F(y; m_s + s_s z) >= p`` for each entry.

    It lies between quantiles of single families. If ``F(y; eta)`` and ``Phi(z)`` both leave half of ``1 - p`` at
    ``eta = m + s z``, a component has at least p up to y; if both are less than ``p / 2`` at another, it has less.
    """
    above, below = 0.5 * (1 + p), 0.5 * p
    pairs = list(zip(eta.families, zip(eta.mean, eta.sd, strict=True), strict=True))
    highs = [family.quantile(np.asarray(above), m + s * scipy.special.ndtri(above)) for family, (m, s) in pairs]
    lows = [family.quantile(np.asarray(below), m + s * scipy.special.ndtri(below)) for family, (m, s) in pairs]
    high, low = np.max(highs, axis=0).ravel(), np.min(lows, axis=0).ravel() - 1
    variable = np.broadcast_to(np.arange(eta.mean.shape[-1]), eta.mean.shape[1:]).ravel()
    parts = [_Mixture(family.take(variable), m.ravel(), s.ravel()) for family, (m, s) in pairs]
    share = np.broadcast_to(eta.weights.T[..., None], eta.mean.shape).reshape(len(parts), -1)

    def cumulative(places: Array, y: Array, count: int = NODES) -> Array:
        each = zip(share, parts, strict=True)
        return np.sum([own[places] * part.take(places).cumulative(y, count) for own, part in each], axis=0)

    # Entries with brackets of like width take a like number of halvings.
    order = np.argsort(high - low)
    step = max(1, MEMORY_BUDGET // (8 * 8 * NODES))
    for places in (order[start : start + step] for start in range(0, len(order), step)):
        high[places] = _smallest(cumulative, places, np.asarray(p), low[places], high[places])
    return high.reshape(eta.mean.shape[1:])


def _smallest(cumulative: Callable[..., Array], places: Array, p: Array, low: Array, high: Array) -> Array:
    """Return the smallest count in ``(low, high]`` with enough probability up to it.

    Few nodes give a guess that is right nearly always; many decide, and search where it is not.
    """
    guess = smallest_count(lambda y: cumulative(places, y, FEW_NODES), p, low, high)
    enough, before = cumulative(places, guess) >= p, cumulative(places, guess - 1) >= p
    low = np.where(enough, np.where(before, low, guess - 1), guess)
    high = np.where(before, guess - 1, np.where(enough, guess, high))
    rest = np.flatnonzero(high - low > 1)
    if len(rest):
        high[rest] = smallest_count(lambda y: cumulative(places[rest], y), p, low[rest], high[rest])
    return high


@dataclass(frozen=True)
class _Mixture:
    """Predictive distributions of counts under one component, flat: a family of all entries, and eta's mean and sd."""

    family: Family
    mean: Array
    sd: Array

    def component(self, y: Array, z: Array) -> Array:
        """Return ``F(y; m + s z)``."""
        return self.family.cumulative(y, self.mean + self.sd * z)

    def take(self, chosen: Array) -> _Mixture:
        """Return the chosen entries."""
        return _Mixture(self.family.take(chosen), self.mean[chosen], self.sd[chosen])

    def cumulative(self, y: Array, count: int = NODES) -> Array:
        """Return ``E_z F(y; m + s z)``, to about ``TAIL`` unless the nodes are few."""
        start, end = self.fall(y)
        nodes, weights = legendre(count)
        half = 0.5 * (end - start)
        z = start + half * (1 + nodes[:, None])
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        return scipy.special.ndtr(start) + half * np.einsum("k,kj->j", weights, density * self.component(y, z))

    def fall(self, y: Array) -> tuple[Array, Array]:
        """Return where F is still 1, and where it is 0 already, both within ``REACH`` and by bisection in z."""
        left = [np.full(len(y), -REACH), np.full(len(y), -REACH)]
        right = [np.full(len(y), REACH), np.full(len(y), REACH)]
        for halving in range(1, END_HALVINGS + 1):
            for which, limit in enumerate((1 - TAIL, TAIL)):
                middle = 0.5 * (left[which] + right[which])
                higher = self.component(y, middle) >= limit
                left[which] = np.where(higher, middle, left[which])
                right[which] = np.where(higher, right[which], middle)
            fine = 2 * REACH * 0.5**halving <= END_SHARE * (right[1] - left[0])
            if np.all(fine | (left[0] > OUTSKIRTS) | (right[1] < -OUTSKIRTS)):
                break
        return left[0], right[1]


@cache
def legendre(count: int) -> tuple[Array, Array]:
    """Return the nodes and weights of Gauss-Legendre quadrature on [-1, 1]."""
    return np.polynomial.legendre.leggauss(count)
