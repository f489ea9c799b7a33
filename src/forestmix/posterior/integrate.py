"""Unknown scales, integrated over: the posterior is a mixture over sets of scales (docs/scales.md).

With ``theta`` the logarithms of the scales, and q the Gaussian with full covariance (``full.py``)::

    L(theta) = log p(theta) + max_q ELBO(q; theta) + what the ELBO leaves out of the evidence (``remainder.py``)

which is the log of prior times evidence: exact for Gaussian rows, where nothing is left out, and an estimate for
others. A quasi-Newton method climbs L without the last part by its slope (``scale_terms.py``). The differences that
give its curvature there also give the slope of the last part, which moves the mode on. Nodes are laid by that
(``scale_nodes.py``), and each has the posterior of the latents at its scales. This is the idea of INLA (Rue et al.
2009) with a variational inner step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.model import DEF, Observations
from forestmix.posterior.component import Component
from forestmix.posterior.course import Course, Stopped
from forestmix.posterior.covariance import CovarianceBatch
from forestmix.posterior.full import FullFit
from forestmix.posterior.journal import Journal
from forestmix.posterior.remainder import Remainder
from forestmix.posterior.scale_calibration import calibrated
from forestmix.posterior.scale_nodes import FINENESS, Integral, importance, lattice
from forestmix.posterior.scale_objective import Evaluated, ScaleObjective
from forestmix.posterior.scale_posterior import ScalePosterior, at_point, from_grid, from_weighted

#: With more unknown scales than this only the mode is found.
MOST_SCALES = 6
#: The slope of L below which the climb ends where a step of Newton follows.
ROUGH_SLOPE = 0.02
#: Steps of the differences that give the curvature, and the standard deviations that it may stand for.
DIFFERENCE, SMALLEST_SD, LARGEST_SD = 0.02, 1e-4, 2.0
#: How far the climb may go from its start, on the line of logarithms; at once; and in how many boxes at most.
REACH, BOX, MOST_CLIMBS = 30.0, 3.0, 40
#: Bytes of factors that nodes hold on to; those of further nodes are made anew when they are needed.
HELD_FACTORS = 2**30
#: Whether a fit has converged is asked of nodes with at least this weight.
COUNTS = 1e-3
#: Nodes whose weight is below this share are left out: of one scale, and of several.
NEGLIGIBLE, NEGLIGIBLE_OF_MANY = 1e-9, 1e-6

GRID = "Unknown scales are integrated over, by {count} nodes of a lattice."
SAMPLED = "Unknown scales are integrated over, by {count} nodes that are as good as {effective:.0f} of equal weight."
MODE_ONLY = (
    "The model has {count} unknown scales, more than the {most} that are integrated over: they are at their posterior "
    "mode, and their uncertainty is left out of all intervals."
)
STOPPED_EARLY = (
    "Unknown scales are at the best values found before the run was stopped, and their uncertainty is left out of all "
    "intervals."
)


@dataclass(frozen=True)
class ScaleFit:
    """The posterior of a model with unknown scales.

    ``scales``: the posterior of each unknown scale, in the order of ``model.unknown_scales``; ``components`` with
    ``weights`` (S,): the posterior of the latents is their mixture; ``thetas`` (S, K): the log scales of each;
    ``elbos`` (S, N): the ELBO of each observation there; ``log_evidence``: the log of the integral of prior times
    evidence, for rows that are not Gaussian an estimate; NaN where scales are at their mode; ``effective``: how many
    nodes of equal weight would serve as well; ``converged``: whether every inner fit that counts did; ``message``: what
    was done; ``climbed``: how many values of L the way to its mode took; ``stopped``: whether the callback or Ctrl-C
    ended it, with the best scales so far.
    """

    scales: tuple[ScalePosterior, ...]
    components: tuple[Component, ...]
    weights: Array
    thetas: Array
    elbos: Array
    log_evidence: float
    effective: float
    converged: bool
    message: str
    climbed: int
    stopped: bool = False

    @property
    def mode(self) -> Array:
        """The scales at the mode of L, which the model of a result has."""
        return np.array([one.mode for one in self.scales])


def fit_scales(
    model: DEF, data: Observations, scales: str = "shared", seed: int = 0, journal: Journal | None = None
) -> tuple[ScaleFit, ...]:
    """Integrate over the unknown scales of a model with one layer and a Gaussian prior.

    Args:
        model: the model; up to six unknown scales are integrated over, more are put at their mode.
        data: the observations.
        scales: for a batch: "shared" for one set of scales for all observations, "each" for one set each.
        seed: of the quasi-random nodes of four scales and more.
        journal: keeps the fits at all scales, one after another, and has those of a run before.

    Returns:
        One fit, or for "each" one for each observation.

    """
    if not model.unknown_scales:
        raise ArgumentError("model must have unknown scales, such as Gaussian(sd=scales.HalfNormal(1.0)); got none.")
    if one_of("scales", scales, ("shared", "each")) == "shared":
        return (fit_objective(ScaleObjective(model, data, journal), seed),)
    each = np.arange(len(data.x))[:, None]
    return tuple(fit_objective(ScaleObjective(model.take_observations(k), data.take(k), journal), seed) for k in each)


def fit_objective(objective: ScaleObjective, seed: int = 0) -> ScaleFit:
    """Return the fit; one that is stopped has the scales of the best point so far."""
    try:
        return _integrated(objective, seed)
    except (KeyboardInterrupt, Stopped):
        if not objective.course.keeps or objective.best is None:
            raise
        # The last fit is made without a word to the callback.
        objective.course, objective.climbed = Course(), objective.climbed or objective.count
        return replace(_at_mode(objective, objective.best[1]), message=STOPPED_EARLY, converged=False, stopped=True)


def _integrated(objective: ScaleObjective, seed: int) -> ScaleFit:
    many = len(objective.model.unknown_scales) > MOST_SCALES
    mode = climb(objective, None if many else ROUGH_SLOPE)
    objective.climbed = objective.count
    objective.terms.check_noise(mode)
    if many:
        return _at_mode(objective, mode)
    collected = Collector(objective)
    mode, precision = moved_mode(objective, mode)
    if len(mode) in FINENESS:
        integral = lattice(collected, mode, np.diag(precision) ** -0.5)
    else:
        integral = importance(collected, mode, np.linalg.inv(precision), seed)
        integral = integral._replace(log_weights=collected.calibrated(integral))
    return _collected(collected, integral, mode)


def climb(objective: ScaleObjective, tolerance: float | None = None, init: Array | None = None) -> Array:
    """Return the mode of log prior plus ELBO, from ``init`` where that is given.

    L-BFGS-B in a box around the last point, for as long as it ends on the box's border. The objective is divided by its
    largest slope, so that the first step, which is along the slope, is no longer than one: a scale e times as large. A
    box in which no better point was found is halved.
    """
    tolerance = objective.slope_tolerance if tolerance is None else tolerance
    start = theta = objective.terms.start() if init is None else init
    here, side = objective.evaluate(theta), BOX
    for _ in range(MOST_CLIMBS):
        unit = np.max(np.abs(here.slope))
        if unit <= tolerance:
            break
        low, high = np.maximum(theta - side, start - REACH), np.minimum(theta + side, start + REACH)
        found, there = _climb_in_box(objective, theta, here, np.stack([low, high], axis=1), tolerance)
        inside = (found > low) & (found < high)
        stuck = np.array_equal(found, theta)
        theta, here = found, there
        if stuck:
            side *= 0.5
        elif inside.all() or (np.abs(found - start) >= REACH)[~inside].all():
            break
    return theta


def _climb_in_box(
    objective: ScaleObjective, theta: Array, here: Evaluated, box: Array, tolerance: float
) -> tuple[Array, Evaluated]:
    """Return the best point in a box from theta, where L is known, and L there."""
    unit, known = float(np.max(np.abs(here.slope))), {theta.tobytes(): here}

    def negative(point: Any) -> tuple[float, Any]:
        try:
            if point.tobytes() not in known:
                # Without its fits, which hold factors.
                known[point.tobytes()] = objective.evaluate(point)._replace(fits=())
        except ForestmixError:
            return np.inf, np.zeros_like(point)
        found = known[point.tobytes()]
        return -found.value / unit, -found.slope / unit

    options: Any = {"gtol": tolerance / unit, "ftol": 1e-16}
    limits: Any = box
    found = scipy.optimize.minimize(negative, theta, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    best = np.asarray(found.x)
    return best, known.get(best.tobytes(), here)


def moved_mode(objective: ScaleObjective, mode: Array) -> tuple[Array, Array]:
    """Return the mode of L, one step of Newton from where the climb ended, and minus the second derivatives there.

    These are differences of the slope, with eigenvalues in bounds. The slope of what is left out is a difference too.
    """
    columns, slope = [], np.zeros(len(mode))
    for k, step in enumerate(DIFFERENCE * np.eye(len(mode))):
        ahead, behind = (objective.evaluate(mode + sign * step, whole=True) for sign in (1, -1))
        columns.append((behind.slope - ahead.slope) / (2 * DIFFERENCE))
        slope[k] = 0.5 * (ahead.slope + behind.slope)[k] + (ahead.left_out - behind.left_out) / (2 * DIFFERENCE)
    matrix = np.array(columns)
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    values = np.clip(values, LARGEST_SD**-2.0, SMALLEST_SD**-2.0)
    step = vectors @ ((vectors.T @ slope) / values)
    return mode + np.clip(step, -LARGEST_SD, LARGEST_SD), (vectors * values) @ vectors.T


class Node(NamedTuple):
    """The posterior of the latents at some scales, whether its fits converged, their ELBOs, and what L is made of.

    Latents of observations in chunks have none here.
    """

    component: Component | None
    converged: bool
    elbos: list[float]
    slope: Array
    left_out: float


class Collector:
    """L for the integral; what there is at each node is kept on the way."""

    def __init__(self, objective: ScaleObjective) -> None:
        self.objective, self.held = objective, 0
        self.nodes: dict[bytes, Node] = {}

    def __call__(self, theta: Array) -> float:
        """Return L at theta."""
        try:
            found = self.objective.evaluate(theta, whole=True)
        except ForestmixError:
            # A scale so extreme that the precision cannot be factored; it has no weight.
            return -np.inf
        self.held += sum({id(fit.covariance): fit.covariance.nbytes for fit in found.fits}.values())
        hold = self.held <= HELD_FACTORS
        part = None  # those of observations in chunks are made again where the chunks are
        if found.fits:
            part = component(self.objective.model, np.exp(theta), found.fits, found.remainders, hold=hold)
        converged, elbos = all(fit.converged for fit in found.fits), [fit.elbo for fit in found.fits]
        self.nodes[theta.tobytes()] = Node(part, converged, elbos, found.slope, found.left_out)
        return found.value + found.left_out

    def calibrated(self, integral: Integral) -> Array:
        """Return the log weights of scattered nodes, moved by what is known of the slopes of L there."""
        slopes, left_out = np.zeros(integral.nodes.shape), np.zeros(len(integral.nodes))
        for k, theta in enumerate(integral.nodes):
            if (node := self.nodes.get(theta.tobytes())) is not None:
                slopes[k], left_out[k] = node.slope, node.left_out
        return calibrated(integral.nodes, integral.log_weights, slopes, left_out)


def component(
    model: DEF, scales: Array, fits: tuple[FullFit, ...], remainders: tuple[Remainder, ...], *, hold: bool = True
) -> Component:
    """Return the fits of all observations at one set of scales, with variances as wide as what they leave out says.

    Those that share a covariance go on to share it.
    """
    places: dict[int, int] = {}
    which = [places.setdefault(id(fit.covariance), len(places)) for fit in fits]
    distinct = [fits[which.index(k)].covariance for k in range(len(places))]
    if remainders:
        distinct = [one.widened(remainders[which.index(k)]) for k, one in enumerate(distinct)]
    batch = CovarianceBatch(distinct if hold else [one.released() for one in distinct], which)
    mean, layer = np.stack([fit.mean for fit in fits]), model.with_scales(scales).layers[0]
    return Component(mean, batch, layer, dict(zip(model.unknown_scales, scales.tolist(), strict=True)))


def _collected(collected: Collector, integral: Integral, mode: Array) -> ScaleFit:
    """Return the fit with the nodes that count."""
    scales, log_weights = collected.objective.model.unknown_scales, integral.log_weights
    if integral.marginals is not None:
        posteriors = [from_grid(one, top, *own) for one, top, own in zip(scales, mode, integral.marginals, strict=True)]
    else:
        shares = np.exp(log_weights)
        posteriors = [from_weighted(*one, shares) for one in zip(scales, mode, integral.nodes.T, strict=True)]
    keep = log_weights > np.log(NEGLIGIBLE if len(scales) == 1 else NEGLIGIBLE_OF_MANY)
    message = SAMPLED if integral.marginals is None else GRID
    message = message.format(count=np.count_nonzero(keep), effective=integral.effective)
    own = integral._replace(nodes=integral.nodes[keep], log_weights=log_weights[keep])
    return _fit(collected, own, posteriors, message)


def _at_mode(objective: ScaleObjective, mode: Array) -> ScaleFit:
    """Return the fit at one set of scales."""
    collected, scales = Collector(objective), objective.model.unknown_scales
    collected(mode)
    alone = Integral(mode[None], np.zeros(1), float("nan"), 1.0, None)
    posteriors = [at_point(scale, float(one)) for scale, one in zip(scales, mode, strict=True)]
    return _fit(collected, alone, posteriors, MODE_ONLY.format(count=len(mode), most=MOST_SCALES))


def _fit(collected: Collector, integral: Integral, posteriors: list[ScalePosterior], message: str) -> ScaleFit:
    """Return the mixture of the posteriors at all nodes of an integral."""
    nodes, weights = [collected.nodes[theta.tobytes()] for theta in integral.nodes], np.exp(integral.log_weights)
    return ScaleFit(
        tuple(posteriors),
        tuple(node.component for node in nodes if node.component is not None),
        weights / np.sum(weights),
        integral.nodes,
        np.array([node.elbos for node in nodes]),
        integral.log_integral,
        integral.effective,
        all(node.converged for node, weight in zip(nodes, weights, strict=True) if weight > COUNTS),
        message,
        collected.objective.climbed,
    )
