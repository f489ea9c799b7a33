"""Results of runs with a full covariance, and of models with unknown scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.inference.checkpoint import NoCheckpoint
from forestmix.inference.loop import Callback
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.posterior.columns import fits_factor
from forestmix.posterior.course import Course
from forestmix.posterior.each import EachJoint
from forestmix.posterior.full import MAX_ITER, FullFit, FullProblem
from forestmix.posterior.integrate import ScaleFit, component, fit_scales
from forestmix.posterior.joint import Joint, scale_names
from forestmix.posterior.journal import Expected, Journal, no_journal
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.result import Result, Status, Trace
from forestmix.posterior.scale_em import Expectation, fit_scale_mode

#: What to do about a model that neither is for.
GIVE = "Give numbers for its unknown scales, by model.with_scales(values) or Gaussian(sd=...)."
LEAVE = "Leave covariance at 'factorised'."
#: Said of a batch.
SHARED = "All observations share them (scales='shared')."
EACH = "Each observation has scales of its own (scales='each')."


def joint_result(
    model: DEF, data: Observations, max_iter: int | None, scales: str,
    run: Callable[[DEF, Any, int | None], Result], keeper: NoCheckpoint, callback: Callback | None = None,
) -> Result:  # fmt: skip
    """Return the posterior with full covariance, integrated over unknown scales where there are any.

    ``scales``: "shared" for one set of unknown scales for a whole batch, "each" for one set each; ``run``: infers the
    factorised q at known scales, from the result of the last run or from ``None``, in so many iterations. It serves
    where there are more latents than a factor can hold, to put unknown scales at their mode. ``keeper``: the checkpoint
    that steps are left in, and taken from. ``callback``: called after each step; of a model with unknown scales, after
    each value of ``L`` (``integrate.py``), which is its objective.
    """
    check_joint(model)
    model = model.on_host()
    factored = not model.unknown_scales or fits_factor(model.layers[0].weights)
    if not factored and scales == "each" and not data.single:
        raise ArgumentError(
            "scales must be 'shared' for a batch with more latents than a factor can hold; got 'each'. Infer the "
            "observations one by one."
        )
    journal = Journal(keeper, Course(callback, data.single, keeps=True))
    with np.errstate(all="ignore"):
        if not model.unknown_scales:
            result = full_result(model, data, max_iter, journal)
        elif not factored:
            result = scale_mode_result(model, data, run, journal)
        else:
            each = scales == "each" and not data.single
            result = each_result(model, data, journal) if each else scales_result(model, data, journal)
    journal.close()
    return result


def check_joint(model: DEF) -> None:
    """Raise if a model is not one that has a full covariance."""
    if len(model.layers) > 1 or not isinstance(model.prior.family, Gaussian):
        raise ArgumentError(
            "model must have one layer and a Gaussian prior for a full covariance and for unknown scales; got "
            f"{len(model.layers)} layer(s) and {model.prior.family!r}. {GIVE if model.unknown_scales else LEAVE}"
        )


def full_result(
    model: DEF, data: Observations, max_iter: int | None = None, journal: Journal | None = None
) -> Result:  # fmt: skip
    """Return the best Gaussian q with full covariance, as a result."""
    journal = journal or no_journal()
    problem = FullProblem(model, data)
    fits = problem.fit(model, max_iter=MAX_ITER if max_iter is None else max_iter, journal=journal)
    remainders = problem.remainders(model, fits)
    left_out = np.array([one.evidence for one in remainders] or np.zeros(len(fits)))
    evidence = np.array([fit.elbo for fit in fits]) + left_out
    joint = Joint(
        (component(model, np.empty(0), fits, remainders),), np.ones(1), float(evidence[0]) if data.single else evidence,
        _factors(model, fits),
    )  # fmt: skip
    steps = max(len(fit.trace) for fit in fits)
    # Observations that have ended stay where they are while others go on.
    objective = np.array([[*fit.trace, *[fit.elbo] * (steps - len(fit.trace))] for fit in fits]).T
    counts = np.array([len(fit.trace) - 1 for fit in fits])
    status = _status(fits)
    trace, elbos = _trace(objective, journal.course.clock.seconds()), np.array([fit.elbo for fit in fits])
    return _result(model, data, joint, trace, elbos, counts, status)


def _factors(model: DEF, fits: Sequence[FullFit]) -> tuple[Array, Array]:
    """Return means, and standard deviations of each latent with the others held, from the diagonal of the precision."""
    kappa = np.stack([fit.kappa for fit in fits])
    information = model.layers[0].weights.in_double().square().adjoint(kappa)
    return np.stack([fit.mean for fit in fits]), (
        model.prior.family.sd.astype(np.float64) ** -2.0 + information
    ) ** -0.5


def scales_result(model: DEF, data: Observations, journal: Journal | None = None) -> Result:
    """Return the posterior of a model with unknown scales, which a batch shares, as a result."""
    journal = journal or no_journal()
    (fit,) = fit_scales(model, data, journal=journal)
    return result_of_scales(model, data, fit, journal.course)


def result_of_scales(model: DEF, data: Observations, fit: ScaleFit, course: Course) -> Result:
    """Return the fit of a model with unknown scales, which a batch shares, as a result.

    Its model has the scales of the heaviest node, and its objective is the ELBO there. Its trace is that of the climb
    to the mode of log prior plus ELBO: the best value so far.
    """
    best, count = int(np.argmax(fit.weights)), len(data.x)
    joint = Joint(fit.components, fit.weights, None if np.isnan(fit.log_evidence) else fit.log_evidence)
    climbed = np.maximum.accumulate(course.objectives[: fit.climbed])
    trace = _trace(np.repeat(climbed[:, None], count, axis=1), np.array(course.seconds[: fit.climbed]))
    counts, known = np.full(count, fit.climbed - 1), model.with_scales(np.exp(fit.thetas[best]))
    result = _result(known, data, joint, trace, fit.elbos[best], counts, _status([fit] * count))
    note = fit.message if data.single else f"{fit.message} {SHARED}"
    return replace(result, scales=dict(zip(scale_names(model), fit.scales, strict=True)), note=note)


def each_result(model: DEF, data: Observations, journal: Journal | None = None) -> Result:
    """Return the posterior of a batch whose observations have unknown scales of their own, as a result.

    Its model has the geometric mean over observations of the scales of their heaviest nodes, and the objective is the
    ELBO of each observation at its own.
    """
    journal, names = journal or no_journal(), scale_names(model)
    fits = fit_scales(model, data, "each", journal=journal)
    best = [int(np.argmax(fit.weights)) for fit in fits]
    posteriors = []
    for number, (fit, k) in enumerate(zip(fits, best, strict=True)):
        part = data.take(np.array([number]))
        own = model.take_observations(np.array([number])).with_scales(np.exp(fit.thetas[k]))
        posteriors.append(Posterior(
            fit.components, fit.weights, own, Observations(part.x, part.observed, True), "full",
            scales=dict(zip(names, fit.scales, strict=True)),
            log_evidence=None if np.isnan(fit.log_evidence) else fit.log_evidence,
        ))  # fmt: skip
    typical = np.exp(np.mean([fit.thetas[k] for fit, k in zip(fits, best, strict=True)], axis=0))
    elbos = np.array([[fit.elbos[k][0] for fit, k in zip(fits, best, strict=True)]])
    joint = EachJoint(tuple(posteriors))
    trace, counts = _trace(elbos, journal.course.clock.seconds()), np.array([fit.climbed - 1 for fit in fits])
    result = _result(model.with_scales(typical), data, joint, trace, elbos[0], counts, _status(fits))
    return replace(result, scales=joint.scales(), note=f"{fits[0].message} {EACH}")


def scale_mode_result(
    model: DEF, data: Observations, run: Callable[[DEF, Any, int | None], Result], journal: Journal
) -> Result:  # fmt: skip
    """Return the factorised posterior at the mode of the unknown scales, by variational EM."""
    last: list[Result | None] = [None]

    def expect(known: DEF) -> Expectation:
        before = journal.expected()
        result = last[0] = run(known, last[0], None) if before is None else run(known, (before.mean, before.sd), 0)
        journal.note(Expected(np.asarray(result.mean), np.asarray(result.sd)))
        stopped = Status.STOPPED in np.atleast_1d(np.asarray(result.status, object))
        return Expectation(np.atleast_2d(result.mean), np.atleast_2d(result.sd), float(np.sum(result.elbo)), stopped)

    mode = fit_scale_mode(model, data, expect)
    assert last[0] is not None
    return replace(last[0], scales=dict(zip(scale_names(model), mode.scales, strict=True)), note=mode.message)


def _status(fits: Sequence[Any]) -> Array:
    """Return how each observation ended."""
    near = [Status.CONVERGED if fit.converged else Status.STALLED for fit in fits]
    ended = [Status.STOPPED if fit.stopped else one for fit, one in zip(fits, near, strict=True)]
    return np.array(ended, dtype=object)


def _trace(objective: Array, seconds: Any) -> Trace:
    """Return the trace of objectives (T, N), with the seconds of each, or of the last."""
    steps = len(objective)
    known = seconds if np.ndim(seconds) else np.r_[np.full(steps - 1, np.nan), seconds]
    counts = np.arange(steps)
    return Trace(counts, counts, counts.astype(float), objective, np.full(objective.shape, np.nan), known)


def _result(
    model: DEF, data: Observations, joint: Joint | EachJoint, trace: Trace, objective: Array, counts: Array,
    status: Array,
) -> Result:  # fmt: skip
    """Return a result whose factors are the margins of the joint posterior; objective, counts and status are (N,)."""
    single = data.single
    mean, sd = joint.margins()
    converged = status == Status.CONVERGED
    if single:
        trace = replace(trace, objective=trace.objective[:, 0], gradient_norm=trace.gradient_norm[:, 0])
    return Result(
        layers=(LayerPosterior(GaussianFactors(mean, sd), single, model.dtype),),
        algorithm="full",
        objective_name="elbo",
        objective=float(objective[0]) if single else objective,
        climbed="elbo",
        converged=bool(converged[0]) if single else converged,
        status=status[0] if single else status,
        n_iter=int(counts[0]) if single else counts,
        trace=trace,
        model=model,
        data=data,
        joint=joint,
    )
