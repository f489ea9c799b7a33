"""Any engine over chunks of rows: sums over rows are sums over chunks, and the terms of the rows stay with theirs.

Each call is one map over the chunks, wherever they are (``weights.chunks``), and one sum. To a chunk go the factors of
the latents, and back come sums of that length; entries of W never move, and vectors of rows only when somebody looks
at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.products import Products
from forestmix.engines.protocol import Capability, Engine, Factors, Moments, RowTerms, Spread, Statistics, Want
from forestmix.families import Gaussian
from forestmix.model import Layer, Observations
from forestmix.weights.base import Weights
from forestmix.weights.chunks import Chunks


class ChunkedEngine:
    """Weights in chunks of rows.

    Args:
        inner: the engine that evaluates each chunk.

    """

    name = "chunked"
    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    def observe(self, layer: Layer, observations: Observations) -> ChunkedRows:
        """Bring to each chunk the data, the family and the bias of its rows."""
        chunks = layer.weights.chunks
        parts = chunks.place(parts_of_rows(layer, observations))
        return ChunkedRows(chunks, chunks.map(_observe, parts, shared=(self.inner,)))

    def products(self, weights: Weights, count: int) -> Products:
        """Return products by chunks."""
        return Products(weights)

    def statistics(
        self, layer: Layer, rows: ChunkedRows, q: Moments, want: Want, spread: Spread | Any
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums over rows that are wanted at q, and the terms of the rows, which stay where they are."""
        chunks, shared = rows.chunks, (self.inner, Factors(q.mean, q.sd), want)
        handles = chunks.map(_statistics, rows.handles, split_rows(chunks, spread), shared=shared)
        sums: Sums = chunks.total(chunks.derive(_sums, handles))
        return sums.statistics, row_parts(chunks, handles, sums, layer.dtype)

    def curvatures(self, layer: Layer, kappa: Any, sd: Any, want: Want) -> tuple[Any, Any]:
        """Return ``D_j sigma_j = sum_i |w_ij| s_i kappa_i`` and ``H_j = sum_i w_ij^2 kappa_i``, those wanted."""
        if not want & (Want.CURVATURE | Want.INFORMATION):
            return None, None
        sums = self._sum(layer, kappa, _curvatures, sd, want)
        return sums.curvature_sd, sums.information

    def normal_product(self, layer: Layer, kappa: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,)."""
        sums = self._sum(layer, kappa, _normal_product, p)
        return sums.gradient, sums.value

    def _sum(self, layer: Layer, kappa: Any, function: Any, *shared: Any) -> Statistics:
        chunks = layer.weights.chunks
        mine, field = kappa_of(chunks, kappa)
        found: Statistics = chunks.total(chunks.map(function, mine, shared=(field, self.inner, *shared)))
        return found


@dataclass(frozen=True)
class ChunkedRows:
    """The rows with their data, with each chunk its own."""

    chunks: Chunks
    handles: Sequence[Any]

    def take(self, keep: Array) -> ChunkedRows:
        """Return the rows of the chosen observations."""
        return ChunkedRows(self.chunks, self.chunks.derive(_take, self.handles, shared=(keep,)))


class RowParts(np.lib.mixins.NDArrayOperatorsMixin):
    """A term of the rows, (N or 1, n), which stays with the chunks until somebody computes with it.

    An engine that gets it back, as ``kappa``, uses it where it is; to everybody else it is an array.
    """

    def __init__(self, chunks: Chunks, handles: Sequence[Any], field: str, count: int, dtype: np.dtype[Any]) -> None:
        self.chunks, self.handles, self.field = chunks, handles, field
        self.shape, self.dtype, self.ndim = (count, chunks.slices[-1].stop), dtype, 2

    @cached_property
    def whole(self) -> Array:
        """The term of all rows, fetched once."""
        parts = self.chunks.fetch(self.chunks.derive(term, self.handles, shared=(self.field,)))
        count = self.shape[0]
        return np.concatenate([np.broadcast_to(part, (count, part.shape[1])) for part in parts], axis=1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.whole, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(one.whole if isinstance(one, RowParts) else one for one in inputs), **options)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self.whole[key]


class ChunkRows(NamedTuple):
    """The rows of one chunk: family and bias, and what the inner engine made of their data."""

    family: Any
    bias: Array
    rows: Any


class Sums(NamedTuple):
    """Statistics, and how many observations each term of the rows is for, N or 1: mixed rows may differ by chunk."""

    statistics: Statistics
    counts: tuple[int, ...]

    def __add__(self, other: Any) -> Sums:
        return Sums(self.statistics + other.statistics, tuple(map(max, self.counts, other.counts)))


def row_parts(chunks: Chunks, handles: Sequence[Any], sums: Sums, dtype: np.dtype[Any]) -> RowTerms:
    """Return the terms of the rows that a pass left with the chunks."""
    fields = zip(RowTerms._fields, sums.counts, strict=True)
    return RowTerms(*(RowParts(chunks, handles, field, count, dtype) for field, count in fields))


def parts_of_rows(layer: Layer, observations: Observations) -> list[tuple[Any, Array, Observations]]:
    """Return the family, the bias and the data of each chunk of rows."""
    x, observed, bias = observations.x, observations.observed, np.broadcast_to(layer.bias, layer.size)
    parts = []
    for rows in layer.weights.chunks.slices:
        own = Observations(x[:, rows], None if observed is None else observed[:, rows], observations.single)
        parts.append((layer.family.take(np.arange(rows.start, rows.stop)), bias[rows].copy(), own))
    return parts


def kappa_of(chunks: Chunks, kappa: Any) -> tuple[Sequence[Any], str | None]:
    """Return handles of what has ``kappa`` for each chunk of rows, and its name there, ``None`` for an array."""
    return (kappa.handles, kappa.field) if isinstance(kappa, RowParts) else (split_rows(chunks, kappa), None)


def split_rows(chunks: Chunks, rows: Any) -> list[Any]:
    """Bring to each chunk of rows its part of a vector of rows, (N or 1, n), or a spread as the enumeration has it."""
    if isinstance(rows, Spread):
        return [rows for _ in chunks.slices]
    array = np.asarray(rows)
    return chunks.place([np.ascontiguousarray(array[:, own]) for own in chunks.slices])


def _observe(weights: Weights, part: tuple[Any, Array, Observations], inner: Engine) -> ChunkRows:
    family, bias, own = part
    return ChunkRows(family, bias, inner.observe(Layer(family, weights, bias), own))


def _statistics(
    weights: Weights, own: ChunkRows, spread: Any, inner: Engine, q: Factors, want: Want
) -> tuple[Sums, RowTerms]:
    sums, terms = inner.statistics(Layer(own.family, weights, own.bias), own.rows, q, want, spread)
    return Sums(sums, tuple(len(term) for term in terms)), terms


def _curvatures(weights: Weights, held: Any, field: str | None, inner: Engine, sd: Any, want: Want) -> Statistics:
    curvature_sd, information = inner.curvatures(_bare(weights), term(held, field), sd, want)
    return Statistics(curvature_sd=curvature_sd, information=information)


def _normal_product(weights: Weights, held: Any, field: str | None, inner: Engine, p: Any) -> Statistics:
    image, squares = inner.normal_product(_bare(weights), term(held, field), p)
    return Statistics(value=squares, gradient=image)


def _bare(weights: Weights) -> Layer:
    """Return a layer for products, which ask for neither family nor bias."""
    return Layer(Gaussian(1.0), weights)


def term(held: Any, field: str | None) -> Any:
    """Return a term of the rows from what the last pass left with the chunk, or the array that came along."""
    return held if field is None else getattr(held[1], field)


def _sums(held: tuple[Sums, RowTerms]) -> Sums:
    return held[0]


def _take(own: ChunkRows, keep: Array) -> ChunkRows:
    return own._replace(rows=own.rows.take(keep))
