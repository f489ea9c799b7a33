"""Products of kernels, where W is read twice: before the rows and after them.

Convolutions have sums over the entries of their kernels, and one observation over a sparse W by columns a kernel for
each direction. All else has BLAS's and SciPy's products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import convolution, sparse, threaded
from forestmix.engines.products import Products, Three
from forestmix.weights.base import Weights
from forestmix.weights.storage import SparseStorage, StencilStorage


def products_of(weights: Weights, count: int) -> Products:
    """Return how products are made for so many observations."""
    storage = weights.storage()
    if isinstance(storage, StencilStorage):
        return StencilProducts(weights, storage)
    if isinstance(storage, SparseStorage) and storage.transposed and count == 1:
        return SparseColumnProducts(weights, storage)
    return Products(weights)


class StencilProducts(Products):
    """Products of a convolution, on threads that share no sum."""

    def __init__(self, weights: Weights, storage: StencilStorage) -> None:
        super().__init__(weights)
        self.storage, self.turned = storage, storage.turned()

    def project(self, vectors: Three) -> Three:
        """Return ``W y``, ``|W| y`` and ``(W∘W) y`` of those that are given."""
        return self._products(self.turned, vectors)

    def collect(self, rows: Three) -> Three:
        """Return ``W^T r``, ``|W|^T r`` and ``(W∘W)^T r`` of those that are given."""
        return self._products(self.storage, rows)

    def _products(self, storage: StencilStorage, parts: Three) -> Three:
        taps = convolution.make_taps(storage.kernels, storage.target[1:], storage.shifts)
        given = zip(parts, taps.values, strict=True)
        return Three(*(None if part is None else self._product(storage, taps, part, f) for part, f in given))

    def _product(self, storage: StencilStorage, taps: convolution.Taps, part: Array, f: Array) -> Array:
        # Writeable, or Numba would compile the kernel anew for arrays that are not.
        source = np.require(part, self.weights.dtype, ["C", "A", "W"]).reshape(len(part), *storage.source)
        result = np.empty((len(part), *storage.target), self.weights.dtype)
        count = threaded.threads(len(part) * taps.offsets.size * result[0, 0].size // convolution.CHEAP)
        cuts = threaded.even_cuts(len(part) * taps.bands * taps.groups, count)
        threaded.over_ranges(convolution.gather, cuts, taps, f, source, result)
        return result.reshape(len(part), -1)


class SparseColumnProducts(Products):
    """Products of a sparse W by columns with one vector each, in one reading of its entries."""

    def __init__(self, weights: Weights, storage: SparseStorage) -> None:
        super().__init__(weights)
        self.arrays = storage[:3]

    def project(self, vectors: Three) -> Three:
        """Return ``W y``, ``|W| y`` and ``(W∘W) y`` of those that are given."""
        return self._products(sparse.project_columns, self.weights.shape, vectors)

    def collect(self, rows: Three) -> Three:
        """Return ``W^T r``, ``|W|^T r`` and ``(W∘W)^T r`` of those that are given."""
        return self._products(sparse.collect_columns, self.weights.shape[::-1], rows)

    def _products(self, kernel: Any, shape: tuple[int, int], given: Three) -> Three:
        """Run a kernel over ranges of columns with about as many entries each, and add up what they give."""
        factors = np.zeros((shape[1], 3), self.weights.dtype)
        for k, part in enumerate(given):
            factors[:, k] = 0 if part is None else part[0]
        cuts = entry_cuts(self.arrays[0], threaded.threads(len(self.arrays[2])))
        wide = 1 if given.absolute is None and given.squared is None else 3
        parts = np.zeros((len(cuts) - 1, shape[0], wide), self.weights.dtype)
        threaded.over_ranges(kernel, cuts, *self.arrays, factors, parts=[parts])
        sums = threaded.total(parts).T
        return Three(*(None if part is None else sums[k : k + 1].copy() for k, part in enumerate(given)))


def entry_cuts(indptr: Array, count: int) -> list[int]:
    """Return rows at which to cut a CSR matrix into ``count`` ranges with about as many entries each."""
    entries = [int(indptr[-1]) * k // count for k in range(1, count)]
    return [0, *np.searchsorted(indptr, entries).tolist(), len(indptr) - 1]
