"""The Gaussian family; ``eta`` is its mean. Its standard deviation is known, or has a prior (``forestmix.scales``)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from forestmix.arrays import Array, fits, in_precision, per_variable
from forestmix.errors import ForestmixError
from forestmix.families.base import Family
from forestmix.families.primitive import Kind, Primitive, primitive
from forestmix.scales import Places, places_of

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Gaussian(Family):
    """``N(eta, sd^2)``: ``t = y / sd^2``, ``a = eta^2 / (2 sd^2)``, ``g`` the log density at mean zero.

    Args:
        sd: standard deviation, one number or one for each variable; or an unknown scale such as
            ``scales.HalfNormal(1.0)``, or a list of numbers and scales, in which the same object is the same unknown.
            When left out it is 1, but for the rows of the data unknown, with a weak prior on their scale.

    """

    name: ClassVar[str] = "gaussian"
    parameters: ClassVar[tuple[str, ...]] = ("sd",)
    curvature_is_constant = True
    #: Whether the sd was left out, and which variables have an unknown one; ``None`` where all are numbers.
    sd_left_out: bool = False
    places: Places | None = None

    def __init__(self, sd: Any = None) -> None:
        self.sd_left_out, self.places = sd is None, places_of("sd", sd)
        if self.places is None:
            self.sd = per_variable("sd", 1.0 if sd is None else sd, positive=True)

    def __getattr__(self, name: str) -> Any:
        # Only reached where there is no sd: the arrays of a family whose scales are known are plain attributes.
        if name == "sd":
            raise ForestmixError(
                f"The sd of {self!r} is unknown here. Give numbers by model.with_scales(values), or let forestmix "
                "integrate over it: forestmix.infer(model, x)."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def check_size(self, size: int, what: str) -> None:
        """Raise unless ``sd`` is one number or has ``size`` entries."""
        fits("sd", self.sd if self.places is None else self.places.which, size, what)

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with ``sd`` in ``dtype``; an ``sd`` that becomes zero there is refused."""
        return self if self.places else self._with(sd=in_precision("sd", self.sd, dtype, positive=True))

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables."""
        return super().take(variables)._with(places=self.places and self.places.take(variables))

    def weighted(self, weight: Any) -> Self:
        """Return the family with case weights; an sd that does not fit its precision with them is refused."""
        chosen = super().weighted(weight)
        if self.places is None:
            in_precision("sd / sqrt(case_weights)", chosen.row_sd, self.sd.dtype, positive=True)
        return chosen

    def with_sd(self, sd: Any) -> Self:
        """Return rows of another sd, or of an unknown one, with the same case weights."""
        return type(self)(sd).weighted(self.weight)

    @property
    def row_sd(self) -> Array:
        """``sd / sqrt(w)``: that of rows without case weights that have the same curvature and slope."""
        return self.sd / np.sqrt(self.weight)

    def check_support(self, name: str, y: Array) -> None:
        """Every number is in the support; infinities were refused with the shape."""

    def primitive(self, x: Array) -> Primitive:
        """Return quadratic rows: factor ``1 / sd^2``, target x, at best the density at its mean."""
        sd = self.sd.astype(np.float64)
        return primitive(Kind.QUADRATIC, 1 / sd**2, x, -np.log(sd) - _HALF_LOG_TWO_PI)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw ``N(eta, sd^2)``."""
        return eta + self.sd * rng.standard_normal(np.shape(eta)).astype(self.sd.dtype)

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``Phi((y - eta) / sd)``."""
        return scipy.special.ndtr((y - eta) / self.sd)

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return ``eta + sd Phi^-1(p)``."""
        return eta + self.sd * scipy.special.ndtri(p)

    def _arguments(self) -> list[str]:
        return super()._arguments() if self.places is None else [f"sd={self.places!r}"]
