"""Weights of scattered nodes, moved a little so that Stein's identity holds for them.

For a density p with ``s = grad log p``, and every polynomial f, ``E[laplacian f + s . grad f] = 0``. A sum over
weighted nodes does not have it exactly, but the slopes are known at every node. The weights nearest to the given ones,
in Kullback-Leibler divergence, for which it holds for all polynomials up to degree 3 are
``w_i exp(lambda . g(theta_i))`` with g the functions above; lambda minimises the convex
``log sum_i w_i exp(lambda . g_i)``. Where p is normal, means and covariances are then exact; for others their errors
are several times smaller. The functions are those of zero-variance control variates (Mira, Solgi and Imparato 2013).
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.problem.backtracking import longest_step

#: Steps of Newton's method, halvings of one, and the gain at which it ends.
STEPS, HALVINGS, GAIN = 50, 20, 1e-12
#: Nodes whose weight is a smaller share do not take part; the share of the effective number that must be left.
NEGLIGIBLE, LEAST_LEFT = 1e-12, 0.5


def calibrated(nodes: Array, log_weights: Array, slopes: Array, left_out: Array) -> Array:
    """Return log weights that sum to one and for which Stein's identity holds; those given where none are near.

    Args:
        nodes: (S, K).
        log_weights: of each, which sum to one.
        slopes: of a part of the log density at each node, (S, K).
        left_out: the other part, (S,), which is small and smooth: its slope is that of a polynomial through it.

    """
    use = np.flatnonzero(log_weights > np.log(NEGLIGIBLE))
    weights = np.exp(log_weights[use])
    mean = weights @ nodes[use]
    spread = (weights[:, None] * (nodes[use] - mean)).T @ (nodes[use] - mean)
    axes = np.linalg.cholesky(spread + 1e-12 * np.trace(spread) * np.eye(len(mean)))
    z = scipy.linalg.solve_triangular(axes, (nodes[use] - mean).T, lower=True).T
    functions = _stein(z, slopes[use] @ axes + _polynomial_slopes(z, left_out[use], weights))
    moved = _tilted(log_weights[use], functions / np.sqrt(weights @ functions**2))
    if moved is None or np.sum(weights**2) < LEAST_LEFT * np.sum(np.exp(2 * moved)):
        return log_weights
    found = np.full(len(log_weights), -np.inf)
    found[use] = moved
    return found


def _stein(z: Array, slopes: Array) -> Array:
    """Return ``laplacian f + s . grad f`` at each node for all monomials f up to degree 3, (S, F)."""
    size, columns = z.shape[1], []
    for degree in (1, 2, 3):
        for chosen in combinations_with_replacement(range(size), degree):
            first = [_product(z, _without(chosen, (a,))) * slopes[:, chosen[a]] for a in range(degree)]
            pairs = [(a, b) for a in range(degree) for b in range(degree) if a != b and chosen[a] == chosen[b]]
            columns.append(sum(first) + sum((_product(z, _without(chosen, pair)) for pair in pairs), np.zeros(len(z))))
    return np.stack(columns, axis=1)


def _without(chosen: tuple[int, ...], places: tuple[int, ...]) -> list[int]:
    return [k for place, k in enumerate(chosen) if place not in places]


def _product(z: Array, chosen: list[int]) -> Array:
    return np.prod(z[:, chosen], axis=1)


def _polynomial_slopes(z: Array, values: Array, weights: Array) -> Array:
    """Return the slopes at each node of the quadratic polynomial that is nearest to the values, (S, K)."""
    size, root = z.shape[1], np.sqrt(weights)
    pairs = list(combinations_with_replacement(range(size), 2))
    design = np.column_stack([np.ones(len(z)), z, *(_product(z, list(pair)) for pair in pairs)])
    found = np.linalg.lstsq(root[:, None] * design, root * (values - weights @ values), rcond=1e-10)[0]
    matrix = np.zeros((size, size))
    for (j, k), coefficient in zip(pairs, found[1 + size :], strict=True):
        matrix[j, k] += coefficient
        matrix[k, j] += coefficient
    return found[1 : 1 + size] + z @ matrix


def _tilted(log_weights: Array, functions: Array) -> Array | None:
    """Return the log weights nearest to those given under which all functions have mean 0, by Newton's method."""

    def dual(tilt: Array) -> tuple[Array, float, Array]:
        moved = log_weights + functions @ tilt
        value = float(scipy.special.logsumexp(moved))
        return tilt, value, moved - value

    def lower(tilt: Array, value: float, step: Array) -> tuple[Any, Any, Any]:
        return longest_step(lambda rho: dual(tilt + rho * step), lambda new, _: new[1] < value, 1.0, HALVINGS)

    tilt, value, moved = dual(np.zeros(functions.shape[1]))
    for _ in range(STEPS):
        weights = np.exp(moved)
        slope = weights @ functions
        matrix = (functions * weights[:, None]).T @ functions - np.outer(slope, slope)
        step = -np.linalg.lstsq(matrix, slope, rcond=1e-10)[0]
        if -slope @ step <= GAIN:
            return moved
        new, _, fell = lower(tilt, value, step)
        if not fell:
            return None
        tilt, value, moved = new
    return None
