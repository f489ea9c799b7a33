"""What a user may pass as W, as weights."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import scipy

from forestmix.weights.arrays import ArrayWeights
from forestmix.weights.base import Weights
from forestmix.weights.dense import DenseWeights
from forestmix.weights.sparse import SparseWeights
from forestmix.weights.sparse_columns import SparseColumnWeights


def as_weights(W: Any) -> Weights:
    """Return ``W`` as weights: weights themselves, anything of scipy.sparse, or what NumPy reads as 2-d.

    A dense array of PyTorch, JAX, CuPy or another library of the array API standard stays where it is.

    Raises:
        ArgumentError: if W is not 2-d, is empty, or has entries that are not finite real numbers.
    """
    if isinstance(W, Weights):
        return W
    if scipy.sparse.issparse(W):
        by_columns = getattr(W, "format", None) == "csc"
        return SparseColumnWeights(W) if by_columns else SparseWeights(W)
    if not isinstance(W, np.ndarray) and array_api_compat.is_array_api_obj(W) and not array_api_compat.is_dask_array(W):
        return ArrayWeights(W)
    return DenseWeights(W)
