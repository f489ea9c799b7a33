"""Posterior predictive of rows.

Under q the natural parameter of row i is normal, ``eta_i ~ N(m_i, s_i^2)`` with ``m_i = b_i + w_i . mu`` and
``s_i^2 = sum_j w_ij^2 sigma_j^2``, or the variance of ``w_i . y`` by linear response (docs/regression.md). The
predictive distribution of x_i mixes its family over it::

    P(x_i <= y) = E_z F(y; m_i + s_i z),  F(y; eta) = P(Y <= y | eta),  z ~ N(0, 1)

Gaussian rows give a normal distribution again. For counts the integral is a quadrature over the interval in which F
falls from 1 to 0, however narrow that is beside the spread; below it F is 1, so that part is ``Phi``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, numbers
from forestmix.checks import between_zero_and_one
from forestmix.errors import ArgumentError
from forestmix.families import Family, Gaussian, Mixed
from forestmix.families.base import smallest_count
from forestmix.model import DEF, Layer, Observations
from forestmix.weights import Weights
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
    to the interval, and its probability is at least the level.
    """

    eta_mean: Array
    eta_sd: Array
    eta_lower: Array
    eta_upper: Array
    mean: Array
    lower: Array
    upper: Array


def predict(
    model: DEF,
    data: Observations,
    q_mean: Array,
    q_sd: Array,
    rows: Any = None,
    level: float = 0.9,
    corrected: Callable[[Weights], Any] | None = None,
) -> Prediction:
    """Return the posterior of ``eta`` and the predictive distribution of rows, see ``Result.predict``.

    ``q_mean`` and ``q_sd`` are those of the lowest latents; ``corrected`` gives the standard deviations of rows of
    weights by linear response, and is ``None`` where those of mean field are asked for.
    """
    between_zero_and_one("level", level)
    layer = _chosen_layer(model, rows)
    eta_mean = np.atleast_2d(layer.weights.forward(q_mean) + layer.bias).astype(np.float64)
    if corrected:
        spread = np.asarray(corrected(layer.weights))
    else:
        spread = np.sqrt(layer.weights.square().forward(np.square(q_sd)))
    eta_sd = np.broadcast_to(spread, eta_mean.shape).astype(np.float64)
    half = eta_sd * scipy.special.ndtri(0.5 + level / 2)
    # A rate beyond the range of the precision is infinite, and so is a count.
    with np.errstate(over="ignore", invalid="ignore"):
        parts = (eta_mean, eta_sd, eta_mean - half, eta_mean + half, *_predictive(layer, eta_mean, eta_sd, level))
        return Prediction(*((part[0] if data.single else part).astype(layer.dtype) for part in parts))


def _chosen_layer(model: DEF, rows: Any) -> Layer:
    """Return the layer whose rows are predicted: the model's own, some of its rows, or a new one."""
    own = model.layers[0]
    if rows is None:
        return own
    if isinstance(rows, Layer):
        if rows.n_parents != own.n_parents:
            raise ArgumentError(
                f"rows must be a Layer with {own.n_parents} columns of W, one for each latent; got {rows.n_parents}."
            )
        return rows
    chosen = _row_numbers(rows, own.size)
    bias = own.bias if own.bias.ndim == 0 else own.bias[chosen]
    return Layer(own.family.take(chosen), own.weights.take_rows(chosen), bias)


def _row_numbers(rows: Any, n: int) -> Array:
    """Return a mask or a sequence of row numbers as numbers in [0, n)."""
    try:
        given = numbers("rows", rows)
    except ArgumentError as error:
        raise ArgumentError(f"rows must be None, row numbers, a mask or a Layer: {error}") from error
    if given.dtype == bool and given.shape == (n,):
        chosen = np.flatnonzero(given)
    elif given.dtype.kind in "iu" and given.ndim <= 1:
        chosen = np.atleast_1d(given)
    else:
        raise ArgumentError(
            f"rows must be None, row numbers, a mask of shape ({n},) or a Layer; "
            f"got dtype {given.dtype} and shape {given.shape}."
        )
    if not len(chosen):
        raise ArgumentError("rows must choose at least one row; got none.")
    if chosen.min() < 0 or chosen.max() >= n:
        worst = chosen.min() if chosen.min() < 0 else chosen.max()
        raise ArgumentError(f"rows must lie in [0, {n}), the rows of the model; got {worst}.")
    return chosen


