"""Leaving one row out without fitting again: how well each row is predicted by all the others.

Row i enters the precision as ``kappa_i w_i w_i^T``. With ``v_i = w_i^T Sigma w_i`` and its leverage
``h_i = kappa_i v_i < 1``, the natural parameter has without it::

    v_-i = v_i / (1 - h_i)        m_-i = m_i - v_-i e_i        elpd_i = log int p(x_i | eta) N(eta; m_-i, v_-i) d eta

exact for Gaussian rows. For others e and kappa stand for the row at the posterior with it, which holds as long as
leaving it out moves eta little; ``untrusted`` rows are those for which that is in doubt. Components of a mixture with
weights pi have weights proportional to ``pi_s / p_s(x_i)`` without row i, so ``elpd_i = -log sum_s pi_s / p_s(x_i)``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.families import Binomial, Family, Gaussian
from forestmix.posterior.component import Component
from forestmix.posterior.prediction import row_families
from forestmix.posterior.row_integrals import log_predictive
from forestmix.posterior.system import LatentSystem, padded, require_gaussian_latents

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior

#: Leverage above which a row that is not Gaussian is not to be trusted, and by how many of its standard deviations
#: without it eta may move when it is left out.
MOST_LEVERAGE, MOST_SHIFT = 0.5, 1.5


@dataclass(frozen=True, repr=False)
class LeaveOneOut:
    """Expected log predictive density by leaving one row out.

    ``elpd``: the sum over rows; ``se``: its standard error, ``sqrt(n Var(pointwise))``; ``pointwise``: of each observed
    row, (r,); ``rows``: their numbers, (r,) or (r, 2) with the observation first for a batch; ``leverage``:
    ``kappa_i v_i`` of each; ``untrusted``: positions among them of rows for which this is not to be trusted, since the
    posterior without them is too far from the one with them; ``weights``: of the cases, whose densities they multiply.
    """

    pointwise: Array
    rows: Array
    leverage: Array
    untrusted: Array
    fingerprint: str
    weights: Array | float = 1.0

    @property
    def elpd(self) -> float:
        """The expected log predictive density, the sum over rows."""
        return float(np.sum(self.pointwise))

    @property
    def se(self) -> float:
        """Standard error of ``elpd``, from the spread over rows."""
        return standard_error(self.pointwise)

    def __repr__(self) -> str:
        text = f"<LeaveOneOut: elpd {self.elpd:.4g} +- {self.se:.2g} over {len(self.pointwise)} rows"
        if not len(self.untrusted):
            return f"{text}, all to be trusted>"
        first = ", ".join(str(row.tolist()) for row in self.rows[self.untrusted[:5]])
        dots = ", ..." if len(self.untrusted) > 5 else ""
        what = "rows" if self.rows.ndim == 1 else "[observation, row]"
        return f"{text}; {len(self.untrusted)} not to be trusted (the posterior leans on them), {what} {first}{dots}>"


def standard_error(pointwise: Array) -> float:
    """Return the standard error of a sum over rows."""
    return float(np.sqrt(len(pointwise) * np.var(pointwise, ddof=1))) if len(pointwise) > 1 else float("nan")


def leave_one_out(posterior: Posterior) -> LeaveOneOut:
    """Return the leave-one-out predictive density of each observed row, see ``Posterior.loo``."""
    require_gaussian_latents(posterior.model, "loo")
    if posterior.kind == "factorised":
        raise ForestmixError("loo needs the correlations that a factorised q leaves out. Use result.posterior().loo().")
    mixture, data = posterior.mixture, posterior.data
    parts = [_rows_left_out(posterior.system, part, posterior.kind == "laplace") for part in mixture.components]
    logs = np.stack([part[0] for part in parts])
    share = np.log(mixture.weights).T[..., None]
    pointwise = logs[0] if len(parts) == 1 else -scipy.special.logsumexp(share - logs, axis=0)
    leverage, doubtful = np.max([part[1] for part in parts], axis=0), np.any([part[2] for part in parts], axis=0)
    observed = np.broadcast_to(True if data.observed is None else data.observed, data.x.shape)
    places, weight = np.argwhere(observed), posterior.model.layers[0].family.weight
    return LeaveOneOut(
        pointwise[observed], places[:, 1] if data.single else places, leverage[observed],
        np.flatnonzero(doubtful[observed]), data_fingerprint(data.x, observed, posterior.model.layers[0].family),
        np.broadcast_to(weight, data.x.shape)[observed],
    )  # fmt: skip


def data_fingerprint(x: Array, observed: Array, family: Family) -> str:
    """Return a hash by which the data of two posteriors are known to be the same, with trials and weights of cases."""
    values = np.where(observed, np.asarray(x, np.float32), np.float32(np.nan))
    found = hashlib.sha256(repr(values.shape).encode() + values.tobytes())
    for name, entries in (("weights", family.weight), ("trials", _trials(family.unweighted, x.shape[-1]))):
        each = np.where(observed, np.asarray(entries, np.float32), np.float32(1))
        if (each != 1).any():
            found.update(name.encode() + each.tobytes())
    return found.hexdigest()


def _trials(family: Family, n: int) -> Array:
    """Return the trials of each row; a row of 0 and 1 is one trial, and others have none to tell them apart."""
    trials = np.ones(n)
    for part, rows in row_families(family, n):
        if isinstance(part, Binomial):
            trials[rows] = part.trials
    return trials


def _rows_left_out(system: LatentSystem, component: Component, at_mode: bool) -> tuple[Array, Array, Array]:
    """Return the log predictive density of each row of x without it, its leverage, and whether it is in doubt.

    ``at_mode``: whether e and kappa are those at the mean itself, as for a Laplace covariance.
    """
    layer, n = component.layer, component.layer.size
    C = padded(layer.weights.in_double(), 0, component.mean.shape[1])
    mean = C.forward(component.mean) + layer.bias
    covariance = component.covariance.unwidened()
    variance, kappa = covariance.quadratic(C), covariance.kappa()
    if kappa is None:
        raise ForestmixError("loo needs a covariance that knows the curvature of each row; this one does not.")
    x = system.data.x[:, :n].astype(np.float64)
    spread = np.zeros(mean.shape) if at_mode else np.sqrt(np.broadcast_to(variance, mean.shape))
    error = np.broadcast_to(layer.family.expectations(x, mean, spread).error, mean.shape)
    leverage = np.minimum(np.broadcast_to(kappa[:, :n] * variance, mean.shape), 1 - 1e-12)
    left_variance = variance / (1 - leverage)
    left_mean = mean - left_variance * error
    shift = np.abs(left_mean - mean) / np.sqrt(np.maximum(left_variance, 1e-300))
    values, exact = np.empty(mean.shape), np.zeros(n, bool)
    for family, rows in row_families(layer.family.unweighted, n):
        values[:, rows] = log_predictive(family, x[:, rows], left_mean[:, rows], left_variance[:, rows])
        exact[rows] = isinstance(family, Gaussian)
    return layer.family.weight * values, leverage, ~exact & ((leverage > MOST_LEVERAGE) | (shift > MOST_SHIFT))
