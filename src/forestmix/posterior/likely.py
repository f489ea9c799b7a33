"""Where the rows of a model find their data likely: the first step of iteratively reweighted least squares."""

from __future__ import annotations

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families.primitive import Kind


def _likely_quadratic(target: Array, factor: Array) -> tuple[Array, Array]:
    """Return where ``A' = zeta`` is the target, and ``A'' = 1``."""
    return target, np.ones_like(target)


def _likely_exponential(target: Array, factor: Array) -> tuple[Array, Array]:
    """Return where ``A' = exp(zeta)`` is the target; one of 0 is taken as some way below the mean of the others."""
    some = target > 0
    mean = np.sum(target, axis=1, keepdims=True) / np.maximum(np.sum(some, axis=1, keepdims=True), 1)
    rate = np.where(some, target, np.where(mean > 0, mean, 1.0) * np.exp(-1.0))
    return np.log(rate), rate


def _likely_softplus(target: Array, factor: Array) -> tuple[Array, Array]:
    """Return where ``A'``, a probability, is the target, drawn a little towards one half, as for generalised models."""
    share = (factor * target + 0.5) / (factor + 1)
    return scipy.special.logit(share), share * (1 - share)


#: For each kind of rows: zeta at which x is likely and ``A''`` there (``forestmix.families.primitive``).
LIKELY = {
    Kind.QUADRATIC: _likely_quadratic,
    Kind.EXPONENTIAL: _likely_exponential,
    Kind.SOFTPLUS: _likely_softplus,
}
