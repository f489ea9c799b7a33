"""The mode of the posterior with its Laplace covariance: what maximum likelihood gives where priors are flat.

The mode is found by ``newton.py``, with no spread of the rows, and with ``kappa`` the rows' ``a''(eta)`` there::

    Sigma = (diag(1 / sigma0^2) + W^T diag(kappa) W)^-1

Unknown scales are at the mode of their own posterior, by their logarithms, which the latents are integrated out of
(``integrate.py``): for Gaussian rows under flat priors, those of restricted maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.posterior.columns import Columns, fits_factor
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import CovarianceBatch
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.importance import system_of
from forestmix.posterior.newton import Place, climb, place_at
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.system import LatentSystem

#: What log p(x, y) may still gain, in nats, before the last step, which squares it.
TOLERANCE = 1e-10
#: The same where the search ended early: the mode is then within 0.002 sds.
ACCEPTABLE = 2e-6
#: The sd of an observed row's eta from which on, if eta itself is smaller, the rows do not hold the mode.
LOOSE = 10.0

MEANING = "Laplace: means are modes and sds come from the curvature there, as those of maximum likelihood do."
AT_MODE = "For them unknown scales are at their mode: {scales}."
NO_MAXIMUM = (
    "The likelihood has no maximum: columns separate the responses, or all of some level are 0 (seen in {count} rows). "
    "Only the prior holds these modes; use a narrower prior than a flat one."
)
NOT_THERE = "The search for the mode stopped short of it: rescale the columns, or use a narrower prior."


def laplace_posterior(posterior: Posterior) -> Posterior:
    """Return the modes with their Laplace covariance, at the mode of unknown scales."""
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
        part = _component(posterior, columns)
    return Posterior([part], [1.0], model, data, "laplace", factors=posterior.factors, scales=posterior.scales)


def _component(posterior: Posterior, columns: Columns) -> Component:
    """Return the modes of all observations and their covariances, at the scales of the posterior's model."""
    system, (starts, _) = posterior.system, posterior.mixture.moments()

    def covariance(kappa: Array) -> CovarianceBatch:
        return CovarianceBatch([BlockFactor(columns, kappa[0], system.precision)], [0])

    found = [_mode(system.take(np.array([k])), start[None], covariance) for k, start in enumerate(starts)]
    factors = [covariance(mode.kappa).distinct[0] for mode in found]
    mean = np.concatenate([mode.mean for mode in found])
    scales = {one.scale: one.mode for one in posterior.scales.values()}
    return Component(mean, CovarianceBatch(factors, np.arange(len(factors))), posterior.model.layers[0], scales)


def _mode(system: LatentSystem, start: Array, covariance: Callable[[Array], CovarianceBatch]) -> Place:
    """Return the mode of one observation; from the prior's means where the start is out of range."""
    nothing = np.zeros((1, system.weights.shape[0]))
    there = np.isfinite(place_at(system, start, nothing).value[0])
    return climb(system, start if there else system.prior_mean[None], nothing, covariance, _is_last)


def _is_last(step: Array, gradient: Array) -> Array:
    """Return whether what a step gains, to second order, is next to nothing."""
    return 0.5 * np.sum(step * gradient, axis=1) <= TOLERANCE


def laplace_notes(posterior: Posterior) -> list[str]:
    """Return what a reader of the modes must know; nothing for posteriors of other kinds."""
    if posterior.kind != "laplace":
        return []
    part = posterior.mixture.components[int(np.argmax(posterior.mixture.weights[0]))]
    system, count, left = system_of(posterior.system, part), 0, 0.0
    with np.errstate(all="ignore"):
        for k, mode in enumerate(part.mean):
            own, factor = system.take(np.array([k])), part.covariance.distinct[part.covariance.which[k]]
            variance = factor.row_variances()
            _, (value,), (gradient,), (eta,), (kappa,) = place_at(own, mode[None], np.zeros((1, len(variance))))
            left = max(left, 0.5 * gradient @ factor.solve(gradient) / max(1.0, abs(value) * 1e-9))
            count += int(np.sum((kappa > 0) & (variance > LOOSE**2) & (variance > eta**2)))
    loose = count and not system.constant_curvature
    scales = ", ".join(f"{name} {one.mode:.4g}" for name, one in posterior.scales.items())
    notes = {
        MEANING: True, AT_MODE.format(scales=scales): scales, NO_MAXIMUM.format(count=count): loose,
        NOT_THERE: left > ACCEPTABLE,
    }  # fmt: skip
    return [note for note, applies in notes.items() if applies]
