"""Sparse weights that are stored by columns, as they were given."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.memory import empty
from forestmix.small import few_entries
from forestmix.weights.base import Projection, Weights, as_indices
from forestmix.weights.sparse import SparseWeights
from forestmix.weights.storage import SparseStorage


class SparseColumnWeights(Weights):
    """A CSC array or matrix as weights, with no copy by rows.

    Its arrays are those of its transpose as CSR, which are shared on the same terms as those of ``SparseWeights``.

    Attributes:
        transposed: W^T, sparse weights.
    """

    def __init__(self, matrix: Any) -> None:
        try:
            transposed = SparseWeights(matrix.T)
        except ArgumentError:
            SparseWeights(matrix)  # says what is wrong in terms of W
            raise
        self._take(transposed)

    def _take(self, transposed: SparseWeights) -> None:
        self.transposed = transposed
        super().__init__((transposed.shape[1], transposed.shape[0]), transposed.dtype)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return self.transposed.nnz

    def _forward(self, batch: Array) -> Array:
        small = few_entries(self.shape)
        return self.transposed._adjoint(batch) if small else np.asarray(self.project(batch).linear)

    def _adjoint(self, batch: Array) -> Array:
        small = few_entries(self.shape)
        return self.transposed._forward(batch) if small else np.asarray(self.collect(batch).linear)

    def __abs__(self) -> SparseColumnWeights:
        return _transpose_of(abs(self.transposed))

    def square(self) -> SparseColumnWeights:
        """Return the weights w_ij^2."""
        return _transpose_of(self.transposed.square())

    def support(self) -> SparseColumnWeights:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return _transpose_of(self.transposed.support())

    def project(
        self, mean: Array | None, sd: Array | None = None, *, absolute: bool = False, squared: bool = False
    ) -> Projection:
        """Return the products in one pass over the entries, with no copy of them."""
        if few_entries(self.shape):
            return super().project(mean, sd, absolute=absolute, squared=squared)
        spread = sd if absolute else None
        variance = np.square(sd) if squared and sd is not None else None
        if mean is None or any(part is not None and len(part) != 1 for part in (mean, spread, variance)):
            return self.transposed.collect(mean, spread, variance)
        return self._project_one(mean, spread, variance)

    def _project_one(self, mean: Array, spread: Array | None, variance: Array | None) -> Projection:
        """Return the products of one observation: each thread adds up its own columns."""
        from forestmix.engines.compiled import csc

        vectors = (mean if part is None else part for part in (mean, spread, variance))
        given = [np.ascontiguousarray(part[0], self.dtype) for part in vectors]
        wanted = (spread is not None, variance is not None)
        parts, reach, _ = self.over_columns(csc.project_columns, 1 + sum(wanted), (*given, *wanted))
        sums = self.added_up(parts, reach, 1 + sum(wanted))
        return Projection(sums[:1], sums[1:2] if wanted[0] else None, sums[-1:] if wanted[1] else None)

    def collect(self, error: Array | None, absolute: Array | None = None, squared: Array | None = None) -> Projection:
        """Return the products in one pass over the entries, with no copy of them."""
        if few_entries(self.shape):
            return super().collect(error, absolute, squared)
        from forestmix.engines.compiled import csc, threaded

        (n, m), given = self.shape, (error, absolute, squared)
        factors = [
            np.empty((n, 0), self.dtype) if part is None else np.ascontiguousarray(np.asarray(part, self.dtype).T)
            for part in given
        ]
        out = [np.empty((m, part.shape[1]), self.dtype) for part in factors]
        cuts = self.transposed.row_cuts(threaded.threads(self.nnz * max(part.shape[1] for part in factors)))
        arguments = (*self.transposed.csr_arrays(), *factors, *out)
        threaded.run_all([partial(csc.collect_columns, *bounds, *arguments) for bounds in pairwise(cuts)])
        pairs = zip(given, out, strict=True)
        return Projection(*(None if part is None else np.ascontiguousarray(total.T) for part, total in pairs))

    def over_columns(self, kernel: Any, sums: int, arguments: tuple[Any, ...]) -> tuple[Array, Array, Array]:
        """Run a kernel of ``kernels.csc``, each thread on its own columns.

        Args:
            kernel: takes ranges, the arrays of W, the arguments, an array for its sums over rows, and one for totals.
            sums: how many sums over a row there are.
            arguments: of the kernel.

        Returns:
            The row sums of each thread, (threads, n, ``csr.stride(sums)``), the rows it has sums for, from and to
            before, (threads, 2), and the totals of all, (3,).

        """
        from forestmix.engines.compiled import csr, threaded

        count, n, W = threaded.threads(self.nnz), self.shape[0], self.transposed
        cuts, reach = W.row_cuts(count), W.reach(count)
        parts, totals = empty((count, n, csr.stride(sums)), self.dtype), np.zeros((count, 3))
        threaded.run_all([
            partial(
                kernel, cuts[t], cuts[t + 1], *reach[t].tolist(), *W.csr_arrays(), *arguments, parts[t], totals[t]
            )
            for t in range(count)
        ])  # fmt: skip
        return parts, reach, totals.sum(axis=0)

    def added_up(self, parts: Array, reach: Array, sums: int) -> Array:
        """Return the row sums of all threads, (sums, n); the arguments are as ``over_columns`` has them."""
        from forestmix.engines.compiled import threaded, vectors

        n, none = self.shape[0], np.empty(0, self.dtype)
        found, ranges = empty((sums, n), self.dtype), threaded.even_cuts(n, threaded.threads(parts.size))
        threaded.run_all([
            partial(vectors.add_up, *bounds, parts, True, reach, none, False, found) for bounds in pairwise(ranges)
        ])  # fmt: skip
        return found

    def storage(self) -> SparseStorage:
        """Return the three arrays of ``W^T`` as CSR."""
        return self.transposed.storage()._replace(transposed=True)

    def take_rows(self, indices: ArrayLike) -> SparseColumnWeights:
        """Return the chosen rows as weights, by columns too."""
        return SparseColumnWeights(self.columns()[as_indices("rows", indices, self.shape[0])])

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W``."""
        return self.transposed.row_gram(kappa)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T``."""
        return self.transposed.gram(scale)

    def toarray(self) -> Array:
        """Return W as a new dense array."""
        return self.columns().toarray()

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        return self.transposed.rows(indices).T

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        return self.transposed.columns(indices).T


def _transpose_of(transposed: SparseWeights) -> SparseColumnWeights:
    weights = SparseColumnWeights.__new__(SparseColumnWeights)
    weights._take(transposed)
    return weights
