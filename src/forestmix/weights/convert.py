"""What a user may pass as W, as weights."""

from __future__ import annotations

from typing import Any

import scipy

from forestmix.weights.base import Weights
from forestmix.weights.dense import DenseWeights
from forestmix.weights.sparse import SparseWeights
from forestmix.weights.sparse_columns import SparseColumnWeights


def as_weights(W: Any) -> Weights:
    """Return ``W`` as weights: weights themselves, anything of scipy.sparse, or what NumPy reads as 2-d.

    Raises:
        ArgumentError: if W is not 2-d, is empty, or has entries that are not finite real numbers.
    """
    if isinstance(W, Weights):
        return W
    if scipy.sparse.issparse(W):
        by_columns = getattr(W, "format", None) == "csc"
        return SparseColumnWeights(W) if by_columns else SparseWeights(W)
    return DenseWeights(W)
