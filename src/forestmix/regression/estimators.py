"""Estimators of scikit-learn: linear regression and classification with standard deviations, scales learned."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, flag, one_of
from forestmix.errors import MissingExtraError
from forestmix.regression.dask_estimators import by_chunks, in_memory, is_chunked, training_rows
from forestmix.regression.linear import Linear, fit_linear
from forestmix.regression.named_tables import named_rows
from forestmix.regression.solve import check_response

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("The estimators need scikit-learn: pip install 'forestmix[sklearn]'") from error

SPARSE = ("csr", "csc", "coo")


class _Linear(BaseEstimator):
    """Checks of input that the estimators share."""

    prior_sd: Any
    fit_intercept: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _training(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> tuple[Any, Array, Array | None]:
        """Return X, y and the weights that were given, rows of weight 0 left out."""
        flag("fit_intercept", self.fit_intercept)
        if is_chunked(X, y):
            return training_rows(self, X, y, sample_weight)
        X, y = validate_data(self, X, y, accept_sparse=SPARSE, dtype=np.float64, **checks)
        X = X.tocsr() if hasattr(X, "tocsr") else X
        if sample_weight is None:
            return X, y, None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        keep = np.flatnonzero(weights > 0)
        return X[keep], y[keep], weights[keep]

    @property
    def _names(self) -> Any:
        """The names of X's columns, which the posterior then has; None if X had none."""
        return getattr(self, "feature_names_in_", None)

    def _new(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=SPARSE, dtype=np.float64, reset=False)
        return X.tocsr() if hasattr(X, "tocsr") else X


class BayesianRegressor(RegressorMixin, _Linear):
    """Bayesian linear regression: ``y ~ family(intercept + X @ coefficients)``, with unknown scales integrated.

    Args:
        family: "gaussian", or "poisson" for counts with a log link.
        prior_sd: sd of the coefficients' N(0, sd^2) prior: None for one that is learned, "ard" for one of each column
            (automatic relevance determination), a number, or one for each column.
        noise: sd of Gaussian rows; learned when left out.
        fit_intercept: whether there is an intercept, with the wide prior that ``regress`` gives it.

    Attributes:
        coef_, coef_sd_: posterior mean and standard deviation of each coefficient.
        intercept_, intercept_sd_: those of the intercept.
        noise_sd_: posterior mean of the noise; ``prior_sd_``: of the sd of each coefficient's prior.
        posterior_: the posterior, the intercept first; ``log_evidence_``: to compare models by.

    """

    def __init__(
        self, family: str = "gaussian", *, prior_sd: Any = None, noise: float | None = None, fit_intercept: bool = True
    ) -> None:
        self.family = family
        self.prior_sd = prior_sd
        self.noise = noise
        self.fit_intercept = fit_intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.family == "poisson"
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to X, (n, m) dense or sparse, and y, (n,); a weight of 2 counts as two rows.

        X may be an array or a frame of Dask, or the path of Parquet files, read in chunks; then y and sample_weight are
        names of columns, and X is all others (docs/scaling.md).
        """
        one_of("family", self.family, ("gaussian", "poisson"))
        X, y, weights = self._training(X, y, sample_weight, y_numeric=True)
        y = np.asarray(y, np.float64)
        check_response(self.family, "y", y, None)
        self._linear = fit_linear(
            self.family, X, y, weights, self.prior_sd, self.noise, self.fit_intercept, self._names
        )
        self.coef_, self.coef_sd_ = self._linear.coefficients
        self.intercept_, self.intercept_sd_ = self._linear.constant
        self.prior_sd_, self.noise_sd_ = self._linear.prior_sd, self._linear.noise_sd
        self.posterior_ = self._linear.solution.posterior
        return self

    @property
    def log_evidence_(self) -> float:
        """The log evidence of the fit, ``log p(y | X)``."""
        check_is_fitted(self)
        return float(self.posterior_.log_evidence)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictive mean of each row, and its predictive standard deviation if asked for.

        For counts the standard deviation is that of the linear predictor, the logarithm of the rate.
        """
        if is_chunked(X):
            check_is_fitted(self)
            both = [by_chunks(self, X, "predict", take=k, return_std=True) for k in (0, 1)] if return_std else []
            return tuple(both) if return_std else by_chunks(self, X, "predict")
        X = self._new(X)
        if self.family == "gaussian":
            mean = self._linear.mean_of_eta(X)
            return (mean, self._linear.response_sd(X)) if return_std else mean
        found = self._linear.predict(X)
        return (found.mean, found.eta_sd) if return_std else found.mean

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the central predictive interval of each row."""
        between_zero_and_one("level", level)
        if is_chunked(X):
            low, high = (by_chunks(self, X, "predict_interval", take=k, level=level) for k in (0, 1))
            return low, high
        found = self._linear.predict(self._new(X), level)
        return found.lower, found.upper

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 for Gaussian responses, the share of deviance explained (D^2) for counts."""
        y, sample_weight = map(in_memory, named_rows(X, y, sample_weight))
        found = in_memory(self.predict(X))
        if self.family == "gaussian":
            return float(r2_score(y, found, sample_weight=sample_weight))
        return float(d2_tweedie_score(y, found, sample_weight=sample_weight, power=1))


