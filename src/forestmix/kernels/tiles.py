"""What the dense passes do with four rows of W, or four columns, at a time.

``products`` has the four rows in its columns, and a row for each kind of product: with the mean or the error, with what
belongs to ``|w|``, and with what belongs to ``w^2``. Rows ``ahead`` are asked for meanwhile; there may be none.
"""

from __future__ import annotations

from numba import njit

from forestmix.kernels.lines import (
    absolute_product,
    absolute_value,
    adder,
    dotter,
    itself,
    square,
    squared_product,
)

_dot_mean = dotter(itself)
_dot_absolute = dotter(itself, absolute_value)
_dot_squared = dotter(itself, square)
_dot_both = dotter(itself, absolute_value, square)
_dot_spreads = dotter(itself, absolute_product, squared_product)
_add_mean = adder(itself)
_add_absolute = adder(itself, absolute_value)
_add_squared = adder(itself, square)
_add_both = adder(itself, absolute_value, square)
_add_spreads = adder(itself, absolute_product, squared_product)


@njit(forceinline=True, nogil=True)
def four(rows, i, last):  # type: ignore[no-untyped-def]
    """Return four rows from ``i`` on. Past the end the last one is repeated; its factors there are zero."""
    return rows[min(i, last - 1)], rows[min(i + 1, last - 1)], rows[min(i + 2, last - 1)], rows[min(i + 3, last - 1)]


@njit(forceinline=True, nogil=True)
def two(rows, i, last):  # type: ignore[no-untyped-def]
    """Return two rows from ``i`` on, to be asked for: half of a tile, while one half of the work on another is done."""
    return rows[min(i, last - 1)], rows[min(i + 1, last - 1)]


@njit(forceinline=True, nogil=True)
def four_parts(columns, j, rows):  # type: ignore[no-untyped-def]
    """Return the given rows of four columns from ``j`` on."""
    a, b, c, d = four(columns, j, columns.shape[0])
    return a[rows], b[rows], c[rows], d[rows]


@njit(forceinline=True, nogil=True)
def lanes(products, k):  # type: ignore[no-untyped-def]
    """Return the products of one kind, of all four rows."""
    return products[k, 0], products[k, 1], products[k, 2], products[k, 3]


@njit(forceinline=True, nogil=True)
def keep(products, k, found):  # type: ignore[no-untyped-def]
    """Write the products of one kind."""
    products[k, 0], products[k, 1], products[k, 2], products[k, 3] = found


@njit(forceinline=True, nogil=True)
def forward_mean(rows, ahead, mean, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` of four rows into ``products[0]``."""
    keep(products, 0, _dot_mean(rows, ahead, (mean,)))


@njit(forceinline=True, nogil=True)
def forward_absolute(rows, ahead, mean, sd, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` and ``|w| . sd`` of four rows into the first two rows of ``products``."""
    found = _dot_absolute(rows, ahead, (mean, sd))
    keep(products, 0, found[:4])
    keep(products, 1, found[4:])


@njit(forceinline=True, nogil=True)
def forward_squared(rows, ahead, mean, variance, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` and ``w^2 . variance`` of four rows into the first and last row of ``products``."""
    found = _dot_squared(rows, ahead, (mean, variance))
    keep(products, 0, found[:4])
    keep(products, 2, found[4:])


@njit(forceinline=True, nogil=True)
def forward_both(rows, ahead, mean, sd, variance, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean``, ``|w| . sd`` and ``w^2 . variance`` of four rows into the rows of ``products``."""
    _keep_three(products, _dot_both(rows, ahead, (mean, sd, variance)))


@njit(forceinline=True, nogil=True)
def forward_spreads(rows, ahead, mean, sd, products):  # type: ignore[no-untyped-def]
    """Write the same with ``variance = sd^2``, which costs less."""
    _keep_three(products, _dot_spreads(rows, ahead, (mean, sd, sd)))


@njit(forceinline=True, nogil=True)
def _keep_three(products, found):  # type: ignore[no-untyped-def]
    keep(products, 0, found[:4])
    keep(products, 1, found[4:8])
    keep(products, 2, found[8:])


@njit(forceinline=True, nogil=True)
def adjoint_mean(rows, ahead, factor, gradient):  # type: ignore[no-untyped-def]
    """Add four rows times ``factor[0]`` to the gradient."""
    _add_mean(rows, ahead, lanes(factor, 0), (gradient,))


@njit(forceinline=True, nogil=True)
def adjoint_absolute(rows, ahead, factor, gradient, absolute):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the gradient and ``|w| factor[1]`` to the forest mixture curvature."""
    _add_absolute(rows, ahead, lanes(factor, 0) + lanes(factor, 1), (gradient, absolute))


@njit(forceinline=True, nogil=True)
def adjoint_squared(rows, ahead, factor, gradient, squared):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the gradient and ``w^2 factor[2]`` to the exact information."""
    _add_squared(rows, ahead, lanes(factor, 0) + lanes(factor, 2), (gradient, squared))


@njit(forceinline=True, nogil=True)
def adjoint_both(rows, ahead, factor, gradient, absolute, squared):  # type: ignore[no-untyped-def]
    """Add to the gradient and to both curvatures."""
    _add_both(rows, ahead, lanes(factor, 0) + lanes(factor, 1) + lanes(factor, 2), (gradient, absolute, squared))


@njit(forceinline=True, nogil=True)
def adjoint_spreads(rows, ahead, factor, linear, absolute, squared):  # type: ignore[no-untyped-def]
    """Add ``w factor[0]``, ``|w| factor[1]`` and ``w^2 factor[1]^2`` to three sums."""
    _add_spreads(rows, ahead, lanes(factor, 0) + lanes(factor, 1) + lanes(factor, 1), (linear, absolute, squared))
