"""The forest mixture model of the paper's section 3.1: its parameters, draws from it, and the data it is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from forestmix.arrays import Array, at_index, finite, first_index, numbers, total
from forestmix.bounds.auxiliary import Auxiliary, check_auxiliary, optimal_auxiliary
from forestmix.errors import ArgumentError
from forestmix.families import Family, Gaussian
from forestmix.forest.covariance import dense
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations

#: Numbers beyond this, and scales below one over it, have squares that add up to infinity, or to 0.
LARGEST = 1e140
#: Counts beyond this have rates that overflow on the way.
LARGEST_COUNT = 1e100


class ForestDraw(NamedTuple):
    """A draw from a forest mixture: observations (N, n), latents (N, m), and the parent of each variable.

    ``parents`` is (n,) where one forest is shared by all observations, else (N, n).
    """

    x: Array
    latents: Array
    parents: Array


@dataclass(frozen=True)
class ForestParameters:
    """``x_i | parent j ~ family with natural parameter bias_ij + weights_ij y_j``, ``P(parent j) = parent_prior_ij``.

    All arrays are (n, m) for n variables and m trees. ``noise`` is the standard deviation of Gaussian leaves and
    ``None`` for other families. The latents are Gaussian, ``y_j ~ prior with mean prior_mean_j``; a learned model has
    N(0, 1), which fixes the scale of the weights.
    """

    family: Family
    weights: Array
    bias: Array
    parent_prior: Array
    noise: Array | None
    prior_mean: Array
    prior: Gaussian

    @property
    def n_variables(self) -> int:
        """Number of observed variables, n."""
        return self.weights.shape[0]

    @property
    def n_trees(self) -> int:
        """Number of trees, m."""
        return self.weights.shape[1]

    @property
    def log_prior(self) -> Array:
        """The logarithm of the prior of the parents, minus infinity at 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.parent_prior)

    def leaves(self, tree: Any, variables: Any) -> Family:
        """Return the family of some variables as children of a tree, or of one tree each."""
        return self.family.take(variables) if self.noise is None else Gaussian(self.noise[variables, tree])

    def divergence(self, q: GaussianFactors) -> Array:
        """Return ``KL(q(y) || p(y))`` of each observation, (N,)."""
        return total(q.relative_entropy(self.prior, self.prior_mean))

    def edges(self, parents: Array) -> tuple[Array, Array, Array]:
        """Return weight, bias and noise of each variable with its parent, (n,); noise is 1 where there is none."""
        every = np.arange(self.n_variables)
        noise = np.ones(self.n_variables) if self.noise is None else self.noise[every, parents]
        return self.weights[every, parents], self.bias[every, parents], noise

    def rescaled(self, centre: Array, scale: Array) -> Self:
        """Return the model of ``centre + scale * x`` for Gaussian leaves; other families are left as they are."""
        if self.noise is None:
            return self
        size = scale[:, None]
        bias = self.bias * size + centre[:, None]
        return replace(self, weights=self.weights * size, bias=bias, noise=self.noise * size)

    def sample(self, rng: np.random.Generator, size: int, shared: bool, among: Array | None = None) -> ForestDraw:
        """Draw a forest, one for all or for each observation, then latents, then observations (paper, section 3.1).

        ``among`` stands in for the prior of the parents, as where they have been inferred.
        """
        chances = self.parent_prior if among is None else among
        parents = draw_parents(chances, rng, 1 if shared else size)
        y = self.prior.sample(np.broadcast_to(self.prior_mean, (size, self.n_trees)), rng)
        chosen = np.broadcast_to(parents, (size, self.n_variables))
        i = np.arange(self.n_variables)
        eta = self.bias[i, chosen] + self.weights[i, chosen] * np.take_along_axis(y, chosen, axis=1)
        if self.noise is None:
            x = self.family.sample(eta, rng)
        else:
            x = eta + self.noise[i, chosen] * rng.standard_normal(eta.shape)
        return ForestDraw(x, y, parents[0] if shared else parents)


def draw_parents(chances: Array, rng: np.random.Generator, size: int) -> Array:
    """Draw the parent of each variable ``size`` times, (size, n), by inverting the cumulative probabilities."""
    steps = np.cumsum(chances, axis=1)
    # The last step is 1 up to rounding; as infinity it is never passed over.
    steps[:, -1] = np.inf
    heights = rng.random((size, chances.shape[0]))
    drawn = (np.searchsorted(step, height, side="right") for step, height in zip(steps, heights.T, strict=True))
    return np.stack(list(drawn), axis=1)


def checked_parameters(family: Family, weights: Any, bias: Any, parent_prior: Any, noise: Any) -> ForestParameters:
    """Return parameters given by a user, each broadcast to (n, m) and checked; latents are N(0, 1)."""
    w = check_size("weights", finite("weights", numbers("weights", weights).astype(np.float64)))
    if w.ndim != 2 or 0 in w.shape:
        raise ArgumentError(f"weights must be an array of n variables by n_trees; got shape {w.shape}.")
    n, m = w.shape
    prior = np.full((n, m), 1 / m) if parent_prior is None else pairs("parent_prior", parent_prior, n, m)
    if (prior < 0).any() or (np.abs(prior.sum(axis=1) - 1) > 1e-8).any():
        raise ArgumentError(
            f"parent_prior must not be negative, and each variable's must sum to 1; got sums from "
            f"{prior.sum(axis=1).min():g} to {prior.sum(axis=1).max():g} and a smallest entry of {prior.min():g}."
        )
    sd = None
    if isinstance(family, Gaussian):
        sd = pairs("noise", noise, n, m)
        if (sd <= 0).any():
            raise ArgumentError(f"noise must be greater than 0; got {sd.min()}.")
        if (sd < 1 / LARGEST).any():
            raise ArgumentError(f"noise must be at least {1 / LARGEST:g}; got {sd.min()}. Rescale the variables.")
    return ForestParameters(family, w, pairs("bias", bias, n, m), prior, sd, np.zeros(m), Gaussian(np.ones(m)))


