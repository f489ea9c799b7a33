"""How the command line ends when something goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
