"""ForestMixtureModel: groups of variables, each with a latent of its own, and uncertainty about who belongs where."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as shown
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.bounds.auxiliary import Auxiliary
from forestmix.errors import ArgumentError, optional
from forestmix.families import Gaussian
from forestmix.forest.covariance import LowRankPlusDiagonal
from forestmix.forest.fitted import FittedForest
from forestmix.forest.learning import in_order, learn, standardise
from forestmix.forest.parameters import checked_parameters, forest_of_bound, log_jacobian, observations_of
from forestmix.forest.settings import are_shared, checked_settings, family_of, generator_of
from forestmix.forest.stochastic import learn_in_batches
from forestmix.inference.loop import Callback
from forestmix.model import DEF


class ForestMixtureModel(FittedForest):
    """Variables in groups, each the children of one latent: a forest whose edges are unknown (paper, section 3.1).

    ``y_j ~ N(0, 1)`` for each tree, ``P(parent of i is j) = pi_ij``, and ``x_i | parent j`` is of the family with
    natural parameter ``b_ij + w_ij y_j``. Fitting learns weights, biases, noise and the parents by variational EM whose
    ELBO never decreases. It is a transformer of scikit-learn; NaN in X marks a missing entry.

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
        min_noise: lowest noise variance of Gaussian leaves, as a share of the variable's (of 1 for a constant one).
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
        converged_, n_iter_: whether that run met ``tol`` and the fit was not stopped, and its number of sweeps.

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

    def fit(self, X: Any, y: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn the forest.

        Args:
            X: observations, (N, n).
            y: ignored.
            callback: called with an ``Iteration``, as that of ``infer``, after each sweep or epoch: of every start and
                move, and for other leaves than Gaussian ones with shared parents first of those. If it returns True,
                the fit ends as soon as it has leaves of its family; the model is then the best so far, and
                ``converged_`` is False.

        """
        settings, family = checked_settings(self.get_params(), callback), family_of(self.family)
        array = self._numbers(X, reset=True)
        data = observations_of(array, family)
        centre, scale = np.zeros(array.shape[1]), np.ones(array.shape[1])
        if isinstance(family, Gaussian):
            data, centre, scale = standardise(data)
            settings.course.scale = scale
        rng = generator_of(self.random_state)
        if self.batch_size is not None and self.batch_size < array.shape[0]:
            state = learn_in_batches(data, family, settings, self.batch_size, rng)
        else:
            state = learn(data, family, settings, rng)
        state = in_order(state.less(log_jacobian(data, scale)))
        self._set(state.forest.rescaled(centre, scale), state.responsibilities)
        self.elbo_, self.elbo_trace_ = state.value, np.array(state.trace)
        self.converged_, self.n_iter_ = state.converged and not settings.course.stopped, len(state.trace)
        return self

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
        forest = checked_parameters(family_of(family), weights, bias, parent_prior, noise)
        model = cls(forest.n_trees, family=family, parents=parents)
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
        networkx = optional("networkx", "to_networkx needs networkx: pip install 'forestmix[forest]'")
        names = self.names(names)
        if len(set(names)) < len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise ArgumentError(f"names must differ, since each is a node of the graph; got {twice!r} twice.")
        graph = networkx.DiGraph()
        trees = np.unique(self.parents_).tolist()
        graph.add_nodes_from((("tree", j), {"kind": "latent", "tree": j}) for j in trees)
        for i, (name, tree) in enumerate(zip(names, self.parents_.tolist(), strict=True)):
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

    # Files.

    def save(self, path: Any) -> None:
        """Write this to a NetCDF-4 file for ``forestmix.load``; one that stands there is replaced (docs/files.md)."""
        from forestmix.files import save

        save(self, path)

    def to_xarray(self) -> Any:
        """Return weights, biases, noise and parents as a labelled dataset of xarray (docs/files.md)."""
        from forestmix.files.views import forest_dataset

        return forest_dataset(self)

    def to_pandas(self) -> Any:
        """Return the parent of each variable and how strong that edge is, as a table of pandas."""
        from forestmix.files.views import forest_frame

        return forest_frame(self)

    # Pictures.

    def plot(self, names: Any = None, axes: Any = None) -> Any:
        """Draw the forest: each tree in a colour, edges thick where the variable depends strongly on its latent."""
        from forestmix.plots.forest import plot_forest

        return plot_forest(self, names, axes)

    def plot_parents(self, image_shape: tuple[int, int], axes: Any = None) -> Any:
        """Draw which parent each pixel has, for variables that are the pixels of an image, and among how many."""
        from forestmix.plots.forest import plot_parent_map

        self._check_fitted()
        return plot_parent_map(self, image_shape, axes)
