"""What a forest mixture takes from scikit-learn, and does once its parameters are known, learned or given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from reprlib import repr as shown
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array, generator, in_precision, numbers, working_dtype
from forestmix.checks import one_of, whole_number
from forestmix.errors import ArgumentError, MissingExtraError, unknown_name
from forestmix.forest import given
from forestmix.forest.engines import ParentsPerObservation, State, engine_for
from forestmix.forest.parameters import (
    ForestDraw,
    ForestParameters,
    check_size,
    log_jacobian,
    observations_of,
    standard_units,
)
from forestmix.forest.settings import are_shared, number_from
from forestmix.latents import GaussianFactors
from forestmix.problem.given import batch_of_latents
from forestmix.tables import REAL, plain_array

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import NotFittedError as NotFitted
    from sklearn.utils.validation import check_array, validate_data
except ImportError as error:
    raise MissingExtraError("ForestMixtureModel needs scikit-learn: pip install 'forestmix[forest]'") from error

_INFERENCE_SWEEPS = 200
_INFERENCE_TOL = 1e-9
#: The spread that a natural parameter is measured against: that of a logistic variable, or 1.
_NATURAL_NOISE = {"bernoulli": np.pi / np.sqrt(3)}


class NotNumbersError(ArgumentError, TypeError):
    """X is no array of numbers at all, which scikit-learn has as a ``TypeError``."""


class NotFittedError(ArgumentError, NotFitted):
    """A method was called that needs a fitted model; scikit-learn's error of this name too."""


