"""What a family of conditional distributions must offer.

Every conditional of a deep exponential family has the form (paper, section 3)::

    p(y | eta) = exp{ g(y) + t(y) eta - a(eta) }

with a one-dimensional natural parameter ``eta`` and a convex log-partition function ``a``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from forestmix.arrays import Array, at_index, first_index, fits, parameter_text
from forestmix.errors import ArgumentError
from forestmix.families.expectations import quiet
from forestmix.families.primitive import Primitive, of_each_kind
from forestmix.families.row_terms import gap, log_likelihood_terms, log_partition

#: Counts beyond this are infinite.
_LARGEST_COUNT = 1e300


class ExpectedLogPartition(NamedTuple):
    """``E a(eta)``, ``E a'(eta)`` and ``E a''(eta)`` for ``eta ~ N(mean, spread^2)``, entry by entry."""

    value: Array
    slope: Array
    curvature: Array


class RowExpectations(NamedTuple):
    """What a row contributes: ``E log p(x_i | eta_i)``, ``e_i = t(x_i) - E a'`` and ``kappa_i = E a''``.

    A curvature that is constant has no axis of observations.
    """

    log_likelihood: Array
    error: Array
    curvature: Array


class Parametric:
    """A distribution with parameters of its own, each one number or one for each variable."""

    name: ClassVar[str]
    #: Names of the parameters, which are attributes.
    parameters: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._arguments())})"

    def check_size(self, size: int, what: str) -> None:
        """Raise unless the parameters fit ``size`` variables, which the message calls ``what``."""
        for name in self.parameters:
            fits(name, getattr(self, name), size, what)

    def astype(self, dtype: np.dtype) -> Self:
        """Return the distribution with its parameters in ``dtype``, so that products keep that precision."""
        return self

    def take(self, variables: Array) -> Self:
        """Return the distribution of the chosen variables, each as often as it is named."""
        given = {name: vars(self).get(name, 1.0) for name in (*self.parameters, "weight")}
        return self._with(**{name: value[..., variables] for name, value in given.items() if np.ndim(value)})

    def _with(self, **changes: Any) -> Self:
        """Return the same distribution with other attributes."""
        chosen = copy(self)
        vars(chosen).update(changes)
        return chosen

    def _arguments(self) -> list[str]:
        return [f"{name}={parameter_text(getattr(self, name))}" for name in self.parameters]


