"""Larger moves for Gaussian leaves with shared parents, out of optima where single steps are stuck.

A proposal is a start for EM near a state where it has converged; the caller keeps it only if the ELBO ends higher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from forestmix.arrays import Array
from forestmix.forest.engines import State
from forestmix.forest.moments import Moments, gaussian_latents, gaussian_scores, moments, regression
from forestmix.forest.parameters import masked, present
from forestmix.forest.starts import SPREAD, main_directions
from forestmix.latents import GaussianFactors
from forestmix.model import Observations

#: Pairs of a tree to give up and a tree to split that are tried from one state.
_CANDIDATES = 6


def proposals(state: State, data: Observations, rng: np.random.Generator) -> Iterator[GaussianFactors]:
    """Yield starts, the most promising first: variables moved by what their siblings say, then trees re-seeded."""
    moved = without_oneself(state, data)
    if moved is not None:
        yield moved
    if state.forest.n_trees > 1:
        yield from reseeded(state, data, rng)


def without_oneself(state: State, data: Observations) -> GaussianFactors | None:
    """Return latents after each variable chose its parent by latents that it had no part in; None if none changed.

    A latent leans towards the variables it was computed from, which keeps them with it.
    """
    p, r = state.forest, state.responsibilities
    every, label = np.arange(p.n_variables), np.argmax(r, axis=1)
    scores = gaussian_scores(p, moments(data, state.latents))
    w, b, noise = (part[:, None] for part in p.edges(label))
    edges = replace(p, weights=w, bias=b, noise=noise)  # as those of one tree
    sums = _moments_without_oneself(state, data, label)
    scores[every, label] = gaussian_scores(regression(edges, sums, float(noise.min()) ** 2), sums)[:, 0]
    chosen = np.argmax(scores, axis=1)
    return None if (chosen == label).all() else gaussian_latents(p, data, np.eye(p.n_trees)[chosen])


def _moments_without_oneself(state: State, data: Observations, label: Array) -> Moments:
    """Return the moments of each variable with its parent's latent, less its own influence, as columns (n, 1)."""
    w, b, noise = state.forest.edges(label)
    pull = state.responsibilities[np.arange(len(w)), label] * w / noise**2
    there = present(data)
    precision = (state.latents.sd**-2.0)[:, label]
    rest = precision - pull * w * there
    mean = (state.latents.mean[:, label] * precision - pull * (data.x - b) * there) / rest
    parts = (there, data.x, data.x**2, mean * there, (mean**2 + 1 / rest) * there, data.x * mean)
    return Moments(*(np.broadcast_to(part, data.x.shape).sum(axis=0)[:, None] for part in parts))


def reseeded(state: State, data: Observations, rng: np.random.Generator) -> Iterator[GaussianFactors]:
    """Yield latents in which a tree that is little missed starts anew inside a tree that holds two groups.

    Trees without variables are missed least. What a tree holds beyond its latent is the main direction of its
    variables' residuals.
    """
    label = np.argmax(state.responsibilities, axis=1)
    loss = loss_of_trees(state, data, label)
    direction, gain = leftover(state, data, label, rng)
    least, most = np.argsort(loss)[:_CANDIDATES], np.argsort(-gain)[:_CANDIDATES]
    tries = sorted(((loss[a] - gain[b], a, b) for a in least for b in most if a != b), key=lambda entry: entry[0])
    seen: set[int] = set()
    for _, out, split in tries:
        # One try for each tree to split: which of the least missed trees goes hardly matters.
        if split in seen:
            continue
        seen.add(split)
        mean, sd = state.latents.mean.copy(), np.broadcast_to(state.latents.sd, state.latents.mean.shape).copy()
        mean[:, out], sd[:, out] = direction[:, split], SPREAD
        yield GaussianFactors(mean, sd if data.observed is not None else sd[:1])


def loss_of_trees(state: State, data: Observations, label: Array) -> Array:
    """Return what the ELBO would lose, to first order, if each tree's variables went to their second choice."""
    n, m = state.responsibilities.shape
    every = np.arange(n)
    scores = gaussian_scores(state.forest, moments(data, state.latents))
    own = scores[every, label].copy()
    scores[every, label] = -np.inf
    cost = state.latents.relative_entropy(state.forest.prior, state.forest.prior_mean).sum(axis=0)
    return np.bincount(label, own - scores.max(axis=1), minlength=m) - cost


def leftover(state: State, data: Observations, label: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the main direction (N, m) of each tree's residuals, and about what a latent along it would gain, (m,)."""
    N, m = state.latents.mean.shape
    w, b, _ = state.forest.edges(label)
    residual = masked(data, data.x - b - w * state.latents.mean[:, label])
    direction = main_directions(residual, label, m, rng)
    along = np.einsum("si,si->i", residual, direction[:, label])
    share = along**2 / np.maximum(np.einsum("si,si->i", residual, residual), 1e-12)
    share = np.minimum(share, 1 - 1e-6)
    gain = np.bincount(label, -0.5 * N * np.log1p(-share), minlength=m)
    gain = gain - 0.5 * N * np.log1p(np.bincount(label, share / (1 - share), minlength=m))
    return direction * np.sqrt(N), gain