class FittedForest(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that takes NaN and masked entries as missing, and keeps float32; inference, evaluation, sampling.

    Tables are read and errors worded as elsewhere in forestmix. ``ForestMixtureModel`` adds learning and the forest's
    looks.
    """

    family: str
    parents: str

    def _set(self, forest: ForestParameters, responsibilities: Array) -> None:
        self._forest = forest
        self.n_features_in_, self._n_features_out = forest.weights.shape
        self.responsibilities_ = responsibilities
        self.parents_ = np.argmax(responsibilities, axis=1)
        self.weights_, self.biases_, self.noise_ = forest.weights, forest.bias, forest.noise
        self.parent_prior_ = np.array(forest.parent_prior)
        w, _, noise = forest.edges(self.parents_)
        w = w * forest.prior.sd[self.parents_]
        self.strengths_ = np.abs(w) / np.hypot(w, noise * _NATURAL_NOISE.get(forest.family.name, 1.0))

    # The conventions of scikit-learn.

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise unknown_name(f"A parameter of {type(self).__name__}", name, known)
        return super().set_params(**params)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` returns: "default" for arrays, "pandas" or "polars"."""
        if transform is not None:
            one_of("transform", transform, ("default", "pandas", "polars"))
        return super().set_output(transform=transform)

    # Inference and evaluation.

    def infer(self, X: Any, *, max_iter: int = _INFERENCE_SWEEPS, tol: float = _INFERENCE_TOL) -> given.ForestPosterior:
        """Return mean-field factors of latents and parents for X, with the parameters as they are.

        The parents start from ``responsibilities_`` and are inferred from X alone and their prior.

        Args:
            X: observations, (N, n).
            max_iter: limit of sweeps.
            tol: shared parents end when a sweep gains less than this for each entry of X, in nats; with parents per
                observation, each observation ends when no latent moves by more than this many standard deviations.

        """
        max_iter, tol = whole_number("max_iter", max_iter), number_from("tol", tol, 0.0)
        found = self._infer(self._numbers(X, reset=False), parents=True, max_iter=max_iter, tol=tol)
        q, trace = found.latents.expanded(len(found.latents.mean)), np.array(found.trace)
        return given.ForestPosterior(q.mean, q.sd, found.responsibilities, found.value, trace, found.converged)

    def transform(self, X: Any) -> Array:
        """Return the posterior means of the latents given X, (N, n_trees); shared parents stay as learned."""
        array = self._numbers(X, reset=False)
        return self._infer(array).latents.mean.astype(array.dtype, copy=False)

    def inverse_transform(self, Y: Any) -> Array:
        """Return the expected X given latents Y, (N, n_trees), averaged over the parents."""
        self._check_fitted()
        y = np.atleast_2d(numbers("Y", Y))
        p, r = self._forest, self.responsibilities_
        if y.shape[1] != p.n_trees:
            raise ArgumentError(f"Y must have shape (N, {p.n_trees}), one column for each tree; got {np.shape(Y)}.")
        if p.noise is not None:
            return np.asarray(y @ (r * p.weights).T + (r * p.bias).sum(axis=1))
        columns = (
            r[:, j] * p.family.log_partition_slope(p.bias[:, j] + p.weights[:, j] * y[:, [j]]) for j in range(p.n_trees)
        )
        return np.asarray(sum(columns))

    def elbo(self, X: Any, q: Any = None) -> float:
        """Return the ELBO of all observations together (paper, equation 1), a bound on their log-likelihood.

        Args:
            X: observations, (N, n), or (n,) for one.
            q: factors of the latents, with a ``mean`` and an ``sd`` or as a pair; the ELBO is then that at q and at
                ``responsibilities_``. Left out, latents (and parents, where each observation has its own) are inferred.

        """
        array = self._numbers(X, reset=False, one=True)
        if q is None:
            return self._infer(array).value
        if not self._shared():
            raise ArgumentError("q must be None for parents per observation, whose q(e) is not shared.")
        data = observations_of(array, self._forest.family)
        return given.elbo_at(self._forest, data, self._latents(q, array.shape[0]), self.responsibilities_)

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood of each observation, (N,).

        With shared parents it is that of the forest of the most probable parents: exact for Gaussian leaves, by
        quadrature over each latent for others. With parents per observation it is the ELBO of each observation.
        """
        array = self._numbers(X, reset=False)
        data = observations_of(array, self._forest.family)
        if not self._shared():
            return ParentsPerObservation(data).bounds(self._forest, self._infer(array).latents)
        if self._forest.noise is not None:
            return given.gaussian_log_likelihood(self._forest, data, self.parents_)
        q = self._infer(array, np.eye(self._forest.n_trees)[self.parents_]).latents
        return given.quadrature_log_likelihood(self._forest, data, self.parents_, q)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the average log-likelihood of the observations; ``y`` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, rng: np.random.Generator | int | None = None) -> ForestDraw:
        """Draw a forest from ``responsibilities_``, then latents, then observations; the parents are returned too.

        With parents per observation a forest is drawn for each, from ``parent_prior_``.
        """
        self._check_fitted()
        n_samples = whole_number("n_samples", n_samples)
        among = self.responsibilities_ if self._shared() else None
        return self._forest.sample(generator(rng), n_samples, self._shared(), among)

    # Arguments.

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit(X) before this method.")

    def _numbers(self, X: Any, *, reset: bool, one: bool = False) -> Array:
        """Return X as an array (N, n) of float32 or float64, with NaN where an entry is missing.

        ``reset`` keeps the number and the names of the columns; without it the model must be fitted, and they must be
        those that were kept. ``one`` lets a vector stand for one observation.
        """
        if not reset:
            self._check_fitted()
        with argument_errors("X must hold real numbers, observations by variables; "):
            array = X
            if not scipy.sparse.issparse(X):
                # scikit-learn would overlook the mask of a masked array.
                array = plain_array("X", X, missing=True)
                array = array[None] if one and array.ndim == 1 else array
                if array.dtype.kind in REAL:
                    array = in_precision("X", array, working_dtype("X", array.dtype))
            array = check_array(array, dtype=(np.float64, np.float32), ensure_all_finite=False, estimator=self)
        if np.isinf(array).any():
            raise ArgumentError("X must be finite, or NaN for a missing entry; got infinity.")
        check_size("X", array)
        with argument_errors():
            names = getattr(X, "columns", ())
            named = len(names) > 0 and all(isinstance(name, str) for name in names)
            validate_data(self, X if named else array, reset=reset, skip_check_array=True)
        return np.asarray(array)

    def _infer(
        self,
        array: Array,
        responsibilities: Array | None = None,
        *,
        parents: bool = False,
        max_iter: int = _INFERENCE_SWEEPS,
        tol: float = _INFERENCE_TOL,
    ) -> State:
        """Infer the latents, and the parents if asked for; else shared ones stay as learned or given."""
        data, p = observations_of(array, self._forest.family), self._forest
        centre, scale = np.zeros(p.n_variables), np.ones(p.n_variables)
        if p.noise is not None:
            # In the model's own units, so that sums of squares lose no digits and no observation depends on another.
            w, centre, noise = p.edges(self.parents_)
            scale = np.hypot(w, noise)
            data = standard_units(data, centre, scale)
        engine, forest = engine_for(data, self._shared()), p.rescaled(-centre / scale, 1 / scale)
        r = self.responsibilities_ if responsibilities is None else responsibilities
        found = given.infer_given(engine, forest, r, parents=parents, max_iter=max_iter, tol=tol)
        return found.less(log_jacobian(data, scale))

    def _latents(self, q: Any, N: int) -> GaussianFactors:
        if hasattr(q, "mean") and hasattr(q, "sd"):
            q = (q.mean, q.sd)
        if not isinstance(q, tuple | list) or len(q) != 2:
            raise ArgumentError(f"q must have a mean and an sd or be a pair of them; got {shown(q)}.")
        shape, dtype = (N, self._forest.n_trees), np.dtype(np.float64)
        mean = batch_of_latents("mean of q", q[0], shape, dtype)
        sd = batch_of_latents("sd of q", q[1], shape, dtype, positive=True)
        return GaussianFactors(np.broadcast_to(mean, shape), sd)

    def _shared(self) -> bool:
        return are_shared(self.parents)


@contextmanager
def argument_errors(right: str = "") -> Iterator[None]:
    """Raise what scikit-learn or NumPy finds wrong as an ``ArgumentError`` that says first what would be right."""
    try:
        yield
    except ArgumentError:
        raise
    except TypeError as error:
        raise NotNumbersError(f"{right}{error}") from error
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"{right}{error}") from error
