"""Generative models: layers of conditionals, a prior on top, and how to draw from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, finite, fits, generator, in_precision, numbers, parameter_text, per_variable
from forestmix.checks import between_zero_and_one, whole_number
from forestmix.errors import ArgumentError
from forestmix.families import Family, Gaussian, PriorFamily
from forestmix.families.prior import row_family
from forestmix.families.unknown import scales_of, with_default_scale, with_scales
from forestmix.layer import Layer
from forestmix.saving import Saved
from forestmix.scales import Scale, values_of
from forestmix.tables import column_labels, in_order, row_labels


class Prior:
    """A layer without parents: ``y_j`` independent, with natural parameter ``bias_j``.

    Args:
        family: distribution of each variable. ``Gaussian(sd)`` has prior mean ``bias``, as has ``Laplace(scale)``;
            ``Bernoulli()`` has ``bias`` as its logit, ``Poisson()`` as the logarithm of its rate; ``SpikeSlab`` has a
            slab around ``bias``; ``Exponential(rate)`` has none.
        bias: one number or one for each variable.

    """

    def __init__(self, family: Family | PriorFamily | None = None, bias: npt.ArrayLike = 0.0) -> None:
        # Any: a prior may be of either kind, and what is asked of it depends on which.
        self.family: Any = (
            family
            if isinstance(family, PriorFamily)
            else row_family("family", Gaussian() if family is None else family)
        )
        self.bias = per_variable("bias", bias)
        if isinstance(family, PriorFamily):
            family.check_bias(self.bias)

    def variance_of(self, c: Array) -> Array:
        """Return the variance of ``c^T y`` under a Gaussian prior, for each vector c of (..., m)."""
        return np.sum((self.family.sd.astype(np.float64) * c) ** 2, axis=-1)

    def astype(self, dtype: np.dtype) -> Prior:
        """Return the prior with its parameters in ``dtype``."""
        return Prior(self.family.astype(dtype), in_precision("bias", self.bias, dtype))

    def __repr__(self) -> str:
        return f"Prior({self.family!r}, bias={parameter_text(self.bias)})"


class Draw(NamedTuple):
    """A draw from a model: the observed variables, and each latent layer from the lowest up."""

    x: Array
    latents: tuple[Array, ...]


class PriorPredictive(NamedTuple):
    """What a model expects of x before it sees any: draws (N, n), and for each variable mean, sd and interval, (n,)."""

    x: Array
    mean: Array
    sd: Array
    lower: Array
    upper: Array


class DEF(Saved):
    """A deep exponential family (paper, section 4 and appendix C): layers from the observed one up, and a prior on top.

    Args:
        *layers: ``p(x | y)`` first, then the layer above it, and so on: the rows of each are the parents of the one
            before it.
        prior: prior of the topmost latents; N(0, 1) when left out.

    """

    def __init__(self, *layers: Layer, prior: Prior | None = None) -> None:
        if not layers:
            raise ArgumentError("layers must hold at least one Layer, p(x | y); got none.")
        for position, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise ArgumentError(f"layers[{position}] must be a forestmix.Layer; got {type(layer).__name__}.")
            if position and layer.case_weights is not None:
                raise ArgumentError(
                    f"case_weights must be left out of layers[{position}]: they weigh rows of the data, in layers[0]."
                )
        for position, (below, above) in enumerate(itertools.pairwise(layers)):
            _check_fit(position, below, above)
        if prior is not None and not isinstance(prior, Prior):
            raise ArgumentError(f"prior must be a forestmix.Prior; got {type(prior).__name__}.")
        # Latents of unit scale are a choice; noise of unit scale is a guess about the data.
        self.layers = (layers[0].with_family(with_default_scale(layers[0].family)), *layers[1:])
        self.prior = (Prior() if prior is None else prior).astype(layers[0].dtype)
        columns = "latents (columns of W)" if len(layers) == 1 else "topmost latents (columns of the last W)"
        self.prior.family.check_size(layers[-1].n_parents, columns)
        fits("bias", self.prior.bias, layers[-1].n_parents, columns)

    @property
    def n_observed(self) -> int:
        """Number of observed variables, n."""
        return self.layers[0].size

    @property
    def latent_sizes(self) -> tuple[int, ...]:
        """Number of variables in each latent layer, from the lowest up."""
        return tuple(layer.n_parents for layer in self.layers)

    @property
    def n_latent(self) -> int:
        """Number of latent variables, m, in all layers together."""
        return sum(self.latent_sizes)

    @property
    def latent_families(self) -> tuple[Any, ...]:
        """The family of each latent layer, from the lowest up."""
        return (*(layer.family for layer in self.layers[1:]), self.prior.family)

    @property
    def dtype(self) -> np.dtype:
        """Precision of the model, which is that of its weights."""
        return self.layers[0].dtype

    @property
    def unknown_scales(self) -> tuple[Scale, ...]:
        """The unknown scales, in order of first appearance over the rows of each layer and the prior."""
        families = (*(layer.family for layer in self.layers), self.prior.family)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(map(scales_of, families))))

    def with_scales(self, values: Mapping[Scale, float] | Sequence[float] | Array) -> DEF:
        """Return the model with numbers in the place of its unknown scales.

        Args:
            values: a number above 0 for each of ``unknown_scales``, in their order or by scale.

        """
        table = values_of(self.unknown_scales, values)
        if not table:
            return self
        chosen = copy(self)
        chosen.layers = tuple(layer.with_family(with_scales(layer.family, table)) for layer in self.layers)
        chosen.prior = copy(self.prior)
        chosen.prior.family = with_scales(self.prior.family, table).astype(self.dtype)
        return chosen

    def take_observations(self, keep: Array) -> DEF:
        """Return the model of the chosen observations, itself unless each observation has case weights of its own."""
        if not self.layers[0].family.differs_by_observation:
            return self
        chosen = copy(self)
        chosen.layers = (self.layers[0].take_observations(keep), *self.layers[1:])
        return chosen

    def on_host(self) -> DEF:
        """Return the model with its weights in NumPy's arrays, itself if they are."""
        if not any(layer.weights.on_device for layer in self.layers):
            return self
        chosen = copy(self)
        chosen.layers = tuple(layer.with_weights(layer.weights.toarray()) for layer in self.layers)
        return chosen

    def sample(self, rng: np.random.Generator | int | None = None, size: int | None = None) -> Draw:
        """Draw the topmost latents from the prior, then each layer below given the one above it.

        Unknown scales are drawn first, anew for each draw.

        Args:
            rng: a generator, or a seed.
            size: number of draws, N; ``None`` for one draw without a leading axis.

        """
        rng = generator(rng)
        size = whole_number("size", size, optional=True)
        if self.unknown_scales:
            return self._sample_with_scales(rng, size)
        top = self.layers[-1].n_parents
        shape = (top,) if size is None else (size, top)
        # A draw beyond the range of the precision is infinite.
        with np.errstate(over="ignore"):
            drawn = [self.prior.family.sample(np.broadcast_to(self.prior.bias, shape), rng)]
            for layer in reversed(self.on_host().layers):
                drawn.append(layer.family.sample(layer.weights.forward(drawn[-1]) + layer.bias, rng))
        return Draw(drawn[-1], tuple(reversed(drawn[:-1])))

    def _sample_with_scales(self, rng: np.random.Generator, size: int | None) -> Draw:
        """Draw the unknown scales from their priors, then the rest, one draw after another."""
        if size is None:
            return self.with_scales([float(scale.sample(rng=rng)) for scale in self.unknown_scales]).sample(rng)
        draws = [self.sample(rng) for _ in range(size)]
        latents = zip(*(draw.latents for draw in draws), strict=True)
        return Draw(np.stack([draw.x for draw in draws]), tuple(map(np.stack, latents)))

    def prior_predictive(
        self, rng: np.random.Generator | int | None = None, size: int = 1000, level: float = 0.9
    ) -> PriorPredictive:
        """Draw observations and say what they look like, to see whether the model expects data like yours.

        Args:
            rng: a generator, or a seed.
            size: number of draws.
            level: probability of the central interval of each variable.

        """
        between_zero_and_one("level", level)
        x = self.sample(rng, whole_number("size", size)).x
        lower, upper = np.quantile(x, [0.5 * (1 - level), 0.5 * (1 + level)], axis=0).astype(x.dtype)
        return PriorPredictive(x, x.mean(axis=0), x.std(axis=0), lower, upper)

    def __repr__(self) -> str:
        return f"DEF({', '.join(map(repr, self.layers))}, prior={self.prior!r})"


