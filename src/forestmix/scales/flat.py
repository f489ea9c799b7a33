"""No prior information: every scale is as likely as any other."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.scales.base import Scale


class Flat(Scale):
    """``p(s) = 1`` for all ``s > 0``, which has no integral.

    The posterior has one if the data bound the scale from above: two rows more than latents for a noise, three groups
    for the sd of groups. Evidences of models with different flat scales cannot be compared.
    """

    proper: ClassVar[bool] = False

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return 0."""
        return np.zeros(np.shape(scale))

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return 0."""
        return np.zeros(np.shape(scale))

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Raise: a density without an integral has no quantiles."""
        raise ForestmixError("Flat() has no quantiles, since its density has no integral; give a proper prior.")
