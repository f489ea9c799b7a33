"""Compiled kernels (Numba): passes over W, coordinate sweeps, one-dimensional expectations.

Imported where they are used, and only then: Numba takes a second to load.
"""

import time

_began = time.perf_counter()

from numba.core import event  # noqa: E402

from forestmix.clock import leave_out  # noqa: E402
from forestmix.engines.compiled.compiling import PairedNumbers  # noqa: E402
from forestmix.engines.compiled.notice import CompilingNotice  # noqa: E402

event.register("numba:compile", CompilingNotice())
event.register("numba:compile", PairedNumbers())
# Numba holds this lock while it compiles a function or reads it from its cache.
_preparation = event.TimingListener()
event.register("numba:compiler_lock", _preparation)
_loading = time.perf_counter() - _began
# The listener has no duration before the first event.
leave_out(lambda: _loading + (float(_preparation.duration) if _preparation.done else 0.0))
