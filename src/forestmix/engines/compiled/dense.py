"""One pass over a dense W: means and spreads of its rows, their terms, gradient and curvatures.

Some rows are read from memory, give their ``m_i``, ``s_i`` and ``v_i``, and while they are still in the cache are added
up into the sums over rows. A column-major W, the row-major transpose of which is given, is read block by block, each
block twice. A kernel works on a range of rows; ``compiled.engine`` gives each thread one. ``parts`` has the sums::

    parts[0]   sum_i w_ij e_i              if there is one
    parts[1]   sum_i |w_ij| s_i kappa_i    if there are three: D_j sigma_j
    parts[2]   sum_i w_ij^2 kappa_i        if there are three: H_j
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import Table, finish_rows, new_workspace
from forestmix.engines.compiled.softplus import WIDTH
from forestmix.engines.compiled.tiles import ROWS, add_one, add_three, ahead_of, dot_one, dot_three

#: Bytes of tiles that the second-level cache keeps until they are added up.
KEPT = 2**17
#: Rows of a column-major matrix that are worked on together, at most: columns are read in runs long enough to stream.
BLOCK = 8192
#: Where so many bytes are at least ``SHORTEST`` rows, a block has no more, so that its second reading finds it in the
#: last-level cache. Shorter runs of a column cost more than that saves.
CACHED, SHORTEST = 2**22, 512


@njit(cache=True, nogil=True)
def pass_rows(
    first: int, last: int, W: Array, table: Table, factors: Array, spreads: bool, spread: int,
    found: tuple[Array, Array, Array], terms: Any, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over rows ``first`` to ``last`` of a row-major W.

    ``factors``: mean, sd and variance of the latents, (3, m); ``spreads``: whether to multiply with the last two.
    """
    m, work, products = W.shape[1], new_workspace(), np.zeros((3, WIDTH), W.dtype)
    parts[:] = 0
    # Several tiles are taken at once and stay in the cache meanwhile, for terms that are taken in vectors.
    tiles = max(1, min(WIDTH // ROWS, KEPT // (ROWS * m * W.itemsize)))
    soon, later = ahead_of(W, tiles)
    for top in range(first, last, tiles * ROWS):
        stop = min(top + tiles * ROWS, last)
        for i in range(top, stop, ROWS):
            if spreads:
                dot_three(W, (i, last, 0, m), soon, factors, products, i - top)
            else:
                dot_one(W, (i, last, 0, m), soon, factors, products, i - top)
        finish_rows(top, stop - top, table, products, 0, spread, found, terms, work, totals)
        for k in range(stop - top, tiles * ROWS):
            products[0, k] = products[1, k] = products[2, k] = 0
        for i in range(top, stop if len(parts) else top, ROWS):
            if len(parts) == 3:
                add_three(W, (i, last, 0, m), later, products, i - top, parts)
            else:
                add_one(W, (i, last, 0, m), later, products, i - top, parts)


@njit(cache=True, nogil=True)
def pass_columns(
    first: int, last: int, W: Array, table: Table, factors: Array, spreads: bool, spread: int,
    found: tuple[Array, Array, Array], terms: Any, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over the same rows of a column-major matrix, of which W is the row-major transpose.

    ``factors`` and ``parts`` have ``ROWS`` columns more than there are latents.
    """
    work, products = new_workspace(), np.zeros((3, BLOCK + ROWS), W.dtype)
    m, ahead = W.shape[0], ROWS * W.shape[1]
    parts[:] = 0
    fitting = CACHED // (m * W.itemsize)
    step = fitting if SHORTEST <= fitting < BLOCK else BLOCK
    for top in range(first, last, step):
        stop = min(top + step, last)
        for k in range(stop - top):
            products[0, k] = products[1, k] = products[2, k] = 0
        for j in range(0, m, ROWS):
            if spreads:
                add_three(W, (j, m, top, stop), ahead, factors, j, products)
            else:
                add_one(W, (j, m, top, stop), ahead, factors, j, products)
        for start in range(top, stop, WIDTH):
            count = min(WIDTH, stop - start)
            finish_rows(start, count, table, products, start - top, spread, found, terms, work, totals)
        for j in range(0, m if len(parts) else 0, ROWS):
            if len(parts) == 3:
                dot_three(W, (j, m, top, stop), ahead, products, products, BLOCK)
            else:
                dot_one(W, (j, m, top, stop), ahead, products, products, BLOCK)
            for part in range(len(parts)):
                for lane in range(ROWS):
                    parts[part, j + lane] += products[part, BLOCK + lane]
