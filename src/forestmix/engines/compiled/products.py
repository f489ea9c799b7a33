"""Products with W, |W| and W∘W for the rows, and with their transposes for the sums over rows, where W is read twice.

Each takes three batches, (N or 1, m) or (N or 1, n), of which some may be ``None``, and returns three. Batches have
BLAS's and SciPy's products, convolutions sums over the entries of their kernels, and one observation over a sparse W by
columns a kernel for each direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import threaded
from forestmix.weights.base import Weights
from forestmix.weights.storage import SparseStorage, StencilStorage

Three = tuple[Any, Any, Any]


class Products:
    """Products of any weights, by their own methods."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def project(self, mean: Array | None, sd: Array | None, variance: Array | None) -> Three:
        """Return ``W mean``, ``|W| sd`` and ``(W∘W) variance``."""
        return (
            None if mean is None else self.weights.forward(mean),
            None if sd is None else abs(self.weights).forward(sd),
            None if variance is None else self.weights.square().forward(variance),
        )

    def collect(self, error: Array | None, absolute: Array | None, squared: Array | None) -> Three:
        """Return ``W^T error``, ``|W|^T absolute`` and ``(W∘W)^T squared``."""
        return (
            None if error is None else self.weights.adjoint(error),
            None if absolute is None else abs(self.weights).adjoint(absolute),
            None if squared is None else self.weights.square().adjoint(squared),
        )


class StencilProducts(Products):
    """Products of a convolution, on threads that share no sum."""

    def __init__(self, weights: Weights, storage: StencilStorage) -> None:
        from forestmix.engines.compiled import convolution

        super().__init__(weights)
        self.shapes = storage.latent_shape, storage.image_shape
        self.gather = convolution.gather
        self.taps = (
            convolution.make_taps(storage.turned_kernels, storage.image_shape[1:], storage.turned_shifts),
            convolution.make_taps(storage.kernels, storage.latent_shape[1:], storage.shifts),
        )

    def project(self, mean: Array | None, sd: Array | None, variance: Array | None) -> Three:
        """Return ``W mean``, ``|W| sd`` and ``(W∘W) variance``."""
        return self._products(0, (mean, sd, variance))

    def collect(self, error: Array | None, absolute: Array | None, squared: Array | None) -> Three:
        """Return ``W^T error``, ``|W|^T absolute`` and ``(W∘W)^T squared``."""
        return self._products(1, (error, absolute, squared))

    def _products(self, direction: int, parts: Sequence[Array | None]) -> Three:
        from forestmix.engines.compiled.convolution import CHEAP

        taps, source, target = self.taps[direction], self.shapes[direction], self.shapes[1 - direction]
        given = tuple(self._images(part, source) for part in parts)
        results = tuple(np.empty((len(images), *target), self.weights.dtype) for images in given)
        items = sum(map(len, given))
        count = threaded.threads(items * taps.offsets.size * target[1] * target[2] // CHEAP)
        cuts = threaded.even_cuts(items * taps.bands * taps.groups, count)
        threaded.run_all([partial(self.gather, *cut, taps, given, results) for cut in pairwise(cuts)])
        first, second, third = (
            None if part is None else result.reshape(len(part), -1) for part, result in zip(parts, results, strict=True)
        )
        return first, second, third

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

    def project(self, mean: Array | None, sd: Array | None, variance: Array | None) -> Three:
        """Return ``W mean``, ``|W| sd`` and ``(W∘W) variance``."""
        from forestmix.engines.compiled import sparse

        return self._products(sparse.project_columns, self.weights.shape, (mean, sd, variance))

    def collect(self, error: Array | None, absolute: Array | None, squared: Array | None) -> Three:
        """Return ``W^T error``, ``|W|^T absolute`` and ``(W∘W)^T squared``."""
        from forestmix.engines.compiled import sparse

        return self._products(sparse.collect_columns, self.weights.shape[::-1], (error, absolute, squared))

    def _products(self, kernel: Any, shape: tuple[int, int], given: Sequence[Array | None]) -> Three:
        """Run a kernel over ranges of columns with about as many entries each, and add up what they give."""
        factors = np.zeros((shape[1], 3), self.weights.dtype)
        for k, part in enumerate(given):
            factors[:, k] = 0 if part is None else part[0]
        cuts = entry_cuts(self.arrays[0], threaded.threads(len(self.arrays[2])))
        wide = 1 if given[1] is None and given[2] is None else 3
        parts = np.zeros((len(cuts) - 1, shape[0], wide), self.weights.dtype)
        threaded.run_all([
            partial(kernel, *cut, *self.arrays, factors, own) for cut, own in zip(pairwise(cuts), parts, strict=True)
        ])  # fmt: skip
        for own in parts[1:]:
            parts[0] += own
        first, second, third = (
            None if part is None else np.ascontiguousarray(parts[0, :, k])[np.newaxis] for k, part in enumerate(given)
        )
        return first, second, third


def entry_cuts(indptr: Array, count: int) -> list[int]:
    """Return rows at which to cut a CSR matrix into ``count`` ranges with about as many entries each."""
    entries = [int(indptr[-1]) * k // count for k in range(1, count)]
    return [0, *np.searchsorted(indptr, entries).tolist(), len(indptr) - 1]