def forest_of_bound(model: DEF, q: Any, auxiliary: Auxiliary | None = None) -> ForestParameters:
    """Return the forest mixture with ``pi = epsilon`` and ``eta_hat_ij = b_hat_ij + w_ij y_j / epsilon_ij``.

    This is section 4.1 of the paper: its ELBO at ``q(y)`` and ``q(e) = epsilon`` is the forest mixture bound. A
    variable without parents in the model has weight 0 to every tree, so that its parent does not matter.
    """
    if not isinstance(model, DEF):
        raise ArgumentError(f"model must be a forestmix.DEF; got {type(model).__name__}.")
    layer, prior = model.layers[0], model.prior
    if not isinstance(prior.family, Gaussian):
        raise ArgumentError(f"model must have a Gaussian prior; got {prior.family!r}.")
    if auxiliary is None:
        auxiliary = optimal_auxiliary(model, q)
    check_auxiliary(auxiliary)
    epsilon, b_hat, w = (dense(part).astype(np.float64) for part in (auxiliary.epsilon, auxiliary.b_hat, layer.weights))
    n, m = w.shape
    if epsilon.shape != w.shape or b_hat.shape != w.shape:
        raise ArgumentError(
            f"auxiliary must have epsilon and b_hat of the shape of W, {w.shape}; "
            f"got {epsilon.shape} and {b_hat.shape}."
        )
    used = epsilon > 0
    alone: Array = ~np.any(used, axis=1, keepdims=True)
    bias = np.where(alone, np.broadcast_to(layer.bias, n)[:, None].astype(float), np.where(used, b_hat, 0.0))
    weights = np.divide(w, epsilon, out=np.zeros_like(w), where=used)
    chances = np.where(alone, 1 / m, epsilon)
    noise = pairs("noise", layer.family.sd, n, m) if isinstance(layer.family, Gaussian) else None
    centre, sd = (np.broadcast_to(part, m).astype(float) for part in (prior.bias, prior.family.sd))
    return ForestParameters(layer.family, weights, bias, chances, noise, centre, Gaussian(sd))


def pairs(name: str, value: Any, n: int, m: int) -> Array:
    """Return a parameter as (n, m) from one number, (n,) for the variables or (n, m)."""
    array = check_size(name, finite(name, numbers(name, value).astype(np.float64)))
    if array.shape == (n,):
        array = array[:, None]
    if array.shape not in ((), (n, 1), (n, m)):
        raise ArgumentError(f"{name} must be one number or have shape ({n},) or ({n}, {m}); got {array.shape}.")
    return np.broadcast_to(array, (n, m)).copy()


def check_size(name: str, array: Array, largest: float = LARGEST) -> Array:
    """Return ``array`` unchanged unless an entry is so large that sums would overflow."""
    beyond = np.abs(array) > np.float64(largest)
    if beyond.any():
        where = first_index(beyond)
        raise ArgumentError(
            f"{name} must lie between {-largest:g} and {largest:g}, or sums of its squares overflow; got {array[where]}"
            f"{at_index(where)}. Divide the variables by a number of their size."
        )
    return array


def observations_of(array: Array, family: Family) -> Observations:
    """Return checked numbers as observations, with 0 where they are missing."""
    family.check_support("X", array)
    if family.name == "poisson":
        check_size("X", array, LARGEST_COUNT)
    missing = np.isnan(array)
    x = np.where(missing, 0.0, array).astype(np.float64)
    return Observations(x, ~missing if missing.any() else None, False)


def present(data: Observations) -> Array:
    """Return 1 for each entry that is there and 0 for a missing one, (N, n), or (1, n) if none is missing."""
    return np.ones((1, data.x.shape[1])) if data.observed is None else data.observed.astype(np.float64)


def counts(data: Observations) -> Array:
    """Return how many entries of each variable are there, (n,)."""
    return np.full(data.x.shape[1], float(data.x.shape[0])) if data.observed is None else data.observed.sum(axis=0)


def masked(data: Observations, values: Array) -> Array:
    """Return values for the entries of x with 0 where x is missing."""
    return values if data.observed is None else np.where(data.observed, values, 0.0)


def standard_units(data: Observations, centre: Array, scale: Array) -> Observations:
    """Return the observations ``(x - centre) / scale``, 0 where they are missing."""
    x = check_size("X in standard deviations", (data.x - centre) / scale)
    return replace(data, x=masked(data, x))


def log_jacobian(data: Observations, scale: Array) -> float:
    """Return what is to be taken off the log-density of ``x / scale`` for that of x, over all observations."""
    return float(np.sum(counts(data) * np.log(scale)))
