"""The posterior with all its correlations that a result may hold: one full covariance, or a mixture over scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.families.unknown import scales_of
from forestmix.model import DEF
from forestmix.posterior.component import Component
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.posterior import Posterior

if TYPE_CHECKING:
    from forestmix.posterior.result import Result


@dataclass(frozen=True)
class Joint:
    """Components with weights (S,); ``log_evidence``: one number, or one for each observation; ``None`` if unknown.

    ``factors``: means and standard deviations of the latents with the others held, (N, m), for one component.
    """

    components: tuple[Component, ...]
    weights: Array
    log_evidence: Any
    factors: tuple[Array, Array] | None = None

    def margins(self) -> tuple[Array, Array]:
        """Return means and standard deviations of the latents, (N, m)."""
        mean, variance = Mixture(self.components, self.weights).moments()
        return mean, np.sqrt(variance)

    def posterior(self, result: Result) -> Posterior:
        """Return the posterior to report."""
        return Posterior(
            self.components, self.weights, result.model, result.data, "full",
            factors=self.factors, scales=result.scales, log_evidence=self.log_evidence,
        )  # fmt: skip


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
