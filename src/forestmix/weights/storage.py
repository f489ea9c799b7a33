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
    """A few kernels, each at every position of an image, and zero outside of it.

    Both products are sums over the entries of kernels. With ``r`` an image and ``y`` latents::

        (W^T r)[k, p, q] = sum_{c, a, b} kernels[k, c, a, b] r[c, p + shifts[0] + a, q + shifts[1] + b]
        (W y)[c, p, q] = sum_{k, a, b} turned_kernels[c, k, a, b] y[k, p + t[0] + a, q + t[1] + b], t = turned_shifts

    Attributes:
        kernels: (K, C, kh, kw).
        image_shape: (C, H, W).
        latent_shape: (K, rows of positions, columns of positions).
        shifts: where entry (0, 0) of a kernel at position (0, 0) lies.
        turned_kernels: (C, K, kh, kw), the kernels rotated by 180 degrees.
        turned_shifts: the same for these.
    """

    kernels: Array
    image_shape: tuple[int, int, int]
    latent_shape: tuple[int, int, int]
    shifts: tuple[int, int]
    turned_kernels: Array
    turned_shifts: tuple[int, int]


#: ``None``: no engine knows these arrays, and products are left to the weights.
Storage = DenseStorage | SparseStorage | StencilStorage | None
