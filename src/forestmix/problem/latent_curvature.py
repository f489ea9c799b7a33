"""Newton's equations in the means of latents of any family under Gaussian rows.

Every factor is ``q_j(y) ∝ p(y) exp(-H_j y^2 / 2 + h_j y)``, and in its mean the ELBO has the slope (docs/latents.md)::

    g_j = sum_i w_ij e_i + H_j mu_j - h_j          which is 0 at an optimum
    d mu_j = Var_j d h_j                           so the curvature is  1 / Var - H + W^T kappa W

In ``s = d mu / Std`` the matrix is ``I + Std (W^T kappa W - H) Std``: latents that are all but certain drop out of it
by themselves. A prior that is log-concave has ``Var_j <= 1 / H_j``, so that the ELBO is concave in the means; but where
there are fewer rows than latents it is nearly flat in many directions, and a multiple of the identity, or the prior's
precision, has to be added. Conjugate gradients stop where the curvature is not positive, as for other priors it may be.
"""

from __future__ import annotations

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.latents import Factors
from forestmix.problem.conjugate import conjugate_gradients, dot
from forestmix.problem.interfaces.base import Above
from forestmix.problem.interfaces.gaussian_rows import GaussianRows
from forestmix.weights.gram import precision_matrix

#: Inner iterations at most; an inner solve ends when the residual is this fraction of the slope.
INNER, FORCING, LEAST = 50, 0.1, 1e-6
#: Where conjugate gradients do not get there, a Cholesky factor does, for up to this many latents.
LARGEST = 500


def gradient(rows: GaussianRows, slope: Array, q: Factors, above: Above) -> Array:
    """Return ``g``, the slope of the ELBO in the means, from that of the rows, ``sum_i w_ij e_i``."""
    return slope - q.pull(above.family, above.eta, rows.information[0])


def image(rows: GaussianRows, step: Array) -> Array:
    """Return ``W^T kappa W step``."""
    weights = rows.layer.weights
    return weights.adjoint(rows.kappa * weights.forward(step)).astype(np.float64)


def solve(rows: GaussianRows, slope: Array, sd: Array, added: Array, forcing: float = FORCING) -> tuple[Array, int]:
    """Return the step ``d mu`` for a slope, with ``added`` to the curvature of each latent, and the passes it took.

    ``forcing`` is the part of the slope that may be left. Where there are few latents, 0 takes a factor, and the step
    is infinite where the curvature is not positive: that is a saddle.
    """
    right, diagonal = sd * slope, 1 + (added - rows.information[0]) * sd**2

    def product(direction: Array) -> tuple[Array, Array]:
        along = diagonal * direction + sd * image(rows, sd * direction)
        return along, dot(direction, along)

    goal = max(forcing, LEAST) ** 2 * dot(right, right)
    s, missed, passes = conjugate_gradients(
        right, product, lambda residual: residual, lambda residual, squared: squared <= goal, INNER
    )
    if slope.shape[1] <= LARGEST:
        for k in map(int, np.flatnonzero(missed | (forcing == 0))):
            otherwise = s[k] if forcing else np.full_like(s[k], np.inf)
            s[k] = _by_factor(rows, k, right[k], sd[k], diagonal[k], otherwise)
    return sd * s, passes


def _by_factor(rows: GaussianRows, k: int, right: Array, sd: Array, diagonal: Array, otherwise: Array) -> Array:
    """Return the solution for one observation; what it was before where the matrix is not positive."""
    kappa = rows.kappa[min(k, len(rows.kappa) - 1)]
    matrix = precision_matrix(rows.layer.weights, kappa, np.zeros(len(sd))) * sd * sd[:, None]
    matrix[np.diag_indices(len(sd))] += diagonal
    try:
        made = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return otherwise
    return scipy.linalg.cho_solve(made, right, check_finite=False)
