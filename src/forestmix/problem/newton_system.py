"""Newton's equations in the means and the standard deviations together, for Gaussian latents.

The objective is concave in (mean, sd) for both bounds. With ``sigma_j -> sigma_j (1 + u_j)`` and ``mu -> mu + p`` its
second derivatives are, with ``E a'''`` and ``E a''''`` of the rows beside ``kappa = E a''``::

    means        A = diag(1 / sigma0^2) + W^T diag(kappa) W
    both         C = W^T diag(f) V
    deviations   S = V^T diag(h) V + diag(d)

    "elbo"       V_ij = w_ij^2 sigma_j^2     f = E a'''      h = E a''''                d = 1 + P sigma^2
    "fm"         V_ij = |w_ij| sigma_j       f = s E a'''    h = kappa + s^2 E a''''    d = 1 + sigma^2 / sigma0^2

Where the rows tie means and variances together, as counts of zero under a wide prior do, the variances' fixed point
``1 / sigma_j^2 = P_j`` takes thousands of turns beside a mean that follows it; the step that knows C takes a few.

Small W are factored, and A is never formed: ``[sqrt(kappa) W; diag(1 / sigma0)] = Q R`` (``gram.OrthogonalFactor``).
The Schur complement of A is ``S - B^T B`` with ``B = Q^T Z`` and ``Z = [diag(f / sqrt(kappa)) V; 0]``. For Poisson rows
it is all but 0 beside S, so it is made from what Q leaves of Z, ``(Z - Q B)^T (Z - Q B) + V^T diag(h - f^2 / kappa) V +
diag(d)``. Large W, and arrays of other libraries, take conjugate gradients, whose products are those with W and with
|W| or W∘W.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import array_api_compat
import numpy as np
import scipy

from forestmix.arrays import Array, form, host, inner
from forestmix.engines.rows import curvature_slopes
from forestmix.problem.conjugate import conjugate_gradients, dot
from forestmix.weights.gram import OrthogonalFactor

#: Multiplications that a factored step may take, for all observations: a fraction of a second.
AFFORDABLE = 1e9
#: Up to this many it is taken from the first iteration on: about what the rest of an iteration costs.
CHEAP = 3e6

#: Posterior standard deviations from which on means and variances move by themselves.
FAR = 30.0
#: Conjugate gradients at most, and the fraction of the slope at which they end.
INNER, FORCING = 200, 0.05


class NewtonStep(NamedTuple):
    """The step p of the means and u of the logarithms of the standard deviations, (N, m), and its decrement, (N,).

    The decrement ``sqrt(g^T H^-1 g)`` says how far, in posterior standard deviations, any mean can be from the optimum,
    and half its square how many nats the objective is below it, as far as the objective is quadratic from here on.
    """

    mean: Any
    log_sd: Any
    decrement: Array


def cost(rows: Any) -> float:
    """Return how many multiplications a step takes; infinite where there is no factor, or W is not in one piece."""
    if not rows.on_host or rows.weights.chunks is not None:
        return np.inf
    n, m = rows.weights.shape
    return 4.0 * rows.n_observations * (n + m) * m * m


def newton_step(rows: Any, at: Any) -> NewtonStep:
    """Return the Newton step of each observation, by a factor where that is affordable."""
    return _factored_step(rows, at) if affordable(rows) else _iterated_step(rows, at)


def _factored_step(rows: Any, at: Any) -> NewtonStep:
    W = rows.weights.toarray().astype(np.float64)
    slopes = _row_slopes(rows, at) if rows.joint else None
    prior = rows.prior.precision.astype(np.float64)
    factor, found = None, []
    for k in range(len(at.gradient)):
        if factor is None or len(at.kappa) > 1:
            factor = _Factor(W, at.kappa[k].astype(np.float64), prior)
        own = None if slopes is None else (slopes[0][k], slopes[1][k])
        found.append(_Factored(rows, at, factor, k).solve(own))
    return NewtonStep(*map(np.array, zip(*found, strict=True)))


def _row_slopes(rows: Any, at: Any) -> tuple[Any, Any]:
    """Return f and h of the rows, (N, n), 0 where x is missing."""
    spread = rows.row_spread(at.q.sd)
    # The ellipsis makes an array of what an engine may have left with chunks of W.
    third, fourth = curvature_slopes(rows.row_data, at.eta[...], spread)
    if rows.objective == "elbo":
        return third, fourth
    return spread * third, at.kappa + spread**2 * fourth


def affordable(rows: Any) -> bool:
    """Return whether a factor is affordable."""
    return cost(rows) <= AFFORDABLE


def distance(rows: Any, at: Any, *, exactly: bool) -> Array:
    """Return how many posterior standard deviations a mean may be from the optimum, (N,).

    ``exactly``: by a factor where that is affordable, see ``NewtonStep``; and else by the prior's curvature.
    """
    if not (exactly and affordable(rows)):
        if rows.on_host:
            squared = rows.stacked.prior_variance(at.gradient.astype(np.float64))
        else:
            squared = host(form(at.gradient, 1 / rows.prior.precision))
        return np.sqrt(squared + rows.variance_norm(at) ** 2 * rows.size)
    parts = [newton_step(rows, at).decrement, _rounding_of_rows(rows, at)]
    if not rows.joint:
        excess = rows.precision(at) * at.q.sd.astype(np.float64) ** 2 - 1
        parts.append(np.sqrt(inner(excess, excess)))
    return np.sqrt(sum(part**2 for part in parts))


def _rounding_of_rows(rows: Any, at: Any) -> Array:
    """Return what rounding of the row means may hide of a decrement, (N,): units in the last place of their terms."""
    layer, unit = rows.layer, rows.rounding_unit
    terms = abs(layer.weights).forward(np.abs(at.q.mean)) + np.abs(layer.bias)
    return unit * np.sqrt(inner(at.kappa * terms, terms))


class _Factor(OrthogonalFactor):
    """The factor of ``[sqrt(kappa) W; diag(1 / sigma0)]``, with what the rows' own terms take."""

    def __init__(self, W: Array, kappa: Array, prior: Array) -> None:
        self.W, root = W, np.sqrt(kappa)
        self.seen = root > 0
        self.inverse = np.divide(1.0, root, out=np.zeros_like(kappa), where=self.seen)
        super().__init__(np.vstack([root[:, None] * W, np.diag(np.sqrt(prior))]))


