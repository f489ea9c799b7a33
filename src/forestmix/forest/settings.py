"""How to learn, from the parameters of the estimator, which are checked here; and what a fit tells on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.checks import is_number, one_of, whole_number
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Family, Gaussian, Poisson
from forestmix.forest.parameters import ForestParameters, log_jacobian
from forestmix.inference.loop import Callback
from forestmix.model import Observations
from forestmix.posterior import course

if TYPE_CHECKING:
    from forestmix.forest.engines import State

FAMILIES: dict[str, type[Family]] = {"gaussian": Gaussian, "bernoulli": Bernoulli, "poisson": Poisson}


class Course(course.Course):
    """What a fit tells on its way.

    The work is a number of parts, such as a start, a larger move, or learning the leaves of a family. How many there
    will be is a guess, so the share of the work that is done is one too; it never falls.

    Args:
        callback: called with an ``Iteration`` after each sweep, or ``None``; True asks the fit to stop.
        report: called with a line for each start, move or epoch.

    ``scale``: of each variable, which the data are divided by; the ELBO is told for the data as they were given.
    ``planned``: how many parts are expected; ``stopped``: whether the callback asked to stop.

    """

    def __init__(self, callback: Callback | None = None, report: Callable[[str], Any] = lambda line: None) -> None:
        super().__init__(callback, single=False)
        self.objectives = [np.nan]  # there is none before the first sweep, which is iteration 1
        self.report = report
        self.scale: Array = np.ones(1)
        self.share, self.planned, self._done, self._part = 0.0, 0.0, 0.0, 0.0

    def begin(self, part: float = 1.0) -> None:
        """Begin a part of the work, which counts as so many; the one before it is done."""
        self._done, self._part = self._done + self._part, part

    def swept(self, state: State, data: Observations, within: float = 0.0) -> bool:
        """Tell of a sweep, after which so much of its part is done; return whether the fit is to stop."""
        done = (self._done + within * self._part) / max(self.planned, 1.0)
        self.share = max(self.share, min(done, 1.0))
        mean, sd = state.latents.mean, state.latents.sd
        value = state.value - log_jacobian(data, self.scale)
        return self.tell(value, self.share, lambda: (mean, np.broadcast_to(sd**2, mean.shape)))


@dataclass(frozen=True)
class Settings:
    """How to learn; ``ForestMixtureModel`` says what each does."""

    n_trees: int = 2
    shared: bool = True
    learn_prior: bool = False
    n_init: int = 8
    temperature: float = 2.0
    n_moves: int = 3
    max_iter: int = 300
    tol: float = 1e-7
    min_variance: float = 1e-3
    course: Course = field(default_factory=Course)

    def with_prior(self, forest: ForestParameters, prior: Array) -> ForestParameters:
        """Return the forest with a prior of the parents, (m,) for all variables or (n, m), if that is learned."""
        if not self.learn_prior:
            return forest
        return replace(forest, parent_prior=np.broadcast_to(prior, forest.weights.shape))


def checked_settings(given: dict[str, Any], callback: Callback | None = None) -> Settings:
    """Return the settings of an estimator from its parameters, or say which is wrong."""
    if callback is not None and not callable(callback):
        raise ArgumentError(f"callback must be callable; got {type(callback).__name__}.")
    one_of("parent_prior", given["parent_prior"], ("auto", "uniform", "learned"))
    whole_number("batch_size", given["batch_size"], 2, optional=True)
    if not isinstance(given["verbose"], bool | np.bool_):
        whole_number("verbose", given["verbose"], 0)
    shared = are_shared(given["parents"])
    return Settings(
        n_trees=whole_number("n_trees", given["n_trees"]),
        shared=shared,
        learn_prior=given["parent_prior"] == "learned" or (given["parent_prior"] == "auto" and not shared),
        n_init=whole_number("n_init", given["n_init"]),
        temperature=number_from("temperature", given["temperature"], 1.0),
        n_moves=whole_number("n_moves", given["n_moves"], 0),
        max_iter=min(whole_number("max_iter", given["max_iter"]), 2**53),
        tol=number_from("tol", given["tol"], 0.0),
        min_variance=number_from("min_noise", given["min_noise"], 1e-12, 1.0),
        course=Course(callback, print) if given["verbose"] else Course(callback),
    )


def are_shared(parents: Any) -> bool:
    """Return whether all observations have one forest, from the parameter ``parents``."""
    return one_of("parents", parents, ("shared", "observation")) == "shared"


def family_of(name: Any) -> Family:
    """Return the family of a name."""
    return FAMILIES[one_of("family", name, FAMILIES)]()


def generator_of(random_state: Any) -> np.random.Generator:
    """Return a generator from what scikit-learn takes as ``random_state``."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return generator(random_state, "random_state")


def number_from(name: str, value: Any, least: float, below: float = 1e300) -> float:
    """Return ``value`` if it is a number within its limits."""
    if not is_number(value) or not least <= value < below:
        limit = f" and below {below:g}" if below < 1e300 else ""
        raise ArgumentError(f"{name} must be a number of at least {least:g}{limit}; got {shown(value)}.")
    return float(value)
