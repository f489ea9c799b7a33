"""Weights that are elsewhere: a shape, of a fit in a file that has not the rows that it was fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.errors import ForestmixError
from forestmix.weights.base import Weights


class AbsentWeights(Weights):
    """The shape of W in float64; whoever asks for its entries gets an error."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__(shape, np.dtype(np.float64))

    def _absent(self, *_: Any, **__: Any) -> Any:
        raise ForestmixError(
            "The rows of this fit are not in its file, since they were read in chunks. summary(), groups(), "
            "predict(new_data), also of the table itself, and plot(units='column') need none; for more, fit again."
        )

    @property
    def nnz(self) -> int:
        """Raise: entries are elsewhere."""
        return int(self._absent())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]}, entries are elsewhere)"

    _forward = _adjoint = _columns = _rows = _with_map = _absent
