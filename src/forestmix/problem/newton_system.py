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

from forestmix.arrays import Array, host, inner
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
    W, prior = rows.weights.toarray().astype(np.float64), rows.prior.precision.astype(np.float64)
    batch = [at.kappa, at.q.mean, at.q.sd, at.error, rows.information(at)]
    batch += _row_slopes(rows, at) if rows.joint else ()
    count = len(at.gradient)
    rows_of = [np.broadcast_to(part[...], (count, part.shape[1])) for part in batch]
    factor, found = None, []
    for kappa, *own in zip(*rows_of, strict=True):
        if factor is None or len(at.kappa) > 1:
            factor = _Factor(W, kappa.astype(np.float64), prior, rows.prior.mean)
        found.append(factor.step(*(part.astype(np.float64) for part in own), paper=rows.objective == "fm"))
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


def distance(rows: Any, at: Any) -> Array:
    """Return by a factor how many posterior standard deviations a mean may be from the optimum, see ``NewtonStep``."""
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
    """The factor of ``[sqrt(kappa) W; diag(1 / sigma0)]``, and the steps of observations that share it."""

    def __init__(self, W: Array, kappa: Array, prior: Array, prior_mean: Array) -> None:
        self.W, self.prior, self.prior_mean, root = W, prior, prior_mean, np.sqrt(kappa)
        self.seen = root > 0
        self.inverse = np.divide(1.0, root, out=np.zeros_like(kappa), where=self.seen)
        super().__init__(np.vstack([root[:, None] * W, np.diag(np.sqrt(prior))]))

    def step(
        self, mean: Array, sd: Array, error: Array, information: Array, *slopes: Array, paper: bool
    ) -> tuple[Array, Array, float]:
        """Return p, u and the decrement of one observation; ``slopes`` are f and h where deviations move too."""
        right = self.Q.T @ np.concatenate([self.inverse * error, np.sqrt(self.prior) * (self.prior_mean - mean)])
        if not self.seen.all():
            # Rows whose curvature has underflowed still have a slope.
            unseen = ~self.seen
            right += self.whiten(self.W[unseen].T @ error[unseen])
        slope = 1.0 - sd**2 * (self.prior + information)
        u, squared = 0.5 * slope, float(right @ right)
        # From far away the second derivatives say little, and those of fast-growing rows lose all digits: there the
        # variances go to their fixed point.
        if slopes and squared < FAR**2:
            safe = 1.0 + sd**2 * self.prior if paper else 2.0 - slope
            V = np.abs(self.W) * sd if paper else (self.W * sd) ** 2
            schur, B = self._schur(V, *slopes)
            left = slope - B.T @ right
            u = _concave_solution(schur, left, safe, slope)
            right, squared = right - B @ u, squared + float(left @ u)
        return self.color(right), u, np.sqrt(max(squared, 0.0))

    def _schur(self, V: Array, f: Array, h: Array) -> tuple[Array, Array]:
        """Return the Schur complement of A but for its diagonal d, and B."""
        tied = self.inverse * f
        Z = np.vstack([tied[:, None] * V, np.zeros((len(self.Q) - len(V), V.shape[1]))])
        B = self.Q.T @ Z
        left = Z - self.Q @ B
        return V.T @ ((h - tied**2)[:, None] * V) + left.T @ left, B


def _concave_solution(schur: Array, left: Array, safe: Array, slope: Array) -> Array:
    """Return u, by the diagonal of straight variances, or by the safe one of deviations: in them bounds are concave."""
    for diagonal in (safe + slope, safe):
        try:
            made = scipy.linalg.cho_factor(schur + np.diag(diagonal), lower=True, check_finite=False)
            return scipy.linalg.cho_solve(made, left, check_finite=False)
        except (scipy.linalg.LinAlgError, ValueError):
            continue
    return left / safe


def _iterated_step(rows: Any, at: Any) -> NewtonStep:
    """Solve in (p, u) side by side, (N, 2 m), of all observations."""
    xp, weights, prior, m = array_api_compat.array_namespace(at.gradient), rows.weights, rows.prior.precision, rows.size
    f, h = _row_slopes(rows, at)
    sd, precision = at.q.sd + 0 * at.gradient, rows.precision(at)
    paper = rows.objective == "fm"
    entries, scale = (abs(weights), sd) if paper else (weights.square(), sd**2)
    own = scale**2 * entries.square().adjoint(xp.maximum(h, xp.zeros_like(h)))
    safe = 1 + sd**2 * (prior if paper else xp.maximum(precision + 0 * sd, sd**-2.0))
    slope = xp.concat([at.gradient, 1 - sd**2 * precision], axis=1)
    diagonal = xp.concat([prior + rows.exact_information(at) + 0 * sd, safe + own], axis=1)

    def product(direction: Any) -> tuple[Any, Any]:
        """Return the image of a direction, and the curvature along it."""
        p, u = direction[:, :m], direction[:, m:]
        means, spreads = weights.forward(p), entries.forward(scale * u)
        of_means = weights.adjoint(at.kappa * means + f * spreads) + prior * p
        of_spreads = scale * entries.adjoint(f * means + h * spreads) + safe * u
        image = xp.concat([of_means, of_spreads], axis=1)
        return image, dot(direction, image)

    goal = FORCING**2 * dot(slope, slope / diagonal)
    step = conjugate_gradients(
        slope, product, lambda residual: residual / diagonal, lambda _, squared: squared <= goal, INNER
    ).x
    promised = np.maximum(host(dot(slope, step))[:, 0].astype(np.float64), 0.0)
    return NewtonStep(step[:, :m], step[:, m:], np.sqrt(promised))
