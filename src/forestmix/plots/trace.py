"""The course of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.plots.style import BLUE, VERMILION, look, one_axes, several_axes
from forestmix.posterior.result import Result, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Runs of at most so many iterations have a mark at each; the rest of a run must take this share of the height.
_MARKED, _LEAST_SHARE = 30, 0.1


def plot_trace(result: Result, axes: Any = None) -> Any:
    """Plot the objective, and the relative gradient norm on a log scale, against iterations.

    A start so far below the rest that the climb would look flat is a mark at the lower edge, with its value.

    Args:
        result: a result of ``infer``; each observation of a batch is a line.
        axes: two matplotlib axes to draw on; a new figure when left out.

    Returns:
        The two axes; ``axes[0].figure.savefig("trace.png")`` writes the picture.

    """
    with look():
        left, right = several_axes(axes, 2, (9, 3.4))
        style = _style(result.trace)
        _draw_objective(left, result, style)
        _draw_norm(right, result.trace, style)
        for axis in (left, right):
            axis.set_xlabel("iteration")
    return np.array([left, right])


def _style(trace: Trace) -> dict[str, Any]:
    """Return how lines look: thin ones for a batch, marks where there are few iterations."""
    style: dict[str, Any] = {"color": BLUE}
    style |= {"linewidth": 1.8} if trace.objective.ndim == 1 else {"linewidth": 0.8, "alpha": 0.5}
    return style | ({"marker": "o", "markersize": 3.5} if len(trace.iteration) <= _MARKED else {})


def plot_objective(result: Any, axes: Any = None) -> Any:
    """Plot the objective alone, for results and fits that have no gradient norm, and return the axes."""
    with look():
        axes = one_axes(axes, (6.2, 3.2))
        _draw_objective(axes, result, _style(result.trace))
        axes.set_xlabel("iteration")
    return axes


def _draw_objective(axes: Axes, result: Any, style: dict[str, Any]) -> None:
    axes.plot(result.trace.iteration, result.trace.objective, **style)
    axes.set_ylabel(f"{_climbed(result)} (nats)")
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)  # whole numbers are read, not sums
    axes.locator_params("x", integer=True)
    _show_start(axes, result.trace)
    single = result.trace.objective.ndim == 1
    ended = result.status.name if single else f"{int(np.sum(result.converged))} of {len(result.converged)} converged"
    axes.set_title(
        f"{getattr(result, 'algorithm', 'full')}: {ended.lower().replace('_', ' ')}", loc="left", fontsize="medium"
    )


def _climbed(result: Any) -> str:
    """Return what the trace is of: with unknown scales that are integrated over, of the way to their mode."""
    if result.scales and not np.isfinite(result.trace.gradient_norm).any():
        return "log of prior times evidence"
    return "forest mixture bound" if getattr(result, "objective_name", "elbo") == "fm" else "ELBO"


def _draw_norm(axes: Axes, trace: Trace, style: dict[str, Any]) -> None:
    # A norm of exactly zero has no place on a log scale.
    norm = np.where(trace.gradient_norm > 0, trace.gradient_norm, np.nan)
    if np.isfinite(norm).any():
        axes.semilogy(trace.iteration, norm, **style)
    axes.locator_params("x", integer=True)
    axes.set_ylabel("relative gradient norm")


def _show_start(axes: Axes, trace: Trace) -> None:
    """Set limits that show the climb, with a mark where the start is below them."""
    rest = trace.objective[1:][np.isfinite(trace.objective[1:])]
    start = np.atleast_1d(trace.objective[0])
    if not rest.size or np.ptp(rest) >= _LEAST_SHARE * (rest.max() - np.nanmin(start)):
        return
    margin = 0.08 * float(np.ptp(rest)) or 1.0
    bottom = float(rest.min()) - margin
    axes.set_ylim(bottom, float(rest.max()) + margin)
    axes.scatter(trace.iteration[:1], [bottom], marker="v", color=VERMILION, clip_on=False, zorder=3)
    ends = dict.fromkeys(f"{value:,.4g}" for value in (np.nanmin(start), np.nanmax(start)))
    axes.annotate(
        f"start: {' to '.join(ends)}", (float(trace.iteration[0]), bottom), (9, 5),
        textcoords="offset points", fontsize="small", color=VERMILION,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
    )  # fmt: skip
