"""How the entries of weights lie in memory, for engines that read them themselves."""

from __future__ import annotations

from typing import NamedTuple

from forestmix.arrays import Array


class DenseStorage(NamedTuple):
    """A dense array, row-major, of W or, if ``transposed``, of W^T."""

    array: Array
    transposed: bool


class SparseStorage(NamedTuple):
    """The arrays of a canonical CSR matrix, which is W or, if ``transposed``, W^T."""

    indptr: Array
    indices: Array
    data: Array
    transposed: bool


class StencilStorage(NamedTuple):
    """The kernels of a convolution.

    With shifts ``(down, across)``, ``(W^T r)[k, p, q] = sum kernels[k, c, a, b] r[c, p + down + a, q + across + b]``;
    W itself has the same form with the kernels turned around. ``image_shape`` and ``latent_shape``: (channels, rows,
    columns).
    """

    kernels: Array
    image_shape: tuple[int, int, int]
    latent_shape: tuple[int, int, int]
    shifts: tuple[int, int]
    turned_kernels: Array
    turned_shifts: tuple[int, int]
