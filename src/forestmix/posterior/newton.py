"""Newton's steps up the log-posterior of Gaussian latents, with the spread of the rows held.

With ``v_i`` the variance of each row's natural parameter, held, the means of the best q with that spread climb::

    L(mu) = sum_i E log p(x_i | m_i + sqrt(v_i) z) - sum_j (mu_j - mu0_j)^2 / (2 sigma0_j^2)        concave in mu
    mu <- mu + rho Sigma (W^T e - (mu - mu0) / sigma0^2)        rho halved while L would fall

With ``v_i = w_i^T Sigma w_i`` and Sigma from linear response these are corrected means: dropping correlations changes
the spreads of rows, and for rows that are not Gaussian that moves the means of the best factorised q. It is the first
part of the fixed point of a full covariance (Opper and Archambeau 2009), and for Gaussian rows one step gives the exact
posterior mean. With no spread they are modes (``laplace.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.posterior.covariance import CovarianceBatch
from forestmix.posterior.system import LatentSystem
from forestmix.problem.backtracking import longest_step

#: Steps at most, and halvings of one.
STEPS, HALVINGS = 100, 60
#: Corrected means have come far enough when none moves by more than this share of its sd.
ENOUGH = 1e-9


class Place(NamedTuple):
    """Means of the latents, (N, m), L (N,), its gradient (N, m), and ``eta`` and ``kappa`` of each row, (N, n)."""

    mean: Array
    value: Array
    gradient: Array
    eta: Array
    kappa: Array

    def where(self, chosen: Array, other: Place) -> Place:
        """Return this place for the chosen observations, (N,), and the other for the rest."""
        pairs = zip(self, other, strict=True)
        return Place(*(np.where(chosen if a.ndim == 1 else chosen[:, None], a, b) for a, b in pairs))


def place_at(system: LatentSystem, mean: Array, variance: Array) -> Place:
    """Return L with its gradient at some means."""
    eta, distance = system.eta(mean), mean - system.prior_mean
    terms = system.terms(eta, variance)
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.sum(terms.log_likelihood, axis=1) - 0.5 * np.sum(distance**2 * system.precision, axis=1)
        error = np.where(np.isfinite(value)[:, None], terms.error, 0.0)
    return Place(mean, value, system.weights.adjoint(error) - distance * system.precision, eta, terms.curvature)


def climb(
    system: LatentSystem, mean: Array, variance: Array, covariance: Callable[[Array], CovarianceBatch],
    enough: Callable[[Array, Array], Array],
) -> Place:  # fmt: skip
    """Return where Newton's steps lead from some means, (N, m).

    ``covariance``: gives Sigma for the curvatures of rows at a place; ``enough``: whether a step, for a gradient, is
    the last of an observation, (N,).
    """
    here = place_at(system, mean, variance)
    # A spread beyond the range of exp has no optimum to be found: these means stay.
    active = np.isfinite(here.value) & np.isfinite(here.gradient).all(axis=1)
    for _ in range(STEPS):
        if not active.any():
            break
        gradient = np.where(active[:, None], here.gradient, 0.0)
        step = covariance(here.kappa).solve(gradient)
        there, risen = _risen(system, here, step, variance, active)
        active &= risen
        here = there.where(active, here)
        active &= ~enough(step, gradient)
    return here


def _risen(
    system: LatentSystem, here: Place, step: Array, variance: Array, active: Array
) -> tuple[Place, Array]:  # fmt: skip
    """Return where the longest part of a step that does not lower L leads, and which observations have one, (N,)."""
    # Rounding of a sum of n terms would make a step at the optimum look like a loss.
    least = here.value - 1e-13 * (1 + np.abs(here.value))
    there, _, risen = longest_step(
        lambda rho: place_at(system, here.mean + rho * step, variance),
        lambda there, _: ((there.value >= least) | ~active)[:, None],
        np.ones((len(here.mean), 1)),
        HALVINGS,
    )
    return there, risen[:, 0]


def corrected_means(system: LatentSystem, mean: Array, covariance: CovarianceBatch) -> Array:
    """Return the means of the best ``N(mu, Sigma)``, (N, m), from those of q."""
    if system.constant_curvature:
        variance = np.zeros((1, system.weights.shape[0]))
    else:
        variance = covariance.quadratic(system.weights)
    sd = np.sqrt(covariance.variance())
    found = climb(
        system, np.asarray(mean, np.float64), variance, lambda _: covariance,
        lambda step, _: np.max(np.abs(step) / sd, axis=1) <= ENOUGH,
    )  # fmt: skip
    return found.mean
