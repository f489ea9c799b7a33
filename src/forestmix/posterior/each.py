"""A batch whose observations have unknown scales of their own: a posterior for each, behind one interface.

What is asked of the batch is asked of each posterior, and stacked along a leading axis (N,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.errors import ForestmixError
from forestmix.model import DEF, Observations
from forestmix.posterior.loo import LeaveOneOut, data_fingerprint
from forestmix.posterior.marginals import LayerMarginals
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.prediction import Prediction


class EachMarginals(LayerMarginals):
    """The latents of one layer under the posterior of each observation; arrays are (N, m)."""

    def __init__(self, parts: Sequence[LayerMarginals]) -> None:
        self._parts, self._dtype = tuple(parts), parts[0]._dtype

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self._parts[0].size

    @cached_property
    def mean(self) -> Array:
        """Posterior means."""
        return np.stack([part.mean for part in self._parts])

    @cached_property
    def sd(self) -> Array:
        """Posterior standard deviations."""
        return np.stack([part.sd for part in self._parts])

    #: Standard deviations are not estimated from draws here.
    sd_error = None

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the central interval of each latent."""
        low, high = zip(*(part.interval(level) for part in self._parts), strict=True)
        return np.stack(low), np.stack(high)

    def variance(self, C: Any) -> Array:
        """Return the variance of ``c^T y`` for each row c of C, (N, K); (N,) for one c."""
        return np.stack([part.variance(C) for part in self._parts])

    def covariance(self, C: Any = None) -> Array:
        """Return the covariance matrix of ``C y``, (N, K, K); of all latents when C is left out."""
        return np.stack([part.covariance(C) for part in self._parts])

    def sample(self, size: int | None = None, rng: np.random.Generator | int | None = None) -> Array:
        """Draw the latents with their correlations, (N, m), with a leading axis of ``size`` if that is given."""
        rng = generator(rng)
        return np.stack([part.sample(size, rng) for part in self._parts], axis=-2)


class EachPosterior(Posterior):
    """The posterior of a batch whose observations have unknown scales of their own; see ``Posterior``.

    ``scales[name]`` has the posterior of that scale for each observation, and ``log_evidence`` is (N,). ``take(k)`` is
    the posterior of one observation, with its own scales.

    Args:
        parts: the posterior of each observation.
        model: the model, with numbers in the place of unknown scales.
        data: the observations.

    """

    def __init__(self, parts: Sequence[Posterior], model: DEF, data: Observations) -> None:
        self.parts, self.model, self.data = tuple(parts), model, data
        self.kind, self.factors = self.parts[0].kind, None
        self.scales = {name: tuple(part.scales[name] for part in self.parts) for name in self.parts[0].scales}
        known = [part.log_evidence for part in self.parts]
        self._log_evidence = None if None in known else np.array(known)

    @property
    def mixture(self) -> NoReturn:  # type: ignore[override]
        """Not for a batch whose observations have scales of their own."""
        raise ForestmixError("This is for one observation where each has scales of its own: use posterior.take(k).")

    @cached_property
    def layers(self) -> tuple[Any, ...]:
        """The latents, as a layer: mean, sd, interval, covariance, draws."""
        return (EachMarginals([part.layers[0] for part in self.parts]),)

    #: Not known for a mixture over scales.
    elbo = None

    def sample(self, size: int | None = None, rng: np.random.Generator | int | None = None) -> Array:
        """Draw latents with their correlations, (N, m), with a leading axis of ``size`` if that is given."""
        return self.layers[0].sample(size, rng)

    def predict(self, rows: Any = None, level: float = 0.9) -> Prediction:
        """Return the posterior of the natural parameter of rows and their predictive distribution, (N, r) each."""
        each = [part.predict(rows, level) for part in self.parts]
        return Prediction(*(np.stack([getattr(one, own.name) for one in each]) for own in fields(Prediction)))

    def loo(self) -> LeaveOneOut:
        """Return how well each row of each observation is predicted by its others, without fitting again."""
        each = [part.loo() for part in self.parts]
        begins = np.cumsum([0, *(len(one.pointwise) for one in each)])
        observed = np.broadcast_to(True if self.data.observed is None else self.data.observed, self.data.x.shape)
        return LeaveOneOut(
            np.concatenate([one.pointwise for one in each]),
            np.argwhere(observed),
            np.concatenate([one.leverage for one in each]),
            np.concatenate([begin + one.untrusted for begin, one in zip(begins, each, strict=False)]),
            data_fingerprint(self.data.x, observed, self.model.layers[0].family),
            np.concatenate([np.broadcast_to(one.weights, one.pointwise.shape) for one in each]),
        )

    def take(self, keep: Any) -> Posterior:
        """Return the posterior of one observation of a batch, or of several."""
        chosen = self._chosen(keep)
        if np.ndim(keep) == 0:
            return self.parts[int(keep)]
        return EachPosterior([self.parts[k] for k in chosen], self.model, self.data.take(chosen))

    def __repr__(self) -> str:
        return (
            f"<Posterior ({self.kind}) of {self.model.n_latent} latents, {len(self.parts)} observations with scales of "
            f"their own, {self.model.dtype}>"
        )
