"""Products with W, |W| and W∘W before the rows, and with their transposes after them: all that an engine asks of W."""

from __future__ import annotations

from typing import Any, NamedTuple

import array_api_compat

from forestmix.engines.protocol import Moments, Spread, Want, added
from forestmix.weights.base import Weights


class Three(NamedTuple):
    """Vectors for products with W, |W| and W∘W, or with their transposes, or what these give; some may be ``None``."""

    plain: Any
    absolute: Any
    squared: Any

    def __add__(self, other: Any) -> Three:
        return Three(*added(self, other))


class Products:
    """Products of any weights, by their own methods."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def project(self, vectors: Three) -> Three:
        """Return ``W y``, ``|W| y`` and ``(W∘W) y`` of those that are given, (N, m) or (1, m) each."""
        plain, absolute, squared = vectors
        return Three(
            None if plain is None else self.weights.forward(plain),
            None if absolute is None else abs(self.weights).forward(absolute),
            None if squared is None else self.weights.square().forward(squared),
        )

    def collect(self, rows: Three) -> Three:
        """Return ``W^T r``, ``|W|^T r`` and ``(W∘W)^T r`` of those that are given, (N, n) or (1, n) each."""
        plain, absolute, squared = rows
        return Three(
            None if plain is None else self.weights.adjoint(plain),
            None if absolute is None else abs(self.weights).adjoint(absolute),
            None if squared is None else self.weights.square().adjoint(squared),
        )


def needed_by_rows(q: Moments, want: Want, spread: Spread | Any) -> Three:
    """Return ``mu``, ``sigma`` and ``sigma^2``, of the last two those whose products the rows or the sums need."""
    absolute = Want.CURVATURE in want or spread is Spread.ABSOLUTE
    return Three(q.mean, q.sd if absolute else None, q.sd * q.sd if spread is Spread.SQUARED else None)


def spread_of_rows(sums: Three, spread: Spread | Any) -> Any:
    """Return the spread ``r_i`` that enters the rows, (N or 1, n), from their products; it may be given."""
    if spread is Spread.NONE:
        return array_api_compat.array_namespace(sums.plain).zeros_like(sums.plain[:1, :])
    if spread is Spread.SQUARED:
        return sums.squared**0.5
    return sums.absolute if spread is Spread.ABSOLUTE else spread


def wanted_of_rows(want: Want, s: Any, kappa: Any, error: Any = None) -> Three:
    """Return ``e``, ``s kappa`` and ``kappa``, whose sums over rows are gradient, ``D sigma`` and H; those wanted."""
    return Three(
        error if Want.GRADIENT in want else None,
        s * kappa if Want.CURVATURE in want else None,
        kappa if Want.INFORMATION in want else None,
    )
