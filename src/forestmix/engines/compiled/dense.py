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
from forestmix.engines.compiled.rows import RowTable, finish_rows
from forestmix.engines.compiled.softplus import WIDTH
from forestmix.engines.compiled.tiles import ROWS, add, ahead_of, dot, tile

#: Bytes of tiles that the second-level cache keeps until they are added up.
KEPT = 2**17
#: Rows of a column-major matrix that are worked on together, at most: columns are read in runs long enough to stream.
BLOCK = 8192
#: Where so many bytes are at least ``SHORTEST`` rows, a block has no more, so that its second reading finds it in the
#: last-level cache. Shorter runs of a column cost more than that saves.
CACHED, SHORTEST = 2**22, 512


@njit(cache=True, nogil=True)
def pass_rows(
    first: int, last: int, W: Array, table: RowTable, bias: Array, mean: Array, sd: Array, spreads: bool, spread: int,
    eta: Array, error: Array, kappa: Array, terms: Any, work: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over rows ``first`` to ``last`` of a row-major W; ``spreads``: whether to multiply with ``sd``."""
    parts[:] = 0
    # Terms that are expensive are taken for several tiles at once, which stay in the cache meanwhile.
    tiles = 1 if terms is None else max(1, min(WIDTH // ROWS, KEPT // (ROWS * W.shape[1] * W.itemsize)))
    products, variance = np.zeros((3, tiles * ROWS), W.dtype), sd * sd
    soon, later = ahead_of(W, tiles)
    for top in range(first, last, tiles * ROWS):
        stop = min(top + tiles * ROWS, last)
        for i in range(top, stop, ROWS):
            own = products[:, i - top : i - top + ROWS]
            if spreads:
                dot(tile(W, i, last), soon, (mean, sd, variance), (own[0], own[1], own[2]))
            else:
                dot(tile(W, i, last), soon, (mean,), (own[0],))
        finish_rows(top, stop - top, table, bias, products, spread, eta, error, kappa, terms, work, totals)
        products[:, stop - top :] = 0
        for i in range(top, stop if len(parts) else top, ROWS):
            own = products[:, i - top : i - top + ROWS]
            if len(parts) == 3:
                add(tile(W, i, last), later, (own[0], own[1], own[2]), (parts[0], parts[1], parts[2]))
            else:
                add(tile(W, i, last), later, (own[0],), (parts[0],))


@njit(cache=True, nogil=True)
def pass_columns(
    first: int, last: int, W: Array, table: RowTable, bias: Array, mean: Array, sd: Array, spreads: bool, spread: int,
    eta: Array, error: Array, kappa: Array, terms: Any, work: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over the same rows of a column-major matrix, of which W is the row-major transpose."""
    parts[:] = 0
    fitting = CACHED // (W.shape[0] * W.itemsize)
    step = fitting if SHORTEST <= fitting < BLOCK else BLOCK
    factors = np.zeros((3, W.shape[0] + ROWS), W.dtype)
    for j in range(W.shape[0]):
        factors[0, j], factors[1, j], factors[2, j] = mean[j], sd[j], sd[j] * sd[j]
    for top in range(first, last, step):
        stop = min(top + step, last)
        products = np.zeros((3, stop - top), W.dtype)
        _project(W[:, top:stop], factors, spreads, products)
        for start in range(top, stop, WIDTH):
            count = min(WIDTH, stop - start)
            own = products[:, start - top : start - top + count]
            finish_rows(start, count, table, bias, own, spread, eta, error, kappa, terms, work, totals)
        _collect(W[:, top:stop], products, parts)


@njit(nogil=True)
def _project(W, factors, spreads, products):  # type: ignore[no-untyped-def]
    """Add up ``sum_j w_j f_j`` over the rows of W, and for ``spreads`` the other two sums."""
    ahead = (ROWS * W.strides[0] // W.itemsize,)
    for j in range(0, W.shape[0], ROWS):
        own, rows = factors[:, j : j + ROWS], tile(W, j, W.shape[0])
        if spreads:
            add(rows, ahead, (own[0], own[1], own[2]), (products[0], products[1], products[2]))
        else:
            add(rows, ahead, (own[0],), (products[0],))


@njit(nogil=True)
def _collect(W, products, parts):  # type: ignore[no-untyped-def]
    """Add the products of the rows of W with what was put in the place of ``products`` to the sums."""
    out, ahead = np.zeros((3, ROWS), W.dtype), (ROWS * W.strides[0] // W.itemsize,)
    for j in range(0, W.shape[0] if len(parts) else 0, ROWS):
        rows = tile(W, j, W.shape[0])
        if len(parts) == 3:
            dot(rows, ahead, (products[0], products[1], products[2]), (out[0], out[1], out[2]))
        else:
            dot(rows, ahead, (products[0],), (out[0],))
        for lane in range(min(ROWS, W.shape[0] - j)):
            for part in range(len(parts)):
                parts[part, j + lane] += out[part, lane]
