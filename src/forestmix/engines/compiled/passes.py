"""One pass over W on threads: each takes a range of rows and has sums of its own, which are added up in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import threaded
from forestmix.engines.compiled.products import entry_cuts
from forestmix.engines.compiled.rows import RowTable, new_workspace, terms_for
from forestmix.weights.storage import DenseStorage, SparseStorage


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


def one_pass(
    storage: DenseStorage | SparseStorage, table: RowTable, bias: Array, mean: Array, sd: Array,
    *, spreads: bool, spread: int, sums: int,
) -> Found:  # fmt: skip
    """Make a pass for one observation; how many ``sums`` over rows: none, the gradient's, or all three.

    ``spreads``: whether to multiply with ``sd``; ``spread``: which of the two enters the rows (``compiled.rows``).
    """
    dense = isinstance(storage, DenseStorage)
    dtype, m = mean.dtype, len(mean)
    n = storage.array.shape[1 if storage.transposed else 0] if dense else len(storage.indptr) - 1
    entries = storage.array.size if dense else len(storage.data)
    compute = terms_for(table)
    count = threaded.threads(entries + (0 if compute is None else threaded.ENTRIES_OF_ROW * n))
    cuts = threaded.even_cuts(n, count) if dense else entry_cuts(storage.indptr, count)
    terms = tuple(np.empty(n, dtype) for _ in range(3))
    kernel = _dense_kernel(storage, mean, sd) if dense else _sparse_kernel(storage, mean, sd)
    parts = np.empty((count, sums, m) if dense else (count, m if sums else 0, {0: 1, 1: 1, 3: 4}[sums]), dtype)
    totals = np.zeros((count, 2))
    threaded.run_all([
        partial(kernel, *cut, table, bias, spreads, spread, *terms, compute, new_workspace(), own, total)
        for cut, own, total in zip(pairwise(cuts), parts, totals, strict=True)
    ])  # fmt: skip
    added = parts[0] if count == 1 else parts.sum(axis=0)
    return Found(totals.sum(axis=0), added if dense else added.T, *terms)


def _dense_kernel(storage: DenseStorage, mean: Array, sd: Array) -> Callable[..., None]:
    from forestmix.engines.compiled import dense

    kernel = dense.pass_columns if storage.transposed else dense.pass_rows

    def run(first: int, last: int, table: RowTable, bias: Array, *rest: Any) -> None:
        kernel(first, last, storage.array, table, bias, mean, sd, *rest)

    return run


def _sparse_kernel(storage: SparseStorage, mean: Array, sd: Array) -> Callable[..., None]:
    from forestmix.engines.compiled import sparse

    factors = np.stack([mean, sd], axis=1)

    def run(first: int, last: int, table: RowTable, bias: Array, *rest: Any) -> None:
        sparse.pass_rows(first, last, *storage[:3], table, bias, factors, *rest)

    return run
