"""A run that people watch: a bar with objective, rate and the time left, and Ctrl-C that keeps what there is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import typer

from forestmix.cli.group import INTERRUPTED, Interrupted, at_interrupt

#: Columns that a terminal must have for a line with a bar and words; a narrower one shows the numbers alone.
WIDE = 80


class Watch:
    """The callback of a run. ``interrupted``: whether Ctrl-C asked it to stop."""

    def __init__(self, progress: Any, tol: float = 0.0) -> None:
        self.progress, self.goal = progress, max(tol, float(np.finfo(np.float64).eps))
        self.interrupted = False
        self.task = progress.add_task("", total=1.0, rate="") if progress is not None else None

    def __call__(self, iteration: Any) -> bool:
        """Show where the run is, and return whether it is to stop."""
        if self.progress is not None:
            objective, done = float(np.mean(iteration.objective)), iteration.share
            if done is None:
                # The logarithm of the gradient norm falls about evenly from that of 1 to that of tol.
                worst = float(np.max(iteration.gradient_norm))
                done = min(max(math.log(worst) / math.log(self.goal), 0.0), 1.0) if worst > 0 else 1.0
            pace = iteration.iteration / iteration.seconds if iteration.seconds > 0 else math.nan
            rate = "" if math.isnan(pace) else f"{pace:,.{int(pace < 100)}f} it/s"
            text = f"{iteration.iteration:,}, objective {objective:,.6g}"
            text = f"iteration {text}" if self.progress.console.width >= WIDE else text.replace(", objective", ":")
            self.progress.update(self.task, completed=done, description=text, rate=rate)
        return self.interrupted


@contextmanager
def watched(tol: float = 0.0) -> Iterator[Watch]:
    """Yield the callback of a run. The first Ctrl-C asks the run to stop, the second ends it at once."""
    with _bar() as progress:
        watch = Watch(progress, tol)

        def stop() -> None:
            if watch.interrupted:
                raise Interrupted
            watch.interrupted = True

        with at_interrupt(stop):
            yield watch


def ended(watch: Watch, out: Path | None, converged: bool) -> None:
    """End a command: with a line if it was interrupted, and with the code of how its run ended."""
    if watch.interrupted:
        typer.echo("Interrupted." + ("" if out is None else f" What there is so far is in {out}."), err=True)
        raise typer.Exit(INTERRUPTED)
    if not converged:
        raise typer.Exit(1)


@contextmanager
def _bar() -> Iterator[Any]:
    """Yield a progress bar on standard error, or ``None`` where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    text, rate = TextColumn("{task.description}"), TextColumn("{task.fields[rate]}")
    columns: tuple[Any, ...] = (text, rate, TimeRemainingColumn())
    if console.width >= WIDE:
        columns = (text, BarColumn(16), rate, TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        yield progress


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show a spinner on a terminal while something is done that has no steps to count."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield
