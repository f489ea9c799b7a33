"""Factors of counts, as tables of probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.families import Poisson
from forestmix.latents.base import Factors

#: What the tail of a table may hold at most, as a logarithm: less than rounding leaves of a sum.
TAIL = -45.0
#: A table longer than this is refused: such counts are normal to many digits, and Gaussian latents are the model.
LONGEST = 2**14


@dataclass(frozen=True)
class PoissonFactors(Factors):
    """``log q_j(y)`` for y = 0, 1, ..., K: (N, m, K + 1), normalised. What lies beyond K is less than rounding."""

    log_table: Array
    discrete: ClassVar[bool] = True
    several_optima: ClassVar[bool] = True

    @classmethod
    def tilted(cls, family: Poisson, eta: Array, H: Array, h: Array) -> Self:
        """Return ``log q = (eta + h) y - H y^2 / 2 - log y!``, from tables as long as the slowest tail needs.

        The logarithm is concave in y, so once a table has fallen by ``TAIL`` from its top, and falls by a half or more
        at its end, less than rounding lies beyond.
        """
        shape = np.broadcast_shapes(np.shape(eta), np.shape(H), np.shape(h))
        slope, H = np.broadcast_to(eta + h, shape)[..., None], np.broadcast_to(H, shape)[..., None]

        # Relative to a count near the top: by themselves the terms may be larger than their differences by many orders.
        top = np.floor(np.clip(np.divide(slope, H, out=np.zeros(slope.shape), where=H > 0), 0, LONGEST))
        of_top = scipy.special.gammaln(top + 1)

        def table(y: Array) -> Array:
            return (y - top) * (slope - 0.5 * H * (y + top)) - (scipy.special.gammaln(y + 1) - of_top)

        return cls.from_table(grown(table))

    @classmethod
    def largest_tilt(cls, eta: Array, H: Array, centre: Array) -> Array:
        """Return the h whose mode is well above both, and not beyond the tables."""
        mode = np.minimum(2 * np.maximum(centre, np.exp(eta)) + 32, LONGEST / 4)
        return np.log(mode) + mode * H - eta

    @classmethod
    def from_table(cls, table: Array) -> Self:
        """Return the factors with these log probabilities, up to a constant."""
        shifted = table - np.max(table, axis=-1, keepdims=True)
        return cls(shifted - scipy.special.logsumexp(shifted, axis=-1, keepdims=True))

    @cached_property
    def probabilities(self) -> Array:
        """``q_j(y)`` for y = 0, ..., K."""
        return np.exp(self.log_table)

    @cached_property
    def values(self) -> Array:
        """0, 1, ..., K."""
        return np.arange(self.log_table.shape[-1], dtype=np.float64)

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        """``sum_y y q_j(y)``."""
        return self.probabilities @ self.values

    @cached_property
    def sd(self) -> Array:  # type: ignore[override]
        """The square root of the variance, which is summed around the mean."""
        return np.sqrt(np.sum(self.probabilities * (self.values - self.mean[..., None]) ** 2, axis=-1))

    def pull(self, family: Poisson, eta: Array, H: Array) -> Array:
        """Return ``log q(1) - log q(0) - eta + H (1 / 2 - mean)``."""
        return self.log_table[..., 1] - self.log_table[..., 0] - eta + H * (0.5 - self.mean)

    def relative_entropy(self, family: Poisson, eta: Array) -> Array:
        """Return ``sum_y q(y) (log q(y) - y eta + log y!) + exp(eta)``."""
        prior = np.asarray(eta)[..., None] * self.values - scipy.special.gammaln(self.values + 1)
        terms = np.where(self.probabilities > 0, self.log_table - prior, 0.0)
        return np.sum(self.probabilities * terms, axis=-1) + np.exp(eta)

    def quantile(self, p: Array) -> Array:
        """Return the smallest y whose cumulative probability reaches p."""
        cumulative = np.cumsum(self.probabilities, axis=-1)
        return np.minimum(np.sum(cumulative < np.asarray(p)[..., None], axis=-1), cumulative.shape[-1] - 1.0)

    def density(self, y: Array) -> Array:
        """Return the probability of y, 0 unless it is a count within the table."""
        shape = np.broadcast_shapes(np.shape(y), self.mean.shape)
        y = np.broadcast_to(np.asarray(y, np.float64), shape)
        inside = (y >= 0) & (y < len(self.values)) & (y == np.floor(y))
        place = np.where(inside, y, 0).astype(np.int64)
        table = np.broadcast_to(self.probabilities, (*shape, len(self.values)))
        return np.where(inside, np.take_along_axis(table, place[..., None], axis=-1)[..., 0], 0.0)


def grown(table: Callable[[Array], Array]) -> Array:
    """Return ``table(y)`` for y = 0, ..., K with K doubled until every tail is below rounding."""
    length = 32
    while True:
        values = table(np.arange(length, dtype=np.float64))
        low = values[..., -1] <= np.max(values, axis=-1) + TAIL
        falling = values[..., -1] <= values[..., -2] - 0.5
        if np.all(low & falling) or not np.isfinite(np.max(values)):
            return values
        if length >= LONGEST:
            raise ForestmixError(
                f"The factors of Poisson latents need tables of more than {LONGEST} counts here. Rescale the model, or "
                "use Gaussian latents, which such large counts are close to."
            )
        length *= 2
