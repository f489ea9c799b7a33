"""What an engine is: it evaluates a layer, its data below and q above, in sums over rows.

Algorithms see these sums, and products with ``W^T K W``; how W is stored and read is the engine's own affair.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum, Flag, auto
from typing import Any, Literal, NamedTuple, Protocol

from forestmix.errors import ArgumentError

Objective = Literal["fm", "elbo"]


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
    """Terms of the rows at one q, for the engine that made them: given back, they need not be computed again.

    ``eta``: the row means; ``spread``: that of the objective; ``log_likelihood``: expected under both; ``error``:
    ``e_i = t(x_i) - E a'``; ``kappa``: ``E a''``. Each is (N, n), or (1, n) where all observations share it.
    """

    eta: Any
    spread: Any
    log_likelihood: Any
    error: Any
    kappa: Any


class Engine(Protocol):
    """Evaluates layers. What is expensive to prepare is made once, by ``observe``."""

    name: str
    capabilities: frozenset[Capability]

    def observe(self, layer: Any, observations: Any) -> Any:
        """Return the rows of a layer with their data, as ``statistics`` asks for them."""

    def statistics(
        self, layer: Any, data: Any, q: Moments, want: Want, objective: Objective, terms: Any = None
    ) -> tuple[Statistics, Any]:
        """Return the sums that are wanted at q, and the row terms; ``terms`` are those of an earlier call at this q."""

    def normal_product(self, layer: Any, row_weights: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,), with K the diagonal of ``row_weights``."""


def require(engine: Engine, capability: Capability, purpose: str) -> None:
    """Raise unless the engine has a capability; ``purpose`` names what asks for it."""
    if capability not in engine.capabilities:
        raise ArgumentError(f"engine must offer {capability.value} for {purpose}; {engine.name!r} does not.")
