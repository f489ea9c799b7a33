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
    storage: Any, table: RowTable, bias: Array, mean: Array, sd: Array,
    *, spreads: bool, spread: int, sums: int,
) -> Found:  # fmt: skip
    """Make a pass for one observation; how many ``sums`` over rows: none, the gradient's, or all three.

    ``spreads``: whether to multiply with ``sd``; ``spread``: which of the two enters the rows (``compiled.rows``).
    """
    dtype, m, compute = mean.dtype, len(mean), terms_for(table)
    heavy = 0 if compute is None else threaded.ENTRIES_OF_ROW
    dense = isinstance(storage, DenseStorage)
    if isinstance(storage, DenseStorage):
        n = storage.array.shape[1 if storage.transposed else 0]
        cuts = threaded.even_cuts(n, threaded.threads(storage.array.size + heavy * n))
        kernel, shape = _dense_kernel(storage, mean, sd), (sums, m)
    else:
        n = len(storage.indptr) - 1
        cuts = entry_cuts(storage.indptr, threaded.threads(len(storage.data) + heavy * n))
        kernel, shape = _sparse_kernel(storage, mean, sd), (m if sums else 0, 4 if sums == 3 else 1)
    terms = tuple(np.empty(n, dtype) for _ in range(3))
    parts, totals = np.empty((len(cuts) - 1, *shape), dtype), np.zeros((len(cuts) - 1, 2))
    threaded.run_all([
        partial(kernel, *cut, table, bias, spreads, spread, *terms, compute, new_workspace(), own, total)
        for cut, own, total in zip(pairwise(cuts), parts, totals, strict=True)
    ])  # fmt: skip
    added = parts[0] if len(parts) == 1 else parts.sum(axis=0)
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
