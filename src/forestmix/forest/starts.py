"""Where a run starts, and starts anew.

At first from principal components of the standardised data, rotated until each variable loads on one. Where Gaussian
leaves with shared parents have converged, from larger moves out of optima where single steps are stuck; the caller
keeps a move only if the ELBO ends higher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.forest.engines import State
from forestmix.forest.leaves import LeafSums, gaussian_latents, moments
from forestmix.forest.parameters import masked, present
from forestmix.latents import GaussianFactors
from forestmix.model import Observations

#: Spread of a latent at the start, about that of one which ten leaves tell of.
SPREAD = 0.3
#: Average linkage takes the square of the number of variables; with more than this it is left out.
_LARGEST_LINKAGE = 2000
#: Trees to split that are tried from one state.
_CANDIDATES = 6


def starts(z: Array, m: int, rng: np.random.Generator, number: int) -> Iterator[GaussianFactors]:
    """Yield ``number`` starts from standardised data (N, n), with 0 where it is missing.

    The first is the varimax rotation of the leading components, the second the groups of average linkage on
    correlations. The others are, in turn, groups of variables around lines through the origin of the components' space,
    and varimax from a random rotation of noisy components.
    """
    scores, loadings = components(z, m, rng)
    for place in range(number):
        if place == 0:
            rotated = scores @ varimax(loadings)
        elif place == 1 and 2 < z.shape[1] <= _LARGEST_LINKAGE:
            rotated = main_directions(z, linked_groups(z, m), m, rng)
        elif place % 2:
            rotated = scores @ line_directions(loadings, m, rng)
        else:
            noisy = loadings * rng.uniform(0.5, 1.5, loadings.shape)
            random_rotation = np.linalg.qr(rng.standard_normal((loadings.shape[1],) * 2))[0]
            rotated = scores @ varimax(noisy, random_rotation)
        yield _standard(rotated, m, rng)


def components(z: Array, m: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the leading scores (N, k) and loadings (n, k), by subspace iteration in O(N n m) time; k <= m."""
    N, n = z.shape
    k = min(m, N, n)
    basis = rng.standard_normal((n, min(k + 10, N, n)))
    for _ in range(6):
        basis = np.linalg.qr(z.T @ (z @ basis))[0]
    left, size, right = np.linalg.svd(z @ basis, full_matrices=False)
    return left[:, :k] * np.sqrt(N), (basis @ right.T)[:, :k] * size[:k] / np.sqrt(N)


def varimax(loadings: Array, rotation: Array | None = None, max_iter: int = 200) -> Array:
    """Return the rotation that makes the squared loadings vary most within each column."""
    k = loadings.shape[1]
    rotation = np.eye(k) if rotation is None else rotation
    last = 0.0
    for _ in range(max_iter):
        rotated = loadings @ rotation
        u, size, v = np.linalg.svd(loadings.T @ (rotated**3 - rotated * np.mean(rotated**2, axis=0)))
        rotation = u @ v
        if size.sum() <= last * (1 + 1e-7):
            break
        last = float(size.sum())
    return rotation


def line_directions(loadings: Array, m: int, rng: np.random.Generator, max_iter: int = 30) -> Array:
    """Return directions (k, m) around which the variables gather as around lines, whatever their sign.

    Each variable goes to the line it is nearest to, each line to the main direction of its variables; the first lines
    go through variables far from the lines so far.
    """
    length = np.maximum(np.linalg.norm(loadings, axis=1, keepdims=True), 1e-12)
    unit = loadings / length
    lines = unit[[rng.integers(len(unit))]]
    for _ in range(m - 1):
        distance = np.maximum(1 - np.max((unit @ lines.T) ** 2, axis=1), 1e-12) * length[:, 0] ** 2
        lines = np.vstack([lines, unit[rng.choice(len(unit), p=distance / distance.sum())]])
    label = np.full(len(unit), -1)
    for _ in range(max_iter):
        nearest = np.argmax((loadings @ lines.T) ** 2, axis=1)
        if (nearest == label).all():
            break
        label = nearest
        for j in np.unique(label):
            mine = loadings[label == j]
            lines[j] = np.linalg.eigh(mine.T @ mine)[1][:, -1]
    return lines.T


