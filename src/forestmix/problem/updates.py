"""The paper's update of all latents at once, and the steps on the way to it, in arrays of any library."""

from __future__ import annotations

from typing import Any

import array_api_compat


def forest_mixture_update(mean: Any, gradient: Any, prior_precision: Any, D: Any, information: Any) -> tuple[Any, Any]:
    """Return the means and standard deviations that maximise the surrogate of every latent (paper, Theorem 2).

    With ``epsilon`` the best auxiliary parameters, ``kappa_i = E a''`` and ``gradient`` the slope in the means::

        D_j         = sum_i kappa_i w_ij^2 / epsilon_ij  =  (1 / sigma_j) sum_i |w_ij| s_i kappa_i
        mu_j        <- mu_j + gradient_j / (1 / sigma0_j^2 + D_j)
        1/sigma_j^2 <- 1 / sigma0_j^2 + information_j

    ``information`` is D for the paper's bound, and ``sum_i w_ij^2 kappa_i`` for the ELBO. For Gaussian rows this is the
    exact maximiser of the bound; for others a step towards it, which is halved where the objective would fall.
    """
    return mean + gradient / (prior_precision + D), 1 / (prior_precision + information) ** 0.5


def part_way(old: Any, new: Any, share: Any) -> Any:
    """Return Gaussian factors the fraction ``share`` of the way, (N, 1), in the means and in the precisions."""
    xp, device = array_api_compat.array_namespace(old.mean), array_api_compat.device(old.mean)
    share = xp.asarray(share, dtype=old.mean.dtype, device=device)
    precision = (1 - share) * old.sd**-2 + share * new.sd**-2
    return type(old)(old.mean + share * (new.mean - old.mean), precision**-0.5)
