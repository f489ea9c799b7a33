"""Whether the noise sd of Gaussian rows fits the residuals of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forestmix.arrays import Array, host
from forestmix.families import Gaussian

if TYPE_CHECKING:
    from forestmix.posterior.result import Result

#: A ratio of residuals to the noise sd that is beyond this factor, either way, is worth a word.
FACTOR = 2.0
#: With fewer observed entries the ratio says little.
LEAST_ENTRIES = 20


def noise_note(result: Result) -> str | None:
    """Return a sentence for a run whose Gaussian rows have a noise sd far from the residuals', or ``None``.

    With ``rms^2 = mean_i ((x_i - m_i) / sd_i)^2`` over observed entries, it is said where ``rms > 2``, and where
    ``rms < sqrt(1 - m / n) / 2``, since m latents fit that much of n rows' noise.
    """
    of_each = any(isinstance(one, tuple) for one in result.scales.values())
    if of_each or not isinstance(result.model.layers[0].family, Gaussian):
        return None
    square, count = _squared_residuals(result)
    share = 1 - result.model.latent_sizes[0] * len(result.data.x) / max(count, 1)
    rms = float(np.sqrt(square / max(count, 1)))
    if count < LEAST_ENTRIES or (FACTOR * rms >= np.sqrt(max(share, 0.0)) and rms <= FACTOR):
        return None
    return (
        f"The residuals are {rms:.2g} times as large as the noise sd of the rows says (root mean square of residual / "
        "sd), so intervals are off by about that factor too. Give an sd near that of the residuals, or leave it "
        "unknown."
    )


def _squared_residuals(result: Result) -> tuple[float, float]:
    """Return the sum of ``w_i ((x_i - m_i) / sd_i)^2`` over observed entries, and that of the case weights ``w_i``."""
    layer, data = result.model.layers[0], result.data
    mean: Array = np.atleast_2d(host(layer.weights.forward(result.layers[0].mean))) + layer.bias
    residual = (data.x.astype(np.float64) - mean) / layer.family.sd  # type: ignore[attr-defined]
    observed = np.ones(data.x.shape, bool) if data.observed is None else np.broadcast_to(data.observed, data.x.shape)
    cases = np.broadcast_to(layer.family.weight, data.x.shape)[observed]
    return float(np.sum(residual[observed] ** 2)), float(np.sum(cases))
