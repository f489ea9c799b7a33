"""Steps over a W that lies by columns, dense or sparse, that read it once, each thread on columns of its own.

See ``kernels.column_steps`` for how. What stands here are steps of one observation: a plain forest mixture step, and
one of conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from forestmix import memory
from forestmix.arrays import Array
from forestmix.passes import Parts, apart, entries_of_row, totals_of
from forestmix.small import few_entries
from forestmix.steps import Step, StepArrays
from forestmix.weights import DenseWeights, SparseColumnWeights, Weights
from forestmix.weights.base import Projection

if TYPE_CHECKING:  # kernels are imported where they are used: Numba takes a second to load
    from forestmix.kernels.rows import RowTable

ByColumns = DenseWeights | SparseColumnWeights

#: Bytes of a tile of columns that the last-level cache keeps for its second use.
KEPT = 6 * 2**20


class RowSums(NamedTuple):
    """What threads have added up for each row, over columns of their own: ``W mean``, and the spreads asked for.

    ``absolute`` and ``squared`` say whether ``|W| sd`` and ``(W∘W) sd^2`` are among the parts.
    """

    parts: Parts
    absolute: bool
    squared: bool

    def added_up(self, weights: ByColumns) -> Projection:
        """Return the sums of all threads, (n,)."""
        (parts, reach), n = self.parts, weights.shape[0]
        if isinstance(weights, SparseColumnWeights):
            sums = weights.added_up(parts, reach, 1 + self.absolute + self.squared)
        else:
            sums = parts[0, :, :n].copy() if len(parts) == 1 else parts[:, :, :n].sum(axis=0)
        return Projection(sums[0], sums[1] if self.absolute else None, sums[-1] if self.squared else None)


class Settled(NamedTuple):
    """Rows at a point: what of ``passes.Pass`` they give, (1,) and (n,), and what columns are multiplied with.

    ``terms``: ``s kappa``, (n,), for dense weights; for sparse ones what ``kernels.csc`` asks for, side by side.
    """

    value: Array
    magnitude: Array
    eta: Array
    error: Array
    kappa: Array
    terms: Array


def reads_columns(weights: Weights) -> TypeGuard[ByColumns]:
    """Return whether the entries of a column are neighbours, those of a row are not, and steps over columns pay.

    They do not where a few columns are more than the cache keeps for their second use, and all columns of a block of
    rows are less (``kernels.dense.block_rows``): then a pass is what reads W once.
    """
    if few_entries(weights.shape):
        return False
    if isinstance(weights, SparseColumnWeights):
        return True
    if not isinstance(weights, DenseWeights) or weights.array.flags.c_contiguous:
        return False
    return weights.array.flags.f_contiguous and not _is_tall(weights)


def _is_tall(weights: DenseWeights) -> bool:
    from forestmix.kernels.dense import CACHED, SHORTEST
    from forestmix.kernels.lines import ROWS

    n, m = weights.shape
    size = weights.dtype.itemsize
    return ROWS * n * size > KEPT and SHORTEST * m * size <= CACHED


def project(weights: ByColumns, mean: Array, sd: Array, *, absolute: bool, squared: bool) -> RowSums:
    """Return ``W mean``, and of ``|W| sd`` and ``(W∘W) sd^2`` what is asked for, in one reading."""
    from forestmix.kernels import column_steps, csc

    mean, sd = np.ascontiguousarray(mean), np.ascontiguousarray(sd)
    if isinstance(weights, SparseColumnWeights):
        given: tuple[Any, ...] = (mean, sd, np.square(sd) if squared else sd, absolute, squared)
        parts, _ = _over_columns(weights, csc.project_columns, 1 + absolute + squared, given)
    else:
        given = (mean, sd, absolute, squared)
        parts, _ = _over_columns(weights, column_steps.project_columns, 1 + absolute + squared, given)
    return RowSums(parts, absolute, squared)


def column_image(weights: ByColumns, vector: Array) -> Array:
    """Return ``W vector``, (n,)."""
    return np.asarray(project(weights, vector, vector, absolute=False, squared=False).added_up(weights).linear)


def settle(
    weights: ByColumns, rows: RowTable, bias: Array, sums: RowSums, spread: str | None, *, exact: bool
) -> Settled:
    """Return the terms of rows whose sums are known, and what a step multiplies its columns with.

    Args:
        weights: see ``reads_columns``.
        rows: of one observation.
        bias: of each row, (n,), or one for all.
        sums: those that are needed here.
        spread: what enters the row terms, as in ``passes.fused_pass``.
        exact: whether the step is to compute H.

    """
    from forestmix.kernels import column_steps, csc, settling, threaded

    n, dtype = weights.shape[0], weights.dtype
    eta, error, kappa = memory.empty((3, n), dtype)
    kernel: Callable[..., None] = column_steps.settle_parts
    shape: tuple[int, ...] = (n,)
    if isinstance(weights, SparseColumnWeights):
        kernel, shape = csc.settle_parts, (n, 4 if exact else 2)
    terms = memory.empty(shape, dtype)
    totals = threaded.summed(
        kernel, (1, n), 2, *sums.parts, sums.absolute, bias, rows.kind[0], rows.x[0], rows.scale, rows.constant[0],
        settling.SPREADS[spread], eta, error, kappa, terms,
        entries=entries_of_row(rows, spread is not None),
    )  # fmt: skip
    return Settled(totals[:, 0], totals[:, 1], eta, error, kappa, terms)


def column_step(weights: ByColumns, rows: Settled, arrays: StepArrays, ahead: tuple[bool, bool]) -> Step:
    """Make a forest mixture step from row terms.

    Args:
        weights: see ``reads_columns``.
        rows: their terms; settled with ``exact`` if H is to be computed.
        arrays: of the step.
        ahead: whether ``|W| sd`` and ``(W∘W) sd^2`` are wanted where the step leads.

    """
    from forestmix.kernels import column_steps, csc

    given = (*arrays.begin, *ahead, *arrays.end)
    if isinstance(weights, SparseColumnWeights):
        parts, totals = _over_columns(weights, csc.step_columns, 1 + sum(ahead), (rows.terms, *given))
    else:
        terms = (rows.error, rows.terms, rows.kappa)
        parts, totals = _over_columns(weights, column_steps.step_columns, 1 + sum(ahead), (*terms, *given))
    return arrays.step(totals, RowSums(parts, *ahead))


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
    mean, gradient = memory.empty((2, weights.shape[1]), dtype)

    arguments = (rows, dtype.type(length), *given, mean, gradient)
    kernel = csc.conjugate_columns if isinstance(weights, SparseColumnWeights) else column_steps.conjugate_columns
    parts, totals = _over_columns(weights, kernel, 1, arguments)
    return mean, gradient, float(totals[0]), RowSums(parts, False, False).added_up(weights).linear


def _over_columns(
    weights: ByColumns, kernel: Callable[..., None], sums: int, arguments: tuple[Any, ...]
) -> tuple[Parts, Array]:
    """Run a kernel for these weights, each thread on its own columns; return the row sums of each, and totals, (3,)."""
    from forestmix.kernels import threaded

    if isinstance(weights, SparseColumnWeights):
        parts, reach, totals = weights.over_columns(kernel, sums, arguments)
        return Parts(parts, reach), totals
    n, m = weights.shape
    count = threaded.threads(weights.array.size)
    cuts = threaded.even_cuts(m, count)
    parts = memory.empty((count, sums, apart(n, weights.dtype.itemsize)), weights.dtype)
    totals = totals_of(count, 3)
    threaded.run_all([
        partial(kernel, cuts[t], cuts[t + 1], weights.array.T, *arguments, parts[t], totals[t]) for t in range(count)
    ])  # fmt: skip
    return Parts(parts, np.array([(0, n)] * count)), totals.sum(axis=0)
