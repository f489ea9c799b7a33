"""Bernoulli factors, for binary codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import Bernoulli
from forestmix.latents.base import Factors

#: A logit of this size leaves a probability of exactly 0; a larger one, which may be infinite, changes nothing.
_CERTAIN = 800.0


@dataclass(frozen=True)
class BernoulliFactors(Factors):
    """``q_j(1) = sigma(logit_j)``; the logit keeps its digits where the probability nears 0 or 1."""

    logit: Array
    discrete: ClassVar[bool] = True
    several_optima: ClassVar[bool] = True

    @classmethod
    def tilted(cls, family: Bernoulli, eta: Array, H: Array, h: Array) -> Self:
        """Return ``logit = eta - H / 2 + h``, since ``y^2 = y``."""
        return cls(eta - 0.5 * H + h)

    @classmethod
    def from_table(cls, table: Array) -> Self:
        """Return the factors with ``log q_j(y) = table[..., y]`` up to a constant, for y = 0 and 1."""
        return cls(table[..., 1] - table[..., 0])

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        """``sigma(logit)``."""
        return scipy.special.expit(self.logit)

    @cached_property
    def sd(self) -> Array:  # type: ignore[override]
        """``sqrt(sigma(logit) sigma(-logit))``."""
        return np.sqrt(self.mean * scipy.special.expit(-self.logit))

    @cached_property
    def log_table(self) -> Array:
        """``log q_j(y)`` for y = 0 and 1, (N, m, 2)."""
        return np.stack([-np.logaddexp(0, self.logit), -np.logaddexp(0, -self.logit)], axis=-1)

    def pull(self, family: Bernoulli, eta: Array, H: Array) -> Array:
        """Return ``logit - eta + H (1 / 2 - mean)``."""
        return self.logit - eta + H * (0.5 - self.mean)

    def relative_entropy(self, family: Bernoulli, eta: Array) -> Array:
        """Return the divergence of two coins."""
        return coin_divergence(self.logit, eta)

    def quantile(self, p: Array) -> Array:
        """Return 0 where ``p <= q_j(0)``, else 1."""
        return np.where(p <= scipy.special.expit(-self.logit), 0.0, 1.0)

    def density(self, y: Array) -> Array:
        """Return the probability of y: 0 unless it is 0 or 1."""
        y = np.asarray(y)
        return np.where(y == 1, self.mean, np.where(y == 0, scipy.special.expit(-self.logit), 0.0))


def coin_entropy(logit: Array) -> Array:
    """Return the entropy of a coin with these log odds; infinite ones leave none."""
    size = np.minimum(np.abs(logit), _CERTAIN)
    return np.log1p(np.exp(-size)) + size * scipy.special.expit(-size)


def coin_divergence(logit: Array, prior: Array) -> Array:
    """Return ``-p log p0 - (1 - p) log(1 - p0)`` minus the entropy, all terms of one sign but the last."""
    expit = scipy.special.expit
    return expit(logit) * np.logaddexp(0, -prior) + expit(-logit) * np.logaddexp(0, prior) - coin_entropy(logit)
