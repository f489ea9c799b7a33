"""What a distribution of an unknown scale must offer.

A scale ``s > 0`` is integrated over on the line, as ``theta = log s``, where its density has the Jacobian ``s``::

    log p(theta) = log p(s) + theta
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from reprlib import repr as shown
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, generator
from forestmix.checks import is_number
from forestmix.errors import ArgumentError, ForestmixError


class Scale(ABC):
    """An unknown scale with its prior. The same object in several places is the same unknown; two objects are two."""

    #: The arguments, in the order of the constructor; they are attributes too.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: Whether the density has an integral, so that the scale can be drawn.
    proper: ClassVar[bool] = True

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.parameters)
        return f"{type(self).__name__}({values})"

    @abstractmethod
    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log p(s)`` of each scale, which must be above 0."""

    @abstractmethod
    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``d log p(s) / ds``."""

    @abstractmethod
    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return the scale that the unknown one is below with probability p."""

    def log_density_of_log(self, theta: npt.ArrayLike) -> Array:
        """Return ``log p(theta) = log p(s) + theta`` at ``theta = log s``."""
        theta = np.asarray(theta, np.float64)
        return self.log_density(np.exp(theta)) + theta

    def gradient_of_log(self, theta: npt.ArrayLike) -> Array:
        """Return ``d log p(theta) / d theta = s d log p(s) / ds + 1``."""
        scale = np.exp(np.asarray(theta, np.float64))
        return scale * self.log_density_slope(scale) + 1

    def sample(self, size: int | tuple[int, ...] | None = None, rng: Any = None) -> Array:
        """Draw scales from the prior, by its quantile function."""
        if not self.proper:
            raise ForestmixError(f"{self!r} has no integral, so nothing can be drawn from it; give a proper prior.")
        # Away from 0, whose quantile is 0 and no scale.
        return self.quantile(np.maximum(generator(rng).random(size), np.finfo(np.float64).tiny))


def positive(name: str, value: Any) -> float:
    """Return a parameter that is one finite number above 0."""
    if not is_number(value) or not 0 < value < np.inf:
        raise ArgumentError(f"{name} must be a finite number above 0; got {shown(value)}.")
    return float(value)
