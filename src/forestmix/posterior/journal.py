"""What fits with a full covariance, and integrals over unknown scales, leave in a checkpoint.

Both are sequences of steps in which nothing is random. So a checkpoint holds what the steps so far came to, and a run
that was killed takes these from it, one after another, and goes on where they end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.checkpoint import NoCheckpoint
from forestmix.posterior.course import Course


class Climb(NamedTuple):
    """How far the fit of one observation has come: q by its mean and kappa, the last gain and step, and the trace."""

    mean: Array
    kappa: Array
    gain: float
    rho: float
    trace: Array


class Place(NamedTuple):
    """Where the fit of one observation ended, and how."""

    mean: Array
    kappa: Array
    trace: Array
    converged: bool


class Fits(NamedTuple):
    """Where the fits at some log scales ended."""

    theta: Array
    places: list[Place]


class Exact(NamedTuple):
    """What Gaussian rows came to at some log scales: means (N, m) and ELBO (N,), their sum over N and its slope."""

    theta: Array
    means: Array
    elbos: Array
    value: float
    slope: Array


class Expected(NamedTuple):
    """The factorised q of a step of variational EM."""

    mean: Array
    sd: Array


@dataclass
class Journal:
    """The steps so far; ``keeper`` writes them to a file, and has read those of a run before; ``course``: is told."""

    keeper: NoCheckpoint = field(default_factory=NoCheckpoint)
    course: Course = field(default_factory=Course)

    def __post_init__(self) -> None:
        self.climbs: list[Climb] = []
        self.entries: list[Any] = []
        self._known: list[Any] = []
        self.kept = type(self.keeper) is not NoCheckpoint
        if self.keeper.restore(self):
            self._known, self.entries = self.entries, []

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"climbs": self.climbs, "entries": self.entries + self._known[len(self.entries) :]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what a checkpoint has kept."""
        self.climbs, self.entries = list(state["climbs"]), list(state["entries"])

    def climb(self, k: int) -> Climb | None:
        """Return how far the fit of observation k has come; ``None`` at its start."""
        return self.climbs[k] if k < len(self.climbs) else None

    def note_climb(self, k: int, climb: Climb) -> None:
        """Keep how far the fit of observation k has come."""
        if not self.kept:
            return
        self.climbs[k : k + 1] = [climb]
        self.keeper.save(self)

    def at(self, theta: Array) -> Any:
        """Return the next ``Fits`` or ``Exact`` of the run before if at theta: those that failed are not there."""
        place = len(self.entries)
        there = place < len(self._known) and np.array_equal(self._known[place].theta, theta)
        return self._known[place] if there else None

    def expected(self) -> Expected | None:
        """Return the next E step of the run before but its last, which is made again for how it ended."""
        place = len(self.entries)
        return self._known[place] if place < len(self._known) - 1 else None

    def note(self, entry: Any) -> None:
        """Keep what the next step came to."""
        if not self.kept:
            return
        self.entries.append(entry)
        self.keeper.save(self)

    def close(self) -> None:
        """Write the last state."""
        self.keeper.save(self, at_end=True)
