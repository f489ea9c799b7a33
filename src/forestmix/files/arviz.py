"""Posteriors as ArviZ has them: draws, what they predict, and how likely they make the data.

Draws are independent draws of the approximation, so they are one chain, and there are no chains to compare. ArviZ's
``loo`` and ``loo_approximate_posterior`` ask for the axes "chain" and "draw" by these names; ``sample_dims=["sample"]``
gives one axis instead, as ``arviz_base.from_numpyro_svi`` does.

``loo_approximate_posterior`` also asks for ``log_p`` and ``log_q`` of the draws. A draw is that of a component k, which
q chooses with probability w_k, and y given it::

    log_q = log w_k + log q_k(y)
    log_p = log w_k - L_k + log p(x, y | theta_k)      theta_k: the unknown scales of the component

with L_k the estimate of the log evidence log p(x | theta_k): integration over scales makes w_k proportional to
p(theta_k) exp L_k times the node's share of volume, so log_p is that of the target on the nodes, up to a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.checks import whole_number
from forestmix.errors import ArgumentError, optional
from forestmix.files.views import check_names, one_observation
from forestmix.latents.base import mapped
from forestmix.posterior.component import Component
from forestmix.posterior.importance import gaussian_elbo, log_joint, log_proposal, system_of
from forestmix.posterior.result import Result, reported
from forestmix.posterior.table import latent_names
from forestmix.weights.layered import slices_of

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior
    from forestmix.regression.fit import Fit


class _Draws(NamedTuple):
    """Draws of one observation: latents (S, m), each scale (S,), new x and the log-likelihood of x, (S, n).

    ``densities``: ``log_p`` and ``log_q``, (S,) each; empty where they are not known.
    """

    latents: Array
    scales: tuple[Array, ...]
    predicted: Array
    log_likelihood: Array
    densities: tuple[Array, ...]


class _Layout(NamedTuple):
    """Variables of the posterior, (S, ...), their dimensions and the labels of these, and what x and its rows are."""

    variables: dict[str, Array]
    dimensions: dict[str, list[str]]
    labels: dict[str, list[Any]]
    response: str
    rows: list[Any]


def posterior_tree(
    found: Any, size: int, rng: Any, names: Sequence[Any] | None, sample_dims: Sequence[str]
) -> Any:  # fmt: skip
    """Return the tree of a posterior of one observation, or of a result; ``names`` are those of its latents."""
    posterior: Posterior = reported(found) if isinstance(found, Result) else found
    one_observation(posterior, "to_arviz")
    check_names(posterior, names)
    draws = _drawn(posterior, whole_number("size", size), generator(rng))
    sizes = posterior.model.latent_sizes
    numbers = [""] if len(sizes) == 1 else [f"_{k}" for k in range(len(sizes))]
    variables = {f"y{n}": draws.latents[:, part] for n, part in zip(numbers, slices_of(sizes), strict=True)}
    variables |= zip(posterior.scales, draws.scales, strict=True)
    labels: dict[str, list[Any]] = {
        f"latent{n}": latent_names(posterior.model, k, names) for k, n in enumerate(numbers)
    }
    dimensions = {f"y{n}": [f"latent{n}"] for n in numbers}
    rows = list(range(posterior.data.x.shape[1]))
    return _tree(posterior, draws, _Layout(variables, dimensions, labels, "x", rows), sample_dims)


def fit_tree(fit: Fit, size: int, rng: Any, sample_dims: Sequence[str]) -> Any:
    """Return the tree of a regression: a variable for each fixed effect, one for each term of groups, and scales."""
    draws = _drawn(fit.posterior, whole_number("size", size), generator(rng))
    variables: dict[str, Array] = {name: draws.latents[:, k] for k, name in enumerate(fit.design.fixed_names)}
    dimensions: dict[str, list[str]] = {}
    labels: dict[str, list[Any]] = {}
    for term in fit.design.grouped:
        levels = f"{':'.join(term.levels.factors)}__level"
        labels[levels] = list(term.levels.labels)
        for block in term.blocks:
            variables[block.name], dimensions[block.name] = draws.latents[:, block.columns], [levels]
    blocks = {scale: name for name, scale in fit.priors.unknown.items()}
    for one, values in zip(fit.posterior.scales.values(), draws.scales, strict=True):
        variables[f"sd({blocks[one.scale]})"] = values
    answered = ~np.isnan(fit.cases.response)
    known_labels = fit.cases.labels or [str(row) for row in fit.cases.rows]  # of a table in chunks
    rows = [label for label, known in zip(known_labels, answered, strict=True) if known]
    layout = _Layout(variables, dimensions, labels, fit.design.terms.response, rows)
    return _tree(fit.posterior, draws, layout, sample_dims)


def _tree(posterior: Posterior, draws: _Draws, layout: _Layout, sample_dims: Sequence[str]) -> Any:
    """Return the groups that ArviZ knows; entries of x that are missing are in none of them."""
    arviz_base = optional("arviz_base", "to_arviz needs arviz-base: pip install 'forestmix[arviz]'")
    data, name = posterior.data, layout.response
    there = np.ones(data.x.shape[1], bool) if data.observed is None else data.observed[0]
    axes = _axes(sample_dims)
    groups = {
        "posterior": {key: axes(values) for key, values in layout.variables.items()},
        "posterior_predictive": {name: axes(draws.predicted[:, there])},
        "log_likelihood": {name: axes(draws.log_likelihood[:, there])},
        "observed_data": {name: data.x[0, there]},
    }
    if draws.densities:
        groups["sample_stats"] = dict(zip(("log_p", "log_q"), map(axes, draws.densities), strict=True))
    rows = [label for label, known in zip(layout.rows, there, strict=True) if known]
    return arviz_base.from_dict(
        groups, sample_dims=list(sample_dims), coords={**layout.labels, "row": rows},
        dims={**layout.dimensions, name: ["row"]},
        attrs={"/": {"inference_library": "forestmix", "posterior_kind": posterior.kind}},
    )  # fmt: skip


def _axes(sample_dims: Sequence[str]) -> Callable[[Array], Array]:
    """Return what gives draws, (S, ...), the leading axes that were asked for."""
    if list(sample_dims) == ["sample"]:
        return lambda values: values
    if list(sample_dims) == ["chain", "draw"]:
        return lambda values: values[None]
    raise ArgumentError(f"sample_dims must be ['chain', 'draw'] or ['sample']; got {sample_dims!r}.")


def _drawn(posterior: Posterior, size: int, rng: np.random.Generator) -> _Draws:
    """Draw latents with the scales of the component that each comes from, and x given both."""
    components, weights = posterior.mixture.components, posterior.mixture.weights[0]
    shares = weights / np.sum(weights)
    chosen = np.sort(rng.choice(len(components), size, p=shares))
    parts = [
        _component_draws(posterior, components[k], shares[k], int(np.sum(chosen == k)), rng) for k in np.unique(chosen)
    ]
    order = rng.permutation(size)
    drawn: _Draws = mapped(lambda *each: np.concatenate(each)[order], *parts)
    return drawn


def _component_draws(
    posterior: Posterior, component: Component, share: float, count: int, rng: np.random.Generator
) -> _Draws:
    """Draw from one component: ``log p(x | y)`` is that of a natural parameter without spread."""
    layer = component.layer
    latents = component.sample(count, rng)[:, 0]
    eta = layer.weights.in_double().forward(latents[:, : layer.n_parents]) + layer.bias
    x = posterior.data.x.astype(np.float64)
    likelihood = layer.family.expectations(x, eta, np.zeros_like(eta)).log_likelihood
    known = [component.scales.get(one.scale, one.mean) for one in posterior.scales.values()]
    scales = tuple(np.full(count, float(value)) for value in known)
    densities = _densities(posterior, component, share, latents)
    return _Draws(latents, scales, layer.family.sample(eta, rng), np.broadcast_to(likelihood, eta.shape), densities)


def _densities(posterior: Posterior, component: Component, share: float, latents: Array) -> tuple[Array, ...]:
    """Return ``log_p`` and ``log_q`` of draws; empty where ``log det Sigma`` is not known."""
    if not posterior.gaussian:
        return ()
    system = system_of(posterior.system, component)
    bound = gaussian_elbo(system, component.fitted())
    if bound is None:
        return ()
    bound = bound + component.covariance.left_out()
    log_q = np.log(share) + log_proposal(system, component, latents)
    return np.log(share) - bound[0] + log_joint(system, latents), log_q
