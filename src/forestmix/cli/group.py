"""How commands run, are watched, and end: bars, Ctrl-C that keeps what there is, errors in one line, exit codes."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

import forestmix as fmx

#: Beside 0 and 1, which says that a claim or a check failed. The last two are what shells use.
ERROR, INTERRUPTED, CLOSED_PIPE = 2, 130, 141


class Interrupted(BaseException):
    """Ctrl-C was pressed. A ``KeyboardInterrupt`` would end one run of ``infer``, and the command would go on."""


@contextmanager
def at_interrupt(action: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C call this within a ``with`` block; signals belong to the main thread alone."""
    if threading.current_thread() != threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        action()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt() -> None:
    raise Interrupted


class ErrorReportingGroup(TyperGroup):
    """Commands whose expected errors are one line without a traceback, and the exit code ``ERROR``."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with at_interrupt(_interrupt):
                return super().invoke(ctx)
        except fmx.ForestmixError as error:
            typer.echo(f"Error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(ERROR) from error
        except (KeyboardInterrupt, Interrupted) as error:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from error


def exit_code(run: Callable[[], object]) -> int:
    """Run the command line and return the exit code, also where what it shows cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Unicode gets question marks, not an error
            stream.reconfigure(errors="replace")
    outcome = _outcome(run)
    outcome = _flushed(sys.__stdout__) or outcome
    if isinstance(outcome, OSError):
        _outcome(lambda: typer.echo(f"Error: {outcome}", err=True))
        outcome = ERROR
    _flushed(sys.__stderr__)
    return outcome


def _outcome(call: Callable[[], object]) -> int | OSError:
    """Return how a call ends: an exit code, or the error of the system."""
    try:
        call()
    except SystemExit as end:
        # 1 is how click and rich end when nobody reads on.
        return CLOSED_PIPE if isinstance(end.__context__, BrokenPipeError) else int(end.code or 0)
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        return error
    return 0


def _flushed(stream: TextIO | None) -> int | OSError:
    """Write what is left, and drop what cannot be written: Python would try again at its end, with a traceback."""
    if stream is None:  # closed before the start
        return 0
    outcome = _outcome(stream.flush)
    if outcome:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return outcome


#: Columns that a terminal must have for a line with a bar and words; a narrower one shows the numbers alone.
WIDE = 80


class Watch:
    """The callback of a run. ``interrupted``: whether Ctrl-C asked it to stop."""

    def __init__(self, progress: Any, tol: float = 0.0) -> None:
        self.progress, self.goal = progress, max(tol, sys.float_info.epsilon)
        self.interrupted = False
        self.task = progress.add_task("", total=1.0, rate="") if progress is not None else None

    def __call__(self, iteration: Any) -> bool:
        """Show where the run is, and return whether it is to stop."""
        import numpy as np  # not before a run, since --help is to be quick

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
