"""The course of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.posterior.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_trace(result: Result, axes: Any = None) -> Any:
    """Plot the objective, and the relative gradient norm on a log scale, against iterations.

    Args:
        result: a result of ``infer``; each observation of a batch is a line.
        axes: two matplotlib axes to draw on; a new figure when left out.

    Returns:
        The two axes; ``axes[0].figure.savefig("trace.png")`` writes the picture.

    """
    left, right = _two_axes(axes)
    trace = result.trace
    single = trace.objective.ndim == 1
    style: dict[str, Any] = {"color": "#0072b2"}
    style |= {"linewidth": 1.8} if single else {"linewidth": 0.8, "alpha": 0.5}
    left.plot(trace.iteration, trace.objective, **style)
    left.set_ylabel({"fm": "forest mixture bound", "elbo": "ELBO"}[result.objective_name] + " (nats)")
    left.set_ylim(*_without_the_start(trace.objective))
    # A norm of exactly zero has no place on a log scale.
    right.semilogy(trace.iteration, np.where(trace.gradient_norm > 0, trace.gradient_norm, np.nan), **style)
    right.set_ylabel("relative gradient norm")
    for axis in (left, right):
        axis.set_xlabel("iteration")
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


def _without_the_start(objective: Any) -> tuple[float, float]:
    """Return limits that show the climb: the first value can lie so far below that all else looks flat."""
    finite = objective[np.isfinite(objective)]
    low, high = float(np.percentile(finite, 5)), float(finite.max())
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin
