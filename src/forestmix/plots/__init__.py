"""Pictures of results. matplotlib is imported when a plot is asked for, not before."""

from forestmix.plots.trace import plot_trace

__all__ = ["plot_trace"]
