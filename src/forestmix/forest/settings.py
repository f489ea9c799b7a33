"""Parameters of the estimator: their checks, and what learning takes from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.errors import ArgumentError, unknown_name
from forestmix.families import Bernoulli, Family, Gaussian, Poisson
from forestmix.forest.learning import Settings

FAMILIES: dict[str, type[Family]] = {"gaussian": Gaussian, "bernoulli": Bernoulli, "poisson": Poisson}


def checked_settings(given: dict[str, Any]) -> Settings:
    """Return the settings of an estimator from its parameters, or say which is wrong."""
    if given["parent_prior"] not in ("auto", "uniform", "learned"):
        raise unknown_name("parent_prior", given["parent_prior"], ("auto", "uniform", "learned"))
    for name, least in (("n_trees", 1), ("n_init", 1), ("n_moves", 0), ("max_iter", 1)):
        _whole(name, given[name], least)
    if given["batch_size"] is not None:
        _whole("batch_size", given["batch_size"], 2)
    _number("temperature", given["temperature"], 1.0, np.inf)
    _number("tol", given["tol"], 0.0, np.inf)
    _number("min_noise", given["min_noise"], 1e-12, 1.0)
    shared = are_shared(given["parents"])
    learned = given["parent_prior"] == "learned" or (given["parent_prior"] == "auto" and not shared)
    return Settings(
        n_trees=int(given["n_trees"]),
        shared=shared,
        learn_prior=learned,
        n_init=int(given["n_init"]),
        temperature=float(given["temperature"]),
        n_moves=int(given["n_moves"]),
        max_iter=int(given["max_iter"]),
        tol=float(given["tol"]),
        min_variance=float(given["min_noise"]),
        report=print if given["verbose"] else _silent,
    )


def are_shared(parents: Any) -> bool:
    """Return whether all observations have one forest, from the parameter ``parents``."""
    if parents not in ("shared", "observation"):
        raise unknown_name("parents", parents, ("shared", "observation"))
    return bool(parents == "shared")


def family_of(name: Any) -> Family:
    """Return the family of a name."""
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    return FAMILIES[name]()


def generator_of(random_state: Any) -> np.random.Generator:
    """Return a generator from what scikit-learn takes as ``random_state``."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if random_state is None or isinstance(random_state, int | np.integer | np.random.Generator):
        return np.random.default_rng(random_state)
    raise ArgumentError(
        f"random_state must be an integer seed, a numpy.random.Generator or None; got {type(random_state).__name__}."
    )


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(f"{name} must be a whole number of at least {least}; got {value!r}.")


def _number(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least <= value < most:
        limit = f" and below {most:g}" if np.isfinite(most) else ""
        raise ArgumentError(f"{name} must be a number of at least {least:g}{limit}; got {value!r}.")


def _silent(line: str) -> None:
    """Say nothing."""
