"""The weights of a stack of layers as one matrix, which is never formed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.weights.base import ENTRY_MAPS, Weights


class LayeredWeights(Weights):
    """The weights of a deep model whose latents are stacked, the lowest layer first.

    As a matrix they are::

        [ W_0   0     0   ]     rows of the observed layer
        [ I    -W_1   0   ]     y^1 - W_1 y^2
        [ 0     I    -W_2 ]     y^2 - W_2 y^3

    Args:
        parts: the weights of each layer, from the observed one up.
        sign: what ``W_1`` and those after it are multiplied with: -1, or what an entry map makes of it.

    """

    def __init__(self, parts: Sequence[Weights], sign: int = -1) -> None:
        self.parts, self.sign = tuple(parts), sign
        self.row_slices = slices_of([part.shape[0] for part in self.parts])
        self.column_slices = slices_of([part.shape[1] for part in self.parts])
        shape = (self.row_slices[-1].stop, self.column_slices[-1].stop)
        super().__init__(shape, self.parts[0].dtype)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return sum(part.nnz for part in self.parts) + sum(part.shape[0] for part in self.parts[1:])

    def _forward(self, batch: Array) -> Array:
        result = np.empty((len(batch), self.shape[0]), self.dtype)
        for k, part in enumerate(self.parts):
            image = part.forward(batch[:, self.column_slices[k]])
            own = image if k == 0 else batch[:, self.column_slices[k - 1]] + self.sign * image
            result[:, self.row_slices[k]] = own
        return result

    def _adjoint(self, batch: Array) -> Array:
        result = np.empty((len(batch), self.shape[1]), self.dtype)
        for k, part in enumerate(self.parts):
            image = part.adjoint(batch[:, self.row_slices[k]])
            result[:, self.column_slices[k]] = image if k == 0 else self.sign * image
            if k > 0:
                result[:, self.column_slices[k - 1]] += batch[:, self.row_slices[k]]
        return result

    def _with_map(self, name: str) -> LayeredWeights:
        return LayeredWeights([part.mapped(name) for part in self.parts], int(ENTRY_MAPS[name](np.float64(self.sign))))

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        return self._by_row if indices is None else self._by_row[indices]

    @cached_property
    def _by_row(self) -> scipy.sparse.csr_array:
        """All entries, for coordinate methods, which ask for columns of everything anyway."""
        blocks: list[list[Any]] = [[None] * len(self.parts) for _ in self.parts]
        for k, part in enumerate(self.parts):
            blocks[k][k] = part.rows() if k == 0 else self.sign * part.rows()
            if k > 0:
                blocks[k][k - 1] = scipy.sparse.eye_array(part.shape[0], dtype=self.dtype)
        matrix = scipy.sparse.block_array(blocks, format="csr", dtype=self.dtype)
        matrix.sort_indices()
        return matrix


def slices_of(sizes: Sequence[int]) -> tuple[slice, ...]:
    """Return the slice of each part of a stack of parts of these sizes."""
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(slice(start, end) for start, end in itertools.pairwise(ends))
