"""A verdict on a posterior: how far it can be trusted, by its own model, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import DiagonalCovariance
from forestmix.posterior.evidence import gaussian_elbo
from forestmix.posterior.kinds import corrected_component, is_factored
from forestmix.posterior.pareto import smoothed
from forestmix.posterior.prediction import row_families
from forestmix.posterior.predictive_check import Discrepancy, discrepancies
from forestmix.posterior.row_integrals import log_density
from forestmix.posterior.system import LatentSystem
from forestmix.weights.gram import blocks_of

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior

#: Draws, and how many products with entries of W and how many drawn rows they may take in all; at least some.
DRAWS, WORK, ENTRIES, LEAST_DRAWS = 2000, 4e9, 2e7, 200
#: k-hat below the first is good, above the second averages over draws have no meaning (Vehtari et al. 2024).
GOOD, BAD = 0.7, 1.0
#: A shift of the means, in sds, and a predictive p-value, that are worth a word.
SHIFT, TAIL = 0.1, 0.005


@dataclass(frozen=True, repr=False)
class Check:
    """What ``Posterior.check`` found.

    ``verdict``: one line; ``advice``: what to do about this posterior, if anything; ``misfit``: the statistics that the
    model does not reproduce, which is about the model and not about how its posterior was found; ``pareto_k``: of
    importance weights for the factorised q and for the posterior itself: below 0.7 it is close to the true posterior,
    above 1 far from it; ``log_evidence``: estimated by importance sampling from this posterior, with the standard error
    ``log_evidence_error``; ``elbo`` and ``factorised_elbo``: the bounds of both; ``sd_ratio``: the largest ratio of
    corrected to factorised sd; ``mean_shift``: the largest difference of corrected and factorised means, in sds;
    ``predictive``: statistics of x beside those of replicated data.
    """

    verdict: str
    advice: tuple[str, ...]
    misfit: tuple[str, ...]
    pareto_k: dict[str, float]
    log_evidence: float | None
    log_evidence_error: float | None
    elbo: float | None
    factorised_elbo: float | None
    sd_ratio: float | None
    mean_shift: float | None
    predictive: dict[str, Discrepancy] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether this is close to the true posterior of the model, whether or not the model fits."""
        return not self.advice

    def __repr__(self) -> str:
        lines = [self.verdict, *(f"  -> {one}" for one in self.advice)]
        if self.misfit:
            lines.append(
                f"  -> Drawn data differ in their {', '.join(self.misfit)}: try another family, noise or terms."
            )
        for name, k in self.pareto_k.items():
            lines.append(f"  Pareto k-hat, {name}: {k:.2f}")
        if self.log_evidence is not None:
            error = f" +- {self.log_evidence_error:.2g}" if self.log_evidence_error is not None else ""
            lines.append(f"  log evidence by importance sampling: {self.log_evidence:,.2f}{error}")
        for label, bound in (("this posterior", self.elbo), ("the factorised q", self.factorised_elbo)):
            lines += [] if bound is None else [f"  bound of {label}: {bound:,.2f}"]
        if self.sd_ratio is not None and self.mean_shift is not None:
            lines.append(f"  corrected sd / factorised sd, largest: {self.sd_ratio:.2f}")
            lines.append(f"  |corrected mean - factorised mean| / sd, largest: {self.mean_shift:.3f}")
        lines += [f"  {name} of x: {one}" for name, one in self.predictive.items()]
        return "\n".join(lines)


def check(posterior: Posterior, rng: np.random.Generator, size: int | None) -> Check:
    """Return the verdict on a posterior of one observation, see ``Posterior.check``."""
    if not posterior.data.single:
        raise ForestmixError("check is for one observation; use posterior.take(k) for one of a batch.")
    weights = posterior.model.layers[0].weights
    affordable = min(WORK / max(weights.nnz, 1), ENTRIES / weights.shape[0])
    size = size or int(np.clip(affordable, LEAST_DRAWS, DRAWS))
    predictive = discrepancies(posterior, rng, size)
    if not posterior.gaussian or len(posterior.mixture.components) > 1 or posterior.factors is None:
        verdict = f"Not looked at: whether this is close to the true posterior. {_fit(_misfit(predictive))}"
        return Check(verdict, (), _misfit(predictive), {}, None, None, None, None, None, None, predictive)
    return _gaussian_check(posterior, rng, size, predictive)