class BayesianClassifier(ClassifierMixin, _Linear):
    """Bayesian logistic regression; more than two classes are fitted one against the rest.

    Args:
        prior_sd: sd of the coefficients' N(0, sd^2) prior: None for one that is learned, "ard" for one of each column,
            a number, or one for each column.
        fit_intercept: whether there is an intercept, with the wide prior that ``regress`` gives it.

    Attributes:
        classes_: the classes.
        coef_, coef_sd_: posterior mean and standard deviation of the coefficients, (1, m) for two classes, else
            (classes, m); ``intercept_``, ``intercept_sd_``: those of the intercepts.
        posteriors_: a posterior for each row of ``coef_``, the intercept first.

    """

    def __init__(self, *, prior_sd: Any = None, fit_intercept: bool = True) -> None:
        self.prior_sd = prior_sd
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to X, (n, m) dense or sparse, and classes y, (n,); a weight of 2 counts as two rows.

        X may be in chunks, as for ``BayesianRegressor.fit``.
        """
        X, y, weights = self._training(X, y, sample_weight)
        check_classification_targets(y)
        if type_of_target(y, input_name="y") not in ("binary", "multiclass"):
            raise ValueError(f"Unknown label type: {type_of_target(y)!r}")
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"BayesianClassifier needs two classes or more; y has one class: {self.classes_[0]}.")
        wanted = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        self._linears = [self._fit_one(X, (y == one).astype(np.float64), weights) for one in wanted]
        self.coef_, self.coef_sd_ = (
            np.array(part) for part in zip(*(f.coefficients for f in self._linears), strict=True)
        )
        self.intercept_, self.intercept_sd_ = np.array([f.constant for f in self._linears]).T
        self.prior_sd_ = np.array([f.prior_sd for f in self._linears])
        self.posteriors_ = [f.solution.posterior for f in self._linears]
        return self

    def _fit_one(self, X: Any, y: Array, weights: Array | None) -> Linear:
        return fit_linear("bernoulli", X, y, weights, self.prior_sd, None, self.fit_intercept, self._names)

    def _shape(self, two: tuple[int, ...]) -> tuple[int, ...]:
        """Return the axes of a result beside its rows: those given for two classes, else one for the classes."""
        check_is_fitted(self)
        return two if len(self.classes_) == 2 else (len(self.classes_),)

    def decision_function(self, X: Any) -> Array:
        """Return the mean of the linear predictor: (n,) for two classes, else (n, classes)."""
        if is_chunked(X):
            return by_chunks(self, X, "decision_function", self._shape(two=()))
        X = self._new(X)
        found = np.asarray(X @ self.coef_.T) + self.intercept_
        return found[:, 0] if len(self.classes_) == 2 else found

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, (n, classes), averaged over the posterior.

        Those of more than two classes come from one fit each and are scaled to sum to one.
        """
        if is_chunked(X):
            return by_chunks(self, X, "predict_proba", self._shape(two=(2,)))
        X = self._new(X)
        found = np.column_stack([one.predict(X).mean for one in self._linears])
        if len(self.classes_) == 2:
            return np.column_stack([1 - found[:, 0], found[:, 0]])
        return found / found.sum(axis=1, keepdims=True)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the interval of the probability: of the second class, or of each against the rest."""
        between_zero_and_one("level", level)
        if is_chunked(X):
            shape = self._shape(two=())
            low, high = (by_chunks(self, X, "predict_interval", shape, take=k, level=level) for k in (0, 1))
            return low, high
        X = self._new(X)
        found = [one.predict(X, level) for one in self._linears]
        low, high = (np.column_stack([getattr(one, end) for one in found]) for end in ("lower", "upper"))
        return (low[:, 0], high[:, 0]) if len(self.classes_) == 2 else (low, high)

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row."""
        if is_chunked(X):
            return by_chunks(self, X, "predict")
        found = self.predict_proba(X)
        return self.classes_[np.argmax(found, axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose most probable class is the right one."""
        y, sample_weight = map(in_memory, named_rows(X, y, sample_weight))
        return float(accuracy_score(y, in_memory(self.predict(X)), sample_weight=sample_weight))
