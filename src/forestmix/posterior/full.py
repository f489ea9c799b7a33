"""Gaussian q with full covariance and exact one-dimensional expectations (Opper and Archambeau 2009).

For ``q = N(mu, Sigma)`` the rows see ``eta_i ~ N(m_i, v_i)`` with ``m_i = b_i + w_i . mu``, ``v_i = w_i^T Sigma w_i``::

    ELBO = sum_i E log p(x_i | eta_i) - KL(q || p)
    e_i = t(x_i) - E a'(eta_i)        kappa_i = E a''(eta_i)
    Sigma^-1 = diag(1 / sigma0^2) + W^T diag(kappa) W        at the optimum
    mu      <- mu + Sigma (W^T e - (mu - mu0) / sigma0^2)

Both at once are a step along the natural gradient. One of length rho mixes the precisions, that is the kappa, and
shortens the step of the mean; rho is halved until the ELBO has risen, and doubled for the next step. With few rows a
step of Newton is tried first (``full_newton.py``). For Gaussian rows one step is exact, and the ELBO is the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array, total
from forestmix.engines.rows import RowData, expected_terms, row_data
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.families import Gaussian
from forestmix.families.primitive import Kind, Primitive
from forestmix.model import DEF, Observations
from forestmix.posterior.columns import Columns
from forestmix.posterior.course import fallen
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.full_newton import FEW_ROWS, LIKELY, Point, curvature_gain, decrement_of, newton_step
from forestmix.posterior.journal import Climb, Exact, Journal, Place
from forestmix.posterior.remainder import Remainder, remainder
from forestmix.posterior.system import distinct_rows
from forestmix.problem.backtracking import longest_step

#: What the ELBO may still gain, in nats, when a run has converged: means are then within 2e-5 posterior sds.
TOLERANCE = 1e-10
MAX_ITER = 200
#: The same where rounding, or the limit of steps, ended a run earlier: means are then within 0.002 posterior sds.
ACCEPTABLE = 2e-6
#: With so few entries of W a run goes on to ``EXACT``, beyond rounding of the ELBO, so that rows repeated and weighted
#: give the same to nine digits, for as long as ``PATIENCE`` steps leave the share ``SLOWEST`` at most.
SMALL, EXACT, SLOWEST, PATIENCE = 2**14, 1e-20, 0.9, 4
HALVINGS = 40  # of a step, at most

#: What to do about a model that neither is for.
GIVE = "Give numbers for its unknown scales, by model.with_scales(values) or Gaussian(sd=...)."
LEAVE = "Leave covariance at 'factorised'."


class Start(NamedTuple):
    """Where a fit may start: means (m,) and curvatures of the rows (n,), of a fit at other scales."""

    mean: Array
    kappa: Array


@dataclass(frozen=True)
class FullFit(Point):
    """The posterior of one observation: ``N(mean, covariance)``; its ``elbo`` is the log evidence for Gaussian rows.

    ``trace``: the ELBO from the start on; ``stopped``: whether the callback or Ctrl-C ended it.
    """

    converged: bool
    trace: tuple[float, ...]
    stopped: bool = False


def check_joint(model: DEF) -> None:
    """Raise if a model is not one that has a full covariance."""
    if len(model.layers) > 1 or not isinstance(model.prior.family, Gaussian):
        raise ArgumentError(
            "model must have one layer and a Gaussian prior for a full covariance and for unknown scales; got "
            f"{len(model.layers)} layer(s) and {model.prior.family!r}. {GIVE if model.unknown_scales else LEAVE}"
        )


class FullProblem:
    """Weights and data, ready for fits at several scales: what does not depend on the scales is done once."""

    def __init__(self, model: DEF, data: Observations) -> None:
        check_joint(model)
        self.data = data
        self.weights = model.layers[0].weights.in_double()
        self.columns = Columns(self.weights)

    def at(self, model: DEF) -> AtScales:
        """Return the problem at the scales of a model, which must have the same weights."""
        return AtScales(self, model)


class AtScales:
    """The problem with all scales known."""

    def __init__(self, problem: FullProblem, model: DEF) -> None:
        m = model.n_latent
        self.columns, self.weights, self.data = problem.columns, problem.weights, problem.data
        self.layer = model.layers[0].with_weights(self.weights)
        self.prior_mean = np.broadcast_to(model.prior.bias, m).astype(np.float64)
        self.prior_sd = np.broadcast_to(model.prior.family.sd, m).astype(np.float64)
        self.precision = self.prior_sd**-2.0
        self.rows = row_data(self.layer, self.data)
        self._constant = self.layer.family.curvature_is_constant
        self._few_rows = self.layer.size <= FEW_ROWS and self.weights.stored <= SMALL and not self._constant

    def fit(
        self, init: Sequence[Start | FullFit] | None = None, tol: float = TOLERANCE, max_iter: int = MAX_ITER,
        journal: Journal | None = None,
    ) -> tuple[FullFit, ...]:  # fmt: skip
        """Return the fit of each observation."""
        if self._constant:
            return self.exact()
        starts: Sequence[Start | FullFit | None] = [None] * len(self.data.x) if init is None else init
        kept = journal or Journal()
        return tuple(self._climb(k, start, tol, max_iter, kept) for k, start in enumerate(starts))

    def again(self, places: Sequence[Place]) -> tuple[FullFit, ...]:
        """Return the fits that ended at some places."""
        points = [
            self._evaluate(self.rows.take([k]), place.mean, self._factor(place.kappa)) for k, place in enumerate(places)
        ]
        ends = zip(points, places, strict=True)
        return tuple(_fit(point, place.trace.tolist(), place.converged) for point, place in ends)

    def remainders(self, fits: Sequence[FullFit]) -> tuple[Remainder, ...]:
        """Return what each fit leaves out; none for Gaussian rows, which leave nothing."""
        return () if self._constant else tuple(remainder(self.rows.take([k]), fit) for k, fit in enumerate(fits))

    def exact(self, known: Exact | None = None) -> tuple[FullFit, ...]:
        """Return the posteriors under Gaussian rows; observations that miss the same entries share a factor.

        Those that are ``known`` have no terms of rows.
        """
        eta, kappa = self._working_rows()
        distinct, which = distinct_rows(kappa)
        fits: dict[int, FullFit] = {}
        for number, row in enumerate(distinct):
            factor, members = self._factor(row), np.flatnonzero(which == number).tolist()
            if known is not None:
                fits |= {k: _known_fit(known.means[k], factor, float(known.elbos[k])) for k in members}
                continue
            variance, means = factor.row_variances(), self._weighted_means(factor, eta[members], kappa[members])
            for k, mean in zip(members, means, strict=True):
                point = self._evaluate(self.rows.take([k]), mean, factor, variance)
                fits[k] = _fit(self._refined(self.rows.take([k]), point), [point.elbo], True)
        return tuple(fits[k] for k in range(len(fits)))

    def _climb(self, k: int, start: Start | FullFit | None, tol: float, max_iter: int, journal: Journal) -> FullFit:
        """Raise the ELBO of one observation to its maximum."""
        rows, before = self.rows.take([k]), journal.climb(k)
        if before is None:
            point = self._start(k, rows, start)
            trace, gain, rho = [point.elbo], np.inf, 1.0
        else:
            point = self._evaluate(rows, before.mean, self._factor(before.kappa))
            trace, gain, rho = before.trace.tolist(), before.gain, before.rho
        decrement, first, course = np.inf, 0.0, journal.course
        for _ in range(len(trace) - 1, 0 if course.stopped else max_iter):
            # The sum of n terms is known to about this much.
            floor = max(tol, 8 * np.finfo(np.float64).eps * abs(point.elbo))
            gradient = self._gradient(point)
            decrement = decrement_of(point, gradient)
            if decrement + min(gain, curvature_gain(point)) <= floor:
                return _fit(self._refined(rows, point), trace, True)
            first = first or decrement
            if course.tell(point.elbo, fallen(decrement, first, floor), partial(_moments, point)):
                break
            step = partial(self._step, rows, point, gradient, rho, floor)
            better, rho = course.attempt(step) or (None, rho)
            if better is None:
                break
            point, gain, rho = better, better.elbo - point.elbo, min(1.0, 2 * rho)
            trace.append(point.elbo)
            journal.note_climb(k, Climb(point.mean, point.covariance.kappa, gain, rho, np.array(trace)))
        near = decrement + min(gain, curvature_gain(point)) <= ACCEPTABLE
        return _fit(self._refined(rows, point) if near else point, trace, near, course.stopped)

    def _refined(self, rows: RowData, point: Point) -> Point:
        """Return a point after steps that the ELBO is too coarse to judge, for as long as less is left."""
        best, least, since = point, np.inf, 0
        while self.weights.stored <= SMALL:
            gradient = self._gradient(point)
            left = decrement_of(point, gradient) + curvature_gain(point)
            since = 0 if left < SLOWEST * least else since + 1
            best, least = (point, left) if left < least else (best, least)
            if least <= EXACT or since >= PATIENCE:
                return best
            if self._constant:
                mean = point.mean + point.covariance.solve(gradient)
                point = self._evaluate(rows, mean, point.covariance, point.variance)
            elif self._few_rows and not since:
                point = self._newton(rows, point, gradient)
            else:
                factor = self._factor(point.kappa)
                point = self._evaluate(rows, point.mean + factor.solve(gradient), factor)
        return best

    def _start(self, k: int, rows: RowData, start: Start | FullFit | None) -> Point:
        """Return the point of a fit at other scales, or the first step of iteratively reweighted least squares."""
        if start is not None:
            point = self._evaluate(rows, start.mean, self._factor(start.kappa))
            if np.isfinite(point.elbo):
                return point
        eta, kappa = (part[k] for part in self._working_rows())
        factor = self._factor(kappa)
        point = self._evaluate(rows, self._weighted_means(factor, eta, kappa), factor)
        if not np.isfinite(point.elbo):
            raise ForestmixError("The ELBO is not finite at the start: rescale x, W or the prior's sd.")
        return point

    def _step(
        self, rows: RowData, point: Point, gradient: Array, rho: float, floor: float
    ) -> tuple[Point | None, float]:
        """Return the natural gradient step of length rho, halved until the ELBO rises, and rho.

        With few rows a step of Newton comes first. There is none where what the ELBO rises or falls by is rounding.
        """
        if self._few_rows:
            new = self._newton(rows, point, gradient)
            if new.elbo > point.elbo + 0.5 * decrement_of(point, gradient):
                return new, rho

        def natural(rho: float) -> Point:
            kappa = point.covariance.kappa
            factor = self._factor(kappa + rho * (point.kappa - kappa))
            return self._evaluate(rows, point.mean + rho * factor.solve(gradient), factor)

        # A short step that loses no more than rounding ends the search.
        new, rho, _ = longest_step(
            natural, lambda new, rho: new.elbo > point.elbo - (floor if rho < 0.1 else 0.0), rho, HALVINGS
        )
        return new if new.elbo > point.elbo else None, float(rho)

    def _newton(self, rows: RowData, point: Point, gradient: Array) -> Point:
        """Return the point after a step of Newton."""
        mean, kappa = newton_step(rows, self.weights.dense_rows(np.arange(len(point.eta))), point, gradient)
        return self._evaluate(rows, mean, self._factor(kappa))

    def _factor(self, kappa: Array) -> BlockFactor:
        return BlockFactor(self.columns, kappa, self.precision)

    def _evaluate(self, rows: RowData, mean: Array, factor: BlockFactor, variance: Array | None = None) -> Point:
        """Return row terms and ELBO of ``N(mean, Sigma(kappa))``.

        With ``tr(Sigma / sigma0^2) = m - sum_i kappa_i v_i`` the divergence is
        ``(sum_j ((mu_j - mu0_j) / sigma0_j)^2 + log sigma0_j^2 - sum_i kappa_i v_i - log |Sigma|) / 2``.
        """
        variance = factor.row_variances() if variance is None else variance
        eta = self.weights.forward(mean) + self.layer.bias
        terms = expected_terms(rows, eta[None], np.sqrt(variance)[None])
        likelihood, error, curvature = (np.broadcast_to(term, (1, len(eta)))[0] for term in terms)
        scaled = total(((mean - self.prior_mean) / self.prior_sd) ** 2 + 2 * np.log(self.prior_sd))
        divergence = 0.5 * (scaled - total(factor.kappa * variance) - factor.log_determinant())
        elbo = float(total(likelihood) - divergence)
        finite = np.isfinite(elbo) and np.isfinite(curvature).all()
        return Point(mean, factor, elbo if finite else -np.inf, eta, variance, error, curvature)

    def _gradient(self, point: Point) -> Array:
        """Return ``W^T e - (mu - mu0) / sigma0^2``."""
        return self.weights.adjoint(point.error) - self.precision * (point.mean - self.prior_mean)

    def _weighted_means(self, factor: BlockFactor, eta: Array, kappa: Array) -> Array:
        """Return the posterior means if the rows were ``N(eta_i; m_i, 1 / kappa_i)``."""
        pulled = self.weights.adjoint(kappa * (eta - self.layer.bias))
        return factor.solve(pulled + self.precision * self.prior_mean)

    def _working_rows(self) -> tuple[Array, Array]:
        """Return for each row an eta at which x is likely and the curvature there, (N, n); 0 for a missing entry."""

        def likely(xp: Any, kind: int, own: Primitive, x: Array) -> tuple[Array, Array]:
            zeta, curvature = LIKELY[Kind(kind)](np.broadcast_to(own.target, x.shape), own.factor + np.zeros(x.shape))
            return own.shift + own.sign * zeta, own.factor * curvature

        eta, kappa = self.rows.of_each_kind(likely, self.data.x)
        return eta, kappa


def _moments(point: Point) -> tuple[Array, Array]:
    return point.mean, point.covariance.variance()


def _fit(point: Point, trace: list[float], converged: bool, stopped: bool = False) -> FullFit:
    return FullFit(**vars(point), converged=converged, trace=(*trace[:-1], point.elbo), stopped=stopped)


def _known_fit(mean: Array, factor: BlockFactor, elbo: float) -> FullFit:
    nothing = np.empty(0)
    return FullFit(mean, factor, elbo, nothing, nothing, nothing, factor.kappa, True, (elbo,))
