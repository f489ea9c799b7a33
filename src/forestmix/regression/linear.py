"""What the linear estimators share: a design with an intercept, priors whose scales are learned, and the fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array, numbers
from forestmix.checks import is_number
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, Layer, Prior
from forestmix.posterior.component import Component
from forestmix.posterior.integrate import MOST_SCALES
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.prediction import Prediction, predict
from forestmix.regression.by_chunks import LeadingColumns
from forestmix.regression.priors import WIDTH, Moments, default_noise, moments
from forestmix.regression.solve import Solution, centre_and_unit, family_of, new_rows, one_thread, solve
from forestmix.scales import HalfNormal, Scale
from forestmix.weights import as_weights
from forestmix.weights.dask_chunks import is_dask

#: Logarithms on either side of the middle of a log-uniform prior.
HALF_WIDTH = 20.0


@dataclass(eq=False)
class LogUniform(Scale):
    """``p(s) = 1 / (40 s)`` for s within a factor ``e^20`` of ``middle``: no preference for any size."""

    middle: float

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``-log(40 s)``, and minus infinity outside."""
        theta = np.log(np.asarray(scale, np.float64))
        inside = np.abs(theta - math.log(self.middle)) <= HALF_WIDTH
        return np.where(inside, -theta - math.log(2 * HALF_WIDTH), -np.inf)

    def gradient_of_log(self, theta: npt.ArrayLike) -> Array:
        """Return 0: the logarithm has no preference."""
        return np.zeros(np.shape(theta))

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``middle exp(40 (p - 1/2))``."""
        return self.middle * np.exp(2 * HALF_WIDTH * (np.asarray(p, np.float64) - 0.5))


def relevance(width: float, count: int) -> Scale:
    """Return the prior of one of ``count`` columns' scales; ``width`` is the sd of the weak default.

    Few scales are integrated over, with a half-normal prior. Many are put at their mode, where a flat prior of the
    logarithm lets the scale of a column that explains nothing go to 0, as in scikit-learn's ``ARDRegression``.
    """
    # One more scale is that of the noise.
    return HalfNormal(width) if count + 1 <= MOST_SCALES else LogUniform(width)


class Linear(NamedTuple):
    """A fitted linear predictor: the solution, whether its first latent is the intercept, and its constant."""

    family: str
    solution: Solution
    intercept: bool
    prior_sd: Array
    noise_sd: float | None

    @property
    def coefficients(self) -> tuple[Array, Array]:
        """Posterior means and standard deviations of the coefficients."""
        skip = int(self.intercept)
        return self.solution.posterior.mean[skip:], self.solution.posterior.sd[skip:]

    @property
    def constant(self) -> tuple[float, float]:
        """Posterior mean and standard deviation of the intercept; 0 and 0 without one."""
        if not self.intercept:
            return 0.0, 0.0
        return float(self.solution.posterior.mean[0]), float(self.solution.posterior.sd[0])

    def mean_of_eta(self, X: Any) -> Array:
        """Return the posterior mean of the linear predictor of new rows."""
        return np.asarray(X @ self.coefficients[0]) + self.constant[0]

    def predict(self, X: Any, level: float = 0.9) -> Prediction:
        """Return the predictive distribution of new rows."""
        mixture, matrix = self.solution.posterior.mixture, with_intercept(X, self.intercept)
        parts = [
            Component(part.mean, part.covariance, new_rows(part, self.family, matrix)) for part in mixture.components
        ]
        with one_thread(matrix.shape[0] * matrix.shape[1]):
            return predict(Mixture(parts, mixture.weights), None, level, single=True)

    def response_sd(self, X: Any) -> Array:
        """Return the predictive standard deviation of Gaussian rows: ``sqrt(sd(eta)^2 + E noise^2)``."""
        mixture, matrix = self.solution.posterior.mixture, with_intercept(X, self.intercept)
        with one_thread(matrix.shape[0] * matrix.shape[1]):
            eta_variance = self.solution.posterior.variance(matrix)
        families: list[Any] = [part.layer.family.unweighted for part in mixture.components]
        noise = np.array([float(family.sd) for family in families])
        return np.sqrt(eta_variance + mixture.weights[0] @ noise**2)


def fit_linear(
    family: str, X: Any, y: Array, weights: Array | None, prior_sd: Any, noise: Any, intercept: bool,
    names: Sequence[str] | None = None,
) -> Linear:  # fmt: skip
    """Fit ``family(intercept + X @ coefficients)``, with the names of X's columns if it has some.

    ``prior_sd``: None for one unknown sd of all coefficients, "ard" for one of each, a number or one for each column.
    ``noise``: None for an unknown sd of Gaussian rows, or a number.
    """
    matrix, n_columns = with_intercept(X, intercept), X.shape[1]
    zero = np.zeros(len(y))
    centre, unit = centre_and_unit(family, y, None, zero, weights)
    if is_dask(X):
        matrix = as_weights(matrix)
        whole = moments(matrix, weights)
        found = Moments(whole.mean[-n_columns:], whole.sd[-n_columns:])
    else:
        found = moments(X, weights)
    scales = _prior_scales(prior_sd, n_columns, WIDTH * unit / found.spread)
    width = WIDTH * unit * np.hypot(1.0, np.linalg.norm(found.mean / found.spread))
    sds = [*([float(width)] if intercept else []), *scales]
    means = np.concatenate([[centre] if intercept else [], np.zeros(n_columns)])
    rows = LeadingColumns(matrix, matrix.shape[1]) if is_dask(X) else matrix
    row_noise = None if family != "gaussian" else default_noise(rows, y, unit, weights)
    row_noise = row_noise if noise is None else _positive("noise", noise)
    cases = {} if weights is None else {"case_weights": weights}
    layer = Layer(family_of(family, row_noise, None), matrix, **cases)
    layer.labels = None if names is None else (*(["Intercept"] if intercept else []), *map(str, names))
    solution = solve(DEF(layer, prior=Prior(Gaussian(sds), means)), y)
    learned = [solution.scales[sd].mean if isinstance(sd, Scale) else sd for sd in scales]
    own = solution.scales[row_noise].mean if isinstance(row_noise, Scale) else row_noise
    return Linear(family, solution, intercept, np.array(learned, np.float64), own)


def with_intercept(X: Any, intercept: bool) -> Any:
    """Return X with a leading column of ones, or as it is; sparse stays sparse, and chunks stay chunks."""
    if not intercept:
        return X
    if is_dask(X):
        return X.map_blocks(with_intercept, True, dtype=X.dtype, chunks=(X.chunks[0], (X.shape[1] + 1,)))
    ones = np.ones((X.shape[0], 1))
    is_sparse = bool(scipy.sparse.issparse(X))
    if is_sparse:
        return scipy.sparse.hstack([scipy.sparse.csr_array(ones), X], format="csr")
    return np.hstack([ones, X])


def _prior_scales(given: Any, count: int, widths: Array) -> list[Any]:
    """Return the prior sd of each coefficient: numbers, or unknown scales with weak priors on the scale of the data."""
    if given is None:
        return [HalfNormal(float(np.max(widths)))] * count
    if isinstance(given, str):
        if given != "ard":
            raise ArgumentError(f"prior_sd must be None, 'ard', a number, or one for each column; got {given!r}.")
        return [relevance(float(width), count) for width in widths]
    if is_number(given):
        return [_positive("prior_sd", given)] * count
    values = numbers("prior_sd", given).astype(np.float64)
    if values.shape != (count,):
        raise ArgumentError(f"prior_sd must have one number for each of the {count} columns; got shape {values.shape}.")
    return [_positive("prior_sd", float(value)) for value in values]


def _positive(name: str, value: Any) -> float:
    if not is_number(value) or not 0 < value < np.inf:
        raise ArgumentError(f"{name} must be a number above 0; got {value!r}.")
    return float(value)
