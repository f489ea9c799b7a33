"""Weights in a grid of chunks over rows and columns: a worker may hold a part of the latents only.

A row is complete only with the sums over its columns, so each call is two maps over the chunks and two sums::

    project    W mu, |W| sigma, (W∘W) sigma^2     of each chunk, summed over the chunks side by side
    rows       e_i, kappa_i, s_i kappa_i           once for each chunk of rows, and they stay there
    collect    W^T e, |W|^T (s kappa), (W∘W)^T kappa   of each chunk, summed over the chunks one below another

Vectors of latents go to the chunks and come back from them, and vectors of rows go from chunk to chunk; entries of W
stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.engines.chunked import (
    ChunkedEngine,
    ChunkedRows,
    ChunkRows,
    Sums,
    kappa_of,
    parts_of_rows,
    row_parts,
    split_rows,
    term,
)  # fmt: skip
from forestmix.engines.products import Products, Three, needed_by_rows, spread_of_rows, wanted_of_rows
from forestmix.engines.protocol import Moments, RowTerms, Spread, Statistics, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.model import Layer, Observations
from forestmix.weights import as_weights
from forestmix.weights.base import Weights
from forestmix.weights.chunks import Chunks


class GridEngine(ChunkedEngine):
    """Weights in chunks of rows and columns.

    Args:
        inner: the engine that evaluates the terms of rows.

    """

    name = "grid"
    inner: ReferenceEngine

    def observe(self, layer: Layer, observations: Observations) -> ChunkedRows:
        """Bring the data, the family and the bias of each chunk of rows to a place."""
        chunks = layer.weights.chunks
        parts = chunks.place(parts_of_rows(layer, observations))
        return ChunkedRows(chunks, chunks.derive(_observe, parts, shared=(self.inner, layer.dtype)))

    def statistics(
        self, layer: Layer, rows: ChunkedRows, q: Moments, want: Want, spread: Spread | Any
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums over rows that are wanted at q, and the terms of the rows, which stay where they are."""
        chunks, given = rows.chunks, split_rows(rows.chunks, spread)
        vectors, shared = needed_by_rows(q, want, spread), (self.inner, want)
        handles, sums, back = _pass(chunks, vectors, _terms, rows.handles, given, shared=shared, stays=True)
        found = Statistics.of(want, sums.statistics.value, sums.statistics.magnitude, *back)
        return found, row_parts(chunks, handles, sums, layer.dtype)

    def curvatures(self, layer: Layer, kappa: Any, sd: Any, want: Want) -> tuple[Any, Any]:
        """Return ``D_j sigma_j = sum_i |w_ij| s_i kappa_i`` and ``H_j = sum_i w_ij^2 kappa_i``, those wanted."""
        if not want & (Want.CURVATURE | Want.INFORMATION):
            return None, None
        mine, field = kappa_of(layer.weights.chunks, kappa)
        vectors = Three(None, sd if Want.CURVATURE in want else None, None)
        back = _pass(layer.weights.chunks, vectors, _weighted_spreads, mine, shared=(field, want))[2]
        return back.absolute, back.squared

    def normal_product(self, layer: Layer, kappa: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,)."""
        mine, field = kappa_of(layer.weights.chunks, kappa)
        _, squares, back = _pass(layer.weights.chunks, Three(p, None, None), _weighted_image, mine, shared=(field,))
        return back.plain, squares


class Held(NamedTuple):
    """What a pass leaves with a chunk of rows: its part of the sum over rows, terms, and what goes to the chunks."""

    total: Any
    terms: RowTerms | None
    back: Three


def _pass(
    chunks: Chunks, vectors: Three, function: Any, *own: Sequence[Any], shared: tuple[Any, ...], stays: bool = False
) -> tuple[list[Any], Any, Three]:
    """Return handles of what ``function`` makes of the sums over columns, its total, and the sums over rows."""
    parts = chunks.place([_cut(vectors, columns) for columns in chunks.columns])
    projected = chunks.sums(chunks.by_row(chunks.map(_project, chunks.to_columns(parts))))
    handles = chunks.derive(function, projected, *own, shared=shared)
    # Where terms stay, what goes to the chunks is a task of its own: they need not travel along.
    back = chunks.derive(_back, handles) if stays else handles
    collected = chunks.sums(chunks.by_column(chunks.map(_collect, chunks.to_rows(back))))
    *columns, total = chunks.fetch([*collected, *chunks.sums([chunks.derive(_total, handles)])])
    joined = (None if field[0] is None else np.concatenate(field, axis=1) for field in zip(*columns, strict=True))
    return handles, total, Three(*joined)


def _cut(vectors: Three, columns: slice) -> Three:
    return Three(*(None if one is None else np.ascontiguousarray(one[:, columns]) for one in vectors))


def _project(weights: Weights, own: Three) -> Three:
    return Products(weights).project(own)


def _terms(sums: Three, own: ChunkRows, spread: Any, inner: ReferenceEngine, want: Want) -> Held:
    """Return the terms of rows from the sums over all columns."""
    value, magnitude, terms = inner.row_terms(own.rows, sums.plain, spread_of_rows(sums, spread))
    back = wanted_of_rows(want, sums.absolute, terms.kappa, terms.error)
    return Held(Sums(Statistics(value, magnitude), tuple(len(one) for one in terms)), terms, back)


def _weighted_spreads(sums: Three, held: Any, field: str | None, want: Want) -> Held:
    """Return ``s_i kappa_i`` and ``kappa_i``, those wanted."""
    return Held(0, None, wanted_of_rows(want, sums.absolute, term(held, field)))


def _weighted_image(sums: Three, held: Any, field: str | None) -> Held:
    """Return ``K W p`` and its inner product with ``W p``."""
    image = sums.plain
    weighted = (term(held, field) * image).astype(image.dtype, copy=False)
    return Held(np.sum(image * weighted, axis=1, dtype=np.float64), None, Three(weighted, None, None))


def _observe(part: tuple[Any, Array, Observations], inner: ReferenceEngine, dtype: np.dtype[Any]) -> ChunkRows:
    family, bias, own = part
    return ChunkRows(family, bias, inner.observe(_rows_alone(family, bias, dtype), own))


def _rows_alone(family: Any, bias: Array, dtype: np.dtype[Any]) -> Layer:
    """Return a layer for what asks for its rows but not for W."""
    return Layer(family, as_weights(scipy.sparse.csr_array((len(bias), 1), dtype=dtype)), bias)


def _back(held: Held) -> Three:
    return held.back


def _collect(weights: Weights, rows: Held | Three) -> Three:
    return Products(weights).collect(rows.back if isinstance(rows, Held) else rows)


def _total(held: Held) -> Any:
    return held.total
