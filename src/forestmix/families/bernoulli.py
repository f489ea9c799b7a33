"""The Bernoulli family; ``eta`` is the logit of its probability. Binomial rows share its expectations."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import expectations
from forestmix.families.base import ExpectedLogPartition, Family, RowCodes, RowExpectations
from forestmix.families.expectations import lower_softplus
from forestmix.families.primitive import Kind, Primitive, primitive


class Bernoulli(Family):
    """0 or 1 with ``P(1) = sigma(eta) = 1 / (1 + exp(-eta))``: ``t = y``, ``a = log(1 + exp(eta))``, ``g = 0``."""

    name: ClassVar[str] = "bernoulli"

    def check_support(self, name: str, y: Array) -> None:
        """Raise unless every entry is 0, 1 or NaN."""
        refuse(name, y, (y != 0) & (y != 1) & ~np.isnan(y), "0 or 1 for Bernoulli rows")

    def log_base(self, y: Array) -> Array:
        """Return ``g(y) = 0``."""
        return np.zeros(np.shape(y), np.result_type(y, np.float32))

    def statistic(self, y: Array) -> Array:
        """Return ``t(y) = y``."""
        return y

    def log_partition(self, eta: Array) -> Array:
        """Return ``a(eta) = log(1 + exp(eta))``."""
        return np.logaddexp(eta, 0)

    def log_partition_slope(self, eta: Array) -> Array:
        """Return ``a'(eta) = sigma(eta)``."""
        return scipy.special.expit(eta)

    def log_partition_curvature(self, eta: Array) -> Array:
        """Return ``a''(eta) = sigma(eta) sigma(-eta)``."""
        return scipy.special.expit(eta) * scipy.special.expit(-eta)

    def expected_log_partition(self, mean: Array, spread: Array) -> ExpectedLogPartition:
        """Return ``E a``, ``E sigma`` and ``E sigma'``, each to full precision however large the spread is."""
        one = LogisticExpectations.at(mean, spread)
        return ExpectedLogPartition(*cast(float_type(mean, spread), one.above, one.success, one.curvature))

    def expectations(self, y: Array, mean: Array, spread: Array) -> RowExpectations:
        """Return the row terms from ``log p(y | eta) = -y a(-eta) - (1 - y) a(eta)``, where nothing cancels."""
        one = LogisticExpectations.at(mean, spread)
        chosen = np.asarray(y, np.float64)
        log_likelihood = -(chosen * one.below + (1 - chosen) * one.above)
        error = chosen * one.failure - (1 - chosen) * one.success
        return RowExpectations(*cast(float_type(mean, spread), log_likelihood, error, one.curvature))

    def primitive(self, x: Array) -> Primitive:
        """Return softplus rows with target x; the best log-likelihood is 0."""
        return primitive(Kind.SOFTPLUS, 1.0, x, 0.0)

    def row_codes(self, x: Array) -> RowCodes:
        """Return the code; there are no parameters."""
        from forestmix.engines.compiled import rows

        return RowCodes(rows.BERNOULLI, 0.0, 0.0)

    def log_partition_gap(self, mean: Array, wide: Array, narrow: Array) -> Array:
        """Return ``(1/2) int E sigma'(mean + sqrt(v) z) dv`` over ``narrow^2 < v < wide^2``, also for close spreads."""
        return cast(float_type(mean, wide, narrow), softplus_gap(mean, wide, narrow))[0]

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw 1 with probability ``sigma(eta)``, else 0."""
        return (rng.random(np.shape(eta)) < scipy.special.expit(eta)).astype(float_type(eta))

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return 0 below 0, ``sigma(-eta)`` from 0 on and 1 from 1 on."""
        below_one = np.where(np.less(y, 0), 0, scipy.special.expit(np.negative(eta)))
        return cast(float_type(y, eta), np.where(np.less(y, 1), below_one, 1))[0]

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return 0 where ``p <= sigma(-eta)``, else 1."""
        return cast(float_type(p, eta), p > scipy.special.expit(np.negative(eta)))[0]


class LogisticExpectations(NamedTuple):
    """Expectations at ``eta ~ N(mean, spread^2)`` in float64, the two signs of ``eta`` apart so that neither cancels.

    ``above``: ``E a(eta)``; ``below``: ``E a(-eta)``; ``excess``: ``E a(eta) - a(mean)``; ``success``:
    ``E sigma(eta)``; ``failure``: ``E sigma(-eta)``; ``curvature``: ``E sigma'(eta)``.
    """

    above: Array
    below: Array
    excess: Array
    success: Array
    failure: Array
    curvature: Array

    @classmethod
    def at(cls, mean: Array, spread: Array) -> Self:
        """Take the expectations at ``-|mean|``, and put the sign of the mean back."""
        shape, (centre, width) = flatten(mean, spread)
        lower = lower_softplus(np, -np.abs(centre), width)
        value, excess, slope, curvature = (part.reshape(shape) for part in lower)
        centre = centre.reshape(shape)
        positive, rest = centre > 0, 1 - slope
        return cls(
            value + np.maximum(centre, 0),
            value + np.maximum(-centre, 0),
            excess,
            np.where(positive, rest, slope),
            np.where(positive, slope, rest),
            curvature,
        )


def softplus_gap(mean: Array, wide: Array, narrow: Array) -> Array:
    """Return ``E a(mean + wide z) - E a(mean + narrow z)`` for ``a(eta) = log(1 + exp(eta))``, in float64."""
    shape, flat = flatten(mean, wide, narrow)
    return expectations.softplus_gap(np, *flat).reshape(shape)


def flatten(*arrays: Array) -> tuple[tuple[int, ...], list[Array]]:
    """Return the common shape of the arguments, and each of them broadcast to it, flat and in float64."""
    wide = np.broadcast_arrays(*arrays)
    return wide[0].shape, [np.ascontiguousarray(array, np.float64).ravel() for array in wide]


def float_type(*arrays: Array) -> np.dtype[Any]:
    """Return the floating dtype of a result: float32 if all arguments have it, else float64."""
    return np.result_type(*(np.asarray(array) for array in arrays), np.float32)


def cast(dtype: npt.DTypeLike, *arrays: Array) -> tuple[Array, ...]:
    """Return the arrays in ``dtype``; what is too large for it becomes infinite, which the caller rejects as a step."""
    with np.errstate(over="ignore"):
        return tuple(np.asarray(array).astype(dtype, copy=False) for array in arrays)


def refuse(name: str, y: Array, bad: Array, right: str) -> None:
    """Raise if any entry is ``bad``, saying how many are, which is the first, and what would be ``right``."""
    if not bad.any():
        return
    where = tuple(int(k) for k in np.argwhere(bad)[0])
    place = f" at index {where if len(where) > 1 else where[0]}" if where else ""
    raise ArgumentError(
        f"{name} must be {right}, or NaN for a missing entry; "
        f"got {int(bad.sum())} other entries, the first {y[where]}{place}."
    )
