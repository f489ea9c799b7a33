"""What leaves contribute, and steps on latents and leaves: exact for Gaussian ones, safeguarded for others.

Gaussian leaves need sums over observations alone, and are regressed on their latents. For others, eta is Gaussian where
``eta = b_ij + w_ij y_j`` and ``q(y_j) = N(mu_j, sigma_j^2)``, with mean ``b_ij + w_ij mu_j`` and spread
``|w_ij| sigma_j``, so all that is needed are the one-dimensional expectations of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Gaussian
from forestmix.families.base import RowExpectations
from forestmix.forest.parameters import ForestParameters, counts, masked, present
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


def pairs_by_tree(data: Observations, wanted: Array) -> Iterator[tuple[Array, int]]:
    """Yield the wanted pairs, (n, m), as variables and their tree, few enough to hold an array of all observations."""
    size = max(1, _BLOCK // max(data.x.shape[0], 1))
    for tree in range(wanted.shape[1]):
        variables = np.flatnonzero(wanted[:, tree])
        for start in range(0, len(variables), size):
            yield variables[start : start + size], tree


def pair_scores(p: ForestParameters, data: Observations, q: GaussianFactors, wanted: Array | None = None) -> Array:
    """Return ``sum_s E log p_hat(x_si | y_sj)``, (n, m), of all pairs or of those that are wanted."""
    scores = np.zeros(p.weights.shape)
    for block, tree in pairs_by_tree(data, np.ones(scores.shape, bool) if wanted is None else wanted):
        terms = rows(p, data, q.mean[:, tree], q.sd[:, tree], tree, block)
        scores[block, tree] = terms.log_likelihood.sum(axis=0)
    return scores


def latent_step(
    p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array
) -> GaussianFactors:
    """Take a step on ``q(y)`` given ``q(e)``, (n, m) or (N, n, m); the ELBO is lower for no latent of any observation.

    For Gaussian leaves it is to the best ``q(y)``. For others it is, per latent,
    ``1/sigma^2 = 1/sigma0^2 + sum_i r_ij w_ij^2 kappa_ij`` and ``mu += sigma^2 gradient``, of which precision and mean
    move a share 1, 1/2, 1/4, ... of the way.
    """
    batch = responsibilities.reshape(-1, *p.weights.shape)
    if p.noise is not None:
        return gaussian_latents(p, data, batch)
    new = q.expanded(len(data.x))
    # A step on which rates overflow is refused.
    with np.errstate(over="ignore", invalid="ignore"):
        for tree in range(p.n_trees):
            # Views of one column each, which the step updates.
            _tree_step(p, data, new.mean[:, tree], new.sd[:, tree], tree, batch[:, :, tree])
    return new


def gaussian_latents(p: ForestParameters, data: Observations, responsibilities: Array) -> GaussianFactors:
    """Return the best ``q(y)`` for Gaussian leaves, by products with x; ``q(e)`` is (N, n, m), or (1, n, m) if shared.

    ``1/sigma_j^2 = 1/sigma0_j^2 + sum_i r_ij w_ij^2 / noise_ij^2``; the sd is one row if all observations have it.
    """
    assert p.noise is not None
    pull = responsibilities * p.weights / p.noise**2
    # One product of matrices for a shared forest, else one of a vector and a matrix for each observation.
    axis = 0 if len(pull) == 1 else 1
    x, there = (np.expand_dims(part, axis) for part in (data.x, present(data)))
    H, h = there @ (pull * p.weights), x @ pull - there @ (pull * p.bias)
    return GaussianFactors.tilted(p.prior, p.prior_mean, H.squeeze(axis), h.squeeze(axis))


def _tree_step(p: ForestParameters, data: Observations, mean: Array, sd: Array, tree: int, weight: Array) -> None:
    """Update mean and sd of one latent, (N,), in place.

    A loss within rounding is none: to refuse it would stop the means at the square root of the precision. There the
    values do not tell a step that goes too far, which steep leaves make without end; the slope along the step does. It
    must not be steeper downwards at the end than half of what it was upwards at the start.
    """
    children = np.flatnonzero(weight.max(axis=0) > NEGLIGIBLE)
    centre, prior = p.prior_mean[tree], Gaussian(p.prior.sd[tree])
    if not children.size:
        mean[:], sd[:] = centre, prior.sd
        return
    weight, w = weight[:, children], p.weights[children, tree]

    def evaluate(some: Any, mean: Array, sd: Array) -> tuple[Array, Array, Array, Array]:
        """Return the ELBO's part of the latent, its rounding, its slope in the mean, and the precision best there.

        The slope in the precision P is ``(best - P) / (2 P^2)``.
        """
        r = weight if len(weight) == 1 else weight[some]
        value, error, kappa = (weighted(r, part) for part in rows(p, data.take(some), mean, sd, tree, children))
        divergence = GaussianFactors(mean, sd).relative_entropy(prior, centre)
        rounding = _ROUNDING * (1 + np.abs(value).sum(axis=1))
        slope = error @ w - (mean - centre) * prior.sd**-2.0
        return value.sum(axis=1) - divergence, rounding, slope, prior.sd**-2.0 + kappa @ w**2

    value, rounding, slope, target = evaluate(slice(None), mean, sd)
    precision = sd**-2.0
    # So far that rates overflow, halves would not come back.
    reach = LARGEST_PARAMETER / np.maximum(np.abs(w).max(), 1e-300)
    step, growth = np.clip(slope / target, -reach, reach), target - precision
    upwards = slope * step + 0.5 * (growth / precision) ** 2

    waiting, share = np.arange(len(mean)), 1.0
    for _ in range(_HALVINGS):
        new_mean = mean[waiting] + share * step[waiting]
        # Not precision + share * growth, which is 0 where the precision falls by more digits than a number has.
        new = (1 - share) * precision[waiting] + share * target[waiting]
        end, _, slope, best = evaluate(waiting, new_mean, new**-0.5)
        onwards = slope * step[waiting] + 0.5 * (best - new) / new**2 * growth[waiting]
        good = (end >= (value - rounding)[waiting]) & (onwards >= -0.5 * upwards[waiting])
        mean[waiting[good]], sd[waiting[good]] = new_mean[good], new[good] ** -0.5
        waiting, share = waiting[~good], 0.5 * share
        if not waiting.size:
            break


class LeafSums(NamedTuple):
    """Sums over observations that leaves are learned from; each broadcasts to (n, m).

    The leaf of a pair is the regression of a response on ``y_j`` with weights: of x_i with weight 1 for Gaussian
    leaves, and, as Newton's step, of the slope of the log-likelihood in eta with weight ``kappa`` for others.
    ``number``, ``y`` and ``yy`` are sums of the weights, and of these times E y_j and E y_j^2; ``x`` and ``xy`` of the
    response, and of it times y_j; ``value`` of x_i^2 for Gaussian leaves, and of the log-likelihood for others.
    """

    number: Array
    y: Array
    yy: Array
    x: Array
    xy: Array
    value: Array

    def regression(self) -> tuple[Array, Array]:
        """Return intercept and slope, ``w = Cov(x, y) / Var(y)`` and ``b = E x - w E y``."""
        count = np.maximum(self.number, 1e-300)
        x, y = self.x / count, self.y / count
        w = (self.xy / count - x * y) / np.maximum(self.yy / count - y**2, 1e-300)
        return x - w * y, w

    def gaussian(self, p: ForestParameters, min_variance: float) -> ForestParameters:
        """Return the weights, biases and noise that maximise the expected log-likelihood of every pair.

        ``noise^2 = E x^2 - b E x - w E xy``, not below ``min_variance``, with which it is the maximiser under that
        limit. A pair that nothing was seen of keeps what it has.
        """
        assert p.noise is not None
        b, w = self.regression()
        variance = (self.value - b * self.x - w * self.xy) / np.maximum(self.number, 1e-300)
        noise, unseen = np.sqrt(np.maximum(variance, min_variance)), self.number < 1e-8
        return replace(
            p,
            weights=np.where(unseen, p.weights, w),
            bias=np.where(unseen, p.bias, b),
            noise=np.where(unseen, p.noise, noise),
        )

    def gaussian_scores(self, p: ForestParameters) -> Array:
        """Return ``sum_s E log N(x_si; b_ij + w_ij y_sj, noise_ij^2)`` of every pair."""
        assert p.noise is not None
        w, b, variance = p.weights, p.bias, p.noise**2
        square = self.value - 2 * b * self.x - 2 * w * self.xy
        square = square + self.number * b**2 + 2 * b * w * self.y + w**2 * self.yy
        return -0.5 * self.number * np.log(2 * np.pi * variance) - 0.5 * square / variance

    def newton_step(self) -> tuple[Array, Array]:
        """Return the step of every pair in bias and weight."""
        ridge = 1e-8 + 1e-6 * (self.number + self.yy)
        with np.errstate(over="ignore", invalid="ignore"):
            bias, weight = self._replace(number=self.number + ridge, yy=self.yy + ridge).regression()
        # A pair whose rates overflow has no step to take, and is nobody's parent.
        possible = np.isfinite(bias) & np.isfinite(weight)
        return np.where(possible, bias, 0.0), np.where(possible, weight, 0.0)


def leaf_sums(
    p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array | None = None
) -> LeafSums:
    """Return the sums of all pairs, each observation weighted by its responsibilities (N, n, m) if there are any.

    By Stein's identity ``E a'(eta) y = mu E a' + w sigma^2 E a''``, and the curvatures take ``E a''`` out of the
    expectation, which the safeguard makes harmless.
    """
    if p.noise is not None and responsibilities is None:
        return moments(data, q)
    there = np.broadcast_to(present(data), data.x.shape)
    out = LeafSums(*np.zeros((6, *p.weights.shape)))
    for block, tree in pairs_by_tree(data, np.ones(p.weights.shape, bool)):
        mean, sd = q.mean[:, tree], np.broadcast_to(q.sd[:, tree], q.mean.shape[:1])
        if p.noise is None:
            value, response, weight = rows(p, data, mean, sd, tree, block)
        else:
            value, response, weight = data.x[:, block] ** 2, data.x[:, block], there[:, block]
        if responsibilities is not None:
            r = responsibilities[:, block, tree]
            value, response, weight = (weighted(r, part) for part in (value, response, weight))
        place = (block, tree)
        out.number[place], out.y[place] = weight.sum(axis=0), mean @ weight
        out.yy[place] = (mean**2 + sd**2) @ weight
        out.x[place], out.xy[place] = response.sum(axis=0), mean @ response
        if p.noise is None:
            out.xy[place] -= p.weights[place] * (sd**2 @ weight)
        out.value[place] = value.sum(axis=0)
    return out


def moments(data: Observations, q: GaussianFactors) -> LeafSums:
    """Return the sums of Gaussian leaves with shared parents: one product with x, or three with gaps."""
    second, number = q.mean**2 + q.sd**2, counts(data)[:, None]
    if data.observed is None:
        y, yy = q.mean.sum(axis=0)[None], second.sum(axis=0)[None]
    else:
        y, yy = present(data).T @ q.mean, present(data).T @ second
    xx = np.einsum("si,si->i", data.x, data.x)[:, None]
    return LeafSums(number, y, yy, data.x.sum(axis=0)[:, None], data.x.T @ q.mean, xx)


def backtracked(
    p: ForestParameters, step: tuple[Array, Array], best: Array, evaluate: Callable[[ForestParameters, Array], Array]
) -> tuple[ForestParameters, Array]:
    """Take the largest of the shares of a step that lowers no entry of the values; return parameters and values.

    ``best`` has the values at the start, (n, m) or (n, 1). ``evaluate`` gets parameters and which values are wanted:
    some pair waits in most steps, and to look at all of them again each time would take half as long again.
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


def moved(p: ForestParameters, step: tuple[Array, Array], share: Array | float) -> ForestParameters:
    """Return the parameters a share of the way along a step, within their limits or not further out than the start."""

    def end(start: Array, way: Array) -> Array:
        limit = np.maximum(LARGEST_PARAMETER, np.abs(start))
        return np.clip(start + share * way, -limit, limit)

    return replace(p, bias=end(p.bias, step[0]), weights=end(p.weights, step[1]))
