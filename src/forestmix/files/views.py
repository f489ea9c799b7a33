"""Results, posteriors and fits as labelled data: datasets of xarray and tables of pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.errors import ArgumentError, ForestmixError, optional
from forestmix.posterior.result import Result
from forestmix.posterior.table import latent_labels, latent_names
from forestmix.regression.fit import interval_columns
from forestmix.tables import label_text

if TYPE_CHECKING:
    from forestmix.forest.estimator import ForestMixtureModel
    from forestmix.posterior.posterior import Posterior
    from forestmix.regression.fit import Fit


def latent_dataset(found: Any, level: float, names: Sequence[Any] | None = None) -> Any:
    """Return mean, sd and interval of each latent and unknown scale by name, and how the run of a result went."""
    variables, coordinates = _layers(found, level, names)
    if isinstance(found, Result):
        _add_run(variables, coordinates, found)
        attributes = {"kind": "factorised"}
        attributes |= {name: getattr(found, name) for name in ("algorithm", "objective_name", "message")}
    else:
        scales = {name: _scale_moments(one, level) for name, one in found.scales.items()}
        _add_scales(variables, coordinates, scales, level)
        attributes = {"kind": found.kind}
    return _dataset(variables, coordinates, {**attributes, "level": level})


def _add_run(variables: dict[str, Any], coordinates: dict[str, Any], result: Result) -> None:
    lead = [] if result.data.single else ["observation"]
    trace = result.trace
    coordinates["iteration"] = trace.iteration
    for name in ("objective", "gradient_norm"):
        variables[f"trace_{name}"] = (["iteration", *lead], getattr(trace, name), f"{name} at each iteration")
    variables["trace_seconds"] = (["iteration"], trace.seconds, "seconds since the start, s")
    for name in ("objective", "converged", "n_iter"):
        variables[name] = (lead, np.asarray(getattr(result, name)), f"{name} of the run")


def fit_dataset(fit: Fit, level: float) -> Any:
    """Return mean, sd and interval of every effect of a regression, and of its scales, by name."""
    parts = (fit.posterior.mean, fit.posterior.sd, *fit.posterior.interval(level))
    variables = _moments(parts, ["effect"], level, "effect")
    coordinates: dict[str, Any] = {"effect": fit.names}
    found = {name: fit.scales[scale] for name, scale in fit.priors.unknown.items()}
    scales = {name: (one.mean, one.sd, *one.interval(level)) for name, one in found.items()}
    _add_scales(variables, coordinates, scales, level)
    return _dataset(variables, coordinates, {"formula": fit.formula, "family": fit.family, "level": level})


def forest_dataset(model: ForestMixtureModel) -> Any:
    """Return the edges of a forest mixture: weights, biases, noise and probabilities of parents."""
    model._check_fitted()
    variables: dict[str, Any] = {
        "weight": (["variable", "tree"], model.weights_, "weight of each variable as a child of each tree"),
        "bias": (["variable", "tree"], model.biases_, "bias, likewise"),
        "probability": (["variable", "tree"], model.responsibilities_, "probability of each parent"),
        "parent": (["variable"], model.parents_, "most probable parent"),
        "strength": (["variable"], model.strengths_, "correlation of each variable with its parent"),
    }
    if model.noise_ is not None:
        variables["noise"] = (["variable", "tree"], model.noise_, "noise standard deviation")
    names = getattr(model, "feature_names_in_", np.arange(model.n_features_in_))
    return _dataset(variables, {"variable": list(names)}, {"family": model.family, "parents": model.parents})


def latent_frame(found: Any, level: float, names: Sequence[Any] | None = None) -> Any:
    """Return a table with a row for each latent, by layer and observation where there are several."""
    pandas = _pandas()
    count = check_names(found, names)
    tables = {}
    for k, layer in enumerate(found.layers):
        parts = interval_columns((layer.mean, layer.sd, *layer.interval(level)), level)
        labels = latent_labels(found.model, k, names)
        index = pandas.Index(labels, name="latent", tupleize_cols=False)
        if not found.data.single:
            each = found.data.labels or range(len(layer.mean))
            each = pandas.Index(each, name="observation", tupleize_cols=False)
            index = pandas.MultiIndex.from_product([each, index], names=["observation", "latent"])
        tables[k] = pandas.DataFrame({name: np.ravel(np.asarray(part)) for name, part in parts.items()}, index=index)
    return tables[0] if count == 1 else pandas.concat(tables, names=["layer"])


def forest_frame(model: ForestMixtureModel) -> Any:
    """Return a table with a row for each variable: its parent, how probable that is, and how strong the edge is."""
    pandas = _pandas()
    model._check_fitted()
    every = np.arange(model.n_features_in_)
    chosen = (every, model.parents_)
    columns = {
        "parent": model.parents_, "probability": model.responsibilities_[chosen], "strength": model.strengths_,
        "weight": model.weights_[chosen], "bias": model.biases_[chosen],
    }  # fmt: skip
    return pandas.DataFrame(columns, index=pandas.Index(getattr(model, "feature_names_in_", every), name="variable"))


def _moments(parts: Sequence[Any], dimensions: list[str], level: float, what: str, name: str = "{}") -> dict[str, Any]:
    """Return means, sds and both ends of intervals as variables with their dimensions and what they are."""
    interval = f"end of the {level:g} interval"
    texts = {"mean": "mean", "sd": "standard deviation", "lower": f"lower {interval}", "upper": f"upper {interval}"}
    return {
        name.format(key): (dimensions, np.asarray(values), f"{text} of each {what}")
        for (key, text), values in zip(texts.items(), parts, strict=True)
    }


def _layers(found: Any, level: float, names: Sequence[Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return mean, sd and interval of each layer; those of a deep model have the layer's number in their names."""
    count, single = check_names(found, names), found.data.single
    variables: dict[str, Any] = {}
    each: Any = np.arange(len(found.layers[0].mean))
    if found.data.labels is not None:
        each = list(map(label_text, found.data.labels))
    coordinates: dict[str, Any] = {} if single else {"observation": each}
    for k, layer in enumerate(found.layers):
        number = "" if count == 1 else f"_{k}"
        dimensions = [*([] if single else ["observation"]), f"latent{number}"]
        coordinates[f"latent{number}"] = latent_names(found.model, k, names)
        parts = (layer.mean, layer.sd, *layer.interval(level))
        variables |= _moments(parts, dimensions, level, "latent", f"{{}}{number}")
    return variables, coordinates


