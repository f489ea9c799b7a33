"""The rows of a regression: family, link, and what the defaults of the priors need to know of the response."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Binomial, Family, Gaussian, Poisson
from forestmix.model import DEF, Layer, Prior
from forestmix.regression.cases import Cases
from forestmix.regression.formula import Rows
from forestmix.regression.priors import Priors


def family_of(name: str, noise: Any, trials: Array | None) -> Family:
    """Return the family of the rows."""
    if name == "gaussian":
        return Gaussian(noise)
    if name == "binomial":
        assert trials is not None
        return Binomial(trials)
    return {"bernoulli": Bernoulli, "poisson": Poisson}[name]()


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
        raise ArgumentError("trials must be whole numbers, 1 or more.")


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
