"""Sums over latents or rows in double precision, in arrays of any library; NumPy's without intermediate arrays."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from forestmix.arrays import Array, host
from forestmix.engines.rows import double


def total(values: Any) -> Any:
    """Return the sum of each observation, (N, k) -> (N,)."""
    xp = array_api_compat.array_namespace(values)
    return xp.sum(values, axis=-1, dtype=double(xp, array_api_compat.device(values)))


def inner(first: Any, second: Any) -> Any:
    """Return the inner product of each observation, (N,)."""
    if isinstance(first, np.ndarray):
        # Not np.vecdot: BLAS wakes a thread for it, which on a busy machine takes longer than the sum.
        return np.einsum("kj,kj->k", *np.broadcast_arrays(first, second), dtype=np.float64)
    return total(first * second)


def form(vector: Any, weights: Any) -> Any:
    """Return ``sum_j vector_j^2 weights_j`` of each observation, (N,); weights are (m,), (1, m) or (N, m)."""
    if isinstance(vector, np.ndarray):
        return np.einsum("kj,kj,kj->k", *np.broadcast_arrays(vector, vector, weights), dtype=np.float64)
    return total(vector * vector * weights)


def rms(values: Any) -> Array:
    """Return the root mean square of each observation on the host, (N,)."""
    return np.sqrt(host(inner(values, values)).astype(np.float64) / values.shape[1])
