"""What a forest mixture does once its parameters are known, learned or given."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as shown
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, generator, numbers
from forestmix.checks import whole_number
from forestmix.errors import ArgumentError, MissingExtraError
from forestmix.forest.base import Transformer
from forestmix.forest.covariance import LowRankPlusDiagonal
from forestmix.forest.engines import Run, engine_for
from forestmix.forest.given import (
    ForestPosterior,
    elbo_at,
    gaussian_log_likelihood,
    infer_given,
    observation_bounds,
    quadrature_log_likelihood,
)  # fmt: skip
from forestmix.forest.parameters import ForestDraw, ForestParameters, log_jacobian, observations_of, standard_units
from forestmix.forest.settings import are_shared, number_from
from forestmix.latents import GaussianFactors

_INFERENCE_SWEEPS = 200
_INFERENCE_TOL = 1e-9
#: The spread that a natural parameter is measured against: that of a logistic variable, or 1.
_NATURAL_NOISE = {"bernoulli": np.pi / np.sqrt(3)}


class FittedForest(Transformer):
    """Inference, evaluation, sampling, covariance and graph; ``ForestMixtureModel`` adds learning and pictures."""

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

    # Inference and evaluation.

    def infer(self, X: Any, *, max_iter: int = _INFERENCE_SWEEPS, tol: float = _INFERENCE_TOL) -> ForestPosterior:
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
        q, elbo = found.state.latents.expanded(len(found.state.latents.mean)), found.state.value
        trace = np.array(found.trace)
        return ForestPosterior(q.mean, q.sd, found.state.responsibilities, elbo, trace, found.converged)

    def transform(self, X: Any) -> Array:
        """Return the posterior means of the latents given X, (N, n_trees); shared parents stay as learned."""
        array = self._numbers(X, reset=False)
        return self._infer(array).state.latents.mean.astype(array.dtype, copy=False)

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
            return self._infer(array).state.value
        if not self._shared():
            raise ArgumentError("q must be None for parents per observation, whose q(e) is not shared.")
        data = observations_of(array, self._forest.family)
        return elbo_at(self._forest, data, self._latents(q, array.shape[0]), self.responsibilities_)

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood of each observation, (N,).

        With shared parents it is that of the forest of the most probable parents: exact for Gaussian leaves, by
        quadrature over each latent for others. With parents per observation it is the ELBO of each observation.
        """
        array = self._numbers(X, reset=False)
        data = observations_of(array, self._forest.family)
        if self._shared() and self._forest.noise is not None:
            return gaussian_log_likelihood(self._forest, data, self.parents_)
        q = self._infer(array, np.eye(self._forest.n_trees)[self.parents_]).state.latents
        if self._shared():
            return quadrature_log_likelihood(self._forest, data, self.parents_, q)
        return observation_bounds(self._forest, data, q)

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

    # What the forest looks like.

    def get_covariance(self) -> LowRankPlusDiagonal:
        """Return the covariance that the forest of the most probable parents implies, for Gaussian leaves.

        It is ``factors @ factors.T + diag(diagonal)`` with one entry in each row of ``factors``.
        """
        self._check_fitted()
        if self._forest.noise is None:
            raise ArgumentError(f"family must be 'gaussian' for a covariance of X; got {self.family!r}.")
        w, _, noise = self._forest.edges(self.parents_)
        entries = (w * self._forest.prior.sd[self.parents_], (np.arange(len(w)), self.parents_))
        return LowRankPlusDiagonal(scipy.sparse.csr_array(entries, self._forest.weights.shape), noise**2)

    def to_networkx(self, names: Any = None) -> Any:
        """Return the forest of the most probable parents as a directed graph of networkx.

        Latents are nodes ``("tree", j)``, variables are nodes with their names. An edge goes from a tree to a variable,
        with ``weight`` (that of the model), ``strength`` (0 to 1) and ``probability`` (of this parent).
        """
        self._check_fitted()
        try:
            import networkx
        except ImportError as error:
            raise MissingExtraError("to_networkx needs networkx: pip install 'forestmix[forest]'") from error
        graph = networkx.DiGraph()
        trees = np.unique(self.parents_).tolist()
        graph.add_nodes_from((("tree", j), {"kind": "latent", "tree": j}) for j in trees)
        for i, (name, tree) in enumerate(zip(self.names(names), self.parents_.tolist(), strict=True)):
            weight, chance = float(self.weights_[i, tree]), float(self.responsibilities_[i, tree])
            graph.add_node(name, kind="variable", tree=tree, index=i)
            graph.add_edge(("tree", tree), name, weight=weight, strength=float(self.strengths_[i]), probability=chance)
        return graph

    def names(self, names: Any = None) -> list[str]:
        """Return the names of the variables: those given, those of the data frame fitted on, or x0, x1, ..."""
        self._check_fitted()
        n = self.n_features_in_
        if names is None:
            return [str(name) for name in getattr(self, "feature_names_in_", [f"x{i}" for i in range(n)])]
        if isinstance(names, str | bytes) or not isinstance(names, Iterable) or getattr(names, "ndim", 1) == 0:
            raise ArgumentError(f"names must be a list of names, one for each variable; got {shown(names)}.")
        given = [str(name) for name in names]
        if len(given) != n:
            raise ArgumentError(f"names must have one entry for each of the {n} variables; got {len(given)}.")
        return given

    # Arguments.

    def _infer(
        self,
        array: Array,
        responsibilities: Array | None = None,
        *,
        parents: bool = False,
        max_iter: int = _INFERENCE_SWEEPS,
        tol: float = _INFERENCE_TOL,
    ) -> Run:
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
        found = infer_given(engine, forest, r, parents=parents, max_iter=max_iter, tol=tol)
        return found.less(log_jacobian(data, scale))

    def _latents(self, q: Any, N: int) -> GaussianFactors:
        if hasattr(q, "mean") and hasattr(q, "sd"):
            q = (q.mean, q.sd)
        if not isinstance(q, tuple | list) or len(q) != 2:
            raise ArgumentError(f"q must have a mean and an sd or be a pair of them; got {shown(q)}.")
        m = self._forest.n_trees
        mean, sd = (np.atleast_2d(numbers("q", part)).astype(float) for part in q)
        for part in (mean, sd):
            if part.shape not in ((1, m), (N, m)):
                raise ArgumentError(f"q must have mean and sd of shape ({m},) or ({N}, {m}); got {part.shape}.")
        return GaussianFactors(np.broadcast_to(mean, (N, m)), sd)

    def _shared(self) -> bool:
        return are_shared(self.parents)