class Family(Parametric, ABC):
    """A one-parameter exponential family (paper, section 3)."""

    #: True where ``a''`` does not depend on ``eta``. The variances of q then do not depend on the data.
    curvature_is_constant: bool = False
    #: False where ``a''`` grows without bound, so that a step can be too long by orders of magnitude.
    curvature_is_bounded: bool = True
    #: How often the log-likelihood of each row counts, 1, (n,) or (N, n): a weight of 2 is the row twice. What a new
    #: case looks like, its draws and its quantiles, does not depend on it.
    weight: Any = 1.0

    def __repr__(self) -> str:
        return super().__repr__() + (" with case weights" if np.ndim(self.weight) else "")

    def weighted(self, weight: Any) -> Self:
        """Return the family with a positive case weight for each row, or 1; those that it has are multiplied."""
        return self if np.ndim(weight) == 0 else self._with(weight=self.weight * weight)

    @property
    def unweighted(self) -> Self:
        """The family of one case."""
        return self._with(weight=1.0)

    @property
    def differs_by_observation(self) -> bool:
        """Whether each observation has case weights of its own."""
        return np.ndim(self.weight) == 2

    def take_observations(self, keep: Array) -> Self:
        """Return the family of the chosen observations, with one row of case weights where that serves all."""
        return self._with(weight=alike(self.weight[keep])) if self.differs_by_observation else self

    @abstractmethod
    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value of ``y`` that is not NaN lies outside the support."""

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one value for each entry of ``eta``."""

    @abstractmethod
    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)``, which falls as ``eta`` grows."""

    @quiet
    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p``, for ``0 < p < 1``.

        Here of counts with ``t = y``, by bisection between Cantelli's bounds on the quantile of any distribution::

            E y - sd sqrt((1 - p) / p)        E y + sd sqrt(p / (1 - p))
        """
        one, at, p = self.unweighted, np.asarray(eta, np.float64), np.asarray(p)
        mean, sd, odds = one._derivative(at, 1), np.sqrt(one._derivative(at, 2)), p / (1 - p)
        low, high = np.floor(mean - sd / np.sqrt(odds)) - 2, np.ceil(mean + sd * np.sqrt(odds)) + 1
        low = np.where(low > -1, low, -1.0)  # also where a rate beyond all numbers leaves NaN
        return np.asarray(smallest_count(lambda y: self.cumulative(y, eta), p, low, high), float_type(p, eta))

    @abstractmethod
    def primitive(self, x: Array) -> Primitive:
        """Return the rows with data x, (N, n), as one of three functions with a factor, a shift and a sign.

        Engines know rows by it, and ``g``, ``t``, ``a`` and the terms below follow from it.
        """

    def rows(self, x: Array) -> Primitive:
        """Return the rows with data x and their case weights: ``w (g + t eta - a)`` has the form of a family again."""
        rows = self.primitive(x)
        if rows is None:
            raise ArgumentError(f"family must have rows that engines know, such as Poisson(); got {self!r}.")
        return rows._replace(factor=rows.factor * self.weight, best=rows.best * self.weight)

    def without_data(self, mean: Array) -> Primitive:
        """Return the rows for what does not depend on x, one for each entry of the last axis of ``mean``."""
        return self.rows(np.zeros(np.shape(mean)[-1:]))

    def log_base(self, y: Array) -> Array:
        """Return ``g(y)``: the log-likelihood at ``eta = 0``, and ``a`` there."""
        rows, eta = self.rows(y), np.zeros(np.shape(y))
        return np.asarray(_terms(rows, eta, np.zeros(()))[0] + log_partition(rows, 0, eta), float_type(y))

    def statistic(self, y: Array) -> Array:
        """Return ``t(y) = sign factor target``."""
        rows = self.rows(y)
        return np.asarray(rows.sign * rows.factor * rows.target + np.zeros(np.shape(y)), float_type(y))

    def log_partition(self, eta: Array) -> Array:
        """Return ``a(eta)``, infinite where that overflows."""
        return self._derivative(eta, 0)

    def log_partition_slope(self, eta: Array) -> Array:
        """Return ``a'(eta)``, which is ``E t(y)``."""
        return self._derivative(eta, 1)

    def expectations(self, y: Array, mean: Array, spread: Array) -> RowExpectations:
        """Return the row terms of both bounds at ``eta ~ N(mean, spread^2)`` (paper, section 4)."""
        return RowExpectations(*_terms(self.rows(y), mean, spread))

    def expected_log_partition(self, mean: Array, spread: Array) -> ExpectedLogPartition:
        """Return the expectations of ``a``, ``a'`` and ``a''`` under ``N(mean, spread^2)``."""
        # What rows lose that saw nothing is a.
        rows = self.without_data(mean)._replace(target=np.zeros(()), best=np.zeros(()))
        value, slope, curvature = _terms(rows, mean, spread)
        return ExpectedLogPartition(-value, -slope, np.broadcast_to(curvature, value.shape))

    @quiet
    def log_partition_gap(self, mean: Array, wide: Array, narrow: Array) -> Array:
        """Return ``E a(mean + wide z) - E a(mean + narrow z)``, which is not negative for ``wide >= narrow``."""
        found = gap(self.without_data(mean), *_double(mean, wide, narrow))
        return np.asarray(found, float_type(mean, wide, narrow))

    @quiet
    def _derivative(self, eta: Array, order: int) -> Array:
        return np.asarray(log_partition(self.without_data(eta), order, *_double(eta)), float_type(eta))


@quiet
def _terms(rows: Primitive, mean: Array, spread: Array) -> tuple[Array, ...]:
    """Return ``E log p``, e and kappa of rows, in float64 unless both mean and spread are float32."""
    found = of_each_kind(np, rows, log_likelihood_terms, *_double(mean, spread))
    return tuple(np.asarray(one, float_type(mean, spread)) for one in found)


def _double(*arrays: Array) -> list[Array]:
    return [np.asarray(array, np.float64) for array in arrays]


def float_type(*arrays: Any) -> np.dtype[Any]:
    """Return the floating dtype of a result: float32 if all arguments have it, else float64."""
    return np.result_type(*(np.asarray(array) for array in arrays), np.float32)


def alike(values: Array) -> Array:
    """Return one row for all, (n,), where those of the observations, (N, n), are the same; else them as they are."""
    return values[0] if (values == values[:1]).all() else values


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
