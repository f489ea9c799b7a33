"""The parents of each row: epsilon of the forest mixture bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.plots.style import look, one_axes

#: Larger matrices are shown by the greatest entry of each tile.
MOST_ROWS, MOST_COLUMNS = 400, 400


def plot_parents(epsilon: Any, axes: Any = None) -> Any:
    """Plot epsilon, how much each latent stands for each row (paper, Theorem 1), as a map, and return the axes.

    A row with one dark entry has one parent, as in a forest; a row of many pale ones is shared by many latents.

    Args:
        epsilon: (n, m), dense or sparse, as in ``fmx.optimal_auxiliary(model, q).epsilon``.
        axes: matplotlib axes; a new figure when left out.

    """
    shown = _tiles(epsilon)
    n, m = epsilon.shape
    with look():
        axes = one_axes(axes, (6.2, 3.6))
        axes.grid(visible=False)
        image = axes.imshow(
            shown, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest",
            extent=(-0.5, m - 0.5, n - 0.5, -0.5),
        )  # fmt: skip
        axes.figure.colorbar(image, ax=axes, label="share of the row", pad=0.02)
        axes.set_xlabel("latent")
        axes.set_ylabel("row")
    return axes


def _tiles(epsilon: Any) -> Array:
    """Return the matrix, or the greatest entry of each tile of a large one."""
    n, m = epsilon.shape
    entries = scipy.sparse.coo_array(epsilon)
    rows, columns = entries.coords
    height, width = -(-n // MOST_ROWS), -(-m // MOST_COLUMNS)
    shown = np.zeros((-(-n // height), -(-m // width)))
    np.maximum.at(shown, (rows // height, columns // width), entries.data)
    return shown
