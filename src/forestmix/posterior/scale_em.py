"""Unknown scales by variational EM, where there are too many latents for a full covariance.

The E step is a factorised q at known scales. The M step puts each scale at the maximum of its prior and its part of
the ELBO, ``log p(theta) - c theta - S exp(-2 theta) / 2`` (``scale_terms.py``): ``s^2 = S / c`` under a flat prior of
theta. Both raise the same objective. The uncertainty of the scales is left out, and that of a factorised q makes the sd
of groups with little data too small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.engines.rows import expected_terms, row_data
from forestmix.model import DEF, Observations
from forestmix.posterior.scale_posterior import ScalePosterior, at_point
from forestmix.posterior.scale_terms import Moments, ScaleTerms
from forestmix.scales import Scale

#: EM ends when no scale changes by more than this share; it may take many steps where the data say little.
CHANGE, MAX_STEPS = 1e-4, 500
#: How far a scale may move in one step, as a logarithm.
LONGEST = 5.0

MESSAGE = (
    "The model has too many latents for a full covariance: unknown scales are at their mode, by variational EM, and "
    "their uncertainty is left out of all intervals."
)


class Expectation(NamedTuple):
    """The factorised q at known scales: means and standard deviations, (N, m), and the ELBO, summed over N.

    ``stopped``: whether its run was stopped, which ends the climb.
    """

    mean: Array
    sd: Array
    elbo: float
    stopped: bool = False


class ScaleMode(NamedTuple):
    """Scales at their mode, in the order of ``model.unknown_scales``; ``trace``: log prior plus ELBO at each step."""

    values: Array
    scales: tuple[ScalePosterior, ...]
    trace: tuple[float, ...]
    converged: bool
    message: str


def fit_scale_mode(model: DEF, data: Observations, expect: Callable[[DEF], Expectation]) -> ScaleMode:
    """Return the unknown scales of a model with one layer and a Gaussian prior at their mode.

    Args:
        model: the model.
        data: the observations, which share the scales.
        expect: the E step: the factorised q of the model at known scales, best started from its last answer.

    """
    terms = ScaleTerms.of(model, data)
    theta, trace, converged = terms.start(), [], False
    for _ in range(MAX_STEPS):
        known = model.with_scales(np.exp(theta))
        q = expect(known)
        trace.append(terms.log_prior(theta)[0] + q.elbo)
        if q.stopped:
            break
        new = _maximised(terms, theta, *_statistics(terms, known, data, theta, q))
        converged = bool(np.max(np.abs(new - theta)) <= CHANGE)
        if converged:
            break
        theta = new
    scales = tuple(at_point(scale, float(one)) for scale, one in zip(terms.scales, theta, strict=True))
    return ScaleMode(np.exp(theta), scales, tuple(trace), converged, MESSAGE)


def _statistics(terms: ScaleTerms, known: DEF, data: Observations, theta: Array, q: Expectation) -> tuple[Array, Array]:
    """Return ``c_k`` and ``S_k / s_k^2`` of the factorised q, over all observations."""
    weights = known.layers[0].weights
    eta = weights.forward(q.mean) + known.layers[0].bias
    variance = np.broadcast_to(weights.square().forward(q.sd**2), eta.shape).astype(np.float64)
    _, error, kappa = expected_terms(row_data(known.layers[0], data), eta, np.sqrt(variance))
    parts = np.broadcast_arrays(error, kappa, variance), np.broadcast_arrays(q.mean, q.sd**2)
    rows = zip(*parts[0], *parts[1], strict=True)
    found = [terms.statistics(theta, Moments(*(one.astype(np.float64) for one in row))) for row in rows]
    return np.sum([counts for counts, _ in found], axis=0), np.sum([sums for _, sums in found], axis=0)


def _maximised(terms: ScaleTerms, theta: Array, counts: Array, sums: Array) -> Array:
    """Return each scale at the maximum of its part of the objective."""
    parts = zip(terms.priors, theta, counts, sums, strict=True)
    return np.array([_maximum(prior, float(old), float(c), float(s)) for prior, old, c, s in parts])


def _maximum(prior: Scale, old: float, count: float, squares: float) -> float:
    """Return the best theta near the old one, where ``S exp(-2 theta)`` is ``squares exp(2 (old - theta))``."""

    def negative(theta: float) -> float:
        likelihood = -count * theta - 0.5 * squares * np.exp(2 * (old - theta))
        return -(float(prior.log_density_of_log(theta)) + likelihood)

    found = scipy.optimize.minimize_scalar(
        negative, bounds=(old - LONGEST, old + LONGEST), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x) if found.fun <= negative(old) else old
