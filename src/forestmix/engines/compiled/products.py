"""Products of kernels, where W is read twice: before the rows and after them.

Convolutions have sums over the entries of their kernels, and one observation over a sparse W by columns a kernel for
each direction. All else has BLAS's and SciPy's products.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import threaded
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
        from forestmix.engines.compiled import convolution

        super().__init__(weights)
        turned = storage.turned()
        self.shapes = storage.target, storage.source
        self.gather = convolution.gather
        self.taps = (
            convolution.make_taps(turned.kernels, turned.target[1:], turned.shifts),
            convolution.make_taps(storage.kernels, storage.target[1:], storage.shifts),
        )

    def project(self, vectors: Three) -> Three:
        """Return ``W y``, ``|W| y`` and ``(W∘W) y`` of those that are given."""
        return self._products(0, vectors)

    def collect(self, rows: Three) -> Three:
        """Return ``W^T r``, ``|W|^T r`` and ``(W∘W)^T r`` of those that are given."""
        return self._products(1, rows)

    def _products(self, direction: int, parts: Three) -> Three:
        from forestmix.engines.compiled.convolution import CHEAP

        taps, source, target = self.taps[direction], self.shapes[direction], self.shapes[1 - direction]
        given = tuple(self._images(part, source) for part in parts)
        results = tuple(np.empty((len(images), *target), self.weights.dtype) for images in given)
        items = sum(map(len, given))
        count = threaded.threads(items * taps.offsets.size * target[1] * target[2] // CHEAP)
        cuts = threaded.even_cuts(items * taps.bands * taps.groups, count)
        threaded.run_all([partial(self.gather, *cut, taps, given, results) for cut in pairwise(cuts)])
        found = zip(parts, results, strict=True)
        return Three(*(None if part is None else result.reshape(len(part), -1) for part, result in found))

    def _images(self, part: Array | None, shape: tuple[int, int, int]) -> Array:
        """Return a batch as (N, channels, rows, columns), with N = 0 for ``None``."""
        if part is None:
            return np.empty((0, *shape), self.weights.dtype)
        # Writeable, or Numba would compile the kernel anew for arrays that are not.
        return np.require(part, self.weights.dtype, ["C", "A", "W"]).reshape(len(part), *shape)


class SparseColumnProducts(Products):
    """Products of a sparse W by columns with one vector each, in one reading of its entries."""

    def __init__(self, weights: Weights, storage: SparseStorage) -> None:
        super().__init__(weights)
        self.arrays = storage[:3]

    def project(self, vectors: Three) -> Three:
        """Return ``W y``, ``|W| y`` and ``(W∘W) y`` of those that are given."""
        from forestmix.engines.compiled import sparse

        return self._products(sparse.project_columns, self.weights.shape, vectors)

    def collect(self, rows: Three) -> Three:
        """Return ``W^T r``, ``|W|^T r`` and ``(W∘W)^T r`` of those that are given."""
        from forestmix.engines.compiled import sparse

        return self._products(sparse.collect_columns, self.weights.shape[::-1], rows)

    def _products(self, kernel: Any, shape: tuple[int, int], given: Three) -> Three:
        """Run a kernel over ranges of columns with about as many entries each, and add up what they give."""
        factors = np.zeros((shape[1], 3), self.weights.dtype)
        for k, part in enumerate(given):
            factors[:, k] = 0 if part is None else part[0]
        cuts = entry_cuts(self.arrays[0], threaded.threads(len(self.arrays[2])))
        wide = 1 if given.absolute is None and given.squared is None else 3
        parts = np.zeros((len(cuts) - 1, shape[0], wide), self.weights.dtype)
        threaded.run_all([
            partial(kernel, *cut, *self.arrays, factors, own) for cut, own in zip(pairwise(cuts), parts, strict=True)
        ])  # fmt: skip
        for own in parts[1:]:
            parts[0] += own
        return Three(*(
            None if part is None else np.ascontiguousarray(parts[0, :, k])[np.newaxis] for k, part in enumerate(given)
        ))  # fmt: skip


def entry_cuts(indptr: Array, count: int) -> list[int]:
    """Return rows at which to cut a CSR matrix into ``count`` ranges with about as many entries each."""
    entries = [int(indptr[-1]) * k // count for k in range(1, count)]
    return [0, *np.searchsorted(indptr, entries).tolist(), len(indptr) - 1]
