"""Rows with case weights: the log-likelihood of row i counts ``w_i`` times, so weight 2 is the row twice.

``w (g + t eta - a)`` has the form of a family again, with g, t and a multiplied by w. What a new case looks like, its
draws and its quantiles, does not depend on the weight.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from forestmix.arrays import Array, finite, in_precision, numbers
from forestmix.errors import ArgumentError
from forestmix.families.base import Family
from forestmix.families.gaussian import Gaussian
from forestmix.families.primitive import Primitive


def weighted(family: Family, weight: Array) -> Family:
    """Return the family with a positive case weight for each row; those of a weighted one are multiplied."""
    return WeightedGaussian(family, weight) if isinstance(family, Gaussian) else Weighted(family, weight)


def checked_case_weights(given: Any, size: int) -> Array:
    """Return case weights, (n,) or (N, n), checked."""
    weight = finite("case_weights", numbers("case_weights", given).astype(np.float64))
    if weight.ndim not in (1, 2) or weight.shape[-1] != size or not weight.size:
        raise ArgumentError(
            f"case_weights must have one entry for each of the {size} rows of W, or one for each observation and row, "
            f"(N, {size}); got shape {weight.shape}."
        )
    if (weight < 0).any():
        raise ArgumentError(f"case_weights must not be negative; got {weight.min()}.")
    # One row of weights serves any number of observations.
    return weight[0] if weight.ndim == 2 and len(weight) == 1 else weight


def alike(values: Array) -> Array:
    """Return one row for all, (n,), where those of the observations, (N, n), are the same; else them as they are."""
    return values[0] if (values == values[:1]).all() else values


class CaseWeights(Family):
    """What rows with case weights have of the family of one case, which is ``unweighted``.

    ``weight`` is (n,), or (N, n) where each observation has its own.
    """

    _single: Any

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
        return type(self)(self._single.astype(dtype), self.weight)  # type: ignore[call-arg]

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables."""
        return type(self)(self._single.take(variables), self.weight[..., variables])  # type: ignore[call-arg]

    @property
    def differs_by_observation(self) -> bool:
        """Whether there is a weight for each row and observation."""
        return self.weight.ndim == 2

    def take_observations(self, keep: Array) -> Self:
        """Return the family of the chosen observations, with one row of weights where that serves all."""
        if not self.differs_by_observation:
            return self
        return type(self)(self._single, alike(self.weight[keep]))  # type: ignore[call-arg]

    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value lies outside the support."""
        self._single.check_support(name, y)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one case of each row."""
        return self._single.sample(eta, rng)

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)`` of one case."""
        return self._single.cumulative(y, eta)

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p`` of one case."""
        return self._single.quantile(p, eta)


class Weighted(CaseWeights):
    """A family whose rows count ``weight`` times."""

    name: ClassVar[str] = "weighted"

    def __init__(self, family: Family, weight: Array) -> None:
        self._single, self.weight = family, weight
        self.curvature_is_constant = family.curvature_is_constant
        self.curvature_is_bounded = family.curvature_is_bounded

    def primitive(self, x: Array) -> Primitive:
        """Return the rows with factor and best log-likelihood multiplied."""
        rows = self._single.primitive(x)
        return rows._replace(factor=rows.factor * self.weight, best=rows.best * self.weight)


class WeightedGaussian(CaseWeights, Gaussian):
    """Gaussian rows whose log-likelihood counts ``weight`` times: curvature and slope are those of ``sd / sqrt(w)``."""

    def __init__(self, family: Gaussian, weight: Array) -> None:
        self._single, self.weight = family, weight
        self.sd_left_out, self.places = family.sd_left_out, family.places
        if family.places is None:
            sd = family.sd / np.sqrt(weight)
            self.sd = in_precision("sd / sqrt(case_weights)", sd, family.sd.dtype, positive=True)

    def with_sd(self, sd: Any) -> Self:
        """Return rows of another sd, with the same weights."""
        return type(self)(self._single.with_sd(sd), self.weight)

    def log_constant(self) -> Array:
        """Return what ``w log N(y; eta, sd^2)`` has beyond ``log N(y; eta, sd^2 / w)``."""
        return self._log_density_at_mean() - super()._log_density_at_mean()

    def _log_density_at_mean(self) -> Array:
        return self.weight * self._single._log_density_at_mean()
