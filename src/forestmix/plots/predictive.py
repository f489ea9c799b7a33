"""What a fit predicts beside what was seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.plots.style import BLACK, SKY, look, one_axes


def plot_predictive(
    observed: Array, drawn: Array, counts: bool, axes: Any = None, trials: Array | None = None
) -> Any:  # fmt: skip
    """Plot the cumulative distribution of the response beside those of drawn data sets, and return the axes.

    Args:
        observed: the response, (n,).
        drawn: data sets that the fit predicts, (size, n).
        counts: whether responses are whole numbers, so that lines are steps.
        axes: matplotlib axes; a new figure when left out.
        trials: of binomial responses, (n,); shares of them are drawn then, since counts would show the trials.

    """
    if trials is not None:
        observed, drawn, counts = observed / trials, drawn / trials, False
    from matplotlib.ticker import MaxNLocator

    with look():
        axes = one_axes(axes, (6.2, 3.4))
        share = np.arange(1, len(observed) + 1) / len(observed)
        style: dict[str, Any] = {"drawstyle": "steps-post"} if counts else {}
        for row, one in enumerate(np.sort(drawn, axis=1)):
            label = "drawn from the fit" if row == 0 else None
            axes.plot(one, share, color=SKY, linewidth=0.6, alpha=0.5, label=label, rasterized=True, **style)
        axes.plot(np.sort(observed), share, color=BLACK, linewidth=1.8, label="observed", **style)
        low, high = np.quantile(drawn, [0.001, 0.999])
        low, high = min(low, observed.min()), max(high, observed.max())
        margin = 0.03 * (high - low) or 0.5
        axes.set_xlim(low - margin, high + margin)
        axes.set_ylim(0, 1.02)
        if counts:
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set_xlabel("response" if trials is None else "response, share of the trials")
        axes.set_ylabel("share of rows up to it")
        axes.legend(loc="lower right")
    return axes
