"""Progress of a run on the terminal; the meter that shows nothing lets the loop call it without asking."""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from forestmix.arrays import Array
from forestmix.weights.chunks import READING


class NoProgress:
    """A meter that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was opened."""

    def update(self, iteration: int, objective: Array, gradient_norm: Array, active: Array) -> None:
        """Show nothing."""

    def share(self, text: str, done: float) -> None:
        """Show nothing."""


class ProgressBar(NoProgress):
    """A bar that fills as the relative gradient norm falls from 1 to ``tol``, in its logarithm."""

    def __init__(self, name: str, tol: float) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        times = TimeElapsedColumn(), TimeRemainingColumn()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *times)
        self.bar = Progress(*columns, transient=False)
        # Where tol is 0, rounding is what a run gets to.
        self.name, self.goal = name, max(tol, float(np.finfo(np.float64).eps))
        self.text, self.task = name, self.bar.add_task(name, total=1.0)

    def __enter__(self) -> Self:
        self.bar.start()
        self._token = READING.set(self._read)
        return self

    def __exit__(self, *error: object) -> None:
        READING.reset(self._token)
        self.bar.stop()

    def update(self, iteration: int, objective: Array, gradient_norm: Array, active: Array) -> None:
        """Show where the run is; a batch also says how many observations have finished.

        Args:
            iteration: the number of iterations made.
            objective: of all observations.
            gradient_norm: of all observations; the worst of those not finished is shown, or of all at the end.
            active: which observations have not finished.

        """
        total, finished = len(objective), len(objective) - len(active)
        worst = float(np.max(gradient_norm[active] if len(active) else gradient_norm))
        done = 1.0 if finished == total else 0.0
        if not done and worst > 0:
            done = min(max(math.log(worst) / math.log(self.goal), 0.0), 1.0)
        batch = f", {finished}/{total} done" if total > 1 else ""
        self.text = f"{self.name} {iteration}: objective {float(np.mean(objective)):.6g}, gradient {worst:.1e}{batch}"
        self.bar.update(self.task, completed=done, description=self.text)

    def _read(self, done: int, total: int) -> None:
        """Show how much of a file the pass has read."""
        self.bar.update(self.task, description=f"{self.text}, {100 * done // total} % of W read")

    def share(self, text: str, done: float) -> None:
        """Show which part of the work is done, between 0 and 1."""
        self.bar.update(self.task, completed=done, description=f"{self.name}: {text}")
