"""The course of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.plots.style import BLUE, VERMILION
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
    from matplotlib.ticker import MaxNLocator

    left, right = _two_axes(axes)
    trace = result.trace
    single = trace.objective.ndim == 1
    style: dict[str, Any] = {"color": BLUE}
    style |= {"linewidth": 1.8} if single else {"linewidth": 0.8, "alpha": 0.5}
    style |= {"marker": "o", "markersize": 3.5} if len(trace.iteration) <= _MARKED else {}
    left.plot(trace.iteration, trace.objective, **style)
    left.set_ylabel({"fm": "forest mixture bound", "elbo": "ELBO"}[result.objective_name] + " (nats)")
    _show_start(left, trace)
    # A norm of exactly zero has no place on a log scale.
    right.semilogy(trace.iteration, np.where(trace.gradient_norm > 0, trace.gradient_norm, np.nan), **style)
    right.set_ylabel("relative gradient norm")
    for axis in (left, right):
        axis.set_xlabel("iteration")
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axis.grid(True, color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    ended = result.status.name if single else f"{int(np.sum(result.converged))} of {len(result.converged)} converged"
    left.set_title(f"{result.algorithm}: {ended.lower().replace('_', ' ')}", loc="left", fontsize="medium")
    return np.array([left, right])


def _two_axes(axes: Any) -> tuple[Axes, Axes]:
    if axes is None:
        from matplotlib import pyplot

        _, made = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        return made[0], made[1]
    given = np.ravel(np.array(axes, dtype=object))
    if len(given) != 2 or not all(hasattr(one, "semilogy") for one in given):
        raise ArgumentError(f"axes must be two matplotlib axes; got {len(given)} entries.")
    left, right = given
    return left, right


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
    )  # fmt: skip