def linked_groups(z: Array, m: int) -> Array:
    """Return the group of each variable by average linkage with distance ``1 - |correlation|``."""
    size = np.maximum(np.linalg.norm(z, axis=0), 1e-12)
    distance = np.clip(1 - np.abs((z.T @ z) / np.outer(size, size)), 0, 1)
    condensed = distance[np.triu_indices(len(distance), 1)]
    cut = scipy.cluster.hierarchy.fcluster
    return np.asarray(cut(scipy.cluster.hierarchy.linkage(condensed, "average"), m, "maxclust")) - 1


def main_directions(z: Array, label: Array, m: int, rng: np.random.Generator, steps: int = 10) -> Array:
    """Return the main direction of each group's variables, (N, m) of norm 1, by power iteration."""
    member = np.eye(m)[label]
    direction = rng.standard_normal((z.shape[0], m))
    for _ in range(steps):
        loading = np.einsum("si,si->i", z, direction[:, label])
        direction = z @ (member * loading[:, None])
        direction = direction / np.maximum(np.linalg.norm(direction, axis=0), 1e-12)
    return direction


def _standard(y: Array, m: int, rng: np.random.Generator) -> GaussianFactors:
    """Return latents of mean 0 and variance 1, with random ones where there are fewer components than trees."""
    y = np.hstack([y, rng.standard_normal((y.shape[0], m - y.shape[1]))])
    y = y - y.mean(axis=0)
    size = np.sqrt(np.mean(y**2, axis=0))
    flat = size < 1e-8
    y = np.where(flat, rng.standard_normal(y.shape), y / np.where(flat, 1.0, size))
    return GaussianFactors(y, np.full((1, m), SPREAD))


def proposals(state: State, data: Observations, rng: np.random.Generator) -> Iterator[GaussianFactors]:
    """Yield moves, the most promising first: variables moved by what their siblings say, then trees re-seeded."""
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
    scores = moments(data, state.latents).gaussian_scores(p)
    w, b, noise = (part[:, None] for part in p.edges(label))
    edges = replace(p, weights=w, bias=b, noise=noise)  # as those of one tree
    sums = _moments_without_oneself(state, data, label)
    scores[every, label] = sums.gaussian_scores(sums.gaussian(edges, float(noise.min()) ** 2))[:, 0]
    chosen = np.argmax(scores, axis=1)
    return None if (chosen == label).all() else gaussian_latents(p, data, np.eye(p.n_trees)[chosen][None])


def _moments_without_oneself(state: State, data: Observations, label: Array) -> LeafSums:
    """Return the moments of each variable with its parent's latent, less its own influence, as columns (n, 1)."""
    w, b, noise = state.forest.edges(label)
    pull = state.responsibilities[np.arange(len(w)), label] * w / noise**2
    there = present(data)
    precision = (state.latents.sd**-2.0)[:, label]
    rest = precision - pull * w * there
    mean = (state.latents.mean[:, label] * precision - pull * (data.x - b) * there) / rest
    parts = (there, mean * there, (mean**2 + 1 / rest) * there, data.x, data.x * mean, data.x**2)
    return LeafSums(*(np.broadcast_to(part, data.x.shape).sum(axis=0)[:, None] for part in parts))


def reseeded(state: State, data: Observations, rng: np.random.Generator) -> Iterator[GaussianFactors]:
    """Yield latents in which a tree that is little missed starts anew inside a tree that holds two groups.

    Trees without variables are missed least. What a tree holds beyond its latent is the main direction of its
    variables' residuals.
    """
    label = np.argmax(state.responsibilities, axis=1)
    loss = loss_of_trees(state, data, label)
    direction, gain = leftover(state, data, label, rng)
    least = np.argsort(loss)
    tries = [(least[int(least[0] == split)], split) for split in np.argsort(-gain)[:_CANDIDATES]]
    for out, split in sorted(tries, key=lambda pair: loss[pair[0]] - gain[pair[1]]):
        mean, sd = state.latents.mean.copy(), np.broadcast_to(state.latents.sd, state.latents.mean.shape).copy()
        mean[:, out], sd[:, out] = direction[:, split], SPREAD
        yield GaussianFactors(mean, sd)


def loss_of_trees(state: State, data: Observations, label: Array) -> Array:
    """Return what the ELBO would lose, to first order, if each tree's variables went to their second choice."""
    n, m = state.responsibilities.shape
    every = np.arange(n)
    scores = moments(data, state.latents).gaussian_scores(state.forest)
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
