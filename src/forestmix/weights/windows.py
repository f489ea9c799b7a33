"""The weights of the paper's experiments: one latent for each square window of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import DTypeLike

from forestmix.checks import whole_number
from forestmix.weights.checks import check_counts, floating_dtype, positive_integers
from forestmix.weights.convolution import Convolution, place


def windows(
    shape: tuple[int, int],
    size: int | tuple[int, int],
    placement: str = "overlapping",
    dtype: DTypeLike = np.float64,
) -> scipy.sparse.csr_array:
    """Return W with w_ij = 1 if pixel i lies in window j, and 0 elsewhere.

    Args:
        shape: (H, W) of the image; pixels are in C order.
        size: the side s of the windows, or their (height, width).
        placement: "overlapping", all windows that overlap the image, clipped to it, (H + s - 1)(W + s - 1) of
            them in C order; or "centred", one around each pixel (odd sizes only).
        dtype: float32 or float64.

    Returns:
        A canonical (n, m) CSR array, n = H W.
    """
    height, width = positive_integers("shape", shape, (2,))
    sides = _as_sides(size)
    kind = floating_dtype("dtype", dtype)
    columns = place(height, sides[0], placement)[0] * place(width, sides[1], placement)[0]
    entries = height * width * sides[0] * sides[1]
    check_counts("windows", pixels=height * width, columns=columns, entries=entries)
    return Convolution(np.ones(sides, dtype=kind), (height, width), placement).rows()


def _as_sides(size: Any) -> tuple[int, int]:
    """Return the height and width of the windows."""
    if isinstance(size, tuple | list) or (isinstance(size, np.ndarray) and size.ndim):
        height, width = positive_integers("size", size, (2,))
        return height, width
    side = whole_number("size", size)
    return side, side
