"""Weights that are copies of a few kernels, one at every position of an image; the matrix is never formed."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from forestmix.arrays import Array, working_dtype
from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights
from forestmix.weights.checks import check_counts, not_finite, positive_integers
from forestmix.weights.geometry import Axis, place

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
        self._nnz = _count_entries(self.kernels, self._vertical, self._horizontal)
        check_counts("Convolution", rows=n, columns=m, entries=self._nnz)
        super().__init__((n, m), self.kernels.dtype)
        self._kernel_rows = list(_split_rows(self.kernels))

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return self._nnz

    def _forward(self, batch: Array) -> Array:
        result = np.zeros((len(batch), *self.image_shape), dtype=self.dtype)
        kernels, height, width = self.latent_shape
        latents = batch.reshape(len(batch), kernels, height * width)
        for chunk in self._chunks(len(batch)):
            for part in self._kernel_rows:
                self._add_row(part, latents[chunk], result[chunk])
        return result.reshape(len(batch), self.shape[0])

    def _adjoint(self, batch: Array) -> Array:
        kernels, height, width = self.latent_shape
        result = np.zeros((len(batch), kernels, height * width), dtype=self.dtype)
        images = batch.reshape(len(batch), *self.image_shape)
        for chunk in self._chunks(len(batch)):
            for part in self._kernel_rows:
                self._correlate_row(part, images[chunk], result[chunk])
        return result.reshape(len(batch), self.shape[1])

    def _add_row(self, part: KernelRow, latents: Array, images: Array) -> None:
        """Add to ``images`` what one row of every kernel puts there."""
        positions, pixels = self._vertical.landing(part.row)
        width = self.latent_shape[2]
        # Whole rows of positions are neighbours in memory: BLAS reads this slice in place.
        used = latents[:, :, positions.start * width : positions.stop * width]
        products = (part.matrix @ used).reshape(
            len(latents), len(part.entries), self.image_shape[0], positions.stop - positions.start, width
        )
        for number, entry in enumerate(part.entries):
            across, columns = self._horizontal.landing(entry)
            images[:, :, pixels, columns] += products[:, number, :, :, across]

    def _correlate_row(self, part: KernelRow, images: Array, latents: Array) -> None:
        """Add to ``latents`` the products of one row of every kernel with the pixels under it."""
        positions, pixels = self._vertical.landing(part.row)
        height, width = positions.stop - positions.start, self.latent_shape[2]
        shape = (len(images), len(part.entries), self.image_shape[0], height, width)
        gathered = np.zeros(shape, dtype=self.dtype)
        for number, entry in enumerate(part.entries):
            across, columns = self._horizontal.landing(entry)
            gathered[:, number, :, :, across] = images[:, :, pixels, columns]
        flat = gathered.reshape(len(images), len(part.matrix), height * width)
        latents[:, :, positions.start * width : positions.stop * width] += part.matrix.T @ flat

    def _chunks(self, batch_size: int) -> Iterator[slice]:
        """Yield slices of the batch for which the intermediate results take about ``CHUNK_BYTES``."""
        widest = max((len(part.matrix) for part in self._kernel_rows), default=1)
        one = self.dtype.itemsize * self.latent_shape[1] * self.latent_shape[2] * max(widest, len(self.kernels))
        step = max(1, CHUNK_BYTES // one)
        for start in range(0, batch_size, step):
            yield slice(start, start + step)

    def __abs__(self) -> Convolution:
        return self._with_kernels(np.abs(self.kernels))

    def square(self) -> Convolution:
        """Return the weights w_ij^2."""
        return self._with_kernels(np.square(self.kernels))

    def support(self) -> Convolution:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return self._with_kernels((self.kernels != 0).astype(self.dtype))

    def _with_kernels(self, kernels: Array) -> Convolution:
        """Return these weights with other kernels: every entry of W is an entry of a kernel, or zero.

        They are not checked: the square of a finite entry may overflow, which an algorithm reports as its status.
        """
        chosen = copy(self)
        chosen.kernels = kernels
        chosen.kernels.flags.writeable = False
        chosen._nnz = _count_entries(kernels, self._vertical, self._horizontal)
        chosen._kernel_rows = list(_split_rows(kernels))
        return chosen

    def _columns(self, indices: Array | None) -> sparse.csc_array:
        shifts = (self._vertical.shift, self._horizontal.shift)
        parts = _stamp(self.kernels, self.latent_shape, self.image_shape, shifts, indices)
        return sparse.csc_array(parts, shape=(self.shape[0], len(parts[2]) - 1))

    def _rows(self, indices: Array | None) -> sparse.csr_array:
        # Pixel p + shift + a is under entry a of position p. Seen from the pixel, the positions are a window
        # too: that of the kernels turned around, with the roles of kernels and channels exchanged.
        turned = self.kernels.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
        shifts = (_turned_shift(self._vertical), _turned_shift(self._horizontal))
        parts = _stamp(turned, self.image_shape, self.latent_shape, shifts, indices)
        return sparse.csr_array(parts, shape=(len(parts[2]) - 1, self.shape[1]))


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


def _turned_shift(axis: Axis) -> int:
    """Return the shift of the window of positions whose entries lie on one pixel."""
    return -(axis.shift + axis.window - 1)


def _split_rows(kernels: Array) -> Iterator[KernelRow]:
    """Yield the rows of the kernels that are not zero everywhere."""
    for row in range(kernels.shape[2]):
        entries = np.flatnonzero(kernels[:, :, row].any(axis=(0, 1)))
        if len(entries):
            # (K, C, T) -> (T, C, K) -> (T C, K)
            matrix = kernels[:, :, row, entries].T.reshape(-1, len(kernels))
            yield KernelRow(row, entries.tolist(), np.ascontiguousarray(matrix))


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
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ArgumentError(f"kernels must be an array; got a sequence that is none: {error}") from error
    dtype = working_dtype("kernels", array.dtype)
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise ArgumentError(
            f"kernels must have shape (K, C, kh, kw), (K, kh, kw) or (kh, kw), none of them 0; got shape {array.shape}."
        )
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        first = tuple(wrong[0].tolist())
        raise not_finite("kernels", len(wrong), first, array[first])
    if array.ndim == 2:
        array = array[np.newaxis]
    if array.ndim == 3:
        array = array[:, np.newaxis]
    kernels = np.array(array, dtype=dtype, order="C")
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
