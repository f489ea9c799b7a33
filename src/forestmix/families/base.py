"""What a family of conditional distributions must offer.

Every conditional of a deep exponential family has the form (paper, section 3)::

    p(y | eta) = exp{ g(y) + t(y) eta - a(eta) }

with a one-dimensional natural parameter ``eta`` and a convex log-partition function ``a``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np

from forestmix.arrays import Array


class ExpectedLogPartition(NamedTuple):
    """``E a(eta)``, ``E a'(eta)`` and ``E a''(eta)`` for ``eta ~ N(mean, spread^2)``, entry by entry."""

    value: Array
    slope: Array
    curvature: Array


class RowExpectations(NamedTuple):
    """What a row contributes: ``E log p(x_i | eta_i)``, ``e_i = t(x_i) - E a'`` and ``kappa_i = E a''``."""

    log_likelihood: Array
    error: Array
    curvature: Array


class Family(ABC):
    """A one-parameter exponential family; its own parameters are numbers or one number per variable."""

    name: ClassVar[str]
    #: True where ``a''`` does not depend on ``eta``. The variances of q then do not depend on the data.
    curvature_is_constant: ClassVar[bool] = False

    @abstractmethod
    def check_size(self, size: int, what: str) -> None:
        """Raise unless the family's parameters fit ``size`` variables, which the message calls ``what``."""

    @abstractmethod
    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in ``dtype``, so that products keep that precision."""

    @abstractmethod
    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables, each as often as it is named."""

    @abstractmethod
    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value of ``y`` that is not NaN lies outside the support."""

    @abstractmethod
    def log_base(self, y: Array) -> Array:
        """Return ``g(y)``."""

    @abstractmethod
    def statistic(self, y: Array) -> Array:
        """Return ``t(y)``."""

    @abstractmethod
    def log_partition(self, eta: Array) -> Array:
        """Return ``a(eta)``."""

    @abstractmethod
    def log_partition_slope(self, eta: Array) -> Array:
        """Return ``a'(eta)``, which is ``E t(y)``."""

    @abstractmethod
    def log_partition_curvature(self, eta: Array) -> Array:
        """Return ``a''(eta)``, which is ``Var t(y)``."""

    @abstractmethod
    def expected_log_partition(self, mean: Array, spread: Array) -> ExpectedLogPartition:
        """Return the expectations of ``a``, ``a'`` and ``a''`` under ``N(mean, spread^2)``."""

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one value for each entry of ``eta``."""

    def expectations(self, y: Array, mean: Array, spread: Array) -> RowExpectations:
        """Return the row terms of both bounds at ``eta ~ N(mean, spread^2)`` (design 1.2 and 1.3).

        A family overrides this where ``g + t m - E a`` would cancel.
        """
        expected = self.expected_log_partition(mean, spread)
        statistic = self.statistic(y)
        return RowExpectations(
            self.log_base(y) + statistic * mean - expected.value,
            statistic - expected.slope,
            expected.curvature,
        )

    def log_partition_gap(self, mean: Array, wide: Array, narrow: Array) -> Array:
        """Return ``E a(mean + wide z) - E a(mean + narrow z)``, which is not negative for ``wide >= narrow``."""
        difference = self.expected_log_partition(mean, wide).value - self.expected_log_partition(mean, narrow).value
        return np.maximum(difference, 0)
