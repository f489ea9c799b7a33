"""The Bernoulli family; ``eta`` is the logit of its probability."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families.base import Family, float_type, refuse
from forestmix.families.primitive import Kind, Primitive, primitive


class Bernoulli(Family):
    """0 or 1 with ``P(1) = sigma(eta) = 1 / (1 + exp(-eta))``: ``t = y``, ``a = log(1 + exp(eta))``, ``g = 0``."""

    name: ClassVar[str] = "bernoulli"

    def check_support(self, name: str, y: Array) -> None:
        """Raise unless every entry is 0, 1 or NaN."""
        refuse(name, y, (y != 0) & (y != 1) & ~np.isnan(y), "0 or 1 for Bernoulli rows")

    def primitive(self, x: Array) -> Primitive:
        """Return softplus rows with target x; the best log-likelihood is 0."""
        return primitive(Kind.SOFTPLUS, 1.0, x, 0.0)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw 1 with probability ``sigma(eta)``, else 0."""
        return (rng.random(np.shape(eta)) < scipy.special.expit(eta)).astype(float_type(eta))

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return 0 below 0, ``sigma(-eta)`` from 0 on and 1 from 1 on."""
        below_one = np.where(np.less(y, 0), 0, scipy.special.expit(np.negative(eta)))
        return np.asarray(np.where(np.less(y, 1), below_one, 1), float_type(y, eta))
