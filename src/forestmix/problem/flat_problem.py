"""The problem of a deep model with Gaussian latents, solved as a flat one (``flat.py``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from forestmix.arrays import Array, total
from forestmix.problem.flat import Flat, FlatSite
from forestmix.problem.gaussian import ROUNDING_UNITS, Point, Problem
from forestmix.model import DEF, Observations
from forestmix.problem.given import GaussianFactors, as_layers
from forestmix.statistics import Objective


class FlatProblem(Problem):
    """The problem over the stacked latents of a deep model."""

    site: FlatSite

    def __init__(self, deep: DEF, data: Observations, objective: Objective) -> None:
        self.flat = Flat(deep)
        super().__init__(self.flat.model, self.flat.data(data), objective)
        self.site = FlatSite(self.flat, data, objective)
        self._last_curvature: tuple[Array, Array] | None = None

    @property
    def climbed(self) -> str:
        """The objective: with the layers as groups "fm" is the paper's deep bound."""
        return self.site.objective

    @property
    def layers(self) -> tuple[slice, ...]:
        """The latents of each layer."""
        return self.flat.weights.column_slices

    def start(self, init: Any) -> GaussianFactors:
        """Return a start that the user gave, one entry for each layer, stacked."""
        return self.flat.stacked(as_layers("init", init, self.flat.deep, self.n_observations))  # type: ignore[arg-type]

    def split(self, q: GaussianFactors) -> tuple[GaussianFactors, ...]:
        """Return the factors of each latent layer."""
        return self.flat.split(q)

    def evaluate(self, q: GaussianFactors, known: Point | None = None) -> Point:
        """Return the objective and its slope; the means that cancel in ``y - W y' - b`` add to its rounding."""
        point = super().evaluate(q, known)
        n, lower = self.flat.deep.n_observed, slice(0, self.layers[-1].start)
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        cancelled = total(np.abs(point.site.error[:, n:]) * np.abs(q.mean[:, lower]))
        return replace(point, rounding=point.rounding + 2 * unit * cancelled)

    def curvature(self, point: Point) -> Array:
        """Return ``D_j`` for all layers at once, whatever the objective."""
        if self.curvature_is_constant and self._last_curvature is not None and self._last_curvature[0] is point.q.sd:
            return self._last_curvature[1]
        curvature = self.site.joint_curvature(point.q.sd, point.site.kappa)
        self._last_curvature = (point.q.sd, curvature)
        return curvature
