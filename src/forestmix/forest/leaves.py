"""What leaves contribute, and steps on latents and leaves: exact for Gaussian ones, safeguarded for others.

Gaussian leaves need sums over observations alone, and are regressed on their latents. For others, eta is Gaussian where
``eta = b_ij + w_ij y_j`` and ``q(y_j) = N(mu_j, sigma_j^2)``, with mean ``b_ij + w_ij mu_j`` and spread
``|w_ij| sigma_j``, so all that is needed are the one-dimensional expectations of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Gaussian
from forestmix.families.base import RowExpectations
from forestmix.forest.parameters import ForestParameters, masked, present
from forestmix.latents import GaussianFactors
from forestmix.model import Observations

#: Responsibilities below this add nothing to a sum in float64.
NEGLIGIBLE = 1e-15
#: Logits and log-rates beyond this are 0 or 1, or overflow; separable data would else drive them to infinity.
LARGEST_PARAMETER = 30.0
#: How often a step on latents is halved, and the shares of a step on leaves that are tried.
_HALVINGS, _SHARES = 12, 0.5 ** np.arange(7)
#: Rounding of a sum, relative to the size of its terms.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
#: Entries of a block of variables held at a time.
_BLOCK = 2_000_000


def rows(
    p: ForestParameters, data: Observations, mean: Array, sd: Array, tree: int, variables: Array
) -> RowExpectations:
    """Return the row terms of some variables as children of a tree, (N, variables); 0 where x is missing.

    ``mean`` and ``sd`` are those of the tree's latent, (N,) each, or (1,) for an sd that all share.
    """
    w, b = p.weights[variables, tree], p.bias[variables, tree]
    eta, x = b + w * mean[:, None], data.x[:, variables]
    terms = p.leaves(tree, variables).expectations(x, eta, np.abs(w) * sd[:, None])
    there = replace(data, x=x, observed=None if data.observed is None else data.observed[:, variables])
    return RowExpectations(*(masked(there, np.broadcast_to(part, eta.shape)) for part in terms))


def weighted(responsibilities: Array, values: Array) -> Array:
    """Return the product, 0 where the responsibility is 0: a row that nothing asks for may overflow."""
    shape = np.broadcast_shapes(responsibilities.shape, values.shape)
    return np.multiply(responsibilities, values, out=np.zeros(shape), where=responsibilities > 0)


def blocks(data: Observations, variables: Array) -> Iterator[Array]:
    """Split variables so that an array of all observations of a block stays small."""
    size = max(1, _BLOCK // max(data.x.shape[0], 1))
    for start in range(0, len(variables), size):
        yield variables[start : start + size]


def pair_scores(p: ForestParameters, data: Observations, q: GaussianFactors, wanted: Array | None = None) -> Array:
    """Return ``sum_s E log p_hat(x_si | y_sj)``, (n, m), of all pairs or of those that are wanted."""
    wanted = np.ones(p.weights.shape, bool) if wanted is None else wanted
    scores = np.zeros(p.weights.shape)
    for tree in range(p.n_trees):
        for block in blocks(data, np.flatnonzero(wanted[:, tree])):
            terms = rows(p, data, q.mean[:, tree], q.sd[:, tree], tree, block)
            scores[block, tree] = terms.log_likelihood.sum(axis=0)
    return scores


def latent_step(
    p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array
) -> GaussianFactors:
    """Take a step on ``q(y)`` given ``q(e)``, (n, m) or (N, n, m); the ELBO is lower for no latent of any observation.

    Per latent: ``1/sigma^2 = 1/sigma0^2 + sum_i r_ij w_ij^2 kappa_ij`` and ``mu += sigma^2 gradient``, exact for
    Gaussian leaves, and with shared parents in closed form; for others precision and mean move a share 1, 1/2, 1/4, ...
    of the way.

    A loss within rounding is none: to refuse it would stop the means at the square root of the precision. There the
    values do not tell a step that goes too far, which steep leaves make without end; the slope along the step does. It
    must not be steeper downwards at the end than half of what it was upwards at the start.
    """
    batch = responsibilities if responsibilities.ndim == 3 else responsibilities[None]
    if p.noise is not None and len(batch) == 1:
        return gaussian_latents(p, data, batch[0])
    new = q.expanded(len(data.x))
    # A step on which rates overflow is refused.
    with np.errstate(over="ignore", invalid="ignore"):
        for tree in range(p.n_trees):
            # Views of one column each, which the step updates.
            _tree_step(p, data, new.mean[:, tree], new.sd[:, tree], tree, batch[:, :, tree])
    return new


def _tree_step(p: ForestParameters, data: Observations, mean: Array, sd: Array, tree: int, weight: Array) -> None:
    """Update mean and sd of one latent, (N,), in place."""
    children = np.flatnonzero(weight.max(axis=0) > NEGLIGIBLE)
    centre, prior = p.prior_mean[tree], Gaussian(p.prior.sd[tree])
    if not children.size:
        mean[:], sd[:] = centre, prior.sd
        return
    weight, w = weight[:, children], p.weights[children, tree]

    def evaluate(some: Observations, r: Array, mean: Array, sd: Array) -> tuple[Array, Array, Array, Array]:
        """Return the ELBO's part of the latent, its rounding, its slope in the mean, and the precision best there.

        The slope in the precision P is ``(best - P) / (2 P^2)``.
        """
        value, error, kappa = (weighted(r, part) for part in rows(p, some, mean, sd, tree, children))
        divergence = GaussianFactors(mean, sd).relative_entropy(prior, centre)
        rounding = _ROUNDING * (1 + np.abs(value).sum(axis=1))
        slope = error @ w - (mean - centre) * prior.sd**-2.0
        return value.sum(axis=1) - divergence, rounding, slope, prior.sd**-2.0 + kappa @ w**2

    value, rounding, slope, target = evaluate(data, weight, mean, sd)
    precision = sd**-2.0
    step, growth = slope / target, target - precision
    if p.noise is None:
        # So far that rates overflow, halves would not come back.
        reach = LARGEST_PARAMETER / np.maximum(np.abs(w).max(), 1e-300)
        step = np.clip(step, -reach, reach)
    upwards = slope * step + 0.5 * (growth / precision) ** 2
    waiting, share = np.arange(len(mean)), 1.0
    for _ in range(_HALVINGS):
        new_mean = mean[waiting] + share * step[waiting]
        # Not precision + share * growth, which is 0 where the precision falls by more digits than a number has.
        new = (1 - share) * precision[waiting] + share * target[waiting]
        r = weight if len(weight) == 1 else weight[waiting]
        end, _, slope, best = evaluate(data.take(waiting), r, new_mean, new**-0.5)
        onwards = slope * step[waiting] + 0.5 * (best - new) / new**2 * growth[waiting]
        good = (end >= (value - rounding)[waiting]) & (onwards >= -0.5 * upwards[waiting])
        mean[waiting[good]], sd[waiting[good]] = new_mean[good], new[good] ** -0.5
        waiting, share = waiting[~good], 0.5 * share
        if not waiting.size:
            break


class NewtonTerms(NamedTuple):
    """Slopes and curvatures of the expected log-likelihood in bias and weight of each pair, and its value, (n, m)."""

    bias: Array
    weight: Array
    bias_bias: Array
    bias_weight: Array
    weight_weight: Array
    score: Array

    def step(self) -> tuple[Array, Array]:
        """Return the Newton step of every pair, in bias and weight."""
        ridge = 1e-8 + 1e-6 * (self.bias_bias + self.weight_weight)
        first, last = self.bias_bias + ridge, self.weight_weight + ridge
        with np.errstate(over="ignore", invalid="ignore"):
            determinant = first * last - self.bias_weight**2
            bias = (last * self.bias - self.bias_weight * self.weight) / determinant
            weight = (first * self.weight - self.bias_weight * self.bias) / determinant
        # A pair whose rates overflow has no step to take, and is nobody's parent.
        possible = np.isfinite(bias) & np.isfinite(weight)
        return np.where(possible, bias, 0.0), np.where(possible, weight, 0.0)


def newton_terms(
    p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array | None
) -> NewtonTerms:
    """Return the terms of all pairs, each observation weighted by its responsibilities (N, n, m) if there are any.

    By Stein's identity ``E a'(eta) y = mu E a' + w sigma^2 E a''``, and the curvatures take ``E a''`` out of the
    expectation, which the safeguard makes harmless.
    """
    out = NewtonTerms(*np.zeros((6, *p.weights.shape)))
    for tree in range(p.n_trees):
        mean, sd = q.mean[:, tree], np.broadcast_to(q.sd[:, tree], q.mean.shape[:1])
        for block in blocks(data, np.arange(p.n_variables)):
            value, error, kappa = rows(p, data, mean, sd, tree, block)
            if responsibilities is not None:
                r = responsibilities[:, block, tree]
                value, error, kappa = (weighted(r, part) for part in (value, error, kappa))
            place = (block, tree)
            out.score[place] = value.sum(axis=0)
            out.bias[place] = error.sum(axis=0)
            out.weight[place] = mean @ error - p.weights[place] * (sd**2 @ kappa)
            out.bias_bias[place] = kappa.sum(axis=0)
            out.bias_weight[place] = mean @ kappa
            out.weight_weight[place] = (mean**2 + sd**2) @ kappa
    return out


def moved(p: ForestParameters, step: tuple[Array, Array], share: Array | float) -> ForestParameters:
    """Return the parameters a share of the way along a step, within their limits or not further out than the start."""

    def end(start: Array, way: Array) -> Array:
        limit = np.maximum(LARGEST_PARAMETER, np.abs(start))
        return np.clip(start + share * way, -limit, limit)

    return replace(p, bias=end(p.bias, step[0]), weights=end(p.weights, step[1]))


def leaf_statistics(
    p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array | None = None
) -> Moments | NewtonTerms:
    """Return the sums over observations that leaves are learned from, for parents shared or of each observation."""
    if p.noise is None:
        return newton_terms(p, data, q, responsibilities)
    return moments(data, q) if responsibilities is None else weighted_moments(data, q, responsibilities)


def backtracked(
    p: ForestParameters, step: tuple[Array, Array], best: Array, evaluate: Callable[[ForestParameters, Array], Array]
) -> tuple[ForestParameters, Array]:
    """Take the largest of the shares of a step that lowers no entry of the values; return parameters and values.

    ``best`` has the values at the start, (n, m) or (n, 1). ``evaluate`` gets parameters and which values are wanted.
    """
    taken, values = np.zeros(best.shape), best
    for share in _SHARES:
        waiting = taken == 0
        if not waiting.any():
            break
        new = evaluate(moved(p, step, np.where(waiting, share, taken)), waiting)
        good = waiting & (new >= best)
        taken, values = np.where(good, share, taken), np.where(good, new, values)
    return moved(p, step, taken), values


class Moments(NamedTuple):
    """Sums over observations of 1, x_i, x_i^2, E y_j, E y_j^2 and x_i E y_j; each broadcasts to (n, m)."""

    number: Array
    x: Array
    xx: Array
    y: Array
    yy: Array
    xy: Array

    def regression(self, p: ForestParameters, min_variance: float) -> ForestParameters:
        """Return the weights, biases and noise that maximise the expected log-likelihood of every pair.

        The regression of x_i on y_j: ``w = Cov(x, y) / Var(y)``, ``b = E x - w E y`` and
        ``noise^2 = Var(x) - w Cov(x, y)``, not below ``min_variance``, with which it is the maximiser under that limit.
        """
        count = np.maximum(self.number, 1e-300)
        x, y = self.x / count, self.y / count
        covariance = self.xy / count - x * y
        w = covariance / np.maximum(self.yy / count - y**2, 1e-300)
        variance = np.maximum(self.xx / count - x**2 - w * covariance, min_variance)
        b, noise = x - w * y, np.sqrt(variance)
        empty = np.broadcast_to(self.number < 1e-8, w.shape)
        if empty.any() and p.noise is not None:
            # A pair that nothing was seen of keeps what it has.
            w, b, noise = (np.where(empty, old, new) for old, new in ((p.weights, w), (p.bias, b), (p.noise, noise)))
        return replace(p, weights=w, bias=b, noise=noise)

    def scores(self, p: ForestParameters) -> Array:
        """Return ``sum_s E log N(x_si; b_ij + w_ij y_sj, noise_ij^2)`` of every pair."""
        assert p.noise is not None
        w, b, variance = p.weights, p.bias, p.noise**2
        square = self.xx - 2 * b * self.x - 2 * w * self.xy + self.number * b**2 + 2 * b * w * self.y + w**2 * self.yy
        return -0.5 * self.number * np.log(2 * np.pi * variance) - 0.5 * square / variance


def moments(data: Observations, q: GaussianFactors) -> Moments:
    """Return the moments of shared parents: two products with x, or five where entries are missing."""
    second = q.mean**2 + q.sd**2
    x, xx, xy = data.x.sum(axis=0)[:, None], np.einsum("si,si->i", data.x, data.x)[:, None], data.x.T @ q.mean
    if data.observed is None:
        number = np.full((1, 1), float(data.x.shape[0]))
        return Moments(number, x, xx, q.mean.sum(axis=0)[None], second.sum(axis=0)[None], xy)
    there = present(data)
    return Moments(there.sum(axis=0)[:, None], x, xx, there.T @ q.mean, there.T @ second, xy)


def weighted_moments(data: Observations, q: GaussianFactors, responsibilities: Array) -> Moments:
    """Return the moments of parents per observation, weighted by their responsibilities (N, n, m)."""
    r = responsibilities * present(data)[:, :, None]
    rx = r * data.x[:, :, None]
    return Moments(
        r.sum(axis=0),
        rx.sum(axis=0),
        np.einsum("sij,si->ij", rx, data.x),
        np.einsum("sij,sj->ij", r, q.mean),
        np.einsum("sij,sj->ij", r, np.broadcast_to(q.mean**2 + q.sd**2, q.mean.shape)),
        np.einsum("sij,sj->ij", rx, q.mean),
    )


def gaussian_latents(p: ForestParameters, data: Observations, responsibilities: Array) -> GaussianFactors:
    """Return the best ``q(y)`` for Gaussian leaves with shared parents, by products with x.

    ``1/sigma_j^2 = 1/sigma0_j^2 + sum_i r_ij w_ij^2 / noise_ij^2``; the sd is one row unless entries are missing.
    """
    assert p.noise is not None
    pull = responsibilities * p.weights / p.noise**2
    there = present(data)
    H, h = there @ (pull * p.weights), data.x @ pull - there @ (pull * p.bias)
    return GaussianFactors.tilted(p.prior, p.prior_mean, H, h)