@dataclass(frozen=True)
class Observations:
    """Data for a model as a batch: ``x`` is (N, n), with 0 where it is missing.

    ``observed`` is ``None`` when nothing is missing, else (N, n) with True for an entry that is there, or (1, n) where
    all observations miss the same ones (``shared``).
    ``single`` remembers that the caller gave one observation without a leading axis; ``labels`` are those of the
    observations, the index of a frame.
    """

    x: Array
    observed: Array | None
    single: bool
    labels: tuple[Any, ...] | None = None

    def take(self, keep: Array) -> Observations:
        """Return the chosen observations."""
        observed = self.observed
        if observed is not None and len(observed) == len(self.x):
            observed = observed[keep]
        labels = None if self.labels is None else tuple(self.labels[k] for k in np.arange(len(self.x))[keep])
        return Observations(self.x[keep], observed, self.single, labels)

    def shared(self) -> Observations:
        """Return the same with one row of ``observed`` where it serves all observations."""
        observed = self.observed
        if observed is None or not (observed == observed[:1]).all():
            return self
        return Observations(self.x, observed[:1], self.single, self.labels)


def observations(model: DEF, x: npt.ArrayLike) -> Observations:
    """Check data against a model; NaN marks a missing entry, as does the mask of a masked array.

    Where both have labels, data are put in the order of W's rows.
    """
    if not isinstance(model, DEF):
        raise ArgumentError(f"model must be a forestmix.DEF; got {type(model).__name__}.")
    array = numbers("x", x, missing=True)
    n = model.n_observed
    if array.ndim not in (1, 2) or array.shape[-1] != n:
        raise ArgumentError(f"x must have shape ({n},) or (N, {n}) for this model; got {array.shape}.")
    if array.shape[0] == 0:
        raise ArgumentError("x must hold at least one observation; got none.")
    order = in_order("x", column_labels(x) if array.ndim == 2 else row_labels(x), model.layers[0].row_labels)
    given = in_precision("x", array if order is None else array[..., order], model.dtype)
    missing = np.isnan(given) | model.layers[0].left_out_of(array.shape)
    filled = finite("x", np.where(missing, given.dtype.type(0), given))
    # In the shape that it was given in, so that errors speak of the caller's own indices.
    model.layers[0].family.check_support("x", given)
    observed = np.atleast_2d(~missing) if missing.any() else None
    return Observations(np.atleast_2d(filled), observed, array.ndim == 1, row_labels(x) if array.ndim == 2 else None)


def _check_fit(position: int, below: Layer, above: Layer) -> None:
    """Raise unless the rows of the layer above are the parents of the layer below."""
    if above.size != below.n_parents:
        raise ArgumentError(
            f"layers[{position + 1}] must have {below.n_parents} rows, one for each column of W in layers[{position}]; "
            f"got {above.size}."
        )
    if above.dtype != below.dtype:
        raise ArgumentError(
            f"layers must have weights of one precision; layers[{position}] has {below.dtype} and "
            f"layers[{position + 1}] has {above.dtype}."
        )
