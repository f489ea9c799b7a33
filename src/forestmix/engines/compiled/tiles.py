"""What the dense passes do with a tile: some rows of W, or columns, at a time.

``products`` has the rows of the tile in its columns, and a row for each kind of product: with the mean or the error,
with what belongs to ``|w|``, and with what belongs to ``w^2``. What is ``ahead``, see ``lines.adder``, is asked for
meanwhile.
"""

from __future__ import annotations

from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.lines import ROWS, adder, dotter
from forestmix.engines.compiled.terms import absolute_product, absolute_value, itself, square, squared_product

#: Bytes of a row from which on it is asked for while its tile is worked on already.
LONG = 2**15

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
def _four(rows, i, last):  # type: ignore[no-untyped-def]
    return rows[min(i, last - 1)], rows[min(i + 1, last - 1)], rows[min(i + 2, last - 1)], rows[min(i + 3, last - 1)]


@njit(forceinline=True, nogil=True)
def _eight(rows, i, last):  # type: ignore[no-untyped-def]
    return _four(rows, i, last) + _four(rows, i + 4, last)


@njit(forceinline=True, nogil=True)
def _cut_four(rows, part):  # type: ignore[no-untyped-def]
    return rows[0][part], rows[1][part], rows[2][part], rows[3][part]


@njit(forceinline=True, nogil=True)
def _cut_eight(rows, part):  # type: ignore[no-untyped-def]
    return _cut_four(rows[:4], part) + _cut_four(rows[4:], part)


#: Functions of kernels. ``tile(rows, i, last)`` gives the rows of a tile from ``i`` on; past the end the last one is
#: repeated, whose factors there are zero. ``cut(rows, part)`` gives a slice of each.
tile, cut = (_eight, _cut_eight) if ROWS == 8 else (_four, _cut_four)


@njit(forceinline=True, nogil=True)
def ahead_of(rows, tiles):  # type: ignore[no-untyped-def]
    """Return what to ask for while so many tiles of these rows are multiplied, and what while they are added up.

    Long rows are taken one tile at a time, and followed so closely that little more than it has to stay in the cache:
    the second half of a tile is asked for while it is multiplied, the first half of the next one later. Of short rows
    the end would be asked for too late, so they are asked for earlier by half a tile.
    """
    length = rows.shape[1]
    if length * rows.itemsize > LONG:
        return (length // 2,), (ROWS * length,)
    return (tiles * ROWS * length,), (tiles * ROWS * length + length // 2,)


@njit(forceinline=True, nogil=True)
def following(rows, length):  # type: ignore[no-untyped-def]
    """Return what to ask for while ``length`` entries of the rows of a tile are gone over once: all of the next one."""
    return ROWS * rows.shape[1], ROWS * rows.shape[1] + length // 2


@njit(forceinline=True, nogil=True)
def forward_mean(rows, ahead, mean, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` of all rows into ``products[0]``."""
    _dot_mean(rows, ahead, (mean,), (products[0],))


@njit(forceinline=True, nogil=True)
def forward_absolute(rows, ahead, mean, sd, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` and ``|w| . sd`` of all rows into the first two rows of ``products``."""
    _dot_absolute(rows, ahead, (mean, sd), (products[0], products[1]))


@njit(forceinline=True, nogil=True)
def forward_squared(rows, ahead, mean, variance, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` and ``w^2 . variance`` of all rows into the first and last row of ``products``."""
    _dot_squared(rows, ahead, (mean, variance), (products[0], products[2]))


@njit(forceinline=True, nogil=True)
def forward_both(rows, ahead, mean, sd, variance, products):  # type: ignore[no-untyped-def]
    """Write ``w . mean``, ``|w| . sd`` and ``w^2 . variance`` of all rows into the rows of ``products``."""
    _dot_both(rows, ahead, (mean, sd, variance), (products[0], products[1], products[2]))


@njit(forceinline=True, nogil=True)
def forward_spreads(rows, ahead, mean, sd, products):  # type: ignore[no-untyped-def]
    """Write the same with ``variance = sd^2``, which costs less."""
    _dot_spreads(rows, ahead, (mean, sd, sd), (products[0], products[1], products[2]))


@njit(forceinline=True, nogil=True)
def adjoint_mean(rows, ahead, factor, gradient):  # type: ignore[no-untyped-def]
    """Add all rows times ``factor[0]`` to the gradient."""
    _add_mean(rows, ahead, (factor[0],), (gradient,))


@njit(forceinline=True, nogil=True)
def adjoint_absolute(rows, ahead, factor, gradient, absolute):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the gradient and ``|w| factor[1]`` to the forest mixture curvature."""
    _add_absolute(rows, ahead, (factor[0], factor[1]), (gradient, absolute))


@njit(forceinline=True, nogil=True)
def adjoint_squared(rows, ahead, factor, gradient, squared):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the gradient and ``w^2 factor[2]`` to the exact information."""
    _add_squared(rows, ahead, (factor[0], factor[2]), (gradient, squared))


@njit(forceinline=True, nogil=True)
def adjoint_both(rows, ahead, factor, gradient, absolute, squared):  # type: ignore[no-untyped-def]
    """Add to the gradient and to both curvatures."""
    _add_both(rows, ahead, (factor[0], factor[1], factor[2]), (gradient, absolute, squared))
