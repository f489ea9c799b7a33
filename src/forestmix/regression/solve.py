"""The model of a regression, and the posterior of its effects, with full covariance and unknown scales integrated."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Binomial, Family, Gaussian, Poisson
from forestmix.inference.status import Status, Trace
from forestmix.model import DEF, Layer, Prior
from forestmix.posterior.component import Component
from forestmix.posterior.kinds import factorised_component
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.scale_posterior import ScalePosterior
from forestmix.regression.cases import Cases
from forestmix.regression.formula import Rows
from forestmix.regression.priors import Priors
from forestmix.run import infer
from forestmix.scales import Scale


def family_of(name: str, noise: Any, trials: Array | None) -> Family:
    """Return the family of the rows."""
    if name == "gaussian":
        return Gaussian(noise)
    if name == "binomial":
        assert trials is not None
        return Binomial(trials)
    return {"bernoulli": Bernoulli, "poisson": Poisson}[name]()


def new_rows(part: Component, family: str, matrix: Any, offset: Any = 0.0, trials: Array | None = None) -> Layer:
    """Return rows of a fit's family under a component of its posterior, with the noise of that component."""
    own: Any = part.layer.family.unweighted
    return Layer(family_of(family, own.sd if isinstance(own, Gaussian) else None, trials), matrix, offset)


def check_response(name: str, response: str, y: Array, trials: Array | None) -> None:
    """Raise unless the response is of the family's kind, with its name and what would be right."""
    whole = y == np.floor(y)
    right = {
        "gaussian": ("finite numbers", np.isfinite(y)),
        "bernoulli": ("0 or 1, False or True, or two levels", (y == 0) | (y == 1)),
        "poisson": ("counts: whole numbers, 0 or more", whole & (y >= 0)),
        "binomial": ("successes: whole numbers from 0 to the trials", whole & (y >= 0) & (y <= _least(trials))),
    }
    words, fits = right[name]
    if not fits.all():
        raise ArgumentError(f"The {name} response {response!r} must be {words}; got {y[np.argmin(fits)]:g}.")
    if trials is not None and not ((trials >= 1) & (trials == np.floor(trials))).all():
        worst = trials[np.argmin((trials >= 1) & (trials == np.floor(trials)))]
        raise ArgumentError(f"trials must be whole numbers, 1 or more; got {worst:g}.")


def centre_and_unit(
    name: str, y: Array, trials: Array | None, offset: Array, weights: Array | None
) -> tuple[float, float]:
    """Return the mean response on the scale of the predictor, less the offset, and the unit s of the priors.

    Gaussian: ``mean(y - offset)`` and ``sd(y - offset)``; Poisson: ``log((sum y + 1/2) / sum exp(offset))`` and 1; the
    others: ``log((successes + 1/2) / (failures + 1/2))`` less the mean offset, and 1.
    """
    w = np.ones(len(y)) if weights is None else weights
    if name == "gaussian":
        rest = y - offset
        mean = float(np.average(rest, weights=w))
        sd = float(np.sqrt(np.average((rest - mean) ** 2, weights=w)))
        return mean, sd if sd > 0 else 1.0
    if name == "poisson":
        return float(np.log((w @ y + 0.5) / (w @ np.exp(offset)))), 1.0
    hits = float(w @ y)
    misses = float(w @ (np.ones(len(y)) if trials is None else trials)) - hits
    return float(np.log((hits + 0.5) / (misses + 0.5)) - np.average(offset, weights=w)), 1.0


def make_model(
    family: Family, matrix: Any, offset: Array, priors: Priors, weights: Array | None, names: list[str]
) -> DEF:  # fmt: skip
    """Return the model: rows ``family(offset + matrix @ effects)`` and a Gaussian prior of each effect, with names."""
    cases = {} if weights is None else {"case_weights": weights}
    layer = Layer(family, matrix, offset, **cases)
    layer.labels = tuple(names)
    return DEF(layer, prior=Prior(Gaussian(priors.sd), priors.mean))


def rows_with_response(rows: Rows, cases: Cases) -> tuple[Any, Array, Cases]:
    """Return design, offset and cases of those that have a response."""
    there = np.flatnonzero(~np.isnan(cases.response))
    if len(there) == len(cases.response):
        return rows.matrix, rows.offset + cases.offset, cases
    return rows.matrix[there], (rows.offset + cases.offset)[there], cases.take(there)


def _least(trials: Array | None) -> Any:
    return np.inf if trials is None else trials


#: Entries of a design up to which one thread is faster than several.
SMALL = 2**16


class Solution(NamedTuple):
    """A posterior, the posteriors of unknown scales, what was done about these, how the run went and ended."""

    posterior: Posterior
    scales: dict[Scale, ScalePosterior]
    message: str
    trace: Trace
    status: Status

    def scale_in(self, part: Component, scale: Scale) -> float:
        """Return the value of an unknown scale in a component of the posterior."""
        return float(part.scales[scale]) if scale in part.scales else self.scales[scale].mean


def one_thread(entries: int) -> AbstractContextManager[Any]:
    """Return a context in which small matrices are multiplied and factored by one thread, where threadpoolctl is there.

    Two threads that wait for each other take ten times as long on a busy machine; large matrices gain by them.
    """
    controller = _controller() if entries <= SMALL else None
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def solve(model: DEF, y: Array, **options: Any) -> Solution:
    """Return the posterior of the effects given the responses, (n,); ``options`` are those of ``infer``."""
    with one_thread(model.layers[0].weights.stored):
        result = infer(model, y, covariance="full", **options)
    scales = dict(zip(model.unknown_scales, result.scales.values(), strict=True))
    return Solution(result.posterior(), scales, result.note, result.trace, result.status)


def at_scale_means(model: DEF, solution: Solution, y: Array) -> Posterior:
    """Return the posterior with each unknown scale at its posterior mean, and the factors of q to compare with."""
    known = model.with_scales({scale: found.mean for scale, found in solution.scales.items()})
    full = infer(known, y, covariance="full").posterior()
    q = factorised_component(infer(known, y))
    factors = q.mean, q.sd
    return Posterior(full.mixture.components, full.mixture.weights, known, full.data, full.kind, factors=factors)