def check_names(found: Any, names: Sequence[Any] | None) -> int:
    """Return the number of latent layers, once it is known that names are given for one alone."""
    count = len(found.layers)
    if names is not None and count > 1:
        raise ArgumentError(f"names must be left out for a model with {count} latent layers.")
    return count


def _scale_moments(scale: Any, level: float) -> tuple[Any, ...]:
    """Return mean, sd and both ends of the interval of a scale; (N,) each where observations have their own."""
    if isinstance(scale, tuple):
        return tuple(np.array(part) for part in zip(*(_scale_moments(one, level) for one in scale), strict=True))
    return (scale.mean, scale.sd, *scale.interval(level))


def _add_scales(
    variables: dict[str, Any], coordinates: dict[str, Any], scales: Mapping[str, tuple[Any, ...]], level: float
) -> None:
    if not scales:
        return
    coordinates["scale"] = list(scales)
    parts = [np.array(values) for values in zip(*scales.values(), strict=True)]
    dimensions = ["scale", "observation"][: parts[0].ndim]
    variables |= _moments(parts, dimensions, level, "unknown scale", "scale_{}")


def _dataset(variables: Mapping[str, Any], coordinates: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    xarray = optional("xarray", "to_xarray needs xarray: pip install 'forestmix[io]'")
    described = {
        name: (dimensions, values, {"long_name": text}) for name, (dimensions, values, text) in variables.items()
    }
    return xarray.Dataset(described, coordinates, dict(attributes))


def _pandas() -> Any:
    return optional("pandas", "to_pandas needs pandas: pip install 'forestmix[regression]'")


def one_observation(posterior: Posterior, what: str) -> None:
    """Raise for a batch, and say how to choose one observation of it."""
    if not posterior.data.single:
        raise ForestmixError(f"{what} is for one observation; use posterior.take(k) for one of a batch.")
