"""The objective that unknown scales are found by: log prior plus the best ELBO, its slope, and what is left out.

See ``integrate.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.model import DEF, Observations
from forestmix.posterior.course import Stopped, fallen
from forestmix.posterior.full import AtScales, FullFit, FullProblem, Start
from forestmix.posterior.journal import Exact, Fits, Journal, Place
from forestmix.posterior.remainder import Remainder
from forestmix.posterior.scale_terms import Moments, ScaleTerms

#: What the ELBO of an inner fit may still gain, in nats: means are then within 5e-4 posterior sds.
INNER_TOLERANCE = 1e-7
#: The most that starts are extrapolated: the sum of the sizes of the weights of the fits that they come from.
MOST_EXTRAPOLATION = 4.0
#: Slope of L, in nats for a scale that is e times as large, below which the climb ends where the mode is all there is.
#: The first for Gaussian rows, where L is exact: in a flat direction 1e-3 may still be a tenth of a scale.
EXACT_SLOPE_TOLERANCE, SLOPE_TOLERANCE = 1e-9, 1e-3
#: About how many nodes an integral takes, by the number of scales; only the time left is told by it.
EXPECTED_NODES = {1: 25, 2: 120, 3: 500, 4: 300}
#: Bytes that the starts of inner fits may take.
STARTS_BYTES = 2**28


class Evaluated(NamedTuple):
    """Log prior plus ELBO at some theta, its slope (K,), and what the ELBO leaves out, where that was asked for.

    ``fits`` and ``remainders``: of each observation, which those in chunks have where the chunks are.
    """

    value: float
    slope: Array
    left_out: float = 0.0
    fits: tuple[FullFit, ...] = ()
    remainders: tuple[Remainder, ...] = ()


class ScaleObjective:
    """L and its slope, for a model and its data; inner fits start from the nearest theta that is known.

    ``count``: how many values it gave; ``climbed``: how many of these the way to the mode took; ``best``: the largest
    without what is left out, and its theta.
    """

    count, climbed, _first_slope = 0, 0, 0.0
    best: tuple[float, Array] | None = None

    def __init__(self, model: DEF, data: Observations, journal: Journal | None = None) -> None:
        self.model, self.problem, self.terms = model, FullProblem(model, data), ScaleTerms.of(model, data)
        self.journal = journal or Journal()
        self.course = self.journal.course
        self._starts: list[tuple[Array, list[Start]]] = []
        entries = len(data.x) * (model.n_observed + model.n_latent)
        self._most_starts = int(np.clip(STARTS_BYTES // (8 * entries), 4, 256))

    @property
    def slope_tolerance(self) -> float:
        """Where a climb ends if the mode is all there is."""
        constant = self.model.layers[0].family.curvature_is_constant
        return EXACT_SLOPE_TOLERANCE if constant else SLOPE_TOLERANCE

    def evaluate(self, theta: Array, *, whole: bool = False) -> Evaluated:
        """Return log prior plus ELBO, its slope by the envelope theorem, the inner fits, and what these leave out."""
        value, slope = self.terms.log_prior(theta)
        found = self.over_observations(theta, whole=whole)
        found = found._replace(value=value + found.value, slope=slope + found.slope)
        if self.best is None or found.value > self.best[0]:
            self.best = found.value, theta.copy()
        self._tell(found)
        return found

    def over_observations(self, theta: Array, *, whole: bool) -> Evaluated:
        """Return the same without the prior: a sum over observations."""
        known = self.problem.at(self.model.with_scales(np.exp(theta)))
        before = self.journal.at(theta)
        if isinstance(before, Exact):
            self.journal.note(before)
            return Evaluated(before.value, before.slope, fits=known.exact(before))
        fits = self._fits(known, theta, before)
        self._remember(theta, fits)
        value, slope = 0.0, np.zeros(len(theta))
        variances: dict[int, Array] = {}
        for fit in fits:
            if id(fit.covariance) not in variances:
                variances[id(fit.covariance)] = fit.covariance.variance()
            own = Moments(fit.error, fit.kappa, fit.variance, fit.mean, variances[id(fit.covariance)])
            counts, sums = self.terms.statistics(theta, own)
            value, slope = value + fit.elbo, slope + sums - counts
        if self.model.layers[0].family.curvature_is_constant and self.journal.kept:
            means, elbos = np.stack([fit.mean for fit in fits]), np.array([fit.elbo for fit in fits])
            self.journal.note(Exact(theta, means, elbos, value, slope))
        remainders = known.remainders(fits) if whole else ()
        return Evaluated(value, slope, sum(one.evidence for one in remainders), fits, remainders)

    def _tell(self, found: Evaluated) -> None:
        """Say how far the work is: the first half is the climb, the second the nodes."""
        self.count += 1
        steep = float(np.max(np.abs(found.slope)))
        self._first_slope = self._first_slope or steep
        share = 0.5 * fallen(steep, self._first_slope, SLOPE_TOLERANCE)
        if self.climbed:
            nodes = EXPECTED_NODES.get(len(found.slope), EXPECTED_NODES[4])
            share = 0.5 + 0.5 * min((self.count - self.climbed) / nodes, 0.98)

        def stacked() -> tuple[Array, Array]:
            moments = [(fit.mean, fit.covariance.variance()) for fit in found.fits]
            means, variances = zip(*moments, strict=True)
            return np.stack(means), np.stack(variances)

        if self.course.tell(found.value, share, stacked):
            raise Stopped

    def _fits(self, known: AtScales, theta: Array, found: Fits | None) -> tuple[FullFit, ...]:
        """Return the inner fits, where a run before has ended them if it has."""
        if self.model.layers[0].family.curvature_is_constant:
            return known.fit()
        if found is not None:
            fits = known.again(found.places)
        else:
            fits = known.fit(self._start(theta), INNER_TOLERANCE)
            ends = [Place(fit.mean, fit.covariance.kappa, np.array(fit.trace), fit.converged) for fit in fits]
            found = Fits(theta, ends)
        self.journal.note(found)
        return fits

    def _start(self, theta: Array) -> list[Start] | None:
        """Return where the inner fits may start: by a plane through those at the nearest theta.

        The weights w of the least norm with ``sum_s w_s = 1`` and ``sum_s w_s theta_s = theta``; curvatures of rows,
        which are positive, by their logarithms.
        """
        if not self._starts:
            return None
        order = np.argsort([float(np.sum((theta - known) ** 2)) for known, _ in self._starts])
        near = [self._starts[k] for k in order[: 2 * len(theta) + 1]]
        places = np.array([np.append(known - theta, 1.0) for known, _ in near]).T
        weights = np.linalg.lstsq(places, np.eye(len(places))[-1], rcond=1e-6)[0]
        exact = np.allclose(places @ weights, np.eye(len(places))[-1], atol=1e-6)
        if not exact or np.sum(np.abs(weights)) > MOST_EXTRAPOLATION:
            return near[0][1]
        pairs = zip(*(starts for _, starts in near), strict=True)
        return [Start(*_weighted(weights, list(each))) for each in pairs]

    def _remember(self, theta: Array, fits: tuple[FullFit, ...]) -> None:
        """Keep where fits ended, of the last theta, as many as memory allows; rows of constant curvature need none."""
        if self.model.layers[0].family.curvature_is_constant:
            return
        self._starts = [*self._starts[1 - self._most_starts :], (theta, [Start(fit.mean, fit.kappa) for fit in fits])]


def _weighted(weights: Array, starts: list[Start]) -> tuple[Array, Array]:
    """Return the weighted mean of means, and that of curvatures, which stay 0 where they are, on a log scale."""
    mean = sum(weight * one.mean for weight, one in zip(weights, starts, strict=True))
    logs = sum(weight * np.log(np.maximum(one.kappa, 1e-300)) for weight, one in zip(weights, starts, strict=True))
    return np.asarray(mean), np.where(starts[0].kappa > 0, np.exp(logs), 0.0)
