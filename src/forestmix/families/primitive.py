"""What the rows of every family are made of: three functions, with a factor, a shift and a sign.

A row ``exp{ g + t eta - a(eta) }`` has ``a(eta) = factor A(zeta)``, ``zeta = sign (eta - shift)``, where A is one of::

    quadratic    zeta^2 / 2             Gaussian
    exponential  exp(zeta)              Poisson, Gamma
    softplus     log(1 + exp(zeta))     Bernoulli, Binomial, negative binomial

Its log-likelihood is largest where ``A'(zeta)`` is the ``target`` ``sign t / factor``. Relative to that, it is
``factor`` times a divergence of A, which is not negative, so that large counts and small noise keep their digits. With
A* the convex conjugate of A::

    log p = best - factor D(zeta)        D(zeta) = A(zeta) + A*(target) - target zeta
    best  = g + t shift + factor A*(target)
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array


class Kind(IntEnum):
    """The function A; 0 is none of them, so that an array that nobody has filled is refused."""

    QUADRATIC = 1
    EXPONENTIAL = 2
    SOFTPLUS = 3


class Primitive(NamedTuple):
    """The rows of a family with their data x, (N, n), in float64.

    ``kind``: one number, or one for each row; all others: one number, one for each row, or one for each entry of x.
    """

    kind: Array
    factor: Array
    shift: Array
    sign: Array
    target: Array
    best: Array


def primitive(
    kind: npt.ArrayLike, factor: npt.ArrayLike, target: npt.ArrayLike, best: npt.ArrayLike,
    *, shift: npt.ArrayLike = 0.0, sign: npt.ArrayLike = 1.0,
) -> Primitive:  # fmt: skip
    """Return rows with their numbers as arrays."""
    numbers = (np.asarray(part, np.float64) for part in (factor, shift, sign, target, best))
    return Primitive(np.asarray(kind, np.int8), *numbers)
