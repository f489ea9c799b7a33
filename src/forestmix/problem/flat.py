"""A model with Gaussian latents of any depth as one with a single layer: all latents stacked.

A latent layer ``y^l ~ N(W_l y^(l+1) + b_l, sd_l^2)`` has the same log density as rows that were observed as 0::

    0 ~ N(y^l - W_l y^(l+1) - b_l, sd_l^2)

so with these rows under those of x, and no prior of their own for the latents that have parents, the stacked model's
ELBO is that of the deep one, and every algorithm, bound and accelerator for one layer serves any depth. Under mean
field ``y_i`` is independent of its parents, so its variance and theirs add; the paper's deep bound (appendix C) uses
Jensen's inequality for the parents only, and is the bound in groups (``problem/grouped.py``) with the layers as groups.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Family, Gaussian, Mixed
from forestmix.model import DEF, Layer, Observations
from forestmix.partition import Partition
from forestmix.weights import LayeredWeights
from forestmix.weights.layered import slices_of


class Stacked:
    """A model with Gaussian latents, its rows and those that stand for latents in one layer (paper, appendix C).

    Attributes:
        deep: the model as it was given.
        layer: all rows; the model's own layer where there is one only.
        slices: the latents of each layer.

    """

    def __init__(self, deep: DEF) -> None:
        self.deep, self.slices = deep, slices_of(deep.latent_sizes)
        self.layer = self._stacked_layer() if self.is_deep else deep.layers[0]

    @property
    def is_deep(self) -> bool:
        """Whether there is more than one layer of latents."""
        return len(self.deep.layers) > 1

    @cached_property
    def groups(self) -> Partition:
        """The latents of each layer as a group."""
        return Partition.from_lists([np.arange(part.start, part.stop) for part in self.slices])

    @cached_property
    def prior_mean(self) -> Array:
        """The mean of each latent's own prior, (m,); 0 for latents that have parents."""
        mean = np.zeros(self.deep.n_latent, self.deep.dtype)
        mean[self.slices[-1]] = self.deep.prior.bias
        return mean

    @cached_property
    def prior_precision(self) -> Array:
        """The precision of each latent's own prior, (m,); 0 for latents that have parents, since rows hold theirs."""
        precision = np.zeros(self.deep.n_latent, self.deep.dtype)
        precision[self.slices[-1]] = self.deep.prior.family.sd.astype(self.deep.dtype) ** -2
        return precision

    def prior_moments(self) -> tuple[Array, Array]:
        """Return the mean and standard deviation of every latent in a draw from the top down, (m,) each.

        Standard deviations are those that independent parents would give, which is exact for the layer below the top.
        """
        model, top = self.deep, self.deep.latent_sizes[-1]
        means, sds = [np.broadcast_to(model.prior.bias, top)], [np.broadcast_to(model.prior.family.sd, top)]
        for layer in reversed(model.layers[1:]):
            variance = layer.weights.square().forward(sds[-1] ** 2) + layer.family.sd**2  # type: ignore[attr-defined]
            means.append(layer.weights.forward(means[-1]) + layer.bias)
            sds.append(np.sqrt(variance))
        return np.concatenate(means[::-1]), np.concatenate(sds[::-1])

    def prior_variance(self, c: Array) -> Array:
        """Return the variance of ``c^T y`` in draws from the top down, (N,): a layer passes its part to its parents."""
        passed, variance = c[:, self.slices[0]], np.zeros(len(c))
        for layer, above in zip(self.deep.layers[1:], self.slices[1:], strict=True):
            variance += np.sum((layer.family.sd * passed) ** 2, axis=-1)  # type: ignore[attr-defined]
            passed = c[:, above] + layer.weights.adjoint(passed)
        return variance + self.deep.prior.variance_of(passed)

    def data(self, data: Observations) -> Observations:
        """Return the observations of all rows: x, and 0 for the rows that stand for latents."""
        count = self.layer.size - self.deep.n_observed
        if count == 0:
            return data
        more, seen = [(0, 0), (0, count)], data.observed
        observed = None if seen is None else np.pad(seen, more, constant_values=True)
        return Observations(np.pad(data.x, more), observed, data.single)

    def _stacked_layer(self) -> Layer:
        weights = LayeredWeights([layer.weights for layer in self.deep.layers])
        bias = [np.broadcast_to(layer.bias, layer.size) for layer in self.deep.layers]
        return Layer(self._family(), weights, np.concatenate([bias[0], *(-part for part in bias[1:])]))

    def _family(self) -> Family:
        own = self.deep.layers[0].family
        sd = [np.broadcast_to(layer.family.sd, layer.size) for layer in self.deep.layers[1:]]  # type: ignore[attr-defined]
        latent, n = np.concatenate(sd), self.deep.n_observed
        once = np.ones((*np.shape(own.weight)[:-1], len(latent)))
        weight = np.concatenate([own.weight * np.ones(n), once], axis=-1) if np.ndim(own.weight) else 1.0
        if isinstance(own, Gaussian):
            return Gaussian(np.concatenate([np.broadcast_to(own.sd, n), latent])).weighted(weight)
        one = own.unweighted
        families, which = (one.families, one.which) if isinstance(one, Mixed) else ((one,), np.zeros(n, int))
        which = np.concatenate([which, np.full(len(latent), len(families))])
        return Mixed([*families, Gaussian(latent)], which).weighted(weight)
