"""What a distribution of an unknown scale must offer.

A scale ``s > 0`` is integrated over on the line, as ``theta = log s``, where its density has the Jacobian ``s``::

    log p(theta) = log p(s) + theta
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from reprlib import repr as shown
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, generator
from forestmix.checks import is_number
from forestmix.errors import ArgumentError, ForestmixError

#: The imaginary step of a derivative: nothing is subtracted, so it can be as small as one likes.
STEP = 1e-20


class Scale(ABC):
    """An unknown scale with its prior. The same object in several places is the same unknown; two objects are two.

    A dataclass without equality, whose fields that are floats are above 0.
    """

    #: Whether the density has an integral, so that the scale can be drawn.
    proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            if field.type == "float":
                setattr(self, field.name, _positive(field.name, getattr(self, field.name)))

    @classmethod
    def parameters(cls) -> tuple[str, ...]:
        """Return the arguments, in the order of the constructor; they are attributes too."""
        return cls.__match_args__  # type: ignore[attr-defined]

    @abstractmethod
    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log p(s)`` of each scale, which must be above 0, or have a real part that is."""

    @abstractmethod
    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return the scale that the unknown one is below with probability p."""

    def log_density_of_log(self, theta: npt.ArrayLike) -> Array:
        """Return ``log p(theta) = log p(s) + theta`` at ``theta = log s``."""
        return self.log_density(np.exp(theta)) + theta

    def gradient_of_log(self, theta: npt.ArrayLike) -> Array:
        """Return ``d log p(theta) / d theta``, the imaginary part of ``log p(theta + i h) / h`` for a small h."""
        return np.imag(self.log_density_of_log(np.asarray(theta) + 1j * STEP)) / STEP

    def sample(self, size: int | tuple[int, ...] | None = None, rng: Any = None) -> Array:
        """Draw scales from the prior, by its quantile function."""
        if not self.proper:
            raise ForestmixError(f"{self!r} has no integral, so nothing can be drawn from it; give a proper prior.")
        # Away from 0, whose quantile is 0 and no scale.
        return self.quantile(np.maximum(generator(rng).random(size), np.finfo(np.float64).tiny))


def _positive(name: str, value: Any) -> float:
    """Return a parameter that is one finite number above 0."""
    if not is_number(value) or not 0 < value < np.inf:
        raise ArgumentError(f"{name} must be a finite number above 0; got {shown(value)}.")
    return float(value)
