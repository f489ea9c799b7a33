"""What a family of conditional distributions must offer.

Every conditional of a deep exponential family has the form (paper, section 3)::

    p(y | eta) = exp{ g(y) + t(y) eta - a(eta) }

with a one-dimensional natural parameter ``eta`` and a convex log-partition function ``a``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.families.primitive import Primitive

#: Counts beyond this are infinite.
_LARGEST_COUNT = 1e300
#: The step of central differences: their error is a ten-millionth, that of rounding a billionth.
_DIFFERENCE = 1e-3


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


class RowCodes(NamedTuple):
    """The entries of a ``kernels.rows.RowTable`` that a family fills: its code, its parameter, and a constant.

    Each is one number, one for each row, or for ``constant`` one for each entry of x.
    """

    kind: Array | int
    scale: Array | float
    constant: Array | float


class Family(ABC):
    """A one-parameter exponential family (paper, section 3); its own parameters are numbers, or one per variable."""

    name: ClassVar[str]
    #: True where ``a''`` does not depend on ``eta``. The variances of q then do not depend on the data.
    curvature_is_constant: bool = False
    #: False where ``a''`` grows without bound, so that a step can be too long by orders of magnitude.
    curvature_is_bounded: bool = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def check_size(self, size: int, what: str) -> None:  # noqa: B027 - a family without parameters fits every size
        """Raise unless the family's parameters fit ``size`` variables, which the message calls ``what``."""

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in ``dtype``, so that products keep that precision."""
        return self

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables, each as often as it is named."""
        return self

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

    def curvature_slopes(self, mean: Array, spread: Array) -> tuple[Array, Array]:
        """Return the expected third and fourth derivatives of ``a`` under ``N(mean, spread^2)``, for Newton's steps.

        By central differences of ``E a''`` in the mean.
        """
        low, here, high = (
            self.expected_log_partition(mean + shift, spread).curvature for shift in (-_DIFFERENCE, 0.0, _DIFFERENCE)
        )
        third, fourth = (high - low) / (2 * _DIFFERENCE), ((high - here) - (here - low)) / _DIFFERENCE**2
        return np.broadcast_to(third, np.shape(mean)), np.broadcast_to(fourth, np.shape(mean))

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one value for each entry of ``eta``."""

    @abstractmethod
    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)``, which falls as ``eta`` grows."""

    @abstractmethod
    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p``, for ``0 < p < 1``."""

    def expectations(self, y: Array, mean: Array, spread: Array) -> RowExpectations:
        """Return the row terms of both bounds at ``eta ~ N(mean, spread^2)`` (paper, section 4).

        A family overrides this where ``g + t m - E a`` would cancel.
        """
        expected = self.expected_log_partition(mean, spread)
        statistic = self.statistic(y)
        return RowExpectations(
            self.log_base(y) + statistic * mean - expected.value,
            statistic - expected.slope,
            expected.curvature,
        )

    def primitive(self, x: Array) -> Primitive | None:
        """Return the rows with data x, (N, n), as engines know them; ``None`` where they do not."""
        return None

    def row_codes(self, x: Array) -> RowCodes | None:
        """Return how the compiled kernels know these rows, given data (N, n); ``None`` where they do not.

        A family without codes is evaluated by ``expectations``, between two passes over W rather than inside one.
        """
        return None

    def log_partition_gap(self, mean: Array, wide: Array, narrow: Array) -> Array:
        """Return ``E a(mean + wide z) - E a(mean + narrow z)``, which is not negative for ``wide >= narrow``."""
        difference = self.expected_log_partition(mean, wide).value - self.expected_log_partition(mean, narrow).value
        return np.maximum(difference, 0)


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
