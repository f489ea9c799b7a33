"""Progress of a run on the terminal; the meter that shows nothing lets the loop call it without asking."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self


class NoProgress:
    """A meter that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was opened."""

    def update(self, iteration: int, objective: float, gradient_norm: float, finished: int, total: int) -> None:
        """Show nothing."""


class ProgressBar(NoProgress):
    """A bar that fills as the relative gradient norm falls from 1 to ``tol``, in its logarithm."""

    def __init__(self, name: str, tol: float) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, transient=False)
        self.name, self.tol = name, tol
        self.task = self.bar.add_task(name, total=1.0)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def update(self, iteration: int, objective: float, gradient_norm: float, finished: int, total: int) -> None:
        """Show where the run is; a batch also says how many observations have finished."""
        done = 1.0 if finished == total else 0.0
        if not done and gradient_norm > 0:
            done = min(max(math.log(gradient_norm) / math.log(self.tol), 0.0), 1.0)
        batch = f", {finished}/{total} done" if total > 1 else ""
        text = f"{self.name} {iteration}: objective {objective:.6g}, gradient {gradient_norm:.1e}{batch}"
        self.bar.update(self.task, completed=done, description=text)
