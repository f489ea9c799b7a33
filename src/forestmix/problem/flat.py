"""A deep model with Gaussian latents as a flat one: all latents stacked, the layers' conditionals among the rows.

A latent layer ``y^l ~ N(W_l y^(l+1) + b_l, sd_l^2)`` has the same log density as rows that were observed as 0::

    0 ~ N(y^l - W_l y^(l+1) - b_l, sd_l^2)

so with these rows under those of x, and no prior of their own for the latents that have parents, the flat model's
ELBO is that of the deep one, and every algorithm, bound and accelerator for one layer serves any depth. Under mean
field ``y_i`` is independent of its parents, so its variance and theirs add; the paper's deep bound (appendix C) uses
Jensen's inequality for the parents only, and is the bound in groups (``kernels/groups.py``) with the layers as groups.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Family, Gaussian, Mixed
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Layer, Observations, Prior
from forestmix.partition import Partition
from forestmix.statistics import Objective, Site, same_rows
from forestmix.weights import LayeredWeights, Weights
from forestmix.weights.layered import slices_of


class StackedPrior(Prior):
    """The prior of stacked latents: infinitely wide for those that have parents, since rows hold their prior.

    A run starts at the moments that each latent has when a draw is made from the top down.
    """

    def __init__(self, model: DEF) -> None:
        self.bias = np.zeros(model.n_latent, model.dtype)
        top = slice(model.n_latent - model.latent_sizes[-1], None)
        self.bias[top] = model.prior.bias
        sd = np.full(model.n_latent, np.inf, model.dtype)
        sd[top] = model.prior.family.sd
        # Not through __init__, which refuses what is not finite, and rightly so in a model of the user's.
        self.family = object.__new__(Gaussian)
        self.family.sd = sd
        self._moments, self._model = _ancestral_moments(model), model

    def start(self) -> tuple[Array, Array]:
        """Return the moments of each latent in a draw from the top down."""
        return self._moments

    def variance_of(self, c: Array) -> Array:
        """Return the variance of ``c^T y`` for draws from the top down: a layer passes its part on to its parents."""
        layers = self._model.layers[1:]
        columns = slices_of(self._model.latent_sizes)
        passed, variance = c[..., columns[0]], np.zeros(c.shape[:-1])
        for layer, above in zip(layers, columns[1:], strict=True):
            variance += np.sum((layer.family.sd * passed) ** 2, axis=-1)  # type: ignore[attr-defined]
            passed = c[..., above] + layer.weights.adjoint(passed)
        return variance + np.sum((self._model.prior.family.sd * passed) ** 2, axis=-1)

    def astype(self, dtype: np.dtype) -> StackedPrior:
        """Return the prior itself, which was made in the model's precision."""
        return self


class Flat:
    """A deep model with Gaussian latents, and the flat model of its stacked latents."""

    def __init__(self, deep: DEF) -> None:
        self.deep = deep
        self.weights = LayeredWeights([layer.weights for layer in deep.layers])

    @cached_property
    def model(self) -> DEF:
        """The flat model."""
        bias = [np.broadcast_to(layer.bias, layer.size) for layer in self.deep.layers]
        stacked = np.concatenate([bias[0], *(-part for part in bias[1:])])
        return DEF(Layer(self._family(), self.weights, stacked), prior=StackedPrior(self.deep))

    def data(self, data: Observations) -> Observations:
        """Return the observations of all rows: x, and 0 for the rows that stand for latents."""
        count = self.weights.shape[0] - self.deep.n_observed
        x = np.concatenate([data.x, np.zeros((len(data.x), count), data.x.dtype)], axis=1)
        observed = data.observed
        if observed is not None:
            observed = np.concatenate([observed, np.ones((len(observed), count), bool)], axis=1)
        return Observations(x, observed, data.single)

    def stacked(self, layers: tuple[GaussianFactors, ...]) -> GaussianFactors:
        """Return the factors of all layers as one."""
        count = max(len(q.sd) for q in layers)
        sd = np.concatenate([np.broadcast_to(q.sd, (count, q.sd.shape[1])) for q in layers], axis=1)
        return GaussianFactors(np.concatenate([q.mean for q in layers], axis=1), sd)

    def split(self, q: GaussianFactors) -> tuple[GaussianFactors, ...]:
        """Return the factors of each layer."""
        return tuple(GaussianFactors(q.mean[:, part], q.sd[:, part]) for part in self.weights.column_slices)

    def _family(self) -> Family:
        own = self.deep.layers[0].family
        sd = [np.broadcast_to(layer.family.sd, layer.size) for layer in self.deep.layers[1:]]  # type: ignore[attr-defined]
        latent, n = np.concatenate(sd), self.deep.n_observed
        if isinstance(own, Gaussian):
            return Gaussian(np.concatenate([np.broadcast_to(own.sd, n), latent]))
        families, which = (own.families, own.which) if isinstance(own, Mixed) else ((own,), np.zeros(n, int))
        return Mixed([*families, Gaussian(latent)], np.concatenate([which, np.full(len(latent), len(families))]))