def _predictive(layer: Layer, mean: Array, sd: Array, level: float) -> tuple[Array, Array, Array]:
    """Return the predictive mean of x_i and both ends of its interval."""
    outcome = np.empty((3, *mean.shape))
    for family, rows in _parts(layer.family, layer.size):
        m, s = mean[:, rows], sd[:, rows]
        if isinstance(family, Gaussian):
            outcome[..., rows] = _normal(family, m, s, level)
        else:
            outcome[..., rows] = _counts(family, m, s, level)
    return outcome[0], outcome[1], outcome[2]


def _parts(family: Family, n: int) -> Iterator[tuple[Family, Array]]:
    """Yield each family with its rows: one, unless the layer mixes them."""
    if not isinstance(family, Mixed):
        yield family, np.arange(n)
        return
    for position, part in enumerate(family.families):
        yield part, np.flatnonzero(family.which == position)


def _normal(family: Gaussian, mean: Array, sd: Array, level: float) -> tuple[Array, Array, Array]:
    """Return the mean and the interval of ``N(m, sd^2 + s^2)``."""
    half = np.hypot(family.sd.astype(np.float64), sd) * scipy.special.ndtri(0.5 + level / 2)
    return mean, mean - half, mean + half


def _counts(family: Family, mean: Array, sd: Array, level: float) -> tuple[Array, Array, Array]:
    """Return the predictive mean ``E a'`` and the interval of counts."""
    tail = 0.5 * (1 - level)
    expected = family.expected_log_partition(mean, sd).slope
    return expected, _mixture_quantile(family, tail, mean, sd), _mixture_quantile(family, 1 - tail, mean, sd)


def _mixture_quantile(family: Family, p: float, mean: Array, sd: Array) -> Array:
    """Return the smallest y with ``E_z F(y; m + s z) >= p`` for each entry.

    It lies between quantiles of single components. If ``F(y; eta)`` and ``Phi(z)`` both leave half of ``1 - p`` at
    ``eta = m + s z``, the mixture has at least p up to y; if both are less than ``p / 2`` at another, it has less.
    """
    above, below = 0.5 * (1 + p), 0.5 * p
    high = family.quantile(np.asarray(above), mean + sd * scipy.special.ndtri(above)).ravel()
    low = family.quantile(np.asarray(below), mean + sd * scipy.special.ndtri(below)).ravel() - 1
    centre, spread = mean.ravel(), sd.ravel()
    variable = np.broadcast_to(np.arange(mean.shape[-1]), mean.shape).ravel()
    # Entries with brackets of like width take a like number of halvings.
    order = np.argsort(high - low)
    step = max(1, MEMORY_BUDGET // (8 * 8 * NODES))
    outcome = np.empty(mean.size)
    for chunk in (order[start : start + step] for start in range(0, len(order), step)):
        mixture = _Mixture(family.take(variable[chunk]), centre[chunk], spread[chunk])
        outcome[chunk] = mixture.quantile(np.asarray(p), low[chunk], high[chunk])
    return outcome.reshape(mean.shape)


@dataclass(frozen=True)
class _Mixture:
    """Predictive distributions of counts, flat: a family with a parameter for each entry, and eta's mean and sd."""

    family: Family
    mean: Array
    sd: Array

    def component(self, y: Array, z: Array) -> Array:
        """Return ``F(y; m + s z)``."""
        return self.family.cumulative(y, self.mean + self.sd * z)

    def take(self, chosen: Array) -> _Mixture:
        """Return the chosen entries."""
        return _Mixture(self.family.take(chosen), self.mean[chosen], self.sd[chosen])

    def quantile(self, p: Array, low: Array, high: Array) -> Array:
        """Return the smallest count in ``(low, high]`` with enough probability up to it.

        Few nodes give a guess that is right nearly always; many decide, and search where it is not.
        """
        guess = smallest_count(lambda y: self.cumulative(y, FEW_NODES), p, low, high)
        enough, before = self.cumulative(guess) >= p, self.cumulative(guess - 1) >= p
        low = np.where(enough, np.where(before, low, guess - 1), guess)
        high = np.where(before, guess - 1, np.where(enough, guess, high))
        rest = np.flatnonzero(high - low > 1)
        if len(rest):
            high[rest] = smallest_count(self.take(rest).cumulative, p, low[rest], high[rest])
        return high

    def cumulative(self, y: Array, count: int = NODES) -> Array:
        """Return ``E_z F(y; m + s z)``, to about ``TAIL`` unless the nodes are few."""
        start, end = self.fall(y)
        nodes, weights = _legendre(count)
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
def _legendre(count: int) -> tuple[Array, Array]:
    """Return the nodes and weights of Gauss-Legendre quadrature on [-1, 1]."""
    return np.polynomial.legendre.leggauss(count)
