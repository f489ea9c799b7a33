"""What the unknown scales of a model do to the ELBO, and its slope in their logarithms by the envelope theorem.

At fixed q the part of the ELBO that depends on ``theta_k = log s_k`` is ``-c_k theta_k - S_k exp(-2 theta_k) / 2``,
with sums over the rows i and the latents j that have the scale::

    c_k = sum_i 1 + sum_j 1        S_k = sum_i (x_i - m_i)^2 + v_i  +  sum_j (mu_j - mu0_j)^2 + Sigma_jj

so the slope is ``S_k / s_k^2 - c_k``. At the best q it is also the slope of the best ELBO.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.families.unknown import scales_of, variables_of
from forestmix.model import DEF, Observations
from forestmix.scales import FromData, Scale

#: A noise below this share of the spread of the data is rounding.
SMALLEST_NOISE = 1e-9


class Moments(NamedTuple):
    """Of one observation: row terms ``e_i``, ``kappa_i`` and ``v_i``, (n,), means and variances of latents, (m,)."""

    error: Array
    kappa: Array
    row_variance: Array
    mean: Array
    variance: Array


class ScaleTerms:
    """The unknown scales of a model with one layer: their priors, given the data, and the variables that have them.

    ``sums``: gives those of ``sums_of_data`` over all observations, of some rows less a number.
    """

    def __init__(self, model: DEF, sums: Callable[[Any, float], Array]) -> None:
        layer, prior = model.layers[0], model.prior
        self.scales = model.unknown_scales
        self.rows = [variables_of(layer.family, scale, layer.size) for scale in self.scales]
        self.latents = [variables_of(prior.family, scale, model.n_latent) for scale in self.scales]
        self.prior_mean = np.broadcast_to(prior.bias, model.n_latent).astype(np.float64)
        pairs = zip(self.scales, self.rows, strict=True)
        self.priors: list[Scale] = [
            scale.given_spread(_spread(sums, rows)) if isinstance(scale, FromData) else scale for scale, rows in pairs
        ]
        self._spread = _spread(sums, slice(None)) or 1.0

    @classmethod
    def of(cls, model: DEF, data: Observations) -> Self:
        """Return the scales of a model, given its data."""
        return cls(model, partial(sums_of_data, model, data))

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        """Return ``log p(theta)`` and its slope, (K,)."""
        pairs = list(zip(self.priors, theta, strict=True))
        value = sum(float(prior.log_density_of_log(one)) for prior, one in pairs)
        return value, np.array([float(prior.gradient_of_log(one)) for prior, one in pairs])

    def start(self) -> Array:
        """Return where to look for the mode: half the spread of the data for a noise, else the prior's median."""
        guesses = []
        for prior, rows in zip(self.priors, self.rows, strict=True):
            guess = float(prior.quantile(0.5)) if prior.proper else 1.0
            guesses.append(min(guess, 0.5 * self._spread) if rows.any() else guess)
        return np.log(guesses)

    def check_noise(self, theta: Array) -> None:
        """Raise where the mode of a noise is at rounding: rows that are fitted exactly would have it at 0."""
        for one, rows in zip(theta, self.rows, strict=True):
            if rows.any() and one < np.log(SMALLEST_NOISE * self._spread):
                raise ForestmixError(
                    "The rows can be fitted exactly, so the data say that the noise is 0, and its posterior has no end "
                    "there. Give the sd, or a prior that stays away from 0, such as scales.InverseGamma(1.0, 1.0)."
                )

    def statistics(self, theta: Array, moments: Moments) -> tuple[Array, Array]:
        """Return ``c_k`` and ``S_k / s_k^2``, (K,) each, of one observation.

        Rows enter by ``e_i = (x_i - m_i) / s^2`` and ``kappa_i = 1 / s^2``, which are 0 for a missing entry and know
        the weight of a case.
        """
        counts, sums = np.zeros(len(theta)), np.zeros(len(theta))
        kappa, error = moments.kappa, moments.error
        squares = np.divide(error**2, kappa, out=np.zeros_like(kappa), where=kappa > 0) + kappa * moments.row_variance
        spread = (moments.mean - self.prior_mean) ** 2 + moments.variance
        for k, (rows, latents) in enumerate(zip(self.rows, self.latents, strict=True)):
            variance = np.exp(2 * theta[k])
            counts[k] = np.sum(kappa[rows]) * variance + np.count_nonzero(latents)
            sums[k] = np.sum(squares[rows]) + np.sum(spread[latents]) / variance
        return counts, sums


def scale_names(model: DEF) -> list[str]:
    """Return what to call the unknown scales: "noise" of rows, "sd" of latents, with numbers where there are several.

    One that both have is a noise.
    """
    noises = scales_of(model.layers[0].family)
    kinds = ["noise" if scale in noises else "sd" for scale in model.unknown_scales]
    names, seen = [], {"noise": 0, "sd": 0}
    for kind in kinds:
        names.append(kind if kinds.count(kind) == 1 else f"{kind}[{seen[kind]}]")
        seen[kind] += 1
    return names


def sums_of_data(model: DEF, data: Observations, rows: Any, centre: float) -> Array:
    """Return the sums of the case weights of entries that are there, of them times ``x - centre``, and its square."""
    x = data.x[:, rows].astype(np.float64) - centre
    weights = np.broadcast_to((model.layers[0].family.weight * np.ones(model.n_observed))[..., rows], x.shape)
    if data.observed is not None:
        weights = np.where(data.observed[:, rows], weights, 0.0)
    return np.array([np.sum(weights), np.sum(weights * x), np.sum(weights * x**2)])


def _spread(sums: Callable[[Any, float], Array], rows: Any) -> float:
    """Return the sd of the data in some rows: a case weight of 2 is an entry twice."""
    weight, total, _ = sums(rows, 0.0)
    if not weight > 0:
        return 0.0
    weight, _, squares = sums(rows, total / weight)
    return float(np.sqrt(squares / weight))
