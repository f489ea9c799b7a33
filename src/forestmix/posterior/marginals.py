"""One layer of latents under a posterior: moments, intervals, covariances and draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.arrays import Array, generator, in_range
from forestmix.checks import between_zero_and_one, whole_number
from forestmix.errors import ForestmixError
from forestmix.posterior.component import Component, mixture_moments, mixture_quantile
from forestmix.posterior.system import padded
from forestmix.weights.convert import functionals

#: The most latents whose covariance is given as one matrix.
MOST_ENTRIES = 6000


class Mixture:
    """A mixture of components with weights (N, S), or (1, S) where all N observations share them."""

    def __init__(self, components: Sequence[Component], weights: Array) -> None:
        self.components, self.weights = tuple(components), np.atleast_2d(weights)

    @property
    def means(self) -> Array:
        """The components' means, (S, N, m)."""
        return np.stack([part.mean for part in self.components])

    def take(self, keep: Array) -> Mixture:
        """Return the mixture of the chosen observations."""
        weights = self.weights if len(self.weights) == 1 else self.weights[keep]
        return Mixture([part.take(keep) for part in self.components], weights)

    def moments(self, C: Any = None) -> tuple[Array, Array]:
        """Return mean and variance of each latent, or of ``C y`` for weights C, (N, m) or (N, K)."""
        if C is None:
            variances = [part.covariance.variance() for part in self.components]
            return mixture_moments(self.weights, self.means, np.stack(variances))
        variances = [part.covariance.quadratic(C) for part in self.components]
        return mixture_moments(self.weights, C.forward(self.means), np.stack(variances))

    def covariance(self, C: Any) -> Array:
        """Return the covariance of ``C y``, (N, K, K), by the law of total covariance."""
        each = [part.covariance.covariance(C) for part in self.components]
        if len(each) == 1:
            return each[0]
        centres = C.forward(self.means)
        share = self.weights.T[..., None, None]
        distance = centres - np.sum(self.weights.T[..., None] * centres, axis=0)
        return np.sum(share * (np.stack(each) + distance[..., :, None] * distance[..., None, :]), axis=0)

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws, (size, N, m), each from a component chosen by its weight."""
        if len(self.components) == 1:
            return self.components[0].sample(size, rng)
        if len(self.weights) > 1:
            parts = [self.take(np.array([k])).sample(size, rng) for k in range(len(self.weights))]
            return np.concatenate(parts, axis=1)
        chosen = rng.choice(len(self.components), size, p=self.weights[0] / np.sum(self.weights[0]))
        drawn = np.empty((size, *self.components[0].mean.shape))
        for k in np.unique(chosen):
            places = np.flatnonzero(chosen == k)
            drawn[places] = self.components[k].sample(len(places), rng)
        return drawn


class LayerMarginals:
    """One layer of latents under a posterior; arrays are (m,), or (N, m) for a batch.

    ``mean``, ``sd``: of each latent; ``sd_error``: standard errors of ``sd`` where draws estimate it, else ``None``.
    """

    def __init__(self, mixture: Mixture, columns: slice, single: bool, dtype: np.dtype) -> None:
        self._mixture, self._columns, self._single, self._dtype = mixture, columns, single, dtype

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self._columns.stop - self._columns.start

    @cached_property
    def mean(self) -> Array:
        """Posterior means."""
        weights, means = self._mixture.weights, self._mixture.means
        return self._own(mixture_moments(weights, means, np.zeros_like(means))[0])

    @cached_property
    def sd(self) -> Array:
        """Posterior standard deviations."""
        return self._own(np.sqrt(self._mixture.moments()[1]))

    @cached_property
    def sd_error(self) -> Array | None:
        """Standard errors of ``sd`` where draws estimate it; ``None`` where it is exact for the kind of posterior."""
        first = self._mixture.components[0].covariance.sd_error()
        return None if first is None else self._own(first)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the central interval of each latent."""
        between_zero_and_one("level", level)
        ends = (0.5 * (1 - level), 0.5 * (1 + level))
        if len(self._mixture.components) == 1:
            low, high = (self._mixture.components[0].quantile(p) for p in ends)
        else:
            sds = np.stack([np.sqrt(part.covariance.variance()) for part in self._mixture.components])
            low, high = (mixture_quantile(p, self._mixture.weights, self._mixture.means, sds) for p in ends)
        return self._own(low), self._own(high)

    def variance(self, C: Any) -> Any:
        """Return the variance of ``c^T y`` for each row c of C, (K, m) dense or sparse; (m,) for one c."""
        vectors, one = self._functionals(C)
        # What is beyond the range of the precision is infinite.
        with np.errstate(over="ignore"):
            found = self._mixture.moments(vectors)[1]
        return self._shaped(found[:, 0] if one else found)

    def covariance(self, C: Any = None) -> Any:
        """Return the covariance matrix of ``C y``, (K, K); of all latents when C is left out; a number for one c."""
        count = self.size if C is None else (1 if np.ndim(C) == 1 else C.shape[0] if hasattr(C, "shape") else len(C))
        if count > MOST_ENTRIES:
            raise ForestmixError(
                f"A covariance matrix of {count} entries a side is too large to return. Give C with fewer rows, or use "
                "variance(C) or sample()."
            )
        vectors, one = self._functionals(C)
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._mixture.covariance(vectors)
        return self._shaped(found[:, 0, 0] if one else found)

    @property
    def correlation(self) -> Array:
        """The correlation matrix of the latents, (m, m)."""
        covariance = np.asarray(self.covariance(), np.float64)
        sd = np.sqrt(np.einsum("...jj->...j", covariance))
        return np.asarray(in_range(covariance / sd[..., :, None] / sd[..., None, :], self._dtype))

    def sample(self, size: int | None = None, rng: np.random.Generator | int | None = None) -> Array:
        """Draw the latents of this layer with their correlations, with a leading axis of ``size`` if that is given."""
        size = whole_number("size", size, optional=True)
        drawn = self._mixture.sample(size or 1, generator(rng))[..., self._columns]
        shaped = in_range(drawn[:, 0] if self._single else drawn, self._dtype)
        return shaped[0] if size is None else shaped

    def __repr__(self) -> str:
        return f"<posterior of {self.size} latents, mean and sd of shape {self.mean.shape}>"

    def _functionals(self, C: Any) -> tuple[Any, bool]:
        vectors, one = functionals(C, self.size)
        return padded(vectors, self._columns.start, self._mixture.components[0].mean.shape[1]), one

    def _own(self, values: Array) -> Array:
        return self._shaped(values[:, self._columns])

    def _shaped(self, values: Array) -> Any:
        values = in_range(values[0] if self._single else values, self._dtype)
        return float(values) if values.ndim == 0 else values
