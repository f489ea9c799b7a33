"""Rows with case weights: the log-likelihood of row i counts ``w_i`` times, so weight 2 is the row twice.

``w (g + t eta - a)`` has the form of a family again, with g, t and a multiplied by w. What a new case looks like, its
draws and its quantiles, does not depend on the weight.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from forestmix.arrays import Array, finite, numbers
from forestmix.errors import ArgumentError
from forestmix.families.base import Family
from forestmix.families.gaussian import Gaussian
from forestmix.families.primitive import Primitive


def weighted(family: Family, weight: Array) -> Family:
    """Return the family with a positive case weight for each row; those of a weighted one are multiplied."""
    return WeightedGaussian(family, weight) if isinstance(family, Gaussian) else Weighted(family, weight)


def checked_case_weights(given: Any, size: int) -> Array:
    """Return case weights, (n,), checked."""
    weight = finite("case_weights", numbers("case_weights", given).astype(np.float64))
    if weight.shape != (size,):
        raise ArgumentError(f"case_weights must have one entry for each of the {size} rows of W; got {weight.shape}.")
    if (weight < 0).any():
        raise ArgumentError(f"case_weights must not be negative; got {weight.min()}.")
    return weight


class Weighted(Family):
    """A family whose rows count ``weight`` times; ``unweighted`` is that of one case."""

    name: ClassVar[str] = "weighted"

    def __init__(self, family: Family, weight: Array) -> None:
        self._single, self.weight = family, weight
        self.curvature_is_constant = family.curvature_is_constant
        self.curvature_is_bounded = family.curvature_is_bounded

    def __repr__(self) -> str:
        return f"{self._single!r} with case weights"

    @property
    def unweighted(self) -> Family:
        """The family of one case."""
        return self._single

    def check_size(self, size: int, what: str) -> None:
        """Raise unless the family's own parameters fit; the weights were checked with the layer."""
        self._single.check_size(size, what)

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in ``dtype``; weights stay in float64."""
        return type(self)(self._single.astype(dtype), self.weight)

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables."""
        return type(self)(self._single.take(variables), self.weight[variables])

    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value lies outside the support."""
        self._single.check_support(name, y)

    def log_base(self, y: Array) -> Array:
        """Return ``w g(y)``."""
        return self._times(self._single.log_base(y))

    def statistic(self, y: Array) -> Array:
        """Return ``w t(y)``."""
        return self._times(self._single.statistic(y))

    def log_partition(self, eta: Array) -> Array:
        """Return ``w a(eta)``."""
        return self._times(self._single.log_partition(eta))

    def log_partition_slope(self, eta: Array) -> Array:
        """Return ``w a'(eta)``."""
        return self._times(self._single.log_partition_slope(eta))

    def log_partition_curvature(self, eta: Array) -> Array:
        """Return ``w a''(eta)``."""
        return self._times(self._single.log_partition_curvature(eta))

    def primitive(self, x: Array) -> Primitive:
        """Return the rows with factor and best log-likelihood multiplied."""
        rows = self._single.primitive(x)
        return rows._replace(factor=rows.factor * self.weight, best=rows.best * self.weight)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one case of each row."""
        return self._single.sample(eta, rng)

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)`` of one case."""
        return self._single.cumulative(y, eta)

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p`` of one case."""
        return self._single.quantile(p, eta)

    def _times(self, term: Array) -> Array:
        return self.weight.astype(np.asarray(term).dtype) * term


class WeightedGaussian(Gaussian):
    """Gaussian rows whose log-likelihood counts ``weight`` times: curvature and slope are those of ``sd / sqrt(w)``."""

    def __init__(self, family: Gaussian, weight: Array) -> None:
        self._single, self.weight = family, weight
        self.sd_left_out, self.places = family.sd_left_out, family.places
        if family.places is None:
            self.sd = (np.asarray(family.sd) / np.sqrt(weight)).astype(family.sd.dtype)

    def __repr__(self) -> str:
        return f"{self._single!r} with case weights"

    @property
    def unweighted(self) -> Family:
        """The family of one case."""
        return self._single

    def with_sd(self, sd: Any) -> Self:
        """Return rows of another sd, with the same weights."""
        return type(self)(self._single.with_sd(sd), self.weight)

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with ``sd`` in ``dtype``."""
        return type(self)(self._single.astype(dtype), self.weight)

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables."""
        return type(self)(self._single.take(variables), self.weight[variables])

    def log_constant(self) -> Array:
        """Return what ``w log N(y; eta, sd^2)`` has beyond ``log N(y; eta, sd^2 / w)``."""
        return self._log_density_at_mean() - super()._log_density_at_mean()

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one case of each row."""
        return self._single.sample(eta, rng)

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)`` of one case."""
        return self._single.cumulative(y, eta)

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the quantile of one case."""
        return self._single.quantile(p, eta)

    def _log_density_at_mean(self) -> Array:
        return self.weight * self._single._log_density_at_mean()
