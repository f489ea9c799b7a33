"""A verdict on a posterior: how far it can be trusted, by its own model, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.posterior.columns import fits_factor
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import DiagonalCovariance
from forestmix.posterior.importance import gaussian_elbo, log_weights, smoothed, system_of
from forestmix.posterior.kinds import corrected_component, is_factored
from forestmix.posterior.predictive_check import Discrepancy, discrepancies

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior

#: Draws, and how many products with entries of W and how many drawn rows they may take in all; at least some.
DRAWS, WORK, ENTRIES, LEAST_DRAWS = 2000, 4e9, 2e7, 200
#: k-hat below the first is good, above the second averages over draws have no meaning (Vehtari et al. 2024).
GOOD, BAD = 0.7, 1.0
#: Below this divergence from the true posterior, in nats, k-hat is no reason for doubt: it is the tail of weights that
#: hardly differ. No probability is then off by more than 5 % (Pinsker's inequality).
NEAR = 0.005
#: A shift of the means, in sds, and a predictive p-value, that are worth a word.
SHIFT, TAIL = 0.1, 0.005


@dataclass(frozen=True, repr=False)
class Check:
    """What ``Posterior.check`` found.

    ``verdict``: one line; ``advice``: what to do about this posterior, if anything; ``pareto_k``: of importance weights
    for the factorised q and for the posterior itself: below 0.7 it is close to the true posterior, above 1 far from it,
    unless its ``divergence`` from the true one, in nats, is next to nothing; ``log_evidence``: estimated by importance
    sampling from this posterior, with the standard error ``log_evidence_error``, or known where that is ``None``;
    ``elbo`` and ``factorised_elbo``: the bounds of both; ``sd_ratio``: the largest ratio of corrected to factorised sd;
    ``mean_shift``: the largest difference of corrected and factorised means, in sds; ``predictive``: statistics of x
    beside those of replicated data.
    """

    verdict: str
    advice: tuple[str, ...] = ()
    pareto_k: dict[str, float] = field(default_factory=dict)
    log_evidence: float | None = None
    log_evidence_error: float | None = None
    elbo: float | None = None
    factorised_elbo: float | None = None
    sd_ratio: float | None = None
    mean_shift: float | None = None
    predictive: dict[str, Discrepancy] = field(default_factory=dict)
    divergence: float | None = None

    @property
    def passed(self) -> bool:
        """Whether this is close to the true posterior of the model, whether or not the model fits."""
        return not self.advice

    @property
    def misfit(self) -> tuple[str, ...]:
        """The statistics that the model does not reproduce: about it, not about how its posterior was found."""
        return tuple(name for name, one in self.predictive.items() if min(one.p_value, 1 - one.p_value) < TAIL)

    def __repr__(self) -> str:
        lines = [self.verdict, *(f"  -> {one}" for one in self.advice)]
        if self.misfit:
            lines.append(
                f"  -> Drawn data differ in their {', '.join(self.misfit)}: try another family, noise or terms."
            )
        for name, k in self.pareto_k.items():
            lines.append(f"  Pareto k-hat, {name}: {k:.2f}")
        if self.divergence is not None:
            lines.append(f"  divergence from the true posterior: {self.divergence:.2g} nats")
        if self.log_evidence is not None:
            error = self.log_evidence_error
            how = "" if error is None else " by importance sampling"
            lines.append(
                f"  log evidence{how}: {self.log_evidence:,.2f}" + ("" if error is None else f" +- {error:.2g}")
            )
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
    if posterior.gaussian and is_factored(posterior.mixture.components[0].covariance) and posterior.scales:
        found = _check_over_scales(posterior, rng, size)
    elif not posterior.gaussian or len(posterior.mixture.components) > 1 or posterior.factors is None:
        found = Check("Not looked at: whether this is close to the true posterior.")
    else:
        found = _gaussian_check(posterior, rng, size)
    found = replace(found, predictive=predictive)
    fit = "The model does not fit x." if found.misfit else "Data drawn from the model look like x."
    return replace(found, verdict=f"{found.verdict} {fit}")


def _gaussian_check(posterior: Posterior, rng: np.random.Generator, size: int) -> Check:
    """Return the verdict where all latents are Gaussian."""
    assert posterior.factors is not None
    kind, system, own = posterior.kind, posterior.system, posterior.mixture.components[0]
    mean, sd = posterior.factors
    factorised = Component(mean, DiagonalCovariance(sd[0] ** 2), own.layer)
    ratio, shift = _corrections(posterior, rng)
    parts = {"factorised q": factorised} | ({} if kind == "factorised" else {f"{kind} posterior": own})
    logs = {name: log_weights(system, part, rng, size) for name, part in parts.items()}
    weighed = {name: smoothed(own) for name, own in logs.items()}
    last, apart = list(weighed.values())[-1], _divergence(list(logs.values())[-1])
    known = own.covariance.log_determinant() is not None
    bound = gaussian_elbo(system, factorised)
    exact = system.constant_curvature and kind != "factorised" and is_factored(own.covariance)
    layers = posterior.model.layers
    may_be_full = kind != "full" and len(layers) == 1 and fits_factor(layers[0].weights)
    advice = _advice(kind, exact, _doubtful(last.k, apart), ratio, shift, full=may_be_full)
    return Check(
        _verdict(kind, exact, last.k, apart, advice), tuple(advice), {name: one.k for name, one in weighed.items()},
        last.log_mean if known else None, last.log_mean_error if known else None, posterior.elbo,
        None if bound is None else float(bound[0]), ratio, shift, divergence=None if exact else apart,
    )  # fmt: skip


def _check_over_scales(posterior: Posterior, rng: np.random.Generator, size: int) -> Check:
    """Return the verdict where unknown scales are integrated over: on the latents, at the scales of the nodes.

    The weight of a draw y from node k is ``p(x, y | theta_k) / (q_k(y) exp L_k)``, with ``L_k`` the log evidence that
    the node was weighed by. The mean of the weights says what that is off by.
    """
    if posterior.system.constant_curvature:
        verdict = "Exact at given scales, which are integrated over: rows and latents are Gaussian."
        return Check(verdict, log_evidence=posterior.log_evidence)
    shares = posterior.mixture.weights[0] / np.sum(posterior.mixture.weights[0])
    logs = []
    for part, count in zip(posterior.mixture.components, rng.multinomial(size, shares), strict=True):
        if count:
            system = system_of(posterior.system, part)
            bound = gaussian_elbo(system, part.fitted())
            assert bound is not None
            logs.append(log_weights(system, part, rng, count) - bound[0] - part.covariance.left_out()[0])
    found, apart = smoothed(np.concatenate(logs)), _divergence(np.concatenate(logs))
    advice = _advice("full", False, _doubtful(found.k, apart), 1.0, 0.0, full=False)
    evidence = None if posterior.log_evidence is None else posterior.log_evidence + found.log_mean
    return Check(
        _verdict("full", False, found.k, apart, advice), tuple(advice), {"posterior over scales": found.k}, evidence,
        found.log_mean_error, divergence=apart,
    )  # fmt: skip


def _divergence(logs: Array) -> float:
    """Return ``KL(q || p) = log E w - E log w`` by the logarithms of importance weights ``w = p(x, y) / q(y)``."""
    largest = np.max(logs)
    if not np.isfinite(logs).all():
        return float("inf")
    return float(largest + np.log(np.mean(np.exp(logs - largest))) - np.mean(logs))


def _doubtful(k: float, divergence: float) -> float:
    """Return k-hat where it is a reason for doubt, and the k-hat of equal weights where the divergence is too small."""
    return k if divergence >= NEAR else -np.inf


def _corrections(posterior: Posterior, rng: np.random.Generator) -> tuple[float, float]:
    """Return the largest ratio of corrected to factorised sd, and the largest shift of a mean in sds."""
    assert posterior.factors is not None
    (mean, sd), corrected = posterior.factors, posterior.mixture.components[0]
    if posterior.kind == "factorised":
        corrected = corrected_component(posterior.model, posterior.data, posterior.factors, 0.05, rng, False)
    corrected_sd = np.sqrt(corrected.covariance.variance()[0])
    shift = np.abs(corrected.mean - mean)[0] / corrected_sd
    return float(np.max(corrected_sd / sd[0])), float(np.max(shift))


def _advice(kind: str, exact: bool, k: float, ratio: float, shift: float, *, full: bool) -> list[str]:
    """Return what to do about correlations, means and shape; ``full``: whether a full covariance is a way out."""
    found, better = [], "covariance='full', or " if full else ""
    if kind == "factorised" and ratio > 1 + SHIFT:
        found.append(f"Sds of a factorised q are up to {ratio:.2g} times too small here: use posterior().")
    if kind == "laplace" and not exact and shift > SHIFT:
        found.append(f"Modes are up to {shift:.2g} sd from the means of q here: use posterior() to report means.")
    if not exact and kind in ("corrected", "factorised") and shift > SHIFT:
        way = "covariance='full'" if full else "NUTS"
        found.append(f"Means of a factorised q are off here, by up to {shift:.2g} sd: use {way}.")
    if not exact and k > GOOD:
        strength = "far from" if k > BAD else "some way from"
        found.append(
            f"The posterior is {strength} this one in all latents together (k-hat {k:.2f}): use {better}NUTS where "
            "tails and joint events matter."
        )
    return found


def _verdict(kind: str, exact: bool, k: float, apart: float, advice: list[str]) -> str:
    """Return what is to be said of the posterior, in one line."""
    if advice:
        return "Not to be trusted as it is." if k > BAD or kind == "factorised" else "To be used with care."
    if exact:
        return "Exact: rows and latents are Gaussian."
    how = f"k-hat {k:.2f}" if k <= GOOD else f"divergence {apart:.1g} nats"
    return f"To be trusted: close to the true posterior of this model ({how})."
