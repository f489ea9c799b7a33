"""For a Gaussian q with full covariance (``full.py``): where to start, what the ELBO may still gain, Newton's step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from forestmix.arrays import Array, total
from forestmix.engines.rows import RowData, curvature_slopes
from forestmix.families.primitive import Kind
from forestmix.posterior.factor import BlockFactor

#: Rows up to which such steps are taken: they need a matrix of rows by rows.
FEW_ROWS = 400


@dataclass(frozen=True)
class Point:
    """``q = N(mean, covariance)`` of one observation, with its row terms.

    ``eta`` and ``variance``: moments of each row's natural parameter; ``error`` and ``kappa``: ``e_i`` and ``kappa_i``
    there, 0 for a missing entry. At the optimum that is the kappa of the covariance.
    """

    mean: Array
    covariance: BlockFactor
    elbo: float
    eta: Array
    variance: Array
    error: Array
    kappa: Array


def newton_step(rows: RowData, W: Array, point: Point, gradient: Array) -> tuple[Array, Array]:
    """Return mean and kappa after the step; ``gradient`` is that of the ELBO in the mean.

    With ``M = W Sigma W^T`` and its squares entry by entry, ``dv = -M^2 dkappa``, and ``a3`` and ``a4`` for the
    expected third and fourth derivatives of the log-partition::

        dmu = Sigma (gradient - W^T (a3 dv) / 2)        dkappa = E a'' - kappa + a3 W dmu + a4 dv / 2

    Kappa, which is positive, changes by a factor of e at most.
    """
    step, M = point.covariance.solve(gradient), point.covariance.covariance(W)
    (a3, a4), square = slopes_of_rows(rows, point), M * M
    system = np.eye(len(M)) - 0.5 * (a3[:, None] * M * a3 - np.diag(a4)) @ square
    change = scipy.linalg.solve(system, point.kappa - point.covariance.kappa + a3 * (W @ step), check_finite=False)
    mean = point.mean + step + 0.5 * point.covariance.solve((a3 * (square @ change)) @ W)
    share = np.divide(change, point.covariance.kappa, out=np.zeros_like(change), where=point.covariance.kappa > 0)
    return mean, point.covariance.kappa * np.where(np.abs(share) < 0.5, 1 + share, np.exp(np.clip(share, -1, 1)))


def slopes_of_rows(rows: RowData, point: Point) -> tuple[Array, Array]:
    """Return ``E a'''`` and ``E a''''`` of each row."""
    found = curvature_slopes(rows, point.eta[None], np.sqrt(point.variance)[None])
    third, fourth = (np.broadcast_to(one, (1, len(point.eta)))[0] for one in found)
    return third, fourth


def decrement_of(point: Point, gradient: Array) -> float:
    """Return what the ELBO may still gain by other means, to second order."""
    return 0.5 * float(gradient @ point.covariance.solve(gradient))


def curvature_gain(point: Point) -> float:
    """Return a bound on what the ELBO may still gain by a better kappa, to second order."""
    return 0.25 * float(total(np.abs(point.kappa - point.covariance.kappa) * point.variance)) ** 2


def _likely_quadratic(target: Array, factor: Array) -> tuple[Array, Array]:
    """Return where ``A' = zeta`` is the target, and ``A'' = 1``."""
    return target, np.ones_like(target)


def _likely_exponential(target: Array, factor: Array) -> tuple[Array, Array]:
    """Return where ``A' = exp(zeta)`` is the target; one of 0 is taken as some way below the mean of the others."""
    some = target > 0
    mean = np.sum(target, axis=1, keepdims=True) / np.maximum(np.sum(some, axis=1, keepdims=True), 1)
    rate = np.where(some, target, np.where(mean > 0, mean, 1.0) * np.exp(-1.0))
    return np.log(rate), rate


def _likely_softplus(target: Array, factor: Array) -> tuple[Array, Array]:
    """Return where ``A'``, a probability, is the target, drawn a little towards one half, as for generalised models."""
    share = (factor * target + 0.5) / (factor + 1)
    return scipy.special.logit(share), share * (1 - share)


#: For each kind of rows: zeta at which x is likely and ``A''`` there (``forestmix.families.primitive``).
LIKELY = {
    Kind.QUADRATIC: _likely_quadratic,
    Kind.EXPONENTIAL: _likely_exponential,
    Kind.SOFTPLUS: _likely_softplus,
}
