"""The noise of Gaussian rows when nothing is said of it: a weak prior on the scale of the data."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.scales.base import Scale
from forestmix.scales.distributions import HalfStudentT

#: Degrees of freedom, and scale in standard deviations of the data; as brms and bambi have them.
DF, WIDTH = 3.0, 2.5


class FromData(Scale):
    """``HalfStudentT(3, 2.5 sd(x))``, known once the data are: what ``Gaussian()`` without an sd means for rows."""

    proper: ClassVar[bool] = False

    def given(self, values: Array, weights: Array) -> HalfStudentT:
        """Return the prior, given the values of the rows that have this scale and their case weights."""
        return self.given_spread(weighted_sd(values, weights))

    def given_spread(self, spread: float) -> HalfStudentT:
        """Return the prior, given the sd of these values."""
        # A constant says nothing of its scale.
        return HalfStudentT(DF, WIDTH * spread if spread > 0 else WIDTH)

    def log_density(self, scale: Any) -> NoReturn:
        """Raise: the prior is known once the data are."""
        raise ForestmixError(
            "Gaussian() without an sd has a prior on the scale of the data, and there are none here; give the sd, such "
            "as Gaussian(sd=1.0), or a prior, such as Gaussian(sd=forestmix.scales.HalfNormal(1.0))."
        )

    log_density_slope = quantile = log_density  # type: ignore[assignment]


def weighted_sd(values: Array, weights: Array) -> float:
    """Return the sd of values, each with its weight, NaN left out: a weight of 2 is the value twice."""
    there = ~np.isnan(values)
    own, share = values[there].astype(np.float64), np.broadcast_to(weights, values.shape)[there]
    if not np.sum(share) > 0:
        return 0.0
    return float(np.sqrt(np.average((own - np.average(own, weights=share)) ** 2, weights=share)))
