"""Steps over a W that lies by columns, dense or sparse, that read it once, each thread on columns of its own.

See ``kernels.column_steps`` for how. What stands here are steps of one observation: a plain forest mixture step, and
one of conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from forestmix import memory
from forestmix.arrays import Array
from forestmix.passes import apart, totals_of
from forestmix.weights import DenseWeights, SparseColumnWeights, Weights
from forestmix.weights.base import Projection

ByColumns = DenseWeights | SparseColumnWeights


class Latents(NamedTuple):
    """Where a step begins: mean and sd of q, and mean and precision of the prior, each (m,)."""

    mean: Array
    sd: Array
    prior_mean: Array
    prior_precision: Array


class Step(NamedTuple):
    """What the rows say about each latent, (m,), where it moves, and the row sums there, (n,)."""

    gradient: Array
    curvature: Array
    exact: Array | None
    mean: Array
    sd: Array
    sums: Projection


def reads_columns(weights: Weights) -> TypeGuard[ByColumns]:
    """Return whether the entries of a column are neighbours, and those of a row are not."""
    if isinstance(weights, SparseColumnWeights):
        return True
    if not isinstance(weights, DenseWeights):
        return False
    return weights.array.flags.f_contiguous and not weights.array.flags.c_contiguous


def project(weights: ByColumns, mean: Array, sd: Array, *, absolute: bool, squared: bool) -> Projection:
    """Return ``W mean``, and of ``|W| sd`` and ``(W∘W) sd^2`` what is asked for, (n,), in one reading."""
    from forestmix.kernels import column_steps

    if isinstance(weights, SparseColumnWeights):
        found = weights.project(mean[np.newaxis], sd[np.newaxis], absolute=absolute, squared=squared)
        return Projection(*(None if part is None else part[0] for part in found))
    arguments = (np.ascontiguousarray(mean), np.ascontiguousarray(sd), absolute, squared)
    sums, _ = _over_columns(weights, column_steps.project_columns, 1 + absolute + squared, arguments, with_totals=False)
    return _projection(sums, absolute, squared)


def column_image(weights: ByColumns, vector: Array) -> Array:
    """Return ``W vector``, (n,)."""
    return np.asarray(project(weights, vector, vector, absolute=False, squared=False).linear)


def step(
    weights: ByColumns, terms: tuple[Array, Array, Array], latents: Latents, curvature: Array | None,
    exact: Array | None, *, paper: bool, ahead: tuple[bool, bool],
) -> Step:  # fmt: skip
    """Make a forest mixture step from row terms.

    Args:
        weights: see ``reads_columns``.
        terms: ``e``, ``s kappa`` and ``kappa`` of the rows, (n,).
        latents: where the step begins.
        curvature: ``D``, or ``None`` if it is to be computed.
        exact: ``H``, or ``None`` if it is to be computed; the paper's bound does not need it.
        paper: whether the objective is the paper's bound.
        ahead: whether ``|W| sd`` and ``(W∘W) sd^2`` are wanted where the step leads.

    """
    absolute, squared = curvature is None, exact is None and not paper
    of_rows, of_latents = (
        tuple(np.ascontiguousarray(part, weights.dtype) for part in parts) for parts in (terms, latents)
    )
    gradient, new_mean, new_sd, found_curvature, found_exact = np.empty((5, weights.shape[1]), weights.dtype)
    D = found_curvature if curvature is None else np.ascontiguousarray(curvature)
    H = found_exact if exact is None else np.ascontiguousarray(exact)

    arguments = (*of_latents, paper, absolute, squared, *ahead, gradient, D, H, new_mean, new_sd)
    if isinstance(weights, SparseColumnWeights):
        from forestmix.kernels import csc, threaded

        n, (error, weighted, kappa) = weights.shape[0], of_rows
        side_by_side = memory.empty((n, 4 if squared else 2), weights.dtype)
        cuts = threaded.even_cuts(n, threaded.threads(threaded.ENTRIES * n))
        threaded.run_all(
            [partial(csc.put_side_by_side, *at, error, weighted, kappa, side_by_side) for at in pairwise(cuts)]
        )
        given = (side_by_side, *arguments)
        sums, _ = weights.over_columns(csc.step_columns, 1 + sum(ahead), given, with_totals=False)
    else:
        from forestmix.kernels import column_steps

        given = (*of_rows, *arguments)
        sums, _ = _over_columns(weights, column_steps.step_columns, 1 + sum(ahead), given, with_totals=False)
    return Step(gradient, D, None if paper and exact is None else H, new_mean, new_sd, _projection(sums, *ahead))


def conjugate_step(
    weights: ByColumns, weighted: Array, length: float, vectors: tuple[Array, Array, Array, Array, Array]
) -> tuple[Array, Array, float, Array]:
    """Make a step of conjugate gradients.

    Args:
        weights: see ``reads_columns``.
        weighted: ``K W p``, (n,), p being the direction.
        length: how far to go along it.
        vectors: p, the prior's precision, ``P^-1`` of the preconditioner, the mean, and the gradient, (m,).

    Returns:
        Mean and gradient after the step, (m,), ``gradient^T P^-1 gradient`` and ``W P^-1 gradient``, (n,).

    """
    from forestmix.kernels import column_steps, csc

    dtype = weights.dtype
    rows, given = np.ascontiguousarray(weighted, dtype), [np.ascontiguousarray(part, dtype) for part in vectors]
    mean, gradient = np.empty((2, weights.shape[1]), dtype)

    arguments = (rows, dtype.type(length), *given, mean, gradient)
    if isinstance(weights, SparseColumnWeights):
        sums, totals = weights.over_columns(csc.conjugate_columns, 1, arguments, with_totals=True)
    else:
        sums, totals = _over_columns(weights, column_steps.conjugate_columns, 1, arguments, with_totals=True)
    return mean, gradient, float(totals[0]), sums[0]


def _over_columns(
    weights: DenseWeights, kernel: Callable[..., None], sums: int, arguments: tuple[Any, ...], *, with_totals: bool
) -> tuple[Array, Array]:
    """Run a kernel for dense weights as ``SparseColumnWeights.over_columns`` runs one for sparse ones."""
    from forestmix.kernels import threaded

    n, m = weights.shape
    count = threaded.threads(weights.array.size)
    cuts = threaded.even_cuts(m, count)
    parts = memory.empty((count, sums, apart(n, weights.dtype.itemsize)), weights.dtype)
    totals = totals_of(count)

    def call(t: int) -> Callable[[], object]:
        results = (parts[t], totals[t]) if with_totals else (parts[t],)
        return partial(kernel, cuts[t], cuts[t + 1], weights.array.T, *arguments, *results)

    threaded.run_all([call(t) for t in range(count)])
    found = parts[0, :, :n].copy() if count == 1 else parts[:, :, :n].sum(axis=0)
    return found, totals.sum(axis=0)


def _projection(sums: Array, absolute: bool, squared: bool) -> Projection:
    return Projection(sums[0], sums[1] if absolute else None, sums[-1] if squared else None)
