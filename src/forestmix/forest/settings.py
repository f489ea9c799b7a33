"""Parameters of the estimator: their checks, and what learning takes from them."""

from __future__ import annotations

from reprlib import repr as shown
from typing import Any

import numpy as np

from forestmix.arrays import generator
from forestmix.checks import is_number, one_of, whole_number
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Family, Gaussian, Poisson
from forestmix.forest.learning import Settings

FAMILIES: dict[str, type[Family]] = {"gaussian": Gaussian, "bernoulli": Bernoulli, "poisson": Poisson}


def checked_settings(given: dict[str, Any]) -> Settings:
    """Return the settings of an estimator from its parameters, or say which is wrong."""
    one_of("parent_prior", given["parent_prior"], ("auto", "uniform", "learned"))
    for name, least in (("n_trees", 1), ("n_init", 1), ("n_moves", 0), ("max_iter", 1)):
        whole_number(name, given[name], least)
    whole_number("batch_size", given["batch_size"], 2, optional=True)
    number_from("temperature", given["temperature"], 1.0)
    number_from("tol", given["tol"], 0.0)
    number_from("min_noise", given["min_noise"], 1e-12, 1.0)
    if not isinstance(given["verbose"], bool | np.bool_):
        whole_number("verbose", given["verbose"], 0)
    shared = are_shared(given["parents"])
    learned = given["parent_prior"] == "learned" or (given["parent_prior"] == "auto" and not shared)
    return Settings(
        n_trees=int(given["n_trees"]),
        shared=shared,
        learn_prior=learned,
        n_init=int(given["n_init"]),
        temperature=float(given["temperature"]),
        n_moves=int(given["n_moves"]),
        max_iter=min(int(given["max_iter"]), 2**53),
        tol=float(given["tol"]),
        min_variance=float(given["min_noise"]),
        report=print if given["verbose"] else _silent,
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


def _silent(line: str) -> None:
    """Say nothing."""
