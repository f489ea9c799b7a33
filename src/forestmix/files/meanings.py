"""What each array of a file is, for people who open it with another program."""

from __future__ import annotations

#: By the last part of the array's name that is no number.
_MEANINGS = {
    "H": "precision that rows add to each factor",
    "_count": "number of draws behind the variances",
    "_cumulative": "posterior distribution function of the logarithm of a scale",
    "_density": "posterior density of the logarithm of a scale",
    "_draws": "draws of the latents around their mean, observations behind one another",
    "_moment": "mean squared conditional mean of each latent over the draws",
    "_theta": "logarithm of a scale, at which its density is given",
    "array": "weights W, rows by latents",
    "bias": "bias of each variable",
    "codes": "position of each row's category among the categories, -1 for none",
    "converged": "whether each observation converged",
    "data": "weights W, entries that are not zero",
    "gradient_norm": "relative norm of the gradient at each iteration",
    "h": "tilt of each factor",
    "indices": "weights W, column of each entry (row where stored by columns)",
    "indptr": "weights W, start of each row among the entries (column where stored by columns)",
    "iteration": "number of each iteration",
    "kappa": "expected curvature of each row, which defines the covariance",
    "kernels": "weights W as kernels: kernel, channel, row, column",
    "keys": "combinations of levels that occur",
    "known": "standard deviation of each variable where it is known",
    "location": "location of each factor",
    "log_table": "log probability of 0, 1, 2, ... under each factor",
    "logit": "log odds of each factor",
    "mean": "mean of each latent, observations by latents",
    "n_iter": "iterations of each observation",
    "noise": "noise standard deviation of each variable as a child of each tree",
    "objective": "objective that was climbed, in nats",
    "observed": "whether each entry of x is there, 1 or 0",
    "offset": "offset of each row",
    "parent_prior": "prior probability of each parent",
    "precision": "prior precision of each latent",
    "rate": "rate of each factor or latent",
    "response": "response of each row, NaN where it is to be predicted",
    "responsibilities": "probability of each parent, variables by trees",
    "rows": "number of each row in the table that was fitted",
    "scale": "prior standard deviation of each latent",
    "sd": "standard deviation of each variable",
    "seconds": "seconds since the start of the run",
    "slab_mean": "mean of each slab",
    "slab_sd": "standard deviation of each slab",
    "step": "parallel steps so far",
    "sweeps": "variable updates so far, divided by the number of latents",
    "trials": "number of trials of each row",
    "values": "values of a column of the table that was fitted",
    "weights": "weight of each component, row or variable",
    "which": "position of each variable's or observation's own among those that differ",
    "x": "observations, with 0 where one is missing",
}


def long_name(name: str) -> str:
    """Return what an array is, from its name in the tree."""
    parts = [part for part in name.split(".") if not part.isdigit()]
    return _MEANINGS.get(parts[-1], f"{parts[-1].strip('_').replace('_', ' ')}, see docs/files.md")
