"""What an engine may read of weights in place: the arrays that they are stored in."""

from __future__ import annotations

from typing import NamedTuple

from forestmix.arrays import Array


class DenseStorage(NamedTuple):
    """All entries.

    Attributes:
        array: W, (n, m), or ``W^T`` if transposed; in C order.
        transposed: whether it is ``W^T`` that is stored, so W by columns.
    """

    array: Array
    transposed: bool


class SparseStorage(NamedTuple):
    """The entries that are not zero, as the three arrays of a canonical CSR matrix.

    Attributes:
        indptr: where the entries of each row start, and their number.
        indices: the column of each entry, sorted within a row.
        data: its value.
        transposed: whether they are of ``W^T``, so that W is stored as CSC.
    """

    indptr: Array
    indices: Array
    data: Array
    transposed: bool


class StencilStorage(NamedTuple):
    """A few kernels, each at every position of an image, which is zero outside of its border.

    W^T is a sum over the entries of kernels, and so is W, for the kernels turned around (``turned``)::

        (W^T r)[k, p, q] = sum_{c, a, b} kernels[k, c, a, b] r[c, p + shifts[0] + a, q + shifts[1] + b]

    Attributes:
        kernels: (K, C, kh, kw).
        source: the shape of r, (C, H, W).
        target: the shape of the result, (K, rows of positions, columns of positions).
        shifts: where entry (0, 0) of a kernel at position (0, 0) lies.
    """

    kernels: Array
    source: tuple[int, int, int]
    target: tuple[int, int, int]
    shifts: tuple[int, int]

    def turned(self) -> StencilStorage:
        """Return the stencil of the transpose, which is W.

        Pixel p + shift + a is under entry a of position p. Seen from the pixel, the positions are a window too: that of
        the kernels rotated by 180 degrees, with the roles of kernels and channels exchanged.
        """
        kernels = self.kernels.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
        down, across = (1 - size - shift for size, shift in zip(kernels.shape[2:], self.shifts, strict=True))
        return StencilStorage(kernels, self.target, self.source, (down, across))


#: ``None``: no engine knows these arrays, and products are left to the weights.
Storage = DenseStorage | SparseStorage | StencilStorage | None
