"""The mode of the posterior with its Laplace covariance: what maximum likelihood gives where priors are flat.

With ``eta = b + W y`` and ``e`` and ``kappa`` the rows' ``t(x) - a'(eta)`` and ``a''(eta)`` at the mode itself::

    y     <- y + rho Sigma (W^T e - (y - mu0) / sigma0^2)        rho halved until log p(x, y) has risen
    Sigma  = (diag(1 / sigma0^2) + W^T diag(kappa) W)^-1

These are the steps of Newton on a concave function. The rows' expectations of ``full.py`` with no spread are what is
needed. Where unknown scales are integrated over, each node has the mode at its own scales and keeps its weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array, total
from forestmix.engines.rows import RowData, expected_terms, row_data
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, Observations
from forestmix.posterior.columns import Columns, fits_factor
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import CovarianceBatch
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.posterior import Posterior

#: What log p(x, y) may still gain, in nats, before the last step, which squares it; steps and halvings, at most.
TOLERANCE, MAX_ITER, HALVINGS = 1e-10, 200, 60
#: The same where rounding ended a run: the mode is then within 0.002 sds.
ACCEPTABLE = 2e-6
#: The sd of an observed row's eta from which on, if eta itself is smaller, the rows do not hold the mode.
LOOSE = 10.0

MEANING = "Laplace: means are modes and sds come from the curvature there, as those of maximum likelihood do."
NO_MAXIMUM = (
    "The likelihood has no maximum: columns separate the responses, or all of some level are 0 (seen in {count} rows). "
    "Only the prior holds these modes; use a narrower prior than a flat one."
)
NOT_THERE = "The search for the mode stopped short of it: rescale the columns, or use a narrower prior."


class _Point(NamedTuple):
    """A value of the latents, log p(x, y) up to a constant, its gradient, and ``eta`` and ``kappa`` of each row."""

    y: Array
    value: float
    gradient: Array
    eta: Array
    kappa: Array


class _Modes:
    """The modes of a model's observations at the scales of one component."""

    def __init__(self, model: DEF, data: Observations, part: Component, columns: Columns) -> None:
        self.columns, self.weights = columns, model.layers[0].weights.in_double()
        self.layer = part.layer.with_weights(self.weights)
        self.rows = row_data(self.layer, data)
        self.prior_mean = np.broadcast_to(model.prior.bias, model.n_latent).astype(np.float64)
        own = part.covariance.distinct[0].prior_precision
        sd = np.broadcast_to(model.prior.family.sd, model.n_latent).astype(np.float64)
        self.precision = sd**-2.0 if own is None else own

    def find(self, k: int, start: Array) -> tuple[Array, BlockFactor]:
        """Return the mode of one observation and the covariance there."""
        rows = self.rows.take([k])
        here = self.at(rows, start)
        here = here if np.isfinite(here.value) else self.at(rows, self.prior_mean)
        for _ in range(MAX_ITER):
            step, left = self.newton(here)
            floor = max(TOLERANCE, 8 * np.finfo(np.float64).eps * abs(here.value))
            there = self.at(rows, here.y + step) if left <= floor else self._risen(rows, here, step, left)
            here = here if there is None else there
            if there is None or left <= floor:
                break
        return here.y, BlockFactor(self.columns, here.kappa, self.precision)

    def newton(self, point: _Point) -> tuple[Array, float]:
        """Return the step of Newton, and what it gains to second order."""
        step = BlockFactor(self.columns, point.kappa, self.precision).solve(point.gradient)
        return step, 0.5 * float(point.gradient @ step)

    def at(self, rows: RowData, y: Array) -> _Point:
        """Return the terms at a value of the latents."""
        eta = self.weights.forward(y) + self.layer.bias
        terms = expected_terms(rows, eta[None], np.zeros((1, len(eta))))
        likelihood, error, kappa = (np.broadcast_to(term, (1, len(eta)))[0] for term in terms)
        value = float(total(likelihood) - 0.5 * total(self.precision * (y - self.prior_mean) ** 2))
        finite = np.isfinite(value) and np.isfinite(kappa).all() and np.isfinite(error).all()
        gradient = self.weights.adjoint(error) - self.precision * (y - self.prior_mean)
        return _Point(y, value if finite else -np.inf, gradient, eta, kappa)

    def _risen(self, rows: RowData, here: _Point, step: Array, left: float) -> _Point | None:
        """Return the point after the longest part of a step that gains a share of what it should; or ``None``."""
        for rho in 0.5 ** np.arange(HALVINGS):
            there = self.at(rows, here.y + rho * step)
            if there.value > here.value + 0.2 * rho * left:
                return there
        return None


def laplace_posterior(posterior: Posterior) -> Posterior:
    """Return the modes with their Laplace covariance, at the scales of each component of a posterior."""
    model, data = posterior.model, posterior.data
    if len(model.layers) > 1 or not isinstance(model.prior.family, Gaussian):
        raise ArgumentError(
            "kind='laplace' needs a model with one layer and a Gaussian prior; got "
            f"{len(model.layers)} layer(s) and {model.prior.family!r}. Use kind='corrected' or 'factorised'."
        )
    if not fits_factor(model.layers[0].weights):
        raise ArgumentError("kind='laplace' needs a factor, which this many latents do not have; use 'corrected'.")
    columns = Columns(model.layers[0].weights.in_double())
    with np.errstate(all="ignore"):
        parts = [_component(posterior, part, columns) for part in posterior.mixture.components]
    return Posterior(
        parts, posterior.mixture.weights, model, data, "laplace", factors=posterior.factors, scales=posterior.scales
    )


def _component(posterior: Posterior, part: Component, columns: Columns) -> Component:
    modes = _Modes(posterior.model, posterior.data, part, columns)
    found = [modes.find(k, start) for k, start in enumerate(part.mean)]
    mean, factors = np.stack([mode for mode, _ in found]), [factor for _, factor in found]
    return Component(mean, CovarianceBatch(factors, np.arange(len(factors))), part.layer, part.scales)


def laplace_notes(posterior: Posterior) -> list[str]:
    """Return what a reader of the modes must know; nothing for posteriors of other kinds."""
    if posterior.kind != "laplace":
        return []
    part = max(zip(posterior.mixture.weights[0], posterior.mixture.components, strict=True), key=lambda one: one[0])[1]
    columns, count, left = part.covariance.distinct[0].columns, 0, 0.0  # type: ignore[attr-defined]
    modes = _Modes(posterior.model, posterior.data, part, columns)
    with np.errstate(all="ignore"):
        for k, mode in enumerate(part.mean):
            point, factor = modes.at(modes.rows.take([k]), mode), part.covariance.distinct[part.covariance.which[k]]
            left = max(left, modes.newton(point)[1] / max(1.0, abs(point.value) * 1e-9))
            variance = factor.row_variances()
            count += int(np.sum((point.kappa > 0) & (variance > LOOSE**2) & (variance > point.eta**2)))
    loose = count and not modes.layer.family.curvature_is_constant
    return [MEANING, *([NO_MAXIMUM.format(count=count)] if loose else []), *([NOT_THERE] if left > ACCEPTABLE else [])]
