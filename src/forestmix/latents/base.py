"""What the mean-field factors of a layer of latents offer, whatever their family.

Factors are those of a batch: each field has a row for every observation, (N, m), or one row that all share, (1, m).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.latents.batch import Batch


class Factors(Batch, ABC):
    """The factors ``q_j`` of a layer: a dataclass of batch arrays, and what follows from them.

    The arrays are the parameters of q; ``mean`` and ``sd`` are fields, or are computed from them.
    """

    #: True where q lives on 0, 1, 2, ...; ``density`` then gives probabilities.
    discrete: ClassVar[bool] = False

    #: True where the ELBO may have several optima, and saddles between them.
    several_optima: ClassVar[bool] = False
    #: True where the prior's log density is straight far out, so that its curvature bounds nothing there.
    straight_tails: ClassVar[bool] = False

    mean: Array
    sd: Array

    @classmethod
    @abstractmethod
    def tilted(cls, family: Any, eta: Array, H: Array, h: Array) -> Self:
        """Return ``q(y) ∝ p(y | eta) exp(-H y^2 / 2 + h y)``, the form that Gaussian rows give every factor."""

    @abstractmethod
    def tilt(self, family: Any, eta: Array, H: Array) -> Array:
        """Return the h of ``tilted`` that gave these factors."""

    @classmethod
    def largest_tilt(cls, eta: Array, H: Array, centre: Array) -> Array:
        """Return the largest h that a search for a mean between ``centre`` and the prior's need try; here any."""
        return np.full(np.shape(centre), np.inf)

    def pull(self, family: Any, eta: Array, H: Array) -> Array:
        """Return ``tilt - H mean``, the slope of ``KL + H variance / 2`` in the mean, without what cancels."""
        return self.tilt(family, eta, H) - H * self.mean

    @abstractmethod
    def relative_entropy(self, family: Any, eta: Array) -> Array:
        """Return ``KL(q_j || p(y | eta_j))`` of every variable, (N, m)."""

    @abstractmethod
    def quantile(self, p: Array) -> Array:
        """Return the smallest y with ``Q_j(y) >= p``, for ``0 < p < 1`` of shape (..., N, m)."""

    @abstractmethod
    def density(self, y: Array) -> Array:
        """Return the density of ``q_j`` at y; for counts, the probability of y."""

    @property
    def variance(self) -> Array:
        """The variance of each factor."""
        return self.sd**2
