"""Fused passes: everything that a step needs from W, in one reading of it.

A pass serves one observation, for weights that are dense or sparse and families that have a compiled form. What has no
fused pass takes two: ``Weights.project`` before the row terms and ``Weights.collect`` after them, as batches do, whose
matrix products use each entry of W many times anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forestmix import memory, vectors
from forestmix.arrays import Array, inner
from forestmix.small import few_entries
from forestmix.weights import DenseWeights, SparseWeights, Weights

if TYPE_CHECKING:  # kernels are imported where they are used: Numba takes a second to load
    from forestmix.engines.compiled.rows import RowTable


#: Bytes between what two threads write to. The processor fetches ahead of where a thread is, beyond the end of its
#: sums, and so takes lines away from a thread whose sums begin there: 5 to 10 % of a pass.
APART = 4096


@dataclass(frozen=True)
class Pass:
    """Sums over the rows of a layer, and the rows' own terms, for each observation of a batch.

    ``value``: sum of the rows' expected log-likelihoods, (N,); ``magnitude``: size of the terms in it, which sets its
    rounding; ``gradient``: its slope in the means, (N, m); ``curvature``: ``D``, and ``exact``:
    ``H_j = sum_i w_ij^2 kappa_i``, (N or 1, m), each ``None`` where it was not asked for; ``eta``: the row means,
    (N, n); ``error`` and ``kappa``: ``e`` and ``kappa`` of each row.
    """

    value: Array
    magnitude: Array
    gradient: Array
    curvature: Array | None
    exact: Array | None
    eta: Array
    error: Array
    kappa: Array


class Parts(NamedTuple):
    """What threads have added up, each over rows of its own.

    ``sums``: (threads, m or more, sums or 4) for sparse weights, (threads, sums, m or more) for others; ``reach``: the
    latents that a thread has sums for, from and to before, (threads, 2). The others have no entries in its rows.
    """

    sums: Array
    reach: Array


def has_fused_pass(weights: Weights) -> bool:
    """Return whether a kernel reads these weights; a block cut from a larger array is left to BLAS."""
    if isinstance(weights, DenseWeights):
        return weights.array.flags.c_contiguous or weights.array.flags.f_contiguous
    return isinstance(weights, SparseWeights)


def fused_pass(
    weights: Weights, bias: Array, table: RowTable, mean: Array, sd: Array, spread: str | None,
    *, curvature: bool, exact: bool,
) -> Pass:  # fmt: skip
    """Return the site statistics of one observation.

    Args:
        weights: dense or sparse, see ``has_fused_pass``.
        bias: of each row, (n,), or one for all.
        table: the rows with their data.
        mean: of the factors, (m,).
        sd: of the factors, (m,).
        spread: what enters the row terms: "fm" for ``sum_j |w_ij| sigma_j``, "elbo" for
            ``sqrt(sum_j w_ij^2 sigma_j^2)``, ``None`` for 0, where curvature is constant.
        curvature: whether to return ``D_j = (1 / sigma_j) sum_i |w_ij| s_i kappa_i``.
        exact: whether to return ``H_j = sum_i w_ij^2 kappa_i``.

    """
    from forestmix.engines.compiled import csr, dense, settling
    from forestmix.engines.compiled.rows import BERNOULLI

    rows = (bias, table.kind[0], table.x[0], table.scale, table.constant[0])
    # One block: large ones get large pages from NumPy, and small pages would be mapped one by one during the pass.
    terms = tuple(memory.empty((3, weights.shape[0]), weights.dtype))
    if not isinstance(weights, SparseWeights):
        vectors: tuple[Array, ...] = (np.ascontiguousarray(mean), np.ascontiguousarray(sd))
    else:
        vectors = (np.stack([mean, sd], axis=1, out=memory.empty((len(mean), 2), weights.dtype)),)
    costly = spread is not None and table.family in (BERNOULLI, None)
    kernels: tuple[Any, Any, Any] = (
        csr.pass_rows if spread is None else csr.pass_together,
        dense.pass_together if costly else dense.pass_rows,
        dense.pass_columns,
    )
    sums = 1 + curvature + exact
    given = (*rows, *vectors, settling.SPREADS[spread], curvature, exact, *terms)
    parts, totals = _over_ranges(weights, kernels, sums, given)
    out = _added_up(weights, parts, sd, curvature, sums)
    return Pass(
        totals[:1], totals[1:], out[:1],
        out[1:2] if curvature else None, out[-1:] if exact else None,
        *(term[None] for term in terms),
    )  # fmt: skip


def settle_rows(bias: Array, table: RowTable, eta: Array, spread: Array | None) -> tuple[Array, Array, Array, Array]:
    """Return value and magnitude, (N,), and ``error`` and ``kappa``, (N, n), of rows whose means are known.

    ``spread`` is (N or 1, n), or ``None`` for 0.
    """
    from forestmix.engines.compiled import settling, threaded

    shape, dtype = eta.shape, eta.dtype
    error, kappa = memory.empty(shape, dtype), memory.empty(shape, dtype)
    totals = threaded.summed(
        settling.settle_rows, shape, 2, table.kind, table.x, table.scale, table.constant, bias, eta,
        np.empty((0, 0), dtype) if spread is None else spread, error, kappa,
        entries=entries_of_row(table, spread is not None),
    )  # fmt: skip
    return totals[:, 0], totals[:, 1], error, kappa


def entries_of_row(table: RowTable, spread: bool) -> int:
    """Return how many entries of W take as long as the terms of a row, which a spread enters or not."""
    from forestmix.engines.compiled import threaded
    from forestmix.engines.compiled.rows import POISSON

    if not spread:
        return threaded.ENTRIES
    return threaded.ENTRIES_OF_EXPONENTIAL if table.family == POISSON else threaded.ENTRIES_OF_EXPECTATION


def curvatures(weights: Weights, sd: Array, kappa: Array, *, curvature: bool, exact: bool) -> Pass:
    """Return ``D`` and ``H`` at given ``kappa``, (n,): a pass over Gaussian rows that have it."""
    from forestmix.engines.compiled import rows

    n, m = weights.shape
    nothing, x = np.zeros((1, 1)), np.zeros((1, n), weights.dtype)
    kind = np.full((1, 1), rows.GAUSSIAN, np.int8)
    table = rows.RowTable(kind, x, np.sqrt(kappa, dtype=np.float64), nothing)
    mean = np.zeros(m, weights.dtype)
    return fused_pass(weights, x[0, :1], table, mean, sd, None, curvature=curvature, exact=exact)


def normal_parts(weights: Weights, direction: Array, kappa: Array) -> tuple[Parts, Array]:
    """Return ``W^T diag(kappa) W p`` and ``(W p)^T diag(kappa) W p``.

    It is what conjugate gradients ask of W. For one vector it takes one reading of W, where two products take two.

    Args:
        weights: any.
        direction: the vectors p, (N, m).
        kappa: (N or 1, n).

    Returns:
        Parts that are still to be added up, (threads, N, m or more), and (N,).

    """
    if len(direction) > 1 or not has_fused_pass(weights) or few_entries(weights.shape):
        rows = weights.forward(direction)
        weighted = rows * kappa
        return Parts(weights.adjoint(weighted)[None], _all_latents(weights, 1)), inner(rows, weighted)
    from forestmix.engines.compiled import csr, dense

    given = (np.ascontiguousarray(direction[0]), np.ascontiguousarray(kappa[0], weights.dtype))
    kernels = (csr.normal_rows, dense.normal_rows, dense.normal_columns)
    parts, totals = _over_ranges(weights, kernels, 1, given)
    return Parts(parts.sums.reshape(len(parts.sums), 1, -1), parts.reach), totals[:1]


def normal_image(weights: Weights, direction: Array, kappa: Array, precision: Array) -> tuple[Array, Array]:
    """Return ``A p``, (N, m), and ``p^T A p``, (N,), with ``A = diag(precision) + W^T diag(kappa) W``."""
    parts, form = normal_parts(weights, direction, kappa)
    image, prior = vectors.add_image(parts, direction, precision)
    return image, form + prior


def _over_ranges(
    weights: Weights, kernels: tuple[Any, Any, Any], sums: int, arguments: tuple[Any, ...]
) -> tuple[Parts, Array]:
    """Run the kernel for these weights, each thread on its own rows, and return the sums of each, and totals, (2,).

    The kernels are those for sparse, row-major and column-major weights.
    """
    from forestmix.engines.compiled import csr, threaded

    m = weights.shape[1]
    if isinstance(weights, SparseWeights):
        count = threaded.threads(weights.nnz)
        kernel, cuts, side_by_side = kernels[0], weights.row_cuts(count), csr.stride(sums)
        matrix: tuple[Array, ...] = weights.csr_arrays()
        reach = weights.reach(count)
        ranges: list[tuple[int, ...]] = [(cuts[t], cuts[t + 1], *reach[t].tolist()) for t in range(count)]
        shape = (count, apart(m, side_by_side * weights.dtype.itemsize), side_by_side)
    else:
        assert isinstance(weights, DenseWeights)
        count, by_rows = threaded.threads(weights.array.size), weights.array.flags.c_contiguous
        kernel, matrix = (kernels[1], (weights.array,)) if by_rows else (kernels[2], (weights.array.T,))
        cuts, shape = threaded.even_cuts(weights.shape[0], count), (count, sums, apart(m, weights.dtype.itemsize))
        reach, ranges = _all_latents(weights, count), list(pairwise(cuts))
    parts, totals = Parts(memory.empty(shape, weights.dtype), reach), totals_of(count)
    threaded.run_all([
        partial(kernel, *ranges[t], *matrix, *arguments, parts.sums[t], totals[t]) for t in range(count)
    ])  # fmt: skip
    return parts, totals.sum(axis=0)


def _all_latents(weights: Weights, count: int) -> Array:
    """Return the reach of threads whose rows may have entries everywhere."""
    return np.array([(0, weights.shape[1])] * count)


def apart(length: int, size: int) -> int:
    """Return how many things of ``size`` bytes to make room for, so that what follows ``length`` of them is apart."""
    return length + -(-APART // size)


def totals_of(count: int, number: int = 2) -> Array:
    """Return so many totals for each thread, 0, (count, number)."""
    return np.zeros((count, apart(number, 8)))[:, :number]


def _added_up(weights: Weights, parts: Parts, sd: Array, curvature: bool, sums: int) -> Array:
    """Return what the threads have added up, (sums, m), with ``D`` in the place of ``D sigma``."""
    from forestmix.engines.compiled import threaded, vectors

    m, side_by_side, spread = weights.shape[1], isinstance(weights, SparseWeights), np.ascontiguousarray(sd)
    count = threaded.threads(m * sums * len(parts.sums))
    out, cuts = memory.empty((sums, m), weights.dtype), threaded.even_cuts(m, count)
    threaded.run_all([
        partial(vectors.add_up, low, high, parts.sums, side_by_side, parts.reach, spread, curvature, out)
        for low, high in pairwise(cuts)
    ])  # fmt: skip
    return out
