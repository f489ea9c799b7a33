"""One pass over W on threads: each takes a range of rows and has sums of its own, which are added up in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import dense, sparse, threaded
from forestmix.engines.compiled.products import entry_cuts
from forestmix.engines.compiled.rows import RowTable
from forestmix.weights.storage import DenseStorage, SparseStorage

#: A kernel, its factors, the shape of its sums, and where to cut the rows for threads.
Prepared = tuple[Any, Array, tuple[int, int], list[int]]


class Found(NamedTuple):
    """What a pass gives: totals (value and its size), sums over rows, (m,) each, and terms of the rows, (n,) each."""

    totals: Array
    sums: Array
    eta: Array
    error: Array
    kappa: Array


def has_pass(storage: Any) -> bool:
    """Return whether rows can be multiplied and added up while they are in the cache."""
    if isinstance(storage, DenseStorage):
        return bool(storage.array.flags.c_contiguous)
    return isinstance(storage, SparseStorage) and not storage.transposed


def one_pass(storage: Any, table: RowTable, mean: Array, sd: Array, *, spreads: bool, spread: int, sums: int) -> Found:
    """Make a pass for one observation; how many ``sums`` over rows: none, the gradient's, that and D's, or all three.

    ``spreads``: whether to multiply with ``sd``; ``spread``: which of the two enters the rows (``compiled.rows``).
    """
    kernel, factors, shape, cuts = (_dense if isinstance(storage, DenseStorage) else _sparse)(
        storage, mean, sd, sums, 0 if table.curvature_is_constant else threaded.ENTRIES_OF_ROW
    )
    found = tuple(np.empty(cuts[-1], mean.dtype) for _ in range(3))
    # Kernels begin with zeros in their sums: of many latents that takes a while, and so each thread does its own.
    parts, totals = np.empty((len(cuts) - 1, *shape), mean.dtype), np.zeros((len(cuts) - 1, 2))
    given = table.observation(0), factors, spreads, spread, found, table.terms
    threaded.over_ranges(kernel, cuts, *storage[:-1], *given, parts=(parts, totals))
    all_sums = threaded.total(parts)
    # Those of a sparse W are interleaved, those of a dense one may have latents that are not there at the end.
    rows = all_sums[:, : len(mean)] if isinstance(storage, DenseStorage) else all_sums.T
    return Found(totals.sum(axis=0), rows, *found)


def normal_pass(storage: SparseStorage, kappa: Array, p: Array) -> tuple[Array, Array]:
    """Return ``W^T K W p`` and ``p^T W^T K W p`` of one vector over a sparse W by rows, with an axis before each."""
    cuts = entry_cuts(storage.indptr, threaded.threads(len(storage.data)))
    parts, totals = np.empty((len(cuts) - 1, len(p)), p.dtype), np.empty((len(cuts) - 1, 1))
    threaded.over_ranges(sparse.normal_rows, cuts, *storage[:-1], kappa, p, parts=(parts, totals))
    return threaded.total(parts)[np.newaxis], totals.sum(axis=0)


def _dense(storage: DenseStorage, mean: Array, sd: Array, sums: int, heavy: int) -> Prepared:
    """Return what a pass over a dense W needs; a row takes as long as ``heavy`` entries."""
    n, m = storage.array.shape[::-1] if storage.transposed else storage.array.shape
    # By columns the last tile is whole, with latents that are not there.
    width = m + dense.ROWS if storage.transposed else m
    factors = np.zeros((3, width), mean.dtype)
    factors[0, :m], factors[1, :m], factors[2, :m] = mean, sd, sd * sd
    cuts = threaded.even_cuts(n, threaded.threads(storage.array.size + heavy * n))
    shape = (3 if sums > 1 else sums, width)
    if storage.transposed:
        return dense.pass_columns, factors, shape, cuts
    return dense.pass_rows, factors, shape, cuts


def _sparse(storage: SparseStorage, mean: Array, sd: Array, sums: int, heavy: int) -> Prepared:
    """Return what a pass over a sparse W by rows needs."""
    n = len(storage.indptr) - 1
    cuts = entry_cuts(storage.indptr, threaded.threads(len(storage.data) + heavy * n))
    return sparse.pass_rows, np.stack([mean, sd], axis=1), (len(mean), sums), cuts
