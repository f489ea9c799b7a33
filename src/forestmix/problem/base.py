"""What an algorithm climbs: a bound on the evidence, as a function of the factors of all latents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Any, ClassVar

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.model import DEF, Observations
from forestmix.partition import Partition

#: How many units of rounding, relative to the size of its terms, an objective may seem to fall by.
ROUNDING_UNITS = 64
SCHEDULES = ("red-black", "bottom-up", "top-down")


class Acceleration(Enum):
    """The accelerated steps that a problem allows.

    ``CONJUGATE``: the objective is quadratic in the means; ``NEWTON``: Gaussian latents under rows of varying
    curvature; ``TILTED``: latents of any family under Gaussian rows; ``NONE``: plain steps only.
    """

    CONJUGATE = auto()
    NEWTON = auto()
    TILTED = auto()
    NONE = auto()


class Problem(ABC):
    """Maximise a bound over the factors of all latents, for each observation of a batch.

    A point is factors ``q`` with what was computed at them: ``objective`` and ``rounding``, which says how far the
    former may be off, (N,) each and on the host; ``carried``, whether the rows were not looked at; and ``take(keep)``.
    """

    #: Whether all latents are Gaussian.
    gaussian: ClassVar[bool]
    model: DEF
    data: Observations
    #: The bound that is climbed, "elbo" or "fm".
    objective_name: str
    #: The bound whose value the objective is: "elbo", "fm", or "grouped" for one between the two.
    climbed: str
    #: The accelerated steps that this problem allows.
    acceleration: Acceleration

    @property
    def size(self) -> int:
        """Number of latents, m, in all layers."""
        return self.model.n_latent

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return len(self.data.x)

    @abstractmethod
    def default_start(self) -> Any:
        """Return where a run starts that is given no start."""

    @abstractmethod
    def start(self, init: Any, name: str = "init") -> Any:
        """Return factors that the user gave, checked; errors call them ``name``."""

    @abstractmethod
    def split(self, q: Any) -> tuple[Any, ...]:
        """Return the factors of each latent layer."""

    @abstractmethod
    def take(self, keep: Array) -> Any:
        """Return the problem of the chosen observations."""

    @abstractmethod
    def evaluate(self, q: Any, known: Any = None) -> Any:
        """Return the point at q; what is known at another point may help."""

    @abstractmethod
    def gradient_norm(self, point: Any) -> Array:
        """Return the relative gradient norm of each observation, (N,), as ``Stopping`` defines it."""

    @abstractmethod
    def gradient_rounding(self, point: Any) -> Array:
        """Return what rounding leaves of ``gradient_norm`` at a point, (N,)."""

    @abstractmethod
    def distance(self, point: Any, *, exactly: bool) -> Array:
        """Return how many posterior standard deviations no mean can be further from the optimum than, (N,).

        ``exactly``: by a factor of the curvature, where that is affordable.
        """

    @abstractmethod
    def check_range(self, start: Any) -> None:
        """Raise where what the rows say of the latents is beyond the range of numbers: no step could be made."""

    @abstractmethod
    def plain_step(self, point: Any, layers: Any) -> Any:
        """Return the factors after a forest mixture step of some layers, which share no rows."""

    def refined(self, q: Any) -> Any:
        """Return the factors after a plain step with the best auxiliary parameters, where these are kept."""
        return q

    @abstractmethod
    def shorter(self, old: Any, new: Any, share: Any) -> Any:
        """Return factors the fraction ``share`` of the way, (N, 1); the old ones where there is nothing between."""

    @abstractmethod
    def sweep(self, point: Any, groups: Partition, *, surrogate: bool) -> Any:
        """Return the factors after the groups were updated one after another, the members of each at once."""


def out_of_range(model: DEF) -> ArgumentError:
    """Return the error for weights whose squares, or squares over those of sd, are beyond the range of numbers."""
    return ArgumentError(
        "W must be such that the sums of its squares, times the rows' curvature (1 / sd^2 for Gaussian rows), are "
        f"finite in {model.dtype}; they overflow. Rescale W, x, b or sd, or use float64."
    )


def sets_of_layers(schedule: str, count: int) -> list[list[int]]:
    """Return the layers, 0 the lowest, that are updated at once, one set after another (paper, appendix C).

    Those of a set share no rows.
    """
    if schedule == "red-black":
        return [chosen for chosen in (list(range(0, count, 2)), list(range(1, count, 2))) if chosen]
    order = range(count) if schedule == "bottom-up" else range(count - 1, -1, -1)
    return [[layer] for layer in order]
