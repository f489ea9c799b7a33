"""Weights that are copies of a few kernels, one at every position of an image; the matrix is never formed."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, finite, in_precision, numbers, working_dtype
from forestmix.errors import ArgumentError
from forestmix.weights.base import ENTRY_MAPS, Weights
from forestmix.weights.checks import check_counts, positive_integers
from forestmix.weights.geometry import Axis, place
from forestmix.weights.kernel_rows import KernelRows
from forestmix.weights.storage import StencilStorage


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
        count, channels, kernel_height, kernel_width = self.kernels.shape
        self.image_shape = _with_channels(image_shape, channels)
        self.placement = placement
        self._vertical = place(self.image_shape[1], kernel_height, placement)
        self._horizontal = place(self.image_shape[2], kernel_width, placement)
        self.latent_shape = (count, self._vertical.positions, self._horizontal.positions)
        # Python ints do not overflow, so these are right whatever the sizes.
        n = self.image_shape[0] * self.image_shape[1] * self.image_shape[2]
        m = self.latent_shape[0] * self.latent_shape[1] * self.latent_shape[2]
        self._derive()
        check_counts("Convolution", rows=n, columns=m, entries=self._nnz)
        super().__init__((n, m), self.kernels.dtype)

    def _derive(self) -> None:
        """Set what follows from the kernels."""
        self._nnz = _count_entries(self.kernels, self._vertical, self._horizontal)
        self._by_rows = KernelRows(self.kernels, self._vertical, self._horizontal)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return self._nnz

    def _forward(self, batch: Array) -> Array:
        return self._by_rows.forward(batch)

    def _adjoint(self, batch: Array) -> Array:
        return self._by_rows.adjoint(batch)

    def _with_map(self, name: str) -> Convolution:
        # Every entry of W is an entry of a kernel, or zero.
        chosen = copy(self)
        vars(chosen).pop("_kept", None)
        chosen.kernels = ENTRY_MAPS[name](self.kernels)
        chosen.kernels.flags.writeable = False
        chosen._derive()
        return chosen

    def storage(self) -> StencilStorage:
        """Return the kernels and where they stand, for W^T and for W."""
        shifts = (self._vertical.shift, self._horizontal.shift)
        # Pixel p + shift + a is under entry a of position p. Seen from the pixel, the positions are a window
        # too: that of the kernels turned around, with the roles of kernels and channels exchanged.
        turned = self.kernels.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
        turned_shifts = (self._vertical.turned_shift, self._horizontal.turned_shift)
        return StencilStorage(self.kernels, self.image_shape, self.latent_shape, shifts, turned, turned_shifts)

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        stored = self.storage()
        parts = _stamp(stored.kernels, self.latent_shape, self.image_shape, stored.shifts, indices)
        return scipy.sparse.csc_array(parts, shape=(self.shape[0], len(parts[2]) - 1))

    def _in_double(self) -> Convolution:
        return Convolution(self.kernels.astype(np.float64), self.image_shape, self.placement)

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        stored = self.storage()
        parts = _stamp(stored.turned_kernels, self.image_shape, self.latent_shape, stored.turned_shifts, indices)
        return scipy.sparse.csr_array(parts, shape=(len(parts[2]) - 1, self.shape[1]))


def _stamp(
    kernels: Array,
    source: tuple[int, int, int],
    target: tuple[int, int, int],
    shifts: tuple[int, int],
    indices: Array | None,
) -> tuple[Array, Array, Array]:
    """Return (data, indices, indptr): for each index (k, p) into ``source``, kernel k at p within ``target``.

    The indices of each come out sorted, since those into ``target`` grow with (channel, row, column).
    """
    chosen = np.arange(source[0] * source[1] * source[2]) if indices is None else indices
    which, down, across = np.unravel_index(chosen, source)
    channels, height, width = target
    rows = down[:, np.newaxis] + (shifts[0] + np.arange(kernels.shape[2]))
    columns = across[:, np.newaxis] + (shifts[1] + np.arange(kernels.shape[3]))
    inside = (
        ((rows >= 0) & (rows < height))[:, np.newaxis, :, np.newaxis]
        & ((columns >= 0) & (columns < width))[:, np.newaxis, np.newaxis, :]
        & (kernels != 0)[which]
    )
    # The narrowest type that fits, for these arrays are as large as the result.
    index_type: Any = np.int32 if max(channels * height * width, inside.size) < 2**31 else np.int64
    base = np.arange(channels, dtype=index_type)[:, np.newaxis] * height
    lines = (base + rows[:, np.newaxis, :].astype(index_type)) * width
    places = lines[..., np.newaxis] + columns[:, np.newaxis, np.newaxis, :].astype(index_type)
    ends = np.zeros(len(chosen) + 1, dtype=index_type)
    np.cumsum(inside.sum(axis=(1, 2, 3)), out=ends[1:])
    values = np.broadcast_to(kernels[which], inside.shape)[inside]
    return values, places[inside], ends


def _count_entries(kernels: Array, vertical: Axis, horizontal: Axis) -> int:
    """Return the number of nonzero entries of W: each entry of a kernel, as often as it lies in the image."""
    present = np.count_nonzero(kernels, axis=(0, 1)).tolist()
    across = [horizontal.count(column) for column in range(horizontal.window)]
    return sum(
        vertical.count(row) * sum(number * times for number, times in zip(line, across, strict=True))
        for row, line in enumerate(present)
    )


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
    kernels = np.array(in_precision("kernels", array, working_dtype("kernels", array.dtype)), order="C")
    kernels.flags.writeable = False
    return kernels


def _with_channels(image_shape: Any, channels: int) -> tuple[int, int, int]:
    """Return (C, H, W), where the image has the channels that the kernels have."""
    sizes = positive_integers("image_shape", image_shape, (2, 3))
    if len(sizes) == 3 and sizes[0] != channels:
        raise ArgumentError(
            f"image_shape has {sizes[0]} channels and the kernels have {channels}; they must be the same "
            f"(kernels are (K, C, kh, kw), image_shape is (C, H, W) or (H, W)); got image_shape {sizes}."
        )
    return channels, sizes[-2], sizes[-1]