class FlatSite(Site):
    """The rows of a flat model; the layers are the groups of Jensen's inequality (appendix C).

    So ``D_j`` is that of each layer by itself, which majorises the mean problem for layers that share no rows, and for
    objective "fm" a row that stands for a latent has ``r_i^2 = sigma_i^2 + s_i^2`` with s its parents' spread. Both
    come from products with the layers' own weights.
    """

    def __init__(self, flat: Flat, data: Observations, objective: Objective) -> None:
        columns = [np.arange(part.start, part.stop) for part in flat.weights.column_slices]
        super().__init__(flat.model.layers[0], flat.data(data), objective, Partition.from_lists(columns))
        self.weights = flat.weights

    @property
    def _parts(self) -> list[tuple[Weights, slice, slice]]:
        """The weights of each layer, its rows and its columns."""
        return list(zip(self.weights.parts, self.weights.row_slices, self.weights.column_slices, strict=True))

    def _grouped_spread(self, groups: Partition, sd: Array) -> Array:
        spreads = []
        for k, (weights, _, columns) in enumerate(self._parts):
            parents = weights.project(None, sd[:, columns], absolute=True).absolute
            spreads.append(np.hypot(parents, sd[:, self._parts[k - 1][2]]) if k else parents)
        return np.concatenate(spreads, axis=1)

    def _grouped_curvature(self, groups: Partition, sd: Array, kappa: Array) -> Array:
        sd, kappa = same_rows(sd, kappa)
        out = np.empty_like(sd)
        for k, (weights, rows, columns) in enumerate(self._parts):
            own = np.ascontiguousarray(sd[:, columns])
            spread = weights.project(None, own, absolute=True).absolute
            out[:, columns] = weights.collect(None, spread * kappa[:, rows]).absolute / own
            if k:
                out[:, self._parts[k - 1][2]] += kappa[:, rows]
        return out

    def joint_curvature(self, sd: Array, kappa: Array) -> Array:
        """Return ``D_j`` that majorises the mean problem for all layers at once."""
        sd, kappa = same_rows(sd, kappa)
        return self.weights.collect(None, self.weights.project(None, sd, absolute=True).absolute * kappa).absolute / sd


def is_deep(model: DEF) -> bool:
    """Whether there is more than one layer of latents."""
    return len(model.layers) > 1


def _ancestral_moments(model: DEF) -> tuple[Array, Array]:
    """Return the prior mean and standard deviation of every latent, from the top layer's down, stacked.

    Standard deviations are those that independent parents would give, which is exact for the layer below the top.
    """
    top = model.latent_sizes[-1]
    means, sds = [np.broadcast_to(model.prior.bias, top)], [np.broadcast_to(model.prior.family.sd, top)]
    for layer in reversed(model.layers[1:]):
        variance = layer.weights.square().forward(sds[-1] ** 2) + layer.family.sd**2  # type: ignore[attr-defined]
        means.append(layer.weights.forward(means[-1]) + layer.bias)
        sds.append(np.sqrt(variance))
    return np.concatenate(means[::-1]), np.concatenate(sds[::-1])
