"""The step that follows a pass over rows: all that it does with vectors of latents, in one reading of them.

A pass leaves what its threads have added up. Here the sums are put together, the latents move, and what the next pass
begins with is written, for a few latents at a time, which stay in the first-level cache meanwhile. One after another
these would read and write the same vectors five times over.
"""

from __future__ import annotations

from forestmix.arrays import Array
from forestmix.kernels.compiling import njit
from forestmix.kernels.vectors import AT_ONCE, block, divide, move_means, new_spreads, slope_of, squares, total_of


@njit(cache=True, nogil=True, error_model="numpy")
def step_rows(
    first: int, last: int, parts: Array, side_by_side: bool, reach: Array, mean: Array, sd: Array, prior_mean: Array,
    precision: Array, unit: float, paper: bool, absolute: bool, squared: bool, gradient: Array, slope: Array,
    curvature: Array, exact: Array, new_mean: Array, new_sd: Array, pairs: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the forest mixture step (paper, Theorem 2) of a range of latents.

    ``parts`` and ``reach`` are those of ``passes.Parts``, with the sums of a latent ``side_by_side`` for sparse
    weights; ``pairs`` gets the new means and spreads side by side, unless it is empty. Other arguments are those of
    ``column_steps.step_columns``, and so are the totals, in a row of their own.
    """
    information = curvature if paper else exact
    changed, spread_form, form = 0.0, 0.0, 0.0
    for start in range(first, last, AT_ONCE):
        at = block(start, last)
        total_of(parts, side_by_side, reach, start, 0, gradient[at])
        if absolute:
            total_of(parts, side_by_side, reach, start, 1, curvature[at])
            divide(curvature[at], sd[at])
        if squared:
            total_of(parts, side_by_side, reach, start, 2 if absolute else 1, exact[at])
        form += slope_of(mean[at], prior_mean[at], precision[at], gradient[at], slope[at])
        move_means(precision[at], curvature[at], slope[at], mean[at], new_mean[at])
        changed += new_spreads(precision[at], information[at], sd[at], unit, new_sd[at])
        spread_form += squares(sd[at], information[at])
        if pairs.size:
            _side_by_side(new_mean[at], new_sd[at], pairs[at])
    totals[0, 0], totals[0, 1], totals[0, 2] = changed, spread_form, form


@njit(nogil=True)
def _side_by_side(mean, sd, pairs):  # type: ignore[no-untyped-def]
    for j in range(mean.size):
        pairs[j, 0], pairs[j, 1] = mean[j], sd[j]
