"""Results of runs with a full covariance, and of models with unknown scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.clock import WorkClock
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.posterior.factor import fits_factor
from forestmix.posterior.full import MAX_ITER, FullFit, fit_full
from forestmix.posterior.integrate import component, fit_scales
from forestmix.posterior.joint import Joint, scale_names
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.result import Result, Status, Trace
from forestmix.posterior.scale_em import Expectation, fit_scale_mode


def joint_result(model: DEF, data: Observations, max_iter: int | None, run: Callable[[DEF, Any], Result]) -> Result:
    """Return the posterior with full covariance, integrated over unknown scales where there are any.

    ``run``: infers the factorised q at known scales, from the result of the last run or from ``None``. It serves where
    there are more latents than a factor can hold, to put unknown scales at their mode.
    """
    if len(model.layers) > 1 or not isinstance(model.prior.family, Gaussian):
        raise ArgumentError(
            "model must have one layer and a Gaussian prior for a full covariance and for unknown scales; got "
            f"{len(model.layers)} layers and {model.prior.family!r}. Give numbers by model.with_scales(values)."
        )
    model = model.on_host()
    with np.errstate(all="ignore"):
        if not model.unknown_scales:
            return full_result(model, data, max_iter)
        if fits_factor(model.layers[0].weights):
            return scales_result(model, data)
    return scale_mode_result(model, data, run)


def full_result(model: DEF, data: Observations, max_iter: int | None = None) -> Result:
    """Return the best Gaussian q with full covariance, as a result."""
    clock = WorkClock()
    fits = fit_full(model, data, max_iter=MAX_ITER if max_iter is None else max_iter)
    exact = model.layers[0].family.curvature_is_constant
    elbos = np.array([fit.elbo for fit in fits])
    evidence = (float(elbos[0]) if data.single else elbos) if exact else None
    joint = Joint((component(model, np.empty(0), fits),), np.ones(1), evidence, _factors(model, fits))
    steps = max(len(fit.trace) for fit in fits)
    # Observations that have ended stay where they are while others go on.
    objective = np.array([[*fit.trace, *[fit.elbo] * (steps - len(fit.trace))] for fit in fits]).T
    counts = np.array([len(fit.trace) - 1 for fit in fits])
    return _result(model, data, joint, objective, counts, np.array([fit.converged for fit in fits]), clock)


def _factors(model: DEF, fits: Sequence[FullFit]) -> tuple[Array, Array]:
    """Return means, and standard deviations of each latent with the others held, from the diagonal of the precision."""
    kappa = np.stack([fit.kappa for fit in fits])
    information = model.layers[0].weights.in_double().square().adjoint(kappa)
    return np.stack([fit.mean for fit in fits]), (
        model.prior.family.sd.astype(np.float64) ** -2.0 + information
    ) ** -0.5


def scales_result(model: DEF, data: Observations) -> Result:
    """Return the posterior of a model with unknown scales, which a batch shares, as a result.

    Its model has the scales of the heaviest node, and its objective is the ELBO there.
    """
    clock = WorkClock()
    (fit,) = fit_scales(model, data)
    best = int(np.argmax(fit.weights))
    joint = Joint(fit.components, fit.weights, None if np.isnan(fit.log_evidence) else fit.log_evidence)
    count = len(data.x)
    result = _result(
        model.with_scales(np.exp(fit.thetas[best])), data, joint, fit.elbos[best][None], np.zeros(count, int),
        np.full(count, fit.converged), clock,
    )  # fmt: skip
    return replace(result, scales=dict(zip(scale_names(model), fit.scales, strict=True)), note=fit.message)


def scale_mode_result(model: DEF, data: Observations, run: Callable[[DEF, Any], Result]) -> Result:
    """Return the factorised posterior at the mode of the unknown scales, by variational EM."""
    last: list[Result | None] = [None]

    def expect(known: DEF) -> Expectation:
        result = last[0] = run(known, last[0])
        return Expectation(np.atleast_2d(result.mean), np.atleast_2d(result.sd), float(np.sum(result.elbo)))

    mode = fit_scale_mode(model, data, expect)
    assert last[0] is not None
    return replace(last[0], scales=dict(zip(scale_names(model), mode.scales, strict=True)), note=mode.message)


def _result(
    model: DEF, data: Observations, joint: Joint, objective: Array, counts: Array, converged: Array, clock: WorkClock
) -> Result:
    """Return a result whose factors are the margins of the joint posterior; ``objective`` is (T, N)."""
    steps, single = len(objective), data.single
    mean, sd = joint.margins()
    status = np.array([Status.CONVERGED if one else Status.STALLED for one in converged], dtype=object)
    unknown = np.full(objective.shape, np.nan)
    trace = Trace(
        np.arange(steps), np.arange(steps), np.arange(steps, dtype=float), objective[:, 0] if single else objective,
        unknown[:, 0] if single else unknown, np.r_[np.full(steps - 1, np.nan), clock.seconds()],
    )  # fmt: skip

    def first(values: Array) -> Any:
        return values[0] if single else values

    return Result(
        layers=(LayerPosterior(GaussianFactors(mean, sd), single, model.dtype),),
        algorithm="full",
        objective_name="elbo",
        objective=float(objective[-1, 0]) if single else objective[-1],
        climbed="elbo",
        converged=bool(converged[0]) if single else converged,
        status=first(status),
        n_iter=int(counts[0]) if single else counts,
        trace=trace,
        model=model,
        data=data,
        joint=joint,
    )
