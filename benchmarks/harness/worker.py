"""Contenders in processes of their own, which wait for orders so that their runs can take turns.

Each process imports its library and loads the problem before any clock starts, and has an empty Numba cache, so that
the first call of every contender includes all of its compilation and nothing else.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What a process may take to import its library and load the problem, in seconds.
PATIENCE = 180.0
#: What its first call may take beyond the limit of a call, to compile.
COMPILATION = 90.0


class ContenderError(Exception):
    """A contender could not be set up, or its run raised."""


class OutOfTimeError(ContenderError):
    """A run took longer than its limit and was ended."""


@dataclass(frozen=True)
class Reply:
    """What a call returned, and the seconds it took inside the contender's process."""

    value: Any
    seconds: float


def serve(connection: Any, contender: str, folder: str, options: dict[str, Any]) -> None:
    """Build the contender, then answer calls until the order to stop."""
    warnings.simplefilter("ignore")
    try:
        module, name = contender.split(":")
        instance = getattr(importlib.import_module(module), name)(Path(folder), **options)
        connection.send(("ready", None, 0.0))
        while (order := connection.recv()) is not None:
            method, arguments = order
            start = time.perf_counter()
            value = getattr(instance, method)(**arguments)
            connection.send(("done", value, time.perf_counter() - start))
    except EOFError:
        pass  # the parent is gone
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0].strip(" .:")
        connection.send(
            ("failed", f"{type(error).__name__}, {first_line}" if first_line else type(error).__name__, 0.0)
        )


class Worker:
    """A contender in its own process.

    Args:
        contender: "module:Class"; the class takes the problem's folder and ``options``.
        folder: where ``problems.store`` wrote the problem.
        options: further arguments of the class.

    """

    #: A smoke run sets this to False: it has no time to compile everything in every process.
    empty_cache = True

    def __init__(self, contender: str, folder: Path, **options: Any) -> None:
        self.contender, self.folder, self.options = contender, folder, options
        self.failure = ""
        self.cache = tempfile.mkdtemp(prefix="forestmix-bench-")
        self.has_compiled = False
        self._start()

    def call(self, method: str, limit: float | None = None, **arguments: Any) -> Reply:
        """Run a method of the contender; a run over its limit is ended, and the process started anew."""
        if self.failure:
            raise ContenderError(self.failure)
        self.wait()
        self.connection.send((method, arguments))
        extra = 0.0 if self.has_compiled else COMPILATION
        reply = self._receive(None if limit is None else limit + extra)
        self.has_compiled = True
        return reply

    def wait(self) -> None:
        """Wait until the contender is ready: nothing should be timed while others still import their libraries."""
        if not self.is_ready:
            self._receive(PATIENCE)
            self.is_ready = True

    def close(self) -> None:
        """End the process."""
        if self.process.is_alive():
            try:
                self.connection.send(None)
                self.process.join(timeout=2)
            except OSError:
                pass
        self._end()
        shutil.rmtree(self.cache, ignore_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self.contender, str(self.folder), self.options)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        before = os.environ.get("NUMBA_CACHE_DIR")
        if self.empty_cache:
            os.environ["NUMBA_CACHE_DIR"] = self.cache
        try:
            self.process.start()
        finally:
            os.environ.pop("NUMBA_CACHE_DIR", None)
            if before is not None:
                os.environ["NUMBA_CACHE_DIR"] = before
        theirs.close()
        self.is_ready = False

    def _receive(self, limit: float | None) -> Reply:
        if not self.connection.poll(limit):
            self._end()
            self._start()
            raise OutOfTimeError(f"no answer in {limit:.0f} s")
        try:
            state, value, seconds = self.connection.recv()
        except EOFError:
            raise ContenderError("its process died") from None
        if state == "failed":
            self._end()
            self.failure = value
            raise ContenderError(value)
        return Reply(value, seconds)

    def _end(self) -> None:
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


@contextmanager
def workers(contenders: Mapping[str, tuple[str, dict[str, Any]]], folder: Path) -> Iterator[dict[str, Worker]]:
    """Start one process for each contender, all at once, and end them in the end; names map to class and options."""
    started = {name: Worker(contender, folder, **options) for name, (contender, options) in contenders.items()}
    try:
        for worker in started.values():
            with suppress(ContenderError):
                worker.wait()
        yield started
    finally:
        for worker in started.values():
            worker.close()