class _Factored:
    """The system of one observation, by its factor."""

    def __init__(self, rows: Any, at: Any, factor: _Factor, k: int) -> None:
        def row(batch: Array) -> Array:
            return batch[min(k, len(batch) - 1)].astype(np.float64)

        prior = rows.prior.precision.astype(np.float64)
        self.factor, self.prior, self.sd = factor, prior, row(at.q.sd)
        self.paper = rows.objective == "fm"
        error, mean = row(at.error), row(at.q.mean)
        away = np.concatenate([factor.inverse * error, np.sqrt(prior) * (rows.prior.mean - mean)])
        self.right = factor.Q.T @ away
        if not factor.seen.all():
            # Rows whose curvature has underflowed still have a slope.
            unseen = ~factor.seen
            self.right += factor.solve_transposed(factor.W[unseen].T @ error[unseen])
        self.slope = 1.0 - self.sd**2 * (prior + row(rows.information(at)))

    def solve(self, slopes: tuple[Array, Array] | None) -> tuple[Array, Array, float]:
        """Return p, u and the decrement."""
        u, squared = 0.5 * self.slope, float(self.right @ self.right)
        right = self.right
        # From far away the second derivatives say little, and those of fast-growing rows lose all digits: there the
        # variances go to their fixed point.
        if slopes is not None and squared < FAR**2:
            u, B, slope = self._deviations(*slopes)
            right, squared = right - B @ u, squared + float(slope @ u)
        return self.factor.solve(right), u, np.sqrt(max(squared, 0.0))

    def _deviations(self, f: Array, h: Array) -> tuple[Array, Array, Array]:
        """Return u, B and what the means leave of the slope in u."""
        factor = self.factor
        V = np.abs(factor.W) * self.sd if self.paper else (factor.W * self.sd) ** 2
        tied = factor.inverse * f
        rows = np.vstack([tied[:, None] * V, np.zeros((len(factor.Q) - len(V), len(self.sd)))])
        B = factor.Q.T @ rows
        left = rows - factor.Q @ B
        slope = self.slope - B.T @ self.right
        schur = V.T @ ((h - tied**2)[:, None] * V) + left.T @ left
        # The first is that of straight variances, the second of straight deviations, in which the bounds are concave.
        safe = 1.0 + self.sd**2 * self.prior if self.paper else 2.0 - self.slope
        for diagonal in (safe + self.slope, safe):
            try:
                made = scipy.linalg.cho_factor(schur + np.diag(diagonal), lower=True, check_finite=False)
                return scipy.linalg.cho_solve(made, slope, check_finite=False), B, slope
            except (scipy.linalg.LinAlgError, ValueError):
                continue
        return slope / safe, B, slope


def _iterated_step(rows: Any, at: Any) -> NewtonStep:
    system = _Products(rows, at)
    first = dot(system.slope, system.slope / system.diagonal)
    step = conjugate_gradients(
        system.slope,
        system.product,
        lambda residual: residual / system.diagonal,
        lambda residual, squared: squared <= FORCING**2 * first,
        INNER,
    ).x
    m = rows.size
    promised = np.maximum(host(dot(system.slope, step))[:, 0].astype(np.float64), 0.0)
    return NewtonStep(step[:, :m], step[:, m:], np.sqrt(promised))


class _Products:
    """Slope and second derivatives in (p, u) of all observations, each (N, 2 m)."""

    def __init__(self, rows: Any, at: Any) -> None:
        self.xp = xp = array_api_compat.array_namespace(at.gradient)
        self.weights, self.prior, self.kappa = rows.weights, rows.prior.precision, at.kappa
        self.f, self.h = _row_slopes(rows, at)
        sd, precision = at.q.sd + 0 * at.gradient, rows.precision(at)
        paper = rows.objective == "fm"
        self.entries, self.scale = (abs(self.weights), sd) if paper else (self.weights.square(), sd**2)
        own = self.scale**2 * self.entries.square().adjoint(xp.maximum(self.h, xp.zeros_like(self.h)))
        self.safe = 1 + sd**2 * (self.prior if paper else xp.maximum(precision + 0 * sd, sd**-2.0))
        self.slope = xp.concat([at.gradient, 1 - sd**2 * precision], axis=1)
        exact = self.prior + rows.exact_information(at) + 0 * sd
        self.diagonal = xp.concat([exact, self.safe + own], axis=1)

    def product(self, direction: Any) -> tuple[Any, Any]:
        """Return the image of a direction, and the curvature along it."""
        m = direction.shape[1] // 2
        p, u = direction[:, :m], direction[:, m:]
        means, spreads = self.weights.forward(p), self.entries.forward(self.scale * u)
        of_means = self.weights.adjoint(self.kappa * means + self.f * spreads) + self.prior * p
        of_spreads = self.scale * self.entries.adjoint(self.f * means + self.h * spreads) + self.safe * u
        image = self.xp.concat([of_means, of_spreads], axis=1)
        return image, dot(direction, image)
