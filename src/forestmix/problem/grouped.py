"""Spread and curvature when Jensen's inequality is used inside groups of latents only (docs/guide.md).

With ``s_iG = sum_{j in G} |w_ij| sigma_j``, the spread is ``s_i^2 = sum_G s_iG^2``, and the curvature of a member j of
G is ``D_j = (1 / sigma_j) sum_i |w_ij| s_iG kappa_i``.
"""

from __future__ import annotations

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.partition import Partition
from forestmix.weights import Weights


class Grouped:
    """``|W|`` with a row for each pair (i, G) of a row and a group that has parents of it.

    With the layers of a deep model as groups its sums give the paper's bound of any depth (appendix C).
    """

    def __init__(self, weights: Weights, groups: Partition) -> None:
        (n, m), count = weights.shape, len(groups.sizes)
        row, column, value = weights.entries()
        group = np.empty(m, np.int64)
        group[groups.members] = np.repeat(np.arange(count), groups.sizes)
        keys, pair = np.unique(row.astype(np.int64) * count + group[column], return_inverse=True)
        pairs, self.row = np.arange(len(keys)), keys // count
        self.size = scipy.sparse.csr_array((np.abs(value).astype(np.float64), (pair, column)), shape=(len(keys), m))
        self.add = scipy.sparse.csr_array((np.ones(len(keys)), (self.row, pairs)), shape=(n, len(keys)))

    def spread(self, sd: Array) -> Array:
        """Return ``sqrt(sum_G s_iG^2)``, (N or 1, n)."""
        return np.sqrt(np.stack([self.add @ (self.size @ own) ** 2 for own in sd])).astype(sd.dtype)

    def curvature(self, sd: Array, kappa: Array) -> Array:
        """Return ``D``, (N or 1, m)."""
        count = max(len(sd), len(kappa))
        each = zip(*(np.broadcast_to(part, (count, part.shape[1])) for part in (sd, kappa)), strict=True)
        found = [self.size.T @ (self.size @ own * weight[self.row]) / own for own, weight in each]
        return np.stack(found).astype(sd.dtype)
