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
from forestmix.weights.dense import DenseWeights

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
    dense: ClassVar[bool] = True

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
        super().__init__((array.shape[0], array.shape[1]), np.dtype(np.float32 if single else np.float64))

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return int(self.namespace.count_nonzero(self.array))

    def prototype(self) -> Any:
        """Return an empty array in the library, precision and place of W."""
        return self.array[:0, 0]

    def _forward(self, batch: Any) -> Any:
        return batch @ self.namespace.matrix_transpose(self.array)

    def _adjoint(self, batch: Any) -> Any:
        return batch @ self.array

    def mapped(self, name: str) -> Weights:
        """Return the weights after an entry map, which are kept if they are small."""
        return super().mapped(name) if self.stored * self.dtype.itemsize <= KEPT else self._with_map(name)

    def _with_map(self, name: str) -> Weights:
        if name == "double":  # which a device need not have
            return DenseWeights(host(self.array).astype(np.float64), trusted=True)
        # Not through __init__: a check of every entry would be a second reading, and wait for the device.
        weights = copy(self)
        vars(weights).pop("_kept", None)
        entry_map = {"abs": self.namespace.abs, "square": self.namespace.square, "support": self._indicator}[name]
        weights.array = entry_map(self.array)
        return weights

    def _indicator(self, array: Any) -> Any:
        return self.namespace.astype(array != 0, array.dtype)

    def _product(self, product: Callable[..., Any], name: str, values: Any, size: int, length: int) -> Any:
        """Return the products with vectors in the library, precision and place of W."""
        values = self.namespace.asarray(values, dtype=self.array.dtype, device=self.device)
        self._check_vectors(name, tuple(values.shape), length)
        return product(values)

    def take_rows(self, indices: ArrayLike) -> ArrayWeights:
        """Return the chosen rows as weights, on the same device."""
        return ArrayWeights(self._chosen(indices))

    def dense_rows(self, indices: ArrayLike) -> Array:
        """Return the chosen rows as a NumPy array in float64; only they leave the device."""
        return host(self._chosen(indices)).astype(np.float64, copy=False)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T`` as a NumPy array."""
        return DenseWeights(host(self.array)).row_gram(scale)

    def _chosen(self, indices: ArrayLike) -> Any:
        chosen = as_indices("rows", indices, self.shape[0])
        return self.namespace.take(self.array, self.namespace.asarray(chosen, device=self.device), axis=0)

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        array = self.toarray()
        return scipy.sparse.csr_array(array if indices is None else array[indices])

    def toarray(self) -> Array:
        """Return W as a new NumPy array, copied from its device."""
        return host(self.array).copy()
