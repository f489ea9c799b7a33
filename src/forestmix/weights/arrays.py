"""Dense weights in an array of another library, which stays on its device."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import array_api_compat
import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, host
from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights, as_indices
from forestmix.weights.checks import check_matrix_shape
from forestmix.weights.dense import DenseWeights, dense_of

#: Bytes of entries that are kept.
KEPT = 2**26


class ArrayWeights(Weights):
    """A dense array of PyTorch, JAX, CuPy or any library of the array API standard, as weights.

    Products take arrays of that library and return them. ``|W|`` and ``W∘W`` are kept once they have been asked for, up
    to ``KEPT`` bytes each; larger ones are made anew, and need memory for a second W while a product lasts.

    Attributes:
        array: W itself, (n, m).
        namespace: the library's functions, as the standard names them.
        device: where W is.
    """

    on_device: ClassVar[bool] = True

    def __init__(self, array: Any) -> None:
        self.namespace = array_api_compat.array_namespace(array)
        self.device = array_api_compat.device(array)
        single, double = array.dtype == self.namespace.float32, array.dtype == self.namespace.float64
        if not (single or double):
            raise ArgumentError(f"W must hold float32 or float64 numbers; got dtype {array.dtype}.")
        check_matrix_shape("W", tuple(array.shape))
        if not bool(self.namespace.all(self.namespace.isfinite(array))):
            raise ArgumentError("W must be finite; got entries that are not.")
        self.array = array
        self._kept: dict[str, ArrayWeights] = {}
        super().__init__((array.shape[0], array.shape[1]), np.dtype(np.float32 if single else np.float64))

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return int(self.namespace.count_nonzero(self.array))

    def prototype(self) -> Any:
        """Return an empty array in the library, precision and place of W."""
        return self.array[:0, 0]

    def forward(self, y: Any) -> Any:
        """Return W y for each vector of ``y``: (..., m) -> (..., n)."""
        return self._forward(self._given("y", y, self.shape[1]))

    def adjoint(self, r: Any) -> Any:
        """Return W^T r for each vector of ``r``: (..., n) -> (..., m)."""
        return self._adjoint(self._given("r", r, self.shape[0]))

    def _forward(self, batch: Any) -> Any:
        return batch @ self.namespace.matrix_transpose(self.array)

    def _adjoint(self, batch: Any) -> Any:
        return batch @ self.array

    def __abs__(self) -> ArrayWeights:
        return self._mapped("absolute", lambda: self.namespace.abs(self.array))

    def square(self) -> ArrayWeights:
        """Return the weights w_ij^2."""
        return self._mapped("square", lambda: self.array * self.array)

    def support(self) -> ArrayWeights:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return self._mapped("support", lambda: self.namespace.astype(self.array != 0, self.array.dtype))

    def _mapped(self, name: str, make: Callable[[], Any]) -> ArrayWeights:
        """Return the weights with other entries: those that were kept, or new ones."""
        if name in self._kept:
            return self._kept[name]
        # Not through __init__: a check of every entry would be a second reading, and wait for the device.
        weights = copy(self)
        weights.array, weights._kept = make(), {}
        if self.shape[0] * self.shape[1] * self.dtype.itemsize <= KEPT:
            self._kept[name] = weights
        return weights

    def _given(self, name: str, values: Any, length: int) -> Any:
        """Return vectors in the library, precision and place of W."""
        values = self.namespace.asarray(values, dtype=self.array.dtype, device=self.device)
        if values.ndim == 0 or values.shape[-1] != length:
            raise ArgumentError(
                f"{name} must have last dimension {length}, for weights of shape {self.shape}; "
                f"got an array of shape {tuple(values.shape)}."
            )
        return values

    @property
    def stored(self) -> int:
        """The number of entries that a product reads: all."""
        return self.shape[0] * self.shape[1]

    def like(self, row: Array, column: Array, value: Array) -> Any:
        """Return the matrix of these entries as a dense NumPy array."""
        return dense_of(self.shape, row, column, value)

    def take_rows(self, indices: ArrayLike) -> ArrayWeights:
        """Return the chosen rows as weights, on the same device."""
        return ArrayWeights(self._chosen(indices))

    def dense_rows(self, indices: ArrayLike) -> Array:
        """Return the chosen rows as a NumPy array in float64; only they leave the device."""
        return host(self._chosen(indices)).astype(np.float64, copy=False)

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W`` as a NumPy array."""
        return DenseWeights(host(self.array)).gram(kappa)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T`` as a NumPy array."""
        return DenseWeights(host(self.array)).row_gram(scale)

    def _chosen(self, indices: ArrayLike) -> Any:
        chosen = as_indices("rows", indices, self.shape[0])
        return self.namespace.take(self.array, self.namespace.asarray(chosen, device=self.device), axis=0)

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        array = self.toarray()
        return scipy.sparse.csc_array(array if indices is None else array[:, indices])

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        array = self.toarray()
        return scipy.sparse.csr_array(array if indices is None else array[indices])

    def toarray(self) -> Array:
        """Return W as a new NumPy array, copied from its device."""
        return host(self.array).copy()
