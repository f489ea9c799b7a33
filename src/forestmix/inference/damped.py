"""Damped parallel updates: every variable at once, a fraction of the way to its exact optimum."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, ClassVar

from forestmix.checks import is_number
from forestmix.errors import ArgumentError
from forestmix.inference.base import Algorithm, Proposal, Rule


@dataclass(frozen=True)
class Damped(Algorithm):
    """All exact coordinate updates at once, ``mu <- mu + step (mu_exact - mu)``.

    Schedule: all variables. Rule: exact, scaled. ``step=1`` is the Jacobi iteration, which diverges when windows
    overlap; how small a step is small enough depends on W, which is what the forest mixture step does away with.

    Args:
        step: in (0, 1].

    """

    step: float = 0.5
    name: ClassVar[str] = "damped"
    monotone: ClassVar[bool] = False

    @property
    def sweeps(self) -> bool:
        """Whether it updates one variable after another: no."""
        return False

    def __post_init__(self) -> None:
        if not is_number(self.step) or not 0 < self.step <= 1:
            raise ArgumentError(f"step must be a number in (0, 1]; got {shown(self.step)}.")

    def start(self, problem: Any, point: Any) -> Rule:
        """Return the damped updates."""
        return Rule(self._update)

    def _update(self, problem: Any, point: Any) -> Proposal:
        """Update all variables, damped; where the variances depend on the means they go the same part of the way."""
        rows, old = problem.rows, point.q
        whole = old.replace(0, rows.target(problem.place(old, 0, point)))
        q = problem.shorter(old, whole, self.step)
        return Proposal(q.moved(q.mean, whole.sd) if rows.quadratic else q, 1, problem.size)