def _gaussian_check(
    posterior: Posterior, rng: np.random.Generator, size: int, predictive: dict[str, Discrepancy]
) -> Check:
    """Return the verdict where all latents are Gaussian."""
    assert posterior.factors is not None
    system, own = posterior.system, posterior.mixture.components[0]
    mean, sd = posterior.factors
    factorised = Component(mean, DiagonalCovariance(sd[0] ** 2), own.layer)
    corrected = own
    if posterior.kind == "factorised":
        corrected = corrected_component(posterior.model, posterior.data, posterior.factors, 0.05, rng, False)
    corrected_sd = np.sqrt(corrected.covariance.variance()[0])
    ratio = float(np.max(corrected_sd / sd[0]))
    shift = float(np.max(np.abs(corrected.mean - mean)[0] / corrected_sd))
    names = {"factorised q": factorised} | (
        {} if posterior.kind == "factorised" else {f"{posterior.kind} posterior": own}
    )
    weighed = {name: smoothed(_log_weights(system, part, rng, size)) for name, part in names.items()}
    k, last = {name: one.k for name, one in weighed.items()}, list(weighed.values())[-1]
    known = own.covariance.log_determinant() is not None
    factorised_elbo = gaussian_elbo(system, factorised)
    exact = system.constant_curvature and posterior.kind != "factorised" and is_factored(own.covariance)
    advice, misfit = _advice(posterior.kind, exact, last.k, ratio, shift), _misfit(predictive)
    verdict = f"{_verdict(posterior.kind, exact, last.k, advice)} {_fit(misfit)}"
    return Check(
        verdict, tuple(advice), misfit, k, last.log_mean if known else None,
        last.log_mean_error if known else None, posterior.elbo,
        None if factorised_elbo is None else float(factorised_elbo[0]), ratio, shift, predictive,
    )  # fmt: skip


def _log_weights(system: LatentSystem, component: Component, rng: np.random.Generator, size: int) -> Array:
    """Return ``log p(x, y) - log q(y)`` for draws y from q, up to a constant where ``log det Sigma`` is not known."""
    draws = component.sample(size, rng)[:, 0]
    distance = draws - component.mean[0]
    held = system.precision > 0
    prior = -0.5 * np.sum((draws - system.prior_mean) ** 2 * system.precision, axis=1)
    prior -= np.sum(np.log(system.scale[held])) - 0.5 * (len(held) - np.sum(held)) * np.log(2 * np.pi)
    log_determinant = component.covariance.log_determinant()
    square = np.sum(distance * _precision_product(system, component, distance), axis=1)
    return log_likelihood(system, draws) + prior + 0.5 * (square + (log_determinant or 0.0))


def _precision_product(system: LatentSystem, component: Component, y: Array) -> Array:
    """Return ``Sigma^-1 y`` of each draw."""
    kappa = component.covariance.kappa()
    if kappa is None:
        return y / component.covariance.variance()
    return y * system.precision + system.weights.adjoint(kappa * system.weights.forward(y))


def log_likelihood(system: LatentSystem, draws: Array) -> Array:
    """Return ``sum_i log p(x_i | y)`` over observed rows, for each draw of (S, m)."""
    n = system.weights.shape[0]
    x = system.data.x[0].astype(np.float64)
    observed = np.ones(n, bool) if system.data.observed is None else system.data.observed[0]
    total = np.zeros(len(draws))
    for block in blocks_of(len(draws), 32 * n):
        eta = system.eta(draws[block])
        for family, rows in row_families(system.family, n):
            total[block] += np.sum(log_density(family, x[rows], eta[:, rows])[:, observed[rows]], axis=1)
    return total


def _advice(kind: str, exact: bool, k: float, ratio: float, shift: float) -> list[str]:
    """Return what to do about correlations, means and shape."""
    found = []
    if kind == "factorised" and ratio > 1 + SHIFT:
        found.append(f"Sds of a factorised q are up to {ratio:.2g} times too small here: use posterior().")
    if not exact and kind != "full" and shift > SHIFT:
        found.append(f"Means of a factorised q are off here, by up to {shift:.2g} sd: use covariance='full'.")
    if not exact and k > GOOD:
        strength = "far from" if k > BAD else "some way from"
        found.append(
            f"The posterior is {strength} this one in all latents together (k-hat {k:.2f}): use covariance='full', or "
            "NUTS where tails and joint events matter."
        )
    return found


def _misfit(predictive: dict[str, Discrepancy]) -> tuple[str, ...]:
    """Return the statistics that the model does not reproduce."""
    return tuple(name for name, one in predictive.items() if min(one.p_value, 1 - one.p_value) < TAIL)


def _verdict(kind: str, exact: bool, k: float, advice: list[str]) -> str:
    """Return what is to be said of the posterior, in one line."""
    if advice:
        return "Not to be trusted as it is." if k > BAD or kind == "factorised" else "To be used with care."
    if exact:
        return "Exact: rows and latents are Gaussian."
    return f"To be trusted: close to the true posterior of this model (k-hat {k:.2f})."


def _fit(misfit: tuple[str, ...]) -> str:
    """Return what is to be said of the model."""
    return "The model does not fit x." if misfit else "Data drawn from the model look like x."
