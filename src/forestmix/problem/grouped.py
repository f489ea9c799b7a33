"""Spread and curvature when Jensen's inequality is used inside groups of latents only (docs/guide.md).

With ``s_iG = sum_{j in G} |w_ij| sigma_j``, the spread is ``s_i^2 = sum_G s_iG^2``, and the curvature of a member j of
G is ``D_j = (1 / sigma_j) sum_i |w_ij| s_iG kappa_i``.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.partition import Partition
from forestmix.weights import Weights


class Grouped:
    """The entries of W, each with the pair of its row and its group; sums over pairs are made from them.

    With the layers of a deep model as groups they give the paper's bound of any depth (appendix C).
    """

    def __init__(self, weights: Weights, groups: Partition) -> None:
        self.shape = weights.shape
        self.row, self.column, value = weights.entries()
        self.size = np.abs(value).astype(np.float64)
        group = np.empty(weights.shape[1], np.int64)
        group[groups.members] = np.repeat(np.arange(len(groups.sizes)), groups.sizes)
        key = self.row.astype(np.int64) * len(groups.sizes) + group[self.column]
        pairs, self.pair = np.unique(key, return_inverse=True)
        self.row_of_pair = pairs // len(groups.sizes)

    def spread(self, sd: Array) -> Array:
        """Return ``sqrt(sum_G s_iG^2)``, (N or 1, n)."""
        squares = [np.bincount(self.row_of_pair, self._pairs(one) ** 2, self.shape[0]) for one in sd]
        return np.sqrt(np.stack(squares)).astype(sd.dtype)

    def curvature(self, sd: Array, kappa: Array) -> Array:
        """Return ``D``, (N or 1, m)."""
        count = max(len(sd), len(kappa))
        found = []
        for k in range(count):
            own, weight = sd[min(k, len(sd) - 1)], kappa[min(k, len(kappa) - 1)]
            terms = self.size * self._pairs(own)[self.pair] * weight[self.row]
            found.append(np.bincount(self.column, terms, self.shape[1]) / own)
        return np.stack(found).astype(sd.dtype)

    def _pairs(self, sd: Array) -> Array:
        """Return ``s_iG`` of every pair."""
        return np.bincount(self.pair, self.size * sd[self.column], len(self.row_of_pair))
