"""Pictures of results. Each returns its axes; matplotlib is imported when a plot is asked for, not before."""

from forestmix.plots.intervals import plot_groups, plot_intervals, plot_posterior, plot_scales
from forestmix.plots.rows import plot_gap, plot_loo, plot_parents, plot_predictive
from forestmix.plots.trace import plot_objective, plot_trace

__all__ = [
    "plot_gap",
    "plot_groups",
    "plot_intervals",
    "plot_loo",
    "plot_objective",
    "plot_parents",
    "plot_posterior",
    "plot_predictive",
    "plot_scales",
    "plot_trace",
]
