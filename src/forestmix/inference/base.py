"""What an algorithm is to the loop: it makes the problem, and steps that make one proposal after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.engines.protocol import Capability, Engine, require
from forestmix.errors import ArgumentError
from forestmix.latents.base import mapped, take_rows
from forestmix.model import DEF, Observations
from forestmix.problem.make import make_problem
from forestmix.problem.problem import Problem


@dataclass(frozen=True)
class Proposal:
    """Where an iteration leads.

    ``q``: the new factors; ``parallel_steps``: how many parallel steps it took; ``updates``: how many variables were
    updated, each time they were; ``point``: what there is to know at q, where the algorithm knows it already;
    ``retreats``: safer and safer factors to go to where q lowers the objective, made when they are asked for.
    """

    q: Any
    parallel_steps: int
    updates: int
    point: Any = None
    retreats: Iterable[Any] = ()


class Memory:
    """What a run carries from one iteration to the next.

    A checkpoint keeps its attributes, but those that begin with an underscore, which are made again.
    """

    def take(self, keep: Array) -> Self:
        """Return the memory of the chosen observations, after the others have finished: the rows of its arrays."""
        chosen = copy(self)
        for name, part in vars(self).items():
            vars(chosen)[name] = mapped(partial(take_rows, keep=keep), part)
        return chosen

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: numbers, arrays, generators, and containers of them."""
        return {name: part for name, part in vars(self).items() if not name.startswith("_")}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, in a memory that was just started at its point."""
        vars(self).update(state)


class Steps(Memory, ABC):
    """The steps of an algorithm in a run."""

    #: What the result's message says of how the steps were made.
    note: str = ""

    @abstractmethod
    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return the next proposal."""

    def forget(self, which: Array) -> None:
        """Drop what led to a proposal that the loop refused for the observations marked in ``which``."""


class Rule(Steps):
    """Steps that carry nothing from one iteration to the next: a function of problem and point."""

    def __init__(self, step: Callable[[Any, Any], Proposal]) -> None:
        self._step = step

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Make the step."""
        return self._step(problem, point)


class Algorithm(ABC):
    """An algorithm, as the user configures it. It holds no state of a run."""

    name: ClassVar[str]
    #: True where theory says that the objective never falls. The loop treats a fall as an alarm.
    monotone: ClassVar[bool] = True
    #: Whether it can update latents that are not Gaussian.
    any_latents: ClassVar[bool] = False

    @property
    def sweeps(self) -> bool:
        """Whether it updates one latent, or one group, after another, which not every engine can do."""
        return True

    def problem(self, model: DEF, data: Observations, engine: Engine) -> Problem:
        """Return the problem that this algorithm solves; coordinate methods climb the ELBO."""
        problem = make_problem(model, data, engine, "elbo")
        if not problem.gaussian and not self.any_latents:
            raise ArgumentError(
                f"algorithm must be 'fm' or 'cavi' for latents that are not Gaussian; got {self.name!r}."
            )
        if self.sweeps:
            require(engine, Capability.SWEEP, f"algorithm {self.name!r}")
        return problem

    @abstractmethod
    def start(self, problem: Any, point: Any) -> Steps:
        """Return the steps of a run that starts at ``point``."""


def choose_objective(objective: str) -> str:
    """Return the objective of a forest mixture step; "auto" is the ELBO, since Gaussian rows let it be computed."""
    return "fm" if one_of("objective", objective, ("auto", "elbo", "fm")) == "fm" else "elbo"
