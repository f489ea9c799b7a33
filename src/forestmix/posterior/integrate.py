"""Unknown scales, integrated over: the posterior is a mixture over sets of scales (docs/scales.md).

With ``theta`` the logarithms of the scales, and q the Gaussian with full covariance (``full.py``)::

    L(theta) = log p(theta) + max_q ELBO(q; theta)

which is the log of prior times evidence for Gaussian rows, and close to it for others. A quasi-Newton method climbs L
by its slope (``scale_terms.py``), its curvature at the mode lays the nodes (``scale_nodes.py``), and each node has the
posterior of the latents at its scales. This is the idea of INLA (Rue et al. 2009) with a variational inner step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.model import DEF, Observations
from forestmix.posterior.full import FullFit, FullProblem, Start
from forestmix.posterior.mixture import Node
from forestmix.posterior.scale_nodes import Integral, grid, importance
from forestmix.posterior.scale_posterior import ScalePosterior, at_point, from_grid, from_weighted
from forestmix.posterior.scale_terms import Moments, ScaleTerms

#: With more unknown scales than this only the mode is found.
MOST_SCALES = 6
#: Slope of L, in nats for a scale that is e times as large, below which the climb ends.
SLOPE_TOLERANCE = 1e-3
#: Steps of the differences that give the curvature, and the standard deviations that it may stand for.
DIFFERENCE, SMALLEST_SD, LARGEST_SD = 0.02, 1e-4, 2.0
#: How far the climb may go from its start, on the line of logarithms.
REACH = 30.0
#: Nodes whose weight is below this share are left out.
NEGLIGIBLE = 1e-9

GRID = "The unknown scale is integrated over, by {count} nodes of a grid."
SAMPLED = "Unknown scales are integrated over, by {count} nodes that are as good as {effective:.0f} of equal weight."
MODE_ONLY = (
    "The model has {count} unknown scales, more than the {most} that are integrated over: they are at their posterior "
    "mode, and their uncertainty is left out of all intervals."
)


@dataclass(frozen=True)
class ScaleFit:
    """The posterior of a model with unknown scales.

    ``scales``: the posterior of each unknown scale, in the order of ``model.unknown_scales``; ``nodes`` with
    ``weights`` (S,): the posterior of the latents is their mixture; ``log_evidence``: the log of the integral of prior
    times evidence, for rows that are not Gaussian a lower bound of the latter; NaN where scales are at their mode;
    ``effective``: the number of nodes of equal weight that would serve as well; ``converged``: whether every inner fit
    did; ``message``: what was done.
    """

    scales: tuple[ScalePosterior, ...]
    nodes: tuple[Node, ...]
    weights: Array
    log_evidence: float
    effective: float
    converged: bool
    message: str


class Evaluated(NamedTuple):
    """L at some theta, its slope (K,), and the fit of each observation."""

    value: float
    slope: Array
    fits: tuple[FullFit, ...]


def fit_scales(model: DEF, data: Observations, scales: str = "shared", seed: int = 0) -> tuple[ScaleFit, ...]:
    """Integrate over the unknown scales of a model with one layer and a Gaussian prior.

    Args:
        model: the model; up to six unknown scales are integrated over, more are put at their mode.
        data: the observations.
        scales: for a batch: "shared" for one set of scales for all observations, "each" for one set each.
        seed: of the quasi-random nodes of two scales and more.

    Returns:
        One fit, or for "each" one for each observation.

    """
    if not model.unknown_scales:
        raise ArgumentError("model must have unknown scales, such as Gaussian(sd=scales.HalfNormal(1.0)); got none.")
    if one_of("scales", scales, ("shared", "each")) == "shared":
        return (_fit(ScaleObjective(model, data), seed),)
    parts = (data.take(np.array([k])) for k in range(len(data.x)))
    return tuple(_fit(ScaleObjective(model, part), seed) for part in parts)


class ScaleObjective:
    """L and its slope, for a model and its data; inner fits start from the nearest theta that is known."""

    def __init__(self, model: DEF, data: Observations) -> None:
        self.model, self.terms, self.problem = model, ScaleTerms(model, data), FullProblem(model, data)
        self._starts: list[tuple[Array, list[Start]]] = []

    def evaluate(self, theta: Array) -> Evaluated:
        """Return L, its slope by the envelope theorem, and the inner fits."""
        fits = self.problem.fit(self.model.with_scales(np.exp(theta)), self._start(theta))
        self._remember(theta, fits)
        value, slope = self.terms.log_prior(theta)
        variances: dict[int, Array] = {}
        for fit in fits:
            if id(fit.covariance) not in variances:
                variances[id(fit.covariance)] = fit.covariance.variance()
            own = Moments(fit.error, fit.kappa, fit.variance, fit.mean, variances[id(fit.covariance)])
            counts, sums = self.terms.statistics(theta, own)
            value, slope = value + fit.elbo, slope + sums - counts
        return Evaluated(value, slope, fits)

    def _start(self, theta: Array) -> list[Start] | None:
        if not self._starts:
            return None
        distances = [float(np.sum((theta - known) ** 2)) for known, _ in self._starts]
        return self._starts[int(np.argmin(distances))][1]

    def _remember(self, theta: Array, fits: tuple[FullFit, ...]) -> None:
        """Keep where fits ended, of the last few theta: the means and curvatures of all would be many arrays."""
        self._starts = [*self._starts[-15:], (theta, [Start(fit.mean, fit.kappa) for fit in fits])]


def _fit(objective: ScaleObjective, seed: int) -> ScaleFit:
    mode = climb(objective)
    if len(mode) > MOST_SCALES:
        return _at_mode(objective, mode)
    collected = _Collector(objective)
    covariance = np.linalg.inv(curvature(objective, mode))
    if len(mode) == 1:
        integral = grid(collected, float(mode[0]), float(np.sqrt(covariance[0, 0])))
    else:
        integral = importance(collected, mode, covariance, seed)
    return _collected(objective, collected, integral)


def climb(objective: ScaleObjective) -> Array:
    """Return the mode of L."""

    def negative(theta: Any) -> tuple[float, Any]:
        try:
            found = objective.evaluate(theta)
        except ForestmixError:
            return np.inf, np.zeros_like(theta)
        return -found.value, -found.slope

    start = objective.terms.start()
    limits: Any = [(one - REACH, one + REACH) for one in start]
    options: Any = {"gtol": SLOPE_TOLERANCE, "ftol": 1e-13}
    found = scipy.optimize.minimize(negative, start, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    return np.asarray(found.x)


def curvature(objective: ScaleObjective, mode: Array) -> Array:
    """Return minus the second derivatives of L at its mode, by differences of the slope, with eigenvalues in bounds."""
    columns = []
    for step in DIFFERENCE * np.eye(len(mode)):
        ahead, behind = (objective.evaluate(mode + sign * step).slope for sign in (1, -1))
        columns.append((behind - ahead) / (2 * DIFFERENCE))
    matrix = np.array(columns)
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.clip(values, LARGEST_SD**-2.0, SMALLEST_SD**-2.0)) @ vectors.T


class _Collector:
    """L for the integral; the posterior of the latents at each node is kept on the way."""

    def __init__(self, objective: ScaleObjective) -> None:
        self.objective, self.converged = objective, True
        self.nodes: dict[bytes, Node] = {}

    def __call__(self, theta: Array) -> float:
        try:
            found = self.objective.evaluate(theta)
        except ForestmixError:
            # A scale so extreme that the precision cannot be factored; it has no weight.
            return -np.inf
        self.converged = self.converged and all(fit.converged for fit in found.fits)
        self.nodes[theta.tobytes()] = _node(self.objective.model, theta, found.fits)
        return found.value


def _node(model: DEF, theta: Array, fits: tuple[FullFit, ...]) -> Node:
    layer = model.with_scales(np.exp(theta)).layers[0]
    return Node(theta, np.stack([fit.mean for fit in fits]), tuple(fit.covariance for fit in fits), layer)


def _collected(objective: ScaleObjective, collected: _Collector, integral: Integral) -> ScaleFit:
    """Return the fit with the nodes that count."""
    keep = np.flatnonzero(integral.log_weights > np.log(NEGLIGIBLE))
    weights = np.exp(integral.log_weights[keep])
    weights /= np.sum(weights)
    nodes = tuple(collected.nodes[integral.nodes[k].tobytes()] for k in keep)
    scales = objective.model.unknown_scales
    if len(scales) == 1:
        posteriors = [from_grid(scales[0], integral.nodes[:, 0], integral.log_density)]
    else:
        pairs = zip(scales, integral.nodes.T, strict=True)
        posteriors = [from_weighted(scale, own, np.exp(integral.log_weights)) for scale, own in pairs]
    message = (GRID if len(scales) == 1 else SAMPLED).format(count=len(nodes), effective=integral.effective)
    return ScaleFit(
        tuple(posteriors), nodes, weights, integral.log_integral, integral.effective, collected.converged, message
    )


def _at_mode(objective: ScaleObjective, mode: Array) -> ScaleFit:
    fits = objective.evaluate(mode).fits
    scales = objective.model.unknown_scales
    return ScaleFit(
        tuple(at_point(scale, float(one)) for scale, one in zip(scales, mode, strict=True)),
        (_node(objective.model, mode, fits),),
        np.ones(1),
        float("nan"),
        1.0,
        all(fit.converged for fit in fits),
        MODE_ONLY.format(count=len(mode), most=MOST_SCALES),
    )
