"""What a family of conditional distributions must offer.

Every conditional of a deep exponential family has the form (paper, section 3)::

    p(y | eta) = exp{ g(y) + t(y) eta - a(eta) }

with a one-dimensional natural parameter ``eta`` and a convex log-partition function ``a``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from forestmix.arrays import Array, at_index, first_index, fits, parameter_text
from forestmix.errors import ArgumentError
from forestmix.families import row_expectations as terms
from forestmix.families.primitive import Primitive
from forestmix.families.row_expectations import ExpectedLogPartition, RowExpectations

#: Counts beyond this are infinite.
_LARGEST_COUNT = 1e300


class Parametric:
    """A distribution with parameters of its own, each one number or one for each variable."""

    name: ClassVar[str]
    #: Names of the parameters, which are attributes.
    parameters: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        pairs = (f"{name}={parameter_text(getattr(self, name))}" for name in self.parameters)
        return f"{type(self).__name__}({', '.join(pairs)})"

    def check_size(self, size: int, what: str) -> None:
        """Raise unless the parameters fit ``size`` variables, which the message calls ``what``."""
        for name in self.parameters:
            fits(name, getattr(self, name), size, what)

    def take(self, variables: Array) -> Self:
        """Return the distribution of the chosen variables, each as often as it is named."""
        chosen = copy(self)
        for name in self.parameters:
            value = getattr(self, name)
            setattr(chosen, name, value if value.ndim == 0 else value[variables])
        return chosen


class Family(Parametric, ABC):
    """A one-parameter exponential family (paper, section 3)."""

    #: True where ``a''`` does not depend on ``eta``. The variances of q then do not depend on the data.
    curvature_is_constant: bool = False
    #: How often the log-likelihood of each row counts, one number, (n,) or (N, n); see ``families.weighted``.
    weight: Any = 1.0
    #: False where ``a''`` grows without bound, so that a step can be too long by orders of magnitude.
    curvature_is_bounded: bool = True

    @property
    def unweighted(self) -> Family:
        """The family of one case: this one, unless its rows have case weights (``families.weighted``)."""
        return self

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in ``dtype``, so that products keep that precision."""
        return self

    @property
    def differs_by_observation(self) -> bool:
        """Whether each observation has case weights of its own."""
        return False

    def take_observations(self, keep: Array) -> Self:
        """Return the family of the chosen observations: itself, unless each has case weights of its own."""
        return self

    @abstractmethod
    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value of ``y`` that is not NaN lies outside the support."""

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one value for each entry of ``eta``."""

    @abstractmethod
    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)``, which falls as ``eta`` grows."""

    @abstractmethod
    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p``, for ``0 < p < 1``."""

    @abstractmethod
    def primitive(self, x: Array) -> Primitive:
        """Return the rows with data x, (N, n), as one of three functions with a factor, a shift and a sign.

        Engines know rows by it, and ``g``, ``t``, ``a`` and the terms below follow from it.
        """

    def log_base(self, y: Array) -> Array:
        """Return ``g(y)``."""
        return terms.base_and_statistic(self.primitive(y), y)[0]

    def statistic(self, y: Array) -> Array:
        """Return ``t(y)``."""
        return terms.base_and_statistic(self.primitive(y), y)[1]

    def log_partition(self, eta: Array) -> Array:
        """Return ``a(eta)``, infinite where that overflows."""
        return self._partition(eta, 0)

    def log_partition_slope(self, eta: Array) -> Array:
        """Return ``a'(eta)``, which is ``E t(y)``."""
        return self._partition(eta, 1)

    def log_partition_curvature(self, eta: Array) -> Array:
        """Return ``a''(eta)``, which is ``Var t(y)``."""
        return self._partition(eta, 2)

    def expectations(self, y: Array, mean: Array, spread: Array) -> RowExpectations:
        """Return the row terms of both bounds at ``eta ~ N(mean, spread^2)`` (paper, section 4)."""
        return terms.row_expectations(self.primitive(y), mean, spread)

    def expected_log_partition(self, mean: Array, spread: Array) -> ExpectedLogPartition:
        """Return the expectations of ``a``, ``a'`` and ``a''`` under ``N(mean, spread^2)``."""
        return terms.expected_log_partition(self.without_data(mean), mean, spread)

    def log_partition_gap(self, mean: Array, wide: Array, narrow: Array) -> Array:
        """Return ``E a(mean + wide z) - E a(mean + narrow z)``, which is not negative for ``wide >= narrow``."""
        return terms.log_partition_gap(self.without_data(mean), mean, wide, narrow)

    @terms.quiet
    def _partition(self, eta: Array, order: int) -> Array:
        found = terms.log_partition(self.without_data(eta), order)(np.asarray(eta, np.float64))
        return terms.cast(terms.float_type(eta), found)[0]

    def without_data(self, mean: Array) -> Primitive:
        """Return the rows for what does not depend on x, one for each entry of the last axis of ``mean``."""
        return self.primitive(np.zeros(np.shape(mean)[-1:]))


def smallest_count(cumulative: Callable[[Array], Array], p: Array, low: Array, high: Array) -> Array:
    """Return the smallest whole number y with ``cumulative(y) >= p``, entry by entry.

    It lies in ``low < y <= high``, with ``low >= -1``; ``high`` may be infinite. Wide brackets are halved in their
    logarithm. Counts too large to be exact in float64 are found to its precision.
    """
    low, high = np.broadcast_arrays(np.asarray(low, np.float64), np.asarray(high, np.float64))
    while True:
        # The shift makes the logarithm exist; the limit keeps the product finite, and infinity as the last resort.
        wide = high > 4 * (low + 2)
        geometric = np.sqrt(low + 2) * np.sqrt(np.minimum(high, _LARGEST_COUNT))
        middle = np.floor(np.where(wide, geometric, 0.5 * (low + high)))
        open_ = (middle > low) & (middle < high)
        if not open_.any():
            return np.array(high)
        enough = cumulative(middle) >= p
        low, high = np.where(open_ & ~enough, middle, low), np.where(open_ & enough, middle, high)


def refuse(name: str, y: Array, bad: Array, right: str) -> None:
    """Raise if any entry is ``bad``, saying how many are, which is the first, and what would be ``right``."""
    if bad.any():
        where = first_index(bad)
        raise ArgumentError(
            f"{name} must be {right}, or NaN for a missing entry; "
            f"got {int(bad.sum())} other entries, the first {y[where]}{at_index(where)}."
        )
