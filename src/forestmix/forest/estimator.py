"""ForestMixtureModel: groups of variables, each with a latent of its own, and uncertainty about who belongs where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from forestmix.arrays import Array, generator, numbers
from forestmix.auxiliary import Auxiliary
from forestmix.errors import ArgumentError
from forestmix.families import Family, Gaussian
from forestmix.forest.bound import forest_of_bound
from forestmix.forest.covariance import LowRankPlusDiagonal
from forestmix.forest.given import ForestPosterior, elbo_at, infer_given
from forestmix.forest.graph import forest_graph
from forestmix.forest.learning import Run, learn, standardise
from forestmix.forest.parameters import ForestDraw, ForestParameters, Latents, checked_parameters
from forestmix.forest.presentation import in_order, natural_noise, rescaled
from forestmix.forest.protocol import Estimator
from forestmix.forest.scoring import gaussian_log_likelihood, observation_bounds, quadrature_log_likelihood
from forestmix.forest.settings import are_shared, checked_settings, family_of, generator_of
from forestmix.forest.stochastic import learn_in_batches
from forestmix.model import DEF, Observations

_INFERENCE_SWEEPS = 200
_INFERENCE_TOL = 1e-9


class ForestMixtureModel(Estimator):
    """Variables in groups, each the children of one latent: a forest whose edges are unknown (paper, section 3.1).

    ``y_j ~ N(0, 1)`` for each tree, ``P(parent of i is j) = pi_ij``, and ``x_i | parent j`` is of the family with
    natural parameter ``b_ij + w_ij y_j``. Fitting learns weights, biases, noise and the parents by variational EM whose
    ELBO never falls. It follows scikit-learn's conventions; NaN in X marks a missing entry.

    The N(0, 1) prior fixes the scale of each latent. Its sign is chosen so that the weights of its variables sum to a
    positive number, and trees are sorted by how many variables they have; a tree that no variable wants stays empty.

    Args:
        n_trees: number of trees; ``select_n_trees`` helps to choose it.
        family: of the variables: "gaussian", "bernoulli" (0 or 1) or "poisson" (counts).
        parents: "shared" for one forest for all observations, "observation" for a forest drawn for each.
        parent_prior: "uniform", or "learned": with shared parents the share of each tree, with parents per observation
            those of each variable; "auto" is "uniform" for shared parents, else "learned".
        n_init: number of starts: varimax, average linkage, then random ones. A random start is preferred if it ends
            higher by more than chance explains, ``log(n n_trees)`` nats for each variable that has another parent.
        temperature: at which the parents are softened when a start begins, to cool to 1 within a few sweeps.
        n_moves: larger moves (a variable judged without its own influence, a tree re-seeded inside another) that may
            fail in a row before the search ends; they are kept by the same rule. 0 for none.
        batch_size: learn from minibatches of this many observations, for data too large to sweep; the ELBO then need
            not rise after each. ``None`` for all observations in each sweep.
        max_iter: limit of sweeps for a start, or of epochs with minibatches.
        tol: a run ends when a sweep gains less than this for each entry of X, in nats.
        min_noise: lowest noise of Gaussian leaves, as a share of a variable's variance.
        random_state: a seed, or a ``numpy.random.Generator``.
        verbose: print a line for each start, move or epoch.

    Attributes:
        parents_: the most probable parent of each variable, (n,).
        responsibilities_: probability of each parent, (n, n_trees).
        weights_, biases_, noise_: of each variable as a child of each tree, (n, n_trees); ``noise_`` is a standard
            deviation, and ``None`` unless the family is Gaussian.
        strengths_: correlation of each variable with its parent, 0 to 1, (n,); on the scale of the natural parameter
            for families that are not Gaussian.
        parent_prior_: the prior of the parents, (n, n_trees).
        elbo_: the ELBO of the training data; ``elbo_trace_``: after each sweep of the run that was kept.
        converged_, n_iter_: whether that run met ``tol``, and its number of sweeps.

    """

    def __init__(
        self,
        n_trees: int = 2,
        *,
        family: str = "gaussian",
        parents: str = "shared",
        parent_prior: str = "auto",
        n_init: int = 8,
        temperature: float = 2.0,
        n_moves: int = 3,
        batch_size: int | None = None,
        max_iter: int = 300,
        tol: float = 1e-7,
        min_noise: float = 1e-3,
        random_state: Any = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_trees = n_trees
        self.family = family
        self.parents = parents
        self.parent_prior = parent_prior
        self.n_init = n_init
        self.temperature = temperature
        self.n_moves = n_moves
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.min_noise = min_noise
        self.random_state = random_state
        self.verbose = verbose

    # Learning.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the forest from X, (N, n); ``y`` is ignored."""
        self._learn(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the forest and return the posterior means of the latents, (N, n_trees)."""
        return self.fit(X).transform(X)

    def _learn(self, X: Any) -> None:
        settings, family = checked_settings(self.get_params()), family_of(self.family)
        array = self._numbers(X, reset=True)
        data, centre, scale = self._observations(array, family, standard=True)
        rng = generator_of(self.random_state)
        if self.batch_size is not None and self.batch_size < array.shape[0]:
            run = learn_in_batches(data, family, settings, self.batch_size, rng)
        else:
            run = learn(data, family, settings, rng)
        self._keep(in_order(run), centre, scale, data)

    def _keep(self, run: Run, centre: Array, scale: Array, data: Observations) -> None:
        """Set the attributes from a run on standardised data, in the units of the data."""
        there = data.x.shape[0] if data.observed is None else data.observed.sum(axis=0)
        jacobian = float(np.sum(there * np.log(scale)))
        self._set(rescaled(run.state.forest, centre, scale), run.state.responsibilities)
        self.elbo_ = run.state.value - jacobian
        self.elbo_trace_ = np.array(run.trace) - jacobian
        self.converged_, self.n_iter_ = run.converged, len(run.trace)

    def _set(self, forest: ForestParameters, responsibilities: Array) -> None:
        self._forest = forest
        self.n_features_in_ = forest.n_variables
        self.responsibilities_ = responsibilities
        self.parents_ = np.argmax(responsibilities, axis=1)
        self.weights_, self.biases_, self.noise_ = forest.weights, forest.bias, forest.noise
        self.parent_prior_ = np.array(forest.parent_prior)
        w = self._edges(forest.weights) * forest.prior_sd[self.parents_]
        noise = self._edges(forest.noise) if forest.noise is not None else natural_noise(forest.family)
        self.strengths_ = np.abs(w) / np.sqrt(w**2 + noise**2)

    # Models that are given, not learned.

    @classmethod
    def from_parameters(
        cls,
        weights: npt.ArrayLike,
        bias: npt.ArrayLike = 0.0,
        *,
        noise: npt.ArrayLike = 1.0,
        parent_prior: npt.ArrayLike | None = None,
        family: str = "gaussian",
        parents: str = "shared",
    ) -> Self:
        """Return the forest mixture with given parameters, ready to sample, infer and evaluate.

        Args:
            weights: (n, n_trees).
            bias: one number, (n,) or (n, n_trees).
            noise: standard deviation of Gaussian leaves, likewise; not used by other families.
            parent_prior: (n, n_trees) with rows that sum to 1; uniform when left out.
            family: "gaussian", "bernoulli" or "poisson".
            parents: "shared" or "observation".

        """
        are_shared(parents)
        model = cls(family=family, parents=parents)
        forest = checked_parameters(family_of(family), weights, bias, parent_prior, noise)
        model.n_trees = forest.n_trees
        model._set(forest, np.array(forest.parent_prior))
        return model

    @classmethod
    def from_bound(cls, model: DEF, q: Any, auxiliary: Auxiliary | None = None) -> Self:
        """Return the forest mixture whose ELBO is the forest mixture bound of a model (paper, section 4.1).

        ``from_bound(model, q, auxiliary).elbo(x, q)`` equals ``forestmix.fm_bound(model, x, q, auxiliary)``: the
        parents have ``pi = q(e) = epsilon``, and a child the natural parameter ``b_hat_ij + w_ij y_j / epsilon_ij``.

        Args:
            model: a model with one layer and a Gaussian prior.
            q: a ``Result`` of one observation, or a pair ``(mean, sd)``.
            auxiliary: ``epsilon`` and ``b_hat``; the optimal ones at q when left out.

        """
        forest = forest_of_bound(model, q, auxiliary)
        mixture = cls(forest.n_trees, family=forest.family.name)
        mixture._set(forest, np.array(forest.parent_prior))
        return mixture

    # Inference and evaluation.

    def infer(self, X: Any, *, max_iter: int = _INFERENCE_SWEEPS, tol: float = _INFERENCE_TOL) -> ForestPosterior:
        """Return mean-field factors of latents and parents for X, with the parameters as they are.

        The parents start from ``responsibilities_`` and are inferred from X alone and their prior.
        """
        self._check_fitted()
        return self._infer(self._numbers(X, reset=False), parents=True, max_iter=max_iter, tol=tol)

    def transform(self, X: Any) -> Any:
        """Return the posterior means of the latents given X, (N, n_trees); shared parents stay as learned."""
        self._check_fitted()
        array = self._numbers(X, reset=False)
        return self._named(self._infer(array, parents=False).mean.astype(array.dtype, copy=False), X)

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
        self._check_fitted()
        array = self._numbers(np.atleast_2d(X), reset=False)
        if q is None:
            return self._infer(array, parents=False).elbo
        if not self._shared():
            raise ArgumentError("q must be None for parents per observation, whose q(e) is not shared.")
        data, *_ = self._observations(array, self._forest.family, standard=False)
        return elbo_at(self._forest, data, self._latents(q, array.shape[0]), self.responsibilities_)

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood of each observation, (N,).

        With shared parents it is that of the forest of the most probable parents: exact for Gaussian leaves, by
        quadrature over each latent for others. With parents per observation it is the ELBO of each observation.
        """
        self._check_fitted()
        array = self._numbers(X, reset=False)
        data, *_ = self._observations(array, self._forest.family, standard=False)
        if not self._shared():
            found = self._infer(array, parents=True)
            return observation_bounds(self._forest, data, Latents(found.mean, found.sd))
        if self._forest.noise is not None:
            return gaussian_log_likelihood(self._forest, data, self.parents_)
        hard = np.eye(self._forest.n_trees)[self.parents_]
        found = self._infer(array, parents=False, responsibilities=hard)
        return quadrature_log_likelihood(self._forest, data, self.parents_, Latents(found.mean, found.sd))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the average log-likelihood of the observations; ``y`` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, rng: np.random.Generator | int | None = None) -> ForestDraw:
        """Draw a forest from ``responsibilities_``, then latents, then observations; the parents are returned too.

        With parents per observation a forest is drawn for each, from ``parent_prior_``.
        """
        self._check_fitted()
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ArgumentError(f"n_samples must be a positive integer; got {n_samples!r}.")
        among = self.responsibilities_ if self._shared() else None
        return self._forest.sample(generator(rng), int(n_samples), self._shared(), among)

    # What the forest looks like.

    def get_covariance(self) -> LowRankPlusDiagonal:
        """Return the covariance that the forest of the most probable parents implies, for Gaussian leaves.

        It is ``factors @ factors.T + diag(diagonal)`` with one entry in each row of ``factors``.
        """
        self._check_fitted()
        if self._forest.noise is None:
            raise ArgumentError(f"family must be 'gaussian' for a covariance of X; got {self.family!r}.")
        n, every = self._forest.n_variables, np.arange(self._forest.n_variables)
        w = self._edges(self._forest.weights) * self._forest.prior_sd[self.parents_]
        factors = sparse.csr_array((w, (every, self.parents_)), (n, self._forest.n_trees))
        return LowRankPlusDiagonal(factors, self._edges(self._forest.noise) ** 2)

    def to_networkx(self, names: Any = None) -> Any:
        """Return the forest of the most probable parents as a directed graph of networkx.

        An edge goes from ``("tree", j)`` to a variable, with ``weight``, ``strength`` and ``probability``.
        """
        self._check_fitted()
        chances = self._edges(self.responsibilities_)
        return forest_graph(self.parents_, self._edges(self.weights_), self.strengths_, chances, self.names(names))

    def plot(self, names: Any = None, axes: Any = None) -> Any:
        """Draw the forest: each tree in a colour, edges thick where the variable depends strongly on its latent."""
        from forestmix.plots.forest import plot_forest

        return plot_forest(self, names, axes)

    def plot_parents(self, image_shape: tuple[int, int], axes: Any = None) -> Any:
        """Draw which parent each pixel has, for variables that are the pixels of an image, and among how many."""
        from forestmix.plots.forest import plot_parent_map

        self._check_fitted()
        return plot_parent_map(self, image_shape, axes)

    def names(self, names: Any = None) -> list[str]:
        """Return the names of the variables: those given, those of the data frame fitted on, or x0, x1, ..."""
        self._check_fitted()
        n = self.n_features_in_
        if names is None:
            return [str(name) for name in getattr(self, "feature_names_in_", [f"x{i}" for i in range(n)])]
        given = [str(name) for name in names]
        if len(given) != n:
            raise ArgumentError(f"names must have one entry for each of the {n} variables; got {len(given)}.")
        return given

    # Arguments.

    def _infer(
        self,
        array: Array,
        *,
        parents: bool,
        responsibilities: Array | None = None,
        max_iter: int = _INFERENCE_SWEEPS,
        tol: float = _INFERENCE_TOL,
    ) -> ForestPosterior:
        data, centre, scale = self._observations(array, self._forest.family, standard=True)
        forest = rescaled(self._forest, -centre / scale, 1 / scale)
        r = self.responsibilities_ if responsibilities is None else responsibilities
        found = infer_given(forest, data, r, shared=self._shared(), parents=parents, max_iter=max_iter, tol=tol)
        there = data.x.shape[0] if data.observed is None else data.observed.sum(axis=0)
        jacobian = float(np.sum(there * np.log(scale)))
        return replace(found, elbo=found.elbo - jacobian, elbo_trace=found.elbo_trace - jacobian)

    def _observations(self, array: Array, family: Family, *, standard: bool) -> tuple[Observations, Array, Array]:
        """Return the data with 0 where it is missing, standardised for Gaussian leaves, with centre and scale."""
        family.check_support("X", array)
        missing = np.isnan(array)
        x = np.where(missing, 0.0, array).astype(np.float64)
        observed = ~missing if missing.any() else None
        n = array.shape[1]
        centre, scale = np.zeros(n), np.ones(n)
        if standard and isinstance(family, Gaussian):
            x, centre, scale = standardise(x, observed)
        return Observations(x, observed, False), centre, scale

    def _latents(self, q: Any, N: int) -> Latents:
        mean, sd = (q.mean, q.sd) if hasattr(q, "mean") and hasattr(q, "sd") else q
        m = self._forest.n_trees
        parts = [
            np.atleast_2d(numbers(f"{name} of q", part)).astype(float) for name, part in (("mean", mean), ("sd", sd))
        ]
        for part in parts:
            if part.shape not in ((1, m), (N, m)):
                raise ArgumentError(f"q must have mean and sd of shape ({m},) or ({N}, {m}); got {part.shape}.")
        return Latents(np.broadcast_to(parts[0], (N, m)), parts[1])

    def _edges(self, pairs: Array) -> Array:
        """Return the entries of (n, m) arrays at each variable's parent."""
        return pairs[np.arange(len(self.parents_)), self.parents_]

    def _n_columns_out(self) -> int:
        return self._forest.n_trees

    def _shared(self) -> bool:
        return are_shared(self.parents)
