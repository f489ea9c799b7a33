"""Gaussian factors in arrays of another library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import array_api_compat
import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.latents.gaussian import GaussianFactors


@dataclass(frozen=True)
class ArrayFactors(GaussianFactors):
    """``q_j = N(mean_j, sd_j^2)`` for a batch, both (N, m), on the device of the weights."""

    @property
    def namespace(self) -> Any:
        """The library's functions, as the standard names them."""
        return array_api_compat.array_namespace(self.mean)

    def rows(self, array: Any, keep: Array) -> Any:
        """Return the chosen rows of an array that belongs to these factors; a single one serves all."""
        if array.shape[0] == 1 < self.mean.shape[0]:
            return array
        return self.namespace.take(array, self._moved(keep, self.namespace.int64), axis=0)

    def take(self, keep: Array) -> Self:
        """Return the factors of the chosen observations."""
        return self._map(lambda array: self.rows(array, keep))

    def where(self, which: Array, other: Self) -> Self:
        """Return these factors for the observations marked in ``which``, the other ones elsewhere."""
        mask = self._moved(which[:, np.newaxis], self.namespace.bool)
        pairs = ((self.mean, other.mean), (self.sd, other.sd))
        return type(self)(*(self.namespace.where(mask, *pair) for pair in pairs))

    def expanded(self, count: int) -> Self:
        """Return the factors, which have a row for each observation already."""
        return self

    def with_rows(self, rows: Array, other: Self) -> Self:
        """Return these factors with ``other`` in place of the observations ``rows``."""
        place, which = np.zeros(self.mean.shape[0], np.int64), np.zeros(self.mean.shape[0], bool)
        place[rows], which[rows] = np.arange(len(rows)), True
        return other.take(place).where(which, self)

    @classmethod
    def joined(cls, parts: Any) -> Self:
        """Return the observations of all parts, one after another."""
        names = ("mean", "sd")
        return cls(*(parts[0].namespace.concat([getattr(part, name) for part in parts]) for name in names))

    def quantile(self, p: Array) -> Any:
        """Return ``mean + sd Phi^-1(p)``."""
        return self.mean + self.sd * self._moved(scipy.special.ndtri(p), self.mean.dtype)

    def density(self, y: Array) -> Any:
        """Return the normal density."""
        z = (self._moved(y, self.mean.dtype) - self.mean) / self.sd
        return self.namespace.exp(-0.5 * z * z) / (self.sd * (2 * np.pi) ** 0.5)

    def _moved(self, array: Array, dtype: Any) -> Any:
        return self.namespace.asarray(np.array(array), dtype=dtype, device=array_api_compat.device(self.mean))
