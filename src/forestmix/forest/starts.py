"""Where a run starts: principal components of the standardised data, rotated until each variable loads on one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.latents import GaussianFactors

#: Spread of a latent at the start, about that of one which ten leaves tell of.
SPREAD = 0.3
#: Average linkage takes the square of the number of variables; with more than this it is left out.
_LARGEST_LINKAGE = 2000


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
