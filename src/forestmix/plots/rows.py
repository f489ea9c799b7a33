"""Rows: how well each is predicted, what the forest mixture bound loses on it, its parents, and x beside drawn data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.plots.style import BLACK, BLUE, MANY, ORANGE, SKY, VERMILION, look, one_axes

if TYPE_CHECKING:
    from forestmix.posterior.loo import LeaveOneOut


def plot_loo(loo: LeaveOneOut, axes: Any = None) -> Any:
    """Plot the log predictive density of each row without it; rows that are not to be trusted have a cross.

    Args:
        loo: what ``Posterior.loo`` or ``Fit.loo`` returns.
        axes: matplotlib axes; a new figure when left out.

    Returns:
        The axes.

    """
    with look():
        axes = one_axes(axes, (6.2, 3.2))
        _points(axes, loo.pointwise, BLUE)
        if len(loo.untrusted):
            doubtful = loo.pointwise[loo.untrusted]
            axes.plot(loo.untrusted, doubtful, "x", color=VERMILION, label=f"{len(doubtful)} not to be trusted")
            axes.legend()
        axes.set_xlabel("row")
        axes.set_ylabel("log predictive density without it")
    return axes


def plot_gap(gap: Array, axes: Any = None) -> Any:
    """Plot ``gap_i``, by how much the forest mixture bound is below the ELBO, for each row, and return the axes.

    Args:
        gap: of each row, such as ``fmx.gap`` returns for one observation.
        axes: matplotlib axes; a new figure when left out.

    """
    with look():
        axes = one_axes(axes, (6.2, 3.0))
        _points(axes, np.asarray(gap), ORANGE)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("row")
        axes.set_ylabel("ELBO − forest mixture bound (nats)")
    return axes


def _points(axes: Any, values: Array, colour: str) -> None:
    """Draw a point for each row, smaller and as pixels where there are many."""
    many = len(values) > MANY
    axes.plot(np.arange(len(values)), values, ".", color=colour, markersize=2 if many else 4.5, rasterized=many)
    axes.locator_params("x", integer=True)


def plot_predictive(
    observed: Array, drawn: Array, counts: bool, axes: Any = None, trials: Array | None = None,
    weights: Array | None = None,
) -> Any:  # fmt: skip
    """Plot the cumulative distribution of the response beside those of drawn data sets, and return the axes.

    Args:
        observed: the response, (n,).
        drawn: data sets that the fit predicts, (size, n).
        counts: whether responses are whole numbers, so that lines are steps.
        axes: matplotlib axes; a new figure when left out.
        trials: of binomial responses, (n,); shares of them are drawn then, since counts would show the trials.
        weights: of the cases, (n,): a row of weight 2 counts as two.

    """
    cases = np.ones(len(observed)) if weights is None else weights
    observed, drawn, cases = observed[cases > 0], drawn[:, cases > 0], cases[cases > 0]
    if trials is not None:
        trials = trials if weights is None else trials[weights > 0]
        observed, drawn, counts = observed / trials, drawn / trials, False
    with look():
        axes = one_axes(axes, (6.2, 3.4))
        style: dict[str, Any] = {"drawstyle": "steps-post"} if counts else {}
        for row, one in enumerate(drawn):
            own = {**style, "label": "drawn from the fit" if row == 0 else None}
            axes.plot(*_distribution(one, cases), color=SKY, linewidth=0.6, alpha=0.5, rasterized=True, **own)
        axes.plot(*_distribution(observed, cases), color=BLACK, linewidth=1.8, label="observed", **style)
        low, high = np.quantile(drawn, [0.001, 0.999])
        low, high = min(low, observed.min()), max(high, observed.max())
        margin = 0.03 * (high - low) or 0.5
        axes.set_xlim(low - margin, high + margin)
        axes.set_ylim(0, 1.02)
        if counts:
            axes.locator_params("x", integer=True)
        axes.set_xlabel("response" if trials is None else "response, share of the trials")
        axes.set_ylabel("share of rows up to it")
        axes.legend(loc="lower right")
    return axes


def _distribution(values: Array, cases: Array) -> tuple[Array, Array]:
    """Return the sorted values, and the share of all cases up to each."""
    order = np.argsort(values, kind="stable")
    return values[order], np.cumsum(cases[order]) / np.sum(cases)


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
