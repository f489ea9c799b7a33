"""Numba's ``njit`` for the kernels, with a cache that is never out of date.

Numba knows a cached kernel by the file it stands in. Its code also holds what it calls in other files, so after an edit
there Numba would still find it, and it would be wrong. Here the cache lies in a folder that is named by a digest of all
files of this folder: code from other sources is never found, and a process that still runs those writes elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core.event import Listener

#: Seconds after which the folder of other sources is removed: no test run that began before the edit still uses it.
KEPT = 3600.0

_config: Any = numba.config
_one_at_a_time = threading.RLock()


def njit(**options: Any) -> Callable[[Any], Any]:
    """Return Numba's decorator; ``cache=True`` means the cache of these sources, or none if no folder is writable."""
    return partial(_kept, numba.njit, options) if options.get("cache") else numba.njit(**options)


def pointer(signature: Any, function: Any, **options: Any) -> Any:
    """Compile a function once, for kernels that get it as an argument and call it where it is.

    What a kernel calls by name is compiled into it, again for each kernel, and takes most of its time if it is long.
    """
    if _config.DISABLE_JIT:
        return function
    return _kept(partial(numba.cfunc, signature), options | {"cache": True}, function)


def _kept(decorator: Any, options: dict[str, Any], function: Any) -> Any:
    """Decorate a function whose code is kept."""
    with _cache_folder():
        try:
            return decorator(**options)(function)
        except RuntimeError:  # Numba finds no place to write to
            return decorator(**options | {"cache": False})(function)


class PairedNumbers(Listener):
    """A listener to ``numba:compile`` that lets LLVM work on numbers side by side in memory as one vector.

    Numba leaves that out unless ``NUMBA_SLP_VECTORIZE`` is set. It is a fifth of a pass over a sparse W, whose kernels
    alone are compiled so, and nobody else's. Numba compiles on one thread at a time.
    """

    def __init__(self) -> None:
        self._depth, self._before = 0, 0

    def on_start(self, event: Any) -> None:
        """Set it for a kernel and all that it calls."""
        self._depth += 1
        if self._depth == 1:
            self._before = _config.SLP_VECTORIZE
            function = getattr(event.data["dispatcher"], "py_func", None)
            if getattr(function, "__module__", "") == f"{__package__}.sparse":
                _config.SLP_VECTORIZE = 1

    def on_end(self, event: Any) -> None:
        """Set it as it was."""
        self._depth -= 1
        if self._depth == 0:
            _config.SLP_VECTORIZE = self._before


@contextlib.contextmanager
def _cache_folder() -> Iterator[None]:
    """Keep the code of what is decorated meanwhile in the folder of these sources, and that of others elsewhere."""
    with _one_at_a_time:
        place = _config.CACHE_DIR
        _config.CACHE_DIR = _folder() or place
        try:
            yield
        finally:
            _config.CACHE_DIR = place


@cache
def _folder() -> str | None:
    """Return the folder for code of these sources, or None to leave the place to Numba.

    It lies in the folder that Numba itself would take: ``__pycache__``, in ``NUMBA_CACHE_DIR`` or in the user's cache.
    """
    if _config.DISABLE_JIT:
        return None
    try:
        beside = Path(str(numba.njit(cache=True)(_nothing).stats.cache_path))
        here = Path(__file__).parent
        # Tables of expectations and the kinds of rows are compiled into kernels, too.
        tables = [here.parents[1] / "families" / name for name in ("expectations.py", "primitive.py")]
        folder = beside / f"sources-{digest([*here.glob('*.py'), *tables])}"
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            remove_older(folder)
    except (OSError, RuntimeError):
        return None
    return str(folder)


def _nothing() -> None:
    """Stand for any function of this folder."""


def digest(sources: list[Path]) -> str:
    """Return a short name for what files hold, and for the version of Numba."""
    known = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for path in sorted(sources):
        known.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return known.hexdigest()


def remove_older(folder: Path) -> None:
    """Remove the folders of other sources that were made long ago."""
    for other in folder.parent.glob("sources-*"):
        with contextlib.suppress(OSError):  # another process may remove it, too
            if other != folder and time.time() - other.stat().st_mtime > KEPT:
                shutil.rmtree(other, ignore_errors=True)
