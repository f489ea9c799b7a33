"""What an algorithm is to the loop: it makes the problem, a memory, and then one proposal after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.errors import ArgumentError
from forestmix.problem.latent_problem import LatentProblem
from forestmix.problem.make import make_problem
from forestmix.problem.gaussian import Point, Problem
from forestmix.model import DEF, Observations
from forestmix.problem.given import GaussianFactors
from forestmix.statistics import Objective


@dataclass(frozen=True)
class Proposal:
    """Where an iteration leads.

    ``q``: the new factors; ``parallel_steps``: how many parallel steps it took; ``updates``: how many variables were
    updated, each time they were; ``point``: what there is to know at q, where the algorithm knows it already.
    """

    q: Any
    parallel_steps: int
    updates: int
    point: Point | None = None


class Memory:
    """What an algorithm carries from one iteration to the next. This one carries nothing."""

    def take(self, keep: Array) -> Memory:
        """Return the memory of the chosen observations, after the others have finished."""
        return self

    def forget(self, which: Array) -> None:
        """Drop what led to a proposal that the loop refused for the observations marked in ``which``."""


class Algorithm(ABC):
    """An algorithm, as the user configures it. It holds no state of a run."""

    name: ClassVar[str]
    #: True where theory says that the objective never falls. The loop treats a fall as an alarm.
    monotone: ClassVar[bool] = True
    #: Whether it can update latents that are not Gaussian.
    any_latents: ClassVar[bool] = False

    def problem(self, model: DEF, data: Observations) -> Any:
        """Return the problem that this algorithm solves; coordinate methods climb the ELBO."""
        problem = make_problem(model, data, "elbo")
        if isinstance(problem, LatentProblem) and not self.any_latents:
            raise ArgumentError(
                f"algorithm must be 'fm' or 'cavi' for latents that are not Gaussian; got {self.name!r}."
            )
        if problem.on_device:
            raise ArgumentError(
                "algorithm must be 'fm' for W in an array of another library, since sweeps need NumPy's; got "
                f"{self.name!r}."
            )
        return problem

    @abstractmethod
    def start(self, problem: Problem, point: Point) -> Memory:
        """Return the memory of a run that starts at ``point``."""

    @abstractmethod
    def propose(self, problem: Problem, point: Point, memory: Any) -> Proposal:
        """Return the next proposal."""

    def retreats(self, problem: Problem, point: Point, refused: GaussianFactors, memory: Any) -> Iterator[Any]:
        """Yield safer and safer steps to take where ``refused`` lowered the objective; none by default."""
        yield from ()


def check_order(order: str, known: tuple[str, ...]) -> str:
    """Return ``order`` if it is known."""
    return one_of("order", order, known)


def choose_objective(objective: str) -> Objective:
    """Return the objective of a forest mixture step; "auto" is the ELBO, since Gaussian rows let it be computed."""
    return "fm" if one_of("objective", objective, ("auto", "elbo", "fm")) == "fm" else "elbo"
