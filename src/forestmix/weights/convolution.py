"""Weights that are copies of a few kernels, one at every position of an image; the matrix is never formed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, finite, in_precision, numbers, working_dtype
from forestmix.checks import one_of
from forestmix.errors import ArgumentError
from forestmix.weights.base import ENTRY_MAPS, Weights
from forestmix.weights.checks import check_counts, positive_integers
from forestmix.weights.storage import StencilStorage

#: Bytes of intermediate results, so that a large batch does not multiply them.
CHUNK_BYTES = 2**23
PLACEMENTS = ("centred", "overlapping")


class Convolution(Weights):
    """K kernels placed over an image of C channels, clipped at its border.

    Column (k, p) is kernel k at position p, so with d counted from the kernel's centre
    ``(W y)[c, i] = sum_k sum_d kernels[k, c, d] y[k, i - d]``, and W^T is the cross-correlation that a
    convolutional network with zero padding computes. Rows are ordered (channel, row, column), columns
    (kernel, row, column).

    Products are one matrix product for each row of the kernels, O(K C kh kw H W) in all.

    Args:
        kernels: (K, C, kh, kw), as the first layer of a network stores them; (K, kh, kw) is for one channel,
            (kh, kw) for one kernel of one channel. They are copied.
        image_shape: (H, W), or (C, H, W).
        placement: "centred", one position for each pixel (odd kernels only; PyTorch's ``padding=k // 2``), or
            "overlapping", all (H + kh - 1) x (W + kw - 1) that overlap the image.

    Attributes:
        kernels: (K, C, kh, kw), read-only.
        image_shape: (C, H, W), to reshape what ``forward`` returns.
        latent_shape: (K, rows of positions, columns of positions), to reshape what ``adjoint`` returns.
    """

    def __init__(self, kernels: ArrayLike, image_shape: tuple[int, ...], placement: str = "centred") -> None:
        self.kernels = _as_kernels(kernels)
        count, channels, high, wide = self.kernels.shape
        self.image_shape = _with_channels(image_shape, channels)
        self.placement = placement
        rows, down = place(self.image_shape[1], high, placement)
        columns, across = place(self.image_shape[2], wide, placement)
        self.latent_shape, self._shifts = (count, rows, columns), (down, across)
        # Python ints do not overflow, so these are right whatever the sizes.
        n, m = math.prod(self.image_shape), math.prod(self.latent_shape)
        check_counts("Convolution", rows=n, columns=m, entries=self.nnz)
        super().__init__((n, m), self.kernels.dtype)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero: each one of a kernel, as often as it lies in the image."""
        present = np.count_nonzero(self.kernels, axis=(0, 1)).astype(object)  # Python ints
        axes = zip(self.image_shape[1:], self.latent_shape[1:], self._shifts, present.shape, strict=True)
        down, across = (
            np.array([_landings(pixels, positions, shift + entry) for entry in range(window)], dtype=object)
            for pixels, positions, shift, window in axes
        )
        return int(down @ present @ across)

    def _forward(self, batch: Array) -> Array:
        (count, rows, columns), (_, channels, high, wide) = self.latent_shape, self.kernels.shape
        padded, inside = self._with_border(len(batch))
        latents = batch.reshape(len(batch), count, rows * columns)
        for some in self._chunks(len(batch)):
            for a in range(high):
                added = (self._row(a) @ latents[some]).reshape(-1, wide, channels, rows, columns)
                for b in range(wide):
                    padded[some, :, a : a + rows, b : b + columns] += added[:, b]
        return padded[inside].reshape(len(batch), self.shape[0])

    def _adjoint(self, batch: Array) -> Array:
        (count, rows, columns), (_, channels, high, wide) = self.latent_shape, self.kernels.shape
        padded, inside = self._with_border(len(batch))
        padded[inside] = batch.reshape(len(batch), *self.image_shape)
        under = np.lib.stride_tricks.sliding_window_view(padded, wide, axis=3).transpose(0, 4, 1, 2, 3)
        result = np.zeros((len(batch), count, rows * columns), self.dtype)
        for some in self._chunks(len(batch)):
            for a in range(high):
                pixels = under[some, :, :, a : a + rows].reshape(-1, wide * channels, rows * columns)
                result[some] += self._row(a).T @ pixels
        return result.reshape(len(batch), self.shape[1])

    def _with_border(self, count: int) -> tuple[Array, Any]:
        """Return images of zeros with all pixels that lie under some kernel, and where in them the image itself is."""
        (_, rows, columns), (_, channels, high, wide) = self.latent_shape, self.kernels.shape
        padded = np.zeros((count, channels, rows + high - 1, columns + wide - 1), self.dtype)
        inside = (slice(-shift, size - shift) for size, shift in zip(self.image_shape[1:], self._shifts, strict=True))
        return padded, (..., *inside)

    def _row(self, a: int) -> Array:
        """Return row ``a`` of every kernel as the matrix of a product over kernels, (kw C, K)."""
        count, channels, _, wide = self.kernels.shape
        return self.kernels[:, :, a].T.reshape(wide * channels, count)

    def _chunks(self, batch_size: int) -> Iterator[slice]:
        """Yield slices of the batch for which the intermediate results take about ``CHUNK_BYTES``."""
        count, channels, _, wide = self.kernels.shape
        one = self.dtype.itemsize * self.latent_shape[1] * self.latent_shape[2] * max(wide * channels, count)
        step = max(1, CHUNK_BYTES // one)
        for start in range(0, batch_size, step):
            yield slice(start, start + step)

    def _with_map(self, name: str) -> Convolution:
        # Every entry of W is an entry of a kernel, or zero.
        chosen = copy(self)
        vars(chosen).pop("_kept", None)
        chosen.kernels = _read_only(ENTRY_MAPS[name](self.kernels))
        chosen.dtype = chosen.kernels.dtype
        return chosen

    def storage(self) -> StencilStorage:
        """Return the kernels and where they stand."""
        return StencilStorage(self.kernels, self.image_shape, self.latent_shape, self._shifts)

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        parts = _stamp(self.storage(), indices)
        return scipy.sparse.csc_array(parts, shape=(self.shape[0], len(parts[2]) - 1))

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        parts = _stamp(self.storage().turned(), indices)
        return scipy.sparse.csr_array(parts, shape=(len(parts[2]) - 1, self.shape[1]))


def place(pixels: int, window: int, placement: str) -> tuple[int, int]:
    """Return at how many positions along an axis a window stands, and on which pixel the first one begins.

    "centred" has one for each pixel, "overlapping" all that have a pixel in the image.
    """
    if one_of("placement", placement, PLACEMENTS) == "overlapping":
        return pixels + window - 1, 1 - window
    if window % 2 == 0:
        raise ArgumentError(
            f"size must be odd for placement='centred', so that there is a centre; got {window}. "
            "Use an odd size or placement='overlapping'."
        )
    return pixels, -(window // 2)


def _landings(pixels: int, positions: int, offset: int) -> int:
    """Return from how many positions p the pixel p + offset lies within the image."""
    return max(0, min(positions, pixels - offset) - max(0, -offset))


def _stamp(stencil: StencilStorage, indices: Array | None) -> tuple[Array, Array, Array]:
    """Return (data, indices, indptr): for each index (k, p) of the target, kernel k at p within the source.

    The indices of each come out sorted, since those into the source grow with (channel, row, column).
    """
    channels, height, width = stencil.source
    high, wide = stencil.kernels.shape[2:]
    chosen = np.arange(math.prod(stencil.target)) if indices is None else indices
    # The narrowest type that fits, for these arrays are as large as the result.
    most = max(math.prod(stencil.source), len(chosen) * channels * high * wide)
    kind: Any = np.int32 if most < 2**31 else np.int64
    which, *corner = np.unravel_index(chosen, stencil.target)
    down, across = (part.astype(kind)[:, None, None, None] for part in corner)
    rows = down + (stencil.shifts[0] + np.arange(high, dtype=kind)[:, None])
    columns = across + (stencil.shifts[1] + np.arange(wide, dtype=kind))
    inside = ((rows >= 0) & (rows < height)) & ((columns >= 0) & (columns < width)) & (stencil.kernels != 0)[which]
    places = (np.arange(channels, dtype=kind)[:, None, None] * height + rows) * width + columns
    ends = np.zeros(len(chosen) + 1, kind)
    np.cumsum(inside.sum(axis=(1, 2, 3)), out=ends[1:])
    return stencil.kernels[which][inside], places[inside], ends


def _as_kernels(given: ArrayLike) -> Array:
    """Return ``given`` as a finite, read-only (K, C, kh, kw) array of its own."""
    array = numbers("kernels", given)
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise ArgumentError(
            f"kernels must have shape (K, C, kh, kw), (K, kh, kw) or (kh, kw), none of them 0; got shape {array.shape}."
        )
    finite("kernels", array)
    if array.ndim == 2:
        array = array[np.newaxis]
    if array.ndim == 3:
        array = array[:, np.newaxis]
    return _read_only(np.array(in_precision("kernels", array, working_dtype("kernels", array.dtype)), order="C"))


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _with_channels(image_shape: Any, channels: int) -> tuple[int, int, int]:
    """Return (C, H, W), where the image has the channels that the kernels have."""
    sizes = positive_integers("image_shape", image_shape, (2, 3))
    if len(sizes) == 3 and sizes[0] != channels:
        raise ArgumentError(
            f"image_shape has {sizes[0]} channels and the kernels have {channels}; they must be the same "
            f"(kernels are (K, C, kh, kw), image_shape is (C, H, W) or (H, W)); got image_shape {sizes}."
        )
    return channels, sizes[-2], sizes[-1]
