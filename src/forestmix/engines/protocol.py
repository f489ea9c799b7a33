"""What an engine is: it evaluates a layer, its data below and q above, in sums over rows.

Algorithms see these sums, and products with ``W^T K W``; how W is stored and read is the engine's own affair.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum, Flag, auto
from typing import Any, NamedTuple, Protocol

from forestmix.errors import ArgumentError
from forestmix.partition import Partition


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


@dataclass(frozen=True)
class Statistics:
    """Sums over rows, so those of two parts of the rows add up to those of both.

    ``want`` says which are there; the others are ``None``. ``value``: the bound on the expected log-likelihood, (N,);
    ``magnitude``: the size of its terms, which sets its rounding, (N,); ``gradient``: (N, m); ``curvature_sd``, that is
    ``D_j sigma_j``, and ``information``: (N, m), or (1, m) where all observations share them.
    """

    want: Want
    value: Any = None
    magnitude: Any = None
    gradient: Any = None
    curvature_sd: Any = None
    information: Any = None

    def __post_init__(self) -> None:
        for name, flag in _FLAGS.items():
            if (getattr(self, name) is None) == (flag in self.want):
                state = "missing" if flag in self.want else "given, but not wanted"
                raise ArgumentError(f"{name} must be there exactly if want has {flag}; it is {state}.")

    @classmethod
    def of(cls, want: Want, *sums: Any) -> Statistics:
        """Return those of the sums, in the order of the fields, that are wanted; the last may be left out."""
        return cls(want, *(one if flag in want else None for one, flag in zip(sums, _FLAGS.values(), strict=False)))

    def __add__(self, other: Statistics) -> Statistics:
        if self.want != other.want:
            raise ArgumentError(f"statistics that are added must be of the same kind; got {self.want}, {other.want}.")
        sums = {name: getattr(self, name) + getattr(other, name) for name, flag in _FLAGS.items() if flag in self.want}
        return Statistics(self.want, **sums)


_FLAGS = {
    field.name: {"curvature_sd": Want.CURVATURE, "magnitude": Want.VALUE}.get(field.name) or Want[field.name.upper()]
    for field in fields(Statistics)
    if field.name != "want"
}


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
    """Evaluates layers. What is expensive to prepare is made once, by ``observe``."""

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


class RowEngine(Engine, Protocol):
    """An engine that also evaluates rows whose sums over W were made elsewhere."""

    def row_terms(self, rows: Any, image: Any, spread: Any) -> tuple[Any, Any, RowTerms]:
        """Return the bound and the size of its terms, (N,) each, and the terms of rows; ``image`` is ``W mean``."""


class SweepEngine(Engine, Protocol):
    """An engine with ``Capability.SWEEP``: coordinate updates on the ELBO, or of groups on the grouped bound.

    Each takes factors and the terms of the rows at them, and returns new factors. Rows of varying curvature have each
    step halved until the objective does not fall, where ``safe``.
    """

    def sweep_groups(
        self, start: SweepStart, groups: Partition, *, surrogate: bool, safe: bool, spread: Spread
    ) -> Moments:
        """Update the groups one after another, the members of each at once.

        ``surrogate``: step with the forest mixture precision of the group (Theorem 2) and not with the exact one of
        each latent; ``spread``: ABSOLUTE for Jensen's inequality inside each group, SQUARED for the ELBO.
        """

    def sweep_blocks(self, start: SweepStart, blocks: Partition, *, synchronous: bool) -> Moments:
        """Sweep the blocks on threads, each with the others as at the start or, unsynchronised, as they are now."""

    def sweep_greedy(self, start: SweepStart, steps: int) -> Moments:
        """Update ``steps`` times, for each observation, the latent whose exact update raises the ELBO most."""


def require(engine: Engine, capability: Capability, purpose: str) -> None:
    """Raise unless the engine has a capability; ``purpose`` names what asks for it."""
    if capability not in engine.capabilities:
        raise ArgumentError(f"engine must offer {capability.value} for {purpose}; {engine.name!r} does not.")
