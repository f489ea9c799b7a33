"""Posteriors as ArviZ has them: draws, what they predict, and how likely they make the data.

Draws are exact draws of the approximation, so there is one axis of them, ``sample``, as for variational results of
other libraries (``arviz_base.from_numpyro_svi``), and no chains to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.checks import whole_number
from forestmix.errors import MissingExtraError
from forestmix.files.views import one_observation
from forestmix.posterior.component import Component
from forestmix.posterior.table import latent_names
from forestmix.weights.layered import slices_of

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior
    from forestmix.regression.fit import Fit


class _Draws(NamedTuple):
    """Draws of one observation: latents (S, m), scales by name (S,), new x and the log-likelihood of x, (S, n)."""

    latents: Array
    scales: dict[str, Array]
    predicted: Array
    log_likelihood: Array


def posterior_tree(
    posterior: Posterior, size: int = 1000, rng: Any = 0, names: Sequence[str] | None = None
) -> Any:  # fmt: skip
    """Return the tree of a posterior of one observation; ``names`` are those of its latents."""
    one_observation(posterior, "to_arviz")
    draws = _drawn(posterior, whole_number("size", size), generator(rng))
    sizes = posterior.model.latent_sizes
    numbers = [""] if len(sizes) == 1 else [f"_{k}" for k in range(len(sizes))]
    latents = {f"y{n}": draws.latents[:, part] for n, part in zip(numbers, slices_of(sizes), strict=True)}
    labels = {
        f"latent{n}": latent_names(names if len(sizes) == 1 else None, m) for n, m in zip(numbers, sizes, strict=True)
    }
    dimensions = {f"y{n}": [f"latent{n}"] for n in numbers}
    return _tree(posterior, draws, latents, dimensions, labels, {})


def fit_tree(fit: Fit, size: int = 1000, rng: Any = 0) -> Any:
    """Return the tree of a regression: a variable for each fixed effect, one for each term of groups, and scales."""
    draws = _drawn(fit.posterior, whole_number("size", size), generator(rng))
    variables: dict[str, Array] = {name: draws.latents[:, k] for k, name in enumerate(fit.design.fixed_names)}
    dimensions, labels = {}, {}
    for term in fit.design.grouped:
        for block in term.blocks:
            variables[block.name] = draws.latents[:, block.columns]
            dimensions[block.name] = [
                term.levels.factors[0] if len(term.levels.factors) == 1 else ":".join(term.levels.factors)
            ]
            labels[dimensions[block.name][0]] = term.levels.labels
    there = ~np.isnan(fit.cases.response)
    rows = [label for label, known in zip(fit.cases.labels, there, strict=True) if known]
    own = {scale: f"sd({name})" for name, scale in fit.priors.unknown.items()}
    renamed = {name: own[fit.posterior.scales[name].scale] for name in draws.scales}
    return _tree(fit.posterior, draws._replace(scales={renamed[k]: v for k, v in draws.scales.items()}),
                 variables, dimensions, labels, {"row": rows, "response": fit.design.terms.response})  # fmt: skip


def _tree(
    posterior: Posterior, draws: _Draws, variables: dict[str, Array], dimensions: dict[str, list[str]],
    labels: dict[str, list[str]], rows: dict[str, Any],
) -> Any:  # fmt: skip
    """Return the groups that ArviZ knows; entries of x that are missing are left out of all of them but the first."""
    try:
        import arviz_base
    except ImportError as error:
        raise MissingExtraError("to_arviz needs arviz-base: pip install 'forestmix[arviz]'") from error
    data = posterior.data
    there = np.ones(data.x.shape[1], bool) if data.observed is None else data.observed[0]
    name = rows.get("response", "x")
    every = rows.get("row", list(range(len(there))))
    labels = {**labels, "row": [label for label, known in zip(every, there, strict=True) if known]}
    groups = {
        "posterior": {**variables, **draws.scales},
        "posterior_predictive": {name: draws.predicted[:, there]},
        "log_likelihood": {name: draws.log_likelihood[:, there]},
        "observed_data": {name: data.x[0, there]},
    }
    return arviz_base.from_dict(
        groups, sample_dims=["sample"], coords=labels, dims={**dimensions, name: ["row"]},
        attrs={"/": {"inference_library": "forestmix", "posterior_kind": posterior.kind}},
    )  # fmt: skip


def _drawn(posterior: Posterior, size: int, rng: np.random.Generator) -> _Draws:
    """Draw latents with the scales of the component that each comes from, and x given both."""
    components, shares = posterior.mixture.components, posterior.mixture.weights[0]
    chosen = np.sort(rng.choice(len(components), size, p=shares / np.sum(shares)))
    parts = [_component_draws(posterior, components[k], int(np.sum(chosen == k)), rng) for k in np.unique(chosen)]
    order = rng.permutation(size)
    scales = {name: np.concatenate([part.scales[name] for part in parts])[order] for name in parts[0].scales}
    latents, predicted, likelihood = (np.concatenate([part[field] for part in parts])[order] for field in (0, 2, 3))
    return _Draws(latents, scales, predicted, likelihood)


def _component_draws(posterior: Posterior, component: Component, count: int, rng: np.random.Generator) -> _Draws:
    """Draw from one component: ``log p(x | y)`` is that of a natural parameter without spread."""
    layer = component.layer
    latents = component.sample(count, rng)[:, 0]
    eta = layer.weights.in_double().forward(latents[:, : layer.n_parents]) + layer.bias
    x = posterior.data.x.astype(np.float64)
    likelihood = layer.family.expectations(x, eta, np.zeros_like(eta)).log_likelihood
    known = {name: component.scales.get(one.scale, one.mean) for name, one in posterior.scales.items()}
    scales = {name: np.full(count, float(value)) for name, value in known.items()}
    return _Draws(latents, scales, layer.family.sample(eta, rng), np.broadcast_to(likelihood, eta.shape))
