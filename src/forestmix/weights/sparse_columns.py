"""Sparse weights that are stored by columns, as they were given."""

from __future__ import annotations

from typing import Any

import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights, as_indices
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
        self._set(transposed)

    def _set(self, transposed: SparseWeights) -> None:
        self.transposed = transposed
        super().__init__((transposed.shape[1], transposed.shape[0]), transposed.dtype)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return self.transposed.nnz

    def _forward(self, batch: Array) -> Array:
        return self.transposed._adjoint(batch)

    def _adjoint(self, batch: Array) -> Array:
        return self.transposed._forward(batch)

    def __abs__(self) -> SparseColumnWeights:
        return _transpose_of(abs(self.transposed))

    def square(self) -> SparseColumnWeights:
        """Return the weights w_ij^2."""
        return _transpose_of(self.transposed.square())

    def support(self) -> SparseColumnWeights:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return _transpose_of(self.transposed.support())

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
    weights._set(transposed)
    return weights
