"""What an engine is: it evaluates a layer, its data below and q above, in sums over rows.

Algorithms see these sums, and products with ``W^T K W``; how W is stored and read is the engine's own affair.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import Any, NamedTuple, Protocol

from forestmix.errors import ArgumentError


class Want(Flag):
    """What a step needs: the bound, its slope in the means, and two curvatures.

    ``CURVATURE``: ``D_j sigma_j = sum_i |w_ij| s_i kappa_i``, where D majorises the mean problem for all j at once;
    ``INFORMATION``: ``H_j = sum_i w_ij^2 kappa_i``, the curvature of latent j alone.
    """

    VALUE = auto()
    GRADIENT = auto()
    CURVATURE = auto()
    INFORMATION = auto()
    ALL = VALUE | GRADIENT | CURVATURE | INFORMATION


class Spread(Enum):
    """Which spread ``r_i`` of eta enters the terms of a row, ``E a(m_i + r_i z)``.

    ``NONE``: 0, for rows of constant curvature, whose variances enter the bound by a term of their own;
    ``ABSOLUTE``: ``sum_j |w_ij| sigma_j``, the forest mixture bound; ``SQUARED``: ``sqrt(sum_j w_ij^2 sigma_j^2)``,
    the ELBO.
    """

    NONE = auto()
    ABSOLUTE = auto()
    SQUARED = auto()


class Capability(Enum):
    """What not every engine can do."""

    SWEEP = "coordinate sweeps, one latent after another"
    ARRAYS = "arrays of other libraries than NumPy"


class Moments(Protocol):
    """Gaussian factors of the latents: ``mean`` is (N, m), ``sd`` is (N, m), or (1, m) if shared."""

    @property
    def mean(self) -> Any:
        """Their means."""

    @property
    def sd(self) -> Any:
        """Their standard deviations."""


class Factors(NamedTuple):
    """Means and standard deviations alone: what goes to a chunk of W, and what a sweep gives."""

    mean: Any
    sd: Any


def added(one: tuple[Any, ...], other: tuple[Any, ...]) -> list[Any]:
    """Return the sums of two sets of sums, field by field; what nobody wants is ``None`` in both."""
    return [None if mine is None else mine + more for mine, more in zip(one, other, strict=True)]


class Statistics(NamedTuple):
    """Sums over rows, so those of two parts of the rows add up to those of both; what is not wanted is ``None``.

    ``value``: the bound on the expected log-likelihood, (N,); ``magnitude``: the size of its terms, which sets its
    rounding, (N,); ``gradient``: (N, m); ``curvature_sd``, that is ``D_j sigma_j``, and ``information``: (N, m), or
    (1, m) where all observations share them.
    """

    value: Any = None
    magnitude: Any = None
    gradient: Any = None
    curvature_sd: Any = None
    information: Any = None

    @classmethod
    def of(cls, want: Want, *sums: Any) -> Statistics:
        """Return those of the sums, in the order of the fields, that are wanted; the last may be left out."""
        flags = Want.VALUE, Want.VALUE, Want.GRADIENT, Want.CURVATURE, Want.INFORMATION
        return cls(*(one if flag in want else None for one, flag in zip(sums, flags, strict=False)))

    def __add__(self, other: Any) -> Statistics:
        return Statistics(*added(self, other))


class RowTerms(NamedTuple):
    """What the rows are at one q; but for eta, 0 where x is missing.

    ``eta``: their means, (N, n); ``error``: ``e_i = t(x_i) - E a'``, (N, n); ``kappa``: ``E a''``, (N, n), or (1, n)
    where all observations share it.
    """

    eta: Any
    error: Any
    kappa: Any


class PriorMoments(NamedTuple):
    """Mean and precision of the latents' Gaussian prior, (m,) each; precision 0 where rows hold the prior."""

    mean: Any
    precision: Any


class SweepStart(NamedTuple):
    """Where a sweep begins: a layer, its rows, factors q, the terms and spreads of the rows at q, and the prior.

    The spreads, (N or 1, n), are those of the bound; nobody asks for them where curvature is constant.
    """

    layer: Any
    rows: Any
    q: Moments
    terms: RowTerms
    spread: Any
    prior: PriorMoments


class Engine(Protocol):
    """Evaluates layers. What is expensive to prepare is made once, by ``observe``.

    With ``Capability.SWEEP`` an engine has the methods of ``engines.compiled.sweeping.CoordinateSweeps`` as well.
    """

    name: str
    capabilities: frozenset[Capability]

    def observe(self, layer: Any, observations: Any) -> Any:
        """Return the rows of a layer with their data, as ``statistics`` asks for them; they have ``take(keep)``."""

    def products(self, weights: Any, count: int) -> Any:
        """Return how products with W are made for so many vectors, as ``engines.products.Products`` has them."""

    def statistics(
        self, layer: Any, rows: Any, q: Moments, want: Want, spread: Spread | Any
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums that are wanted at q, and the terms of the rows; ``spread`` may be given, (N or 1, n)."""

    def curvatures(self, layer: Any, kappa: Any, sd: Any, want: Want) -> tuple[Any, Any]:
        """Return ``D_j sigma_j`` and ``H_j`` at given ``kappa``, (N or 1, n), of the two those that are wanted."""

    def normal_product(self, layer: Any, kappa: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,), with K the diagonal of ``kappa``."""


def require(engine: Engine, capability: Capability, purpose: str) -> None:
    """Raise unless the engine has a capability; ``purpose`` names what asks for it."""
    if capability not in engine.capabilities:
        raise ArgumentError(f"engine must offer {capability.value} for {purpose}; {engine.name!r} does not.")
