"""The rows of a layer with their data, in the library and on the device of W, and their terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np

from forestmix.arrays import Array, double
from forestmix.families import row_terms
from forestmix.families.expectations import quiet
from forestmix.families.primitive import Primitive, columns, of_each_kind
from forestmix.model import Layer, Observations


@dataclass(frozen=True)
class RowData:
    """The rows of a layer with their data, in the library and on the device of W.

    ``rows``: their primitives, whose kinds stay in NumPy; ``bias`` and ``x``: in the precision of W; ``observed``: True
    where an entry is there, ``None`` if all are; ``dtype``: that of row terms, float64 where the device has it.
    """

    rows: Primitive
    bias: Any
    x: Any
    observed: Any
    dtype: Any

    @quiet
    def of_each_kind(self, compute: Callable[..., tuple[Any, ...]], *given: Any) -> tuple[Any, ...]:
        """Return what ``compute(xp, kind, rows, *given)`` gives for the rows of each kind, in the order of the rows.

        What is given has a column for each row, and so has what it gives, in double precision; 0 where x is missing.
        """
        xp = array_api_compat.array_namespace(*given)
        found = of_each_kind(xp, self.rows, compute, *(xp.astype(one, self.dtype) for one in given))
        if self.observed is None:
            return found
        return tuple(xp.where(self.observed, term, xp.zeros_like(term)) for term in found)

    def take(self, keep: Any) -> RowData:
        """Return the data of the chosen observations: their positions, or a mask of NumPy."""
        xp = array_api_compat.array_namespace(self.x)
        if isinstance(keep, np.ndarray):
            keep = np.arange(self.x.shape[0], dtype=np.int32)[keep]
        keep = xp.asarray(keep, device=array_api_compat.device(self.x))

        def chosen(array: Any) -> Any:
            shared = array is None or array.ndim < 2 or array.shape[0] == 1 < self.x.shape[0]
            return array if shared else xp.take(array, keep, axis=0)

        rows = Primitive(self.rows.kind, *map(chosen, self.rows[1:]))
        return replace(self, rows=rows, x=chosen(self.x), observed=chosen(self.observed))

    def take_rows(self, places: Array) -> RowData:
        """Return the data of the chosen rows, which may repeat: their positions, in NumPy."""
        xp = array_api_compat.array_namespace(self.x)
        at = xp.asarray(places, device=array_api_compat.device(self.x))
        kind = self.rows.kind[places] if self.rows.kind.ndim else self.rows.kind
        rows = Primitive(kind, *(columns(xp, field, at) for field in self.rows[1:]))
        observed = None if self.observed is None else columns(xp, self.observed, at)
        return replace(self, rows=rows, bias=columns(xp, self.bias, at), x=columns(xp, self.x, at), observed=observed)


def primitive_of(layer: Layer, observations: Observations) -> Primitive:
    """Return the rows of a layer with their data; kinds that engines do not know are refused."""
    rows = layer.family.rows(observations.x)
    for kind in np.unique(rows.kind).tolist():
        row_terms.formulas_of(kind)  # raises here, and not in the middle of a run
    return rows


def row_data(layer: Layer, observations: Observations) -> RowData:
    """Return the rows of a layer with their data."""
    like = layer.weights.prototype()
    xp, device = array_api_compat.array_namespace(like), array_api_compat.device(like)
    dtype = double(xp, device)

    def moved(array: Any, dtype: Any) -> Any:
        return xp.asarray(array, dtype=dtype, device=device)

    kind, *numbers = primitive_of(layer, observations)
    return RowData(
        Primitive(kind, *(moved(field, dtype) for field in numbers)),
        moved(layer.bias, like.dtype),
        moved(observations.x, like.dtype),
        None if observations.observed is None else moved(observations.observed, xp.bool),
        dtype,
    )


def expected_terms(rows: RowData, eta: Any, spread: Any) -> tuple[Any, Any, Any]:
    """Return the expected log-likelihood, ``e`` and ``kappa`` of every row at ``eta ~ N(eta, spread^2)``.

    They are in double precision, and 0 where x is missing, whatever the rows would have been there.
    """
    log_likelihood, error, kappa = rows.of_each_kind(row_terms.log_likelihood_terms, eta, spread)
    return log_likelihood, error, kappa


def curvature_slopes(rows: RowData, eta: Any, spread: Any) -> tuple[Any, Any]:
    """Return ``E a'''`` and ``E a''''`` of each row at ``eta ~ N(eta, spread^2)``, (N, n); 0 where x is missing."""
    third, fourth = rows.of_each_kind(row_terms.curvature_slopes, eta, spread)
    return third, fourth
