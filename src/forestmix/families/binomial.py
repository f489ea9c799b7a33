"""The Binomial family with known numbers of trials; ``eta`` is the logit of its probability."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array, per_variable
from forestmix.errors import ArgumentError
from forestmix.families.base import Family, float_type, refuse
from forestmix.families.poisson import stirling_remainder
from forestmix.families.primitive import Kind, Primitive, primitive

#: Draws are 64-bit integers.
_TOO_MANY_TO_DRAW = 2.0**63


class Binomial(Family):
    """Successes in ``trials``: ``t = y``, ``a = trials log(1 + exp(eta))``, ``g = log C(trials, y)``.

    Args:
        trials: number of trials, one whole number or one for each variable.

    """

    name: ClassVar[str] = "binomial"
    parameters: ClassVar[tuple[str, ...]] = ("trials",)

    def __init__(self, trials: npt.ArrayLike) -> None:
        self.trials = per_variable("trials", trials, positive=True)
        fractional = self.trials != np.floor(self.trials)
        if fractional.any():
            raise ArgumentError(f"trials must be whole numbers; got {self.trials[fractional][0]}.")

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with ``trials`` in ``dtype``; a number that is not exact there is refused."""
        with np.errstate(over="ignore"):
            trials = self.trials.astype(dtype)
        if (trials != self.trials).any():
            raise ArgumentError(f"trials must be exact in {dtype}; got {int(self.trials.max())}. Use float64 data.")
        return self._with(trials=trials)

    def check_support(self, name: str, y: Array) -> None:
        """Raise unless every entry is a whole number from 0 to ``trials``, or NaN."""
        bad = ~((y >= 0) & (y <= self.trials) & (y == np.floor(y))) & ~np.isnan(y)
        if bad.any():
            first = np.broadcast_to(self.trials, y.shape)[tuple(np.argwhere(bad)[0])]
            refuse(name, y, bad, f"a whole number from 0 to trials (here {int(first)}) for Binomial rows")

    def primitive(self, x: Array) -> Primitive:
        """Return softplus rows: factor ``trials``, target ``x / trials``."""
        successes, trials = np.asarray(x, np.float64), self.trials.astype(np.float64)
        # At best, log C(trials, x) and trials times the entropy of x / trials, which is minus this.
        excess = stirling_remainder(successes) + stirling_remainder(trials - successes) - stirling_remainder(trials)
        return primitive(Kind.SOFTPLUS, trials, successes / trials, -excess)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw the number of successes at probability ``sigma(eta)``."""
        if (self.trials >= _TOO_MANY_TO_DRAW).any():
            raise ArgumentError(
                f"trials must be below 2^63 to draw counts, which are 64-bit integers; got {self.trials.max():g}."
            )
        return rng.binomial(self.trials.astype(np.int64), scipy.special.expit(eta)).astype(float_type(eta))

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``1 - I_p(y + 1, trials - y) = I_(1 - p)(trials - y, y + 1)``, from the smaller of p and 1 - p."""
        count, trials = np.floor(np.asarray(y, np.float64)), self.trials.astype(np.float64)
        inside = np.clip(count, 0, trials - 1)
        smaller = scipy.special.expit(-np.abs(np.asarray(eta, np.float64)))
        rare = np.asarray(eta) < 0
        # One call for both signs: the function is the slow part. Its complement exists in SciPy, but is slower still.
        first, second = np.where(rare, inside + 1, trials - inside), np.where(rare, trials - inside, inside + 1)
        value = scipy.special.betainc(first, second, smaller)
        value = np.where(count < 0, 0, np.where(count >= trials, 1, np.where(rare, 1 - value, value)))
        return np.asarray(value, float_type(y, eta))

    def _arguments(self) -> list[str]:
        return [f"trials={int(self.trials)}"] if self.trials.ndim == 0 else super()._arguments()
