"""Fits in a file: NetCDF with numbers and JSON, nothing that runs when it is read.

A file holds the cases, the priors, and the posterior: for each component its weight, its scales, the means of the
effects and the curvature of each row, from which its covariance follows. The design is made anew from the cases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from forestmix import scales as kinds_of_scales
from forestmix.arrays import Array
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.model import DEF, observations
from forestmix.posterior.component import Component
from forestmix.posterior.factor import BlockFactor, Columns
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.scale_posterior import ScalePosterior
from forestmix.regression.cases import Cases
from forestmix.regression.formula import learn_design
from forestmix.regression.frames import libraries
from forestmix.regression.likelihood import model_of_cases
from forestmix.regression.priors import BlockPrior, Priors
from forestmix.regression.solve import Solution
from forestmix.regression.terms import parse
from forestmix.scales import Scale

if TYPE_CHECKING:
    from forestmix.regression.fit import Fit

#: What the file says it is, with the version of its layout.
KIND = "forestmix regression fit 1"


def save_fit(fit: Fit, path: str | Path) -> None:
    """Write a fit; see ``Fit.save``."""
    if not all(isinstance(one, BlockFactor) for part in _components(fit) for one in part.covariance.distinct):
        raise ForestmixError(
            "Only fits whose covariance is held as a factor can be saved; this one has too many effects."
        )
    arrays: dict[str, Array] = {}
    names = list(fit.priors.unknown)
    about = {
        "kind": KIND,
        "formula": fit.formula,
        "family": fit.family,
        "classes": fit.cases.classes,
        "labels": fit.cases.labels,
        "message": fit.cases.message,
        "note": fit.solution.message,
        "columns": {name: _write_column(f"column {name}", fit.cases.frame[name], arrays) for name in fit.cases.frame},
        "noise": _write_scale(fit.priors.noise),
        "priors": {name: _write_prior(name, block, arrays) for name, block in fit.priors.blocks.items()},
        "evidence": fit.posterior.log_evidence,
        "unknown": names,
    }
    for name in ("rows", "response", "trials", "offset", "weights"):
        if getattr(fit.cases, name) is not None:
            arrays[f"cases {name}"] = getattr(fit.cases, name)
    _write_posterior(fit, names, arrays)
    _write(Path(path), about, arrays)


def load(path: str | Path, context: Mapping[str, Any] | None = None) -> Fit:
    """Read a fit that ``Fit.save`` wrote.

    Args:
        path: the file.
        context: functions and constants that its formula uses, as for ``regress``; they are not in the file.

    """
    from forestmix.regression.fit import Fit

    about, arrays = _read(Path(path))
    pandas, _, _ = libraries()
    frame = pandas.DataFrame({name: _read_column(pandas, kind, arrays[f"column {name}"])
                              for name, kind in about["columns"].items()})  # fmt: skip
    parts = {name: arrays.get(f"cases {name}") for name in ("rows", "response", "trials", "offset", "weights")}
    parts["rows"] = parts["rows"].astype(np.int64)  # type: ignore[union-attr]
    classes = None if about["classes"] is None else tuple(about["classes"])
    cases = Cases(frame, **parts, classes=classes, labels=about["labels"], message=about["message"])  # type: ignore[arg-type]
    design, rows = learn_design(parse(about["formula"]), frame, dict(context or {}))
    blocks = {name: _read_prior(name, one, arrays) for name, one in about["priors"].items()}
    priors = Priors(blocks, _read_scale(about["noise"]))
    model, y = model_of_cases(about["family"], rows, cases, priors)
    return Fit(about["family"], design, priors, cases, model, _read_posterior(model, y, priors, about, arrays))


def _components(fit: Fit) -> tuple[Component, ...]:
    return fit.posterior.mixture.components


def _write_posterior(fit: Fit, names: list[str], arrays: dict[str, Array]) -> None:
    """Add the arrays of the mixture, and the density of each unknown scale."""
    parts = _components(fit)
    arrays["weights"] = fit.posterior.mixture.weights[0]
    arrays["means"] = np.stack([part.mean[0] for part in parts])
    arrays["kappa"] = np.stack([part.covariance.distinct[0].kappa for part in parts])
    unknown = fit.priors.unknown
    if names:
        arrays["scales"] = np.array([[part.scales[unknown[name]] for name in names] for part in parts])
    for name in names:
        arrays[f"density {name}"] = np.stack(fit.scales[unknown[name]].log_density_grid())
        arrays[f"moments {name}"] = fit.scales[unknown[name]].moments()


def _read_posterior(model: DEF, y: Array, priors: Priors, about: Any, arrays: Mapping[str, Array]) -> Solution:
    """Return the posterior, its covariances made from the curvatures of the rows."""
    columns = Columns(model.layers[0].weights.in_double())
    unknown = [priors.unknown[name] for name in about["unknown"]]
    found = {
        scale: ScalePosterior(
            scale, arrays[f"density {name}"][0], arrays[f"density {name}"][1], arrays[f"moments {name}"]
        )
        for name, scale in zip(about["unknown"], unknown, strict=True)
    }
    components = []
    for place, (mean, kappa) in enumerate(zip(arrays["means"], arrays["kappa"], strict=True)):
        values = dict(zip(unknown, arrays["scales"][place].tolist(), strict=True)) if unknown else {}
        known = model.with_scales(values) if unknown else model
        precision = np.broadcast_to(known.prior.family.sd, known.n_latent).astype(np.float64) ** -2.0
        components.append(Component(mean, BlockFactor(columns, kappa, precision), known.layers[0], values))
    best = components[int(np.argmax(arrays["weights"]))].scales
    shown = model.with_scales(dict(best)) if unknown else model
    posterior = Posterior(
        components, arrays["weights"], shown, observations(shown, y), "full", log_evidence=about["evidence"]
    )
    return Solution(posterior, found, about["note"])


def _write_scale(scale: float | Scale | None) -> Any:
    if not isinstance(scale, Scale):
        return scale
    return {"kind": type(scale).__name__, "values": [getattr(scale, name) for name in scale.parameters]}


def _read_scale(given: Any) -> Any:
    return getattr(kinds_of_scales, given["kind"])(*given["values"]) if isinstance(given, dict) else given


def _write_prior(name: str, block: BlockPrior, arrays: dict[str, Array]) -> Any:
    arrays[f"prior mean {name}"] = block.mean
    if isinstance(block.sd, Scale):
        return _write_scale(block.sd)
    arrays[f"prior sd {name}"] = block.sd
    return None


def _read_prior(name: str, scale: Any, arrays: Mapping[str, Array]) -> BlockPrior:
    return BlockPrior(arrays[f"prior mean {name}"], arrays[f"prior sd {name}"] if scale is None else _read_scale(scale))


def _write_column(name: str, column: Any, arrays: dict[str, Array]) -> Any:
    """Add a column as numbers, and return what they mean: a dtype, or the levels with their kind."""
    if column.dtype.kind in "biuf":
        arrays[name] = column.to_numpy()
        return str(column.dtype)
    is_category = hasattr(column, "cat")
    levels = column if is_category else column.astype("category")
    arrays[name] = levels.cat.codes.to_numpy()
    return {"category": is_category, "levels": [str(level) for level in levels.cat.categories]}


def _read_column(pandas: Any, kind: Any, values: Array) -> Any:
    if isinstance(kind, str):
        return values.astype(kind)
    found = pandas.Categorical.from_codes(values.astype(np.int64), kind["levels"])
    return found if kind["category"] else pandas.Series(found).astype(object).to_numpy()


def _write(path: Path, about: Any, arrays: Mapping[str, Array]) -> None:
    """Write JSON as a variable of characters, and numbers as doubles, named by their place."""
    text = json.dumps({**about, "arrays": list(arrays)}).encode()
    with scipy.io.netcdf_file(path, "w", version=2) as file:
        file.createDimension("about", len(text))
        file.createVariable("about", "c", ("about",))[:] = np.frombuffer(text, "S1")
        for place, values in enumerate(arrays.values()):
            sizes = [f"d{place}_{axis}" for axis in range(values.ndim)]
            for size, length in zip(sizes, values.shape, strict=True):
                file.createDimension(size, length)
            file.createVariable(f"array{place}", "d", tuple(sizes))[:] = values.astype(np.float64)


def _read(path: Path) -> tuple[Any, dict[str, Array]]:
    try:
        with scipy.io.netcdf_file(path, "r", mmap=False) as file:
            about = json.loads(file.variables["about"][:].tobytes())
            arrays = {
                name: file.variables[f"array{place}"][:].astype(np.float64)
                for place, name in enumerate(about["arrays"])
            }
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ArgumentError(f"path must be a file that Fit.save wrote; {str(path)!r} is not: {error}.") from error
    if about.get("kind") != KIND:
        raise ArgumentError(f"path must be a file that this version's Fit.save wrote; got {about.get('kind')!r}.")
    return about, arrays
