"""Products with a convolution as matrix products, one for each row of the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.weights.geometry import Axis

CHUNK_BYTES = 2**23  # of intermediate results, so that a large batch does not multiply them


class KernelRow(NamedTuple):
    """One row of every kernel, without the entries at which all kernels are zero.

    Attributes:
        row: the index of the row in a kernel.
        entries: the T indices within the row that are not zero everywhere.
        matrix: (T C, K), for the product over kernels, or transposed over entries and channels.
    """

    row: int
    entries: list[int]
    matrix: Array


class KernelRows:
    """The weights of (K, C, kh, kw) kernels, for their products with batches."""

    def __init__(self, kernels: Array, vertical: Axis, horizontal: Axis) -> None:
        self._vertical, self._horizontal, self._dtype = vertical, horizontal, kernels.dtype
        self._image_shape = (kernels.shape[1], vertical.pixels, horizontal.pixels)
        self._latent_shape = (kernels.shape[0], vertical.positions, horizontal.positions)
        self._rows = list(_split_rows(kernels))

    def forward(self, batch: Array) -> Array:
        """Return W y for each row y of ``batch``: (N, m) -> (N, n)."""
        result = np.zeros((len(batch), *self._image_shape), dtype=self._dtype)
        kernels, height, width = self._latent_shape
        latents = batch.reshape(len(batch), kernels, height * width)
        for chunk in self._chunks(len(batch)):
            for part in self._rows:
                self._add_row(part, latents[chunk], result[chunk])
        return result.reshape(len(batch), self._image_shape[0] * self._image_shape[1] * self._image_shape[2])

    def adjoint(self, batch: Array) -> Array:
        """Return W^T r for each row r of ``batch``: (N, n) -> (N, m)."""
        kernels, height, width = self._latent_shape
        result = np.zeros((len(batch), kernels, height * width), dtype=self._dtype)
        images = batch.reshape(len(batch), *self._image_shape)
        for chunk in self._chunks(len(batch)):
            for part in self._rows:
                self._correlate_row(part, images[chunk], result[chunk])
        return result.reshape(len(batch), kernels * height * width)

    def _add_row(self, part: KernelRow, latents: Array, images: Array) -> None:
        """Add to ``images`` what one row of every kernel puts there."""
        positions, pixels = self._vertical.landing(part.row)
        width = self._latent_shape[2]
        # Whole rows of positions are neighbours in memory: BLAS reads this slice in place.
        used = latents[:, :, positions.start * width : positions.stop * width]
        products = (part.matrix @ used).reshape(
            len(latents), len(part.entries), self._image_shape[0], positions.stop - positions.start, width
        )
        for number, entry in enumerate(part.entries):
            across, columns = self._horizontal.landing(entry)
            images[:, :, pixels, columns] += products[:, number, :, :, across]

    def _correlate_row(self, part: KernelRow, images: Array, latents: Array) -> None:
        """Add to ``latents`` the products of one row of every kernel with the pixels under it."""
        positions, pixels = self._vertical.landing(part.row)
        height, width = positions.stop - positions.start, self._latent_shape[2]
        shape = (len(images), len(part.entries), self._image_shape[0], height, width)
        gathered = np.zeros(shape, dtype=self._dtype)
        for number, entry in enumerate(part.entries):
            across, columns = self._horizontal.landing(entry)
            gathered[:, number, :, :, across] = images[:, :, pixels, columns]
        flat = gathered.reshape(len(images), len(part.matrix), height * width)
        latents[:, :, positions.start * width : positions.stop * width] += part.matrix.T @ flat

    def _chunks(self, batch_size: int) -> Iterator[slice]:
        """Yield slices of the batch for which the intermediate results take about ``CHUNK_BYTES``."""
        widest = max((len(part.matrix) for part in self._rows), default=1)
        one = self._dtype.itemsize * self._latent_shape[1] * self._latent_shape[2] * max(widest, self._latent_shape[0])
        step = max(1, CHUNK_BYTES // one)
        for start in range(0, batch_size, step):
            yield slice(start, start + step)


def _split_rows(kernels: Array) -> Iterator[KernelRow]:
    """Yield the rows of the kernels that are not zero everywhere."""
    for row in range(kernels.shape[2]):
        entries = np.flatnonzero(kernels[:, :, row].any(axis=(0, 1)))
        if len(entries):
            # (K, C, T) -> (T, C, K) -> (T C, K)
            matrix = kernels[:, :, row, entries].T.reshape(-1, len(kernels))
            yield KernelRow(row, entries.tolist(), np.ascontiguousarray(matrix))
